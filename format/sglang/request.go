package sglang

import "hsx/format"

const keyInputIDs = "input_ids"

// Request is what a client asked of /generate.
type Request struct {
	InputIDs           [][]int64 // one list for each prompt, nil when Text is true
	ReturnHiddenStates bool      // for all prompts
	Text               bool      // the prompts were text, so their ids are not known
}

// DecodeRequest reads a request of one prompt or of a list of prompts.
//
// Its error is a *[format.DecodeError]; its Offset is a place in data.
func DecodeRequest(data []byte) (*Request, error) {
	d, err := newDecoder(data)
	if err != nil {
		return nil, err
	}
	if d.peek() != '{' {
		return nil, d.refuse(format.ErrUnsupported, d.pos, "", "file is %s, want a request", d.kind())
	}
	q := &Request{}
	text := false
	for key := range d.members() {
		switch {
		case d.peek() == 'n':
			d.skip()
		case key == keyInputIDs:
			q.InputIDs, err = d.prompts()
		case key == "return_hidden_states":
			q.ReturnHiddenStates, err = d.all(key)
		default:
			text = text || key == "text"
			d.skip()
		}
		if err != nil {
			return nil, err
		}
	}
	if q.Text = text && q.InputIDs == nil; !q.Text && q.InputIDs == nil {
		return nil, d.refuse(format.ErrUnsupported, 0, keyInputIDs, "request has neither input_ids nor text")
	}
	return q, nil
}

// prompts reads input_ids: a list of ids, or a list of such lists.
func (d *decoder) prompts() ([][]int64, error) {
	at := d.pos
	if d.depth() < 2 {
		ids, err := d.integers(keyInputIDs)
		if err == nil && len(ids) == 0 {
			err = d.refuse(format.ErrCorrupt, at, keyInputIDs, "input_ids is empty, want at least one token")
		}
		if err != nil {
			return nil, err
		}
		return [][]int64{ids}, nil
	}
	var all [][]int64
	for i := range d.elements() {
		at := d.pos
		ids, err := d.integers(keyInputIDs)
		if err == nil && len(ids) == 0 {
			err = d.refuse(format.ErrCorrupt, at, keyInputIDs, "prompt %d of input_ids is empty, want at least one token", i)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, ids)
	}
	return all, nil
}

// all reads a boolean, or a list of one for each prompt, which is true when all are.
func (d *decoder) all(key string) (bool, error) {
	if d.peek() != '[' {
		return d.boolean(key)
	}
	every := true
	for range d.elements() {
		v, err := d.boolean(key)
		if err != nil {
			return false, err
		}
		every = every && v
	}
	return every, nil
}

func (d *decoder) boolean(key string) (bool, error) {
	if k := d.kind(); k != "a boolean" {
		return false, d.refuse(format.ErrCorrupt, d.pos, key, "%s is %s, want true or false", key, k)
	}
	return string(d.scalar()) == "true", nil
}
