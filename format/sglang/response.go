package sglang

import "hsx/format"

const (
	keyStates     = "hidden_states"
	keyOutputIDs  = "output_ids"
	keyMeta       = "meta_info"
	keyPrompt     = "prompt_tokens"
	keyCompletion = "completion_tokens"
	keyCached     = "cached_tokens"
)

// Response is one answer of a server.
type Response struct {
	ID        string  // the server's own, "" when it gave none
	OutputIDs []int64 // the new tokens, nil when it gave none

	// What the server counted, 0 where it does not say.
	PromptTokens, CompletionTokens, CachedTokens int

	// States is float32 [rows, W] in the order of the file: the rows of the prompt,
	// then one for each new token but the last, which has none. Its memory is its own.
	States *format.Tensor
}

// DecodeResponses reads an answer, or the list of answers to a list of prompts. Each
// has to hold hidden states, with a row for every token but the last where the
// server counted them: a prefix that came from a cache has no rows, and rows that
// are missing shift all others.
//
// Its error is a *[format.DecodeError]; its Offset is a place in data.
func DecodeResponses(data []byte) ([]Response, error) {
	d, err := newDecoder(data)
	if err != nil {
		return nil, err
	}
	if d.peek() == '{' {
		r, err := d.response()
		if err != nil {
			return nil, err
		}
		return []Response{r}, nil
	}
	if d.peek() != '[' {
		return nil, d.refuse(format.ErrUnsupported, d.pos, "", "file is %s, want an answer or a list of answers", d.kind())
	}
	var all []Response
	for i := range d.elements() {
		d.item = i
		if d.peek() != '{' {
			return nil, d.refuse(format.ErrUnsupported, d.pos, "", "element is %s, want an object", d.kind())
		}
		r, err := d.response()
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, d.refuse(format.ErrUnsupported, 0, "", "file is an empty list, want at least one answer")
	}
	return all, nil
}

// counts are what meta_info says of the rows to expect.
type counts struct {
	prompt, completion bool // known
	at                 int  // where hidden_states begins
}

func (d *decoder) response() (r Response, err error) {
	start := d.pos
	var c counts
	for key := range d.members() {
		switch {
		case key == keyOutputIDs && d.peek() != 'n':
			r.OutputIDs, err = d.integers(key)
		case key == keyMeta && d.peek() == '{':
			err = d.meta(&r, &c)
		default:
			d.skip()
		}
		if err != nil {
			return r, err
		}
	}
	if r.States == nil {
		return r, d.refuse(format.ErrUnsupported, start, keyStates, "answer has no meta_info.hidden_states: start the server with --enable-return-hidden-states and ask with return_hidden_states")
	}
	return r, d.checkRows(&r, c)
}

func (d *decoder) meta(r *Response, c *counts) (err error) {
	for key := range d.members() {
		switch key {
		case "id":
			if d.peek() == '"' {
				r.ID = d.text()
			} else {
				d.skip()
			}
		case keyPrompt:
			r.PromptTokens, c.prompt, err = d.count(key)
		case keyCompletion:
			r.CompletionTokens, c.completion, err = d.count(key)
		case keyCached:
			r.CachedTokens, _, err = d.count(key)
		case keyStates:
			c.at = d.pos
			switch {
			case d.peek() == 'n':
				d.skip()
			case r.States != nil:
				err = d.refuse(format.ErrCorrupt, d.pos, key, "hidden_states is there twice")
			default:
				r.States, err = d.states()
			}
		default:
			d.skip()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// checkRows compares the rows with what the server counted. The last new token has
// no row, for nothing was computed on it; a server that made none has a row for all
// of the prompt.
func (d *decoder) checkRows(r *Response, c counts) error {
	if !c.prompt || !c.completion {
		return nil
	}
	got, want := int(r.States.Shape[0]), r.PromptTokens+max(r.CompletionTokens, 1)-1
	if got == want {
		return nil
	}
	cause := "a prefix cache hit or chunked prefill drops rows, so serve with --disable-radix-cache --chunked-prefill-size -1"
	if r.CachedTokens > 0 {
		cause = "the prefix cache held cached_tokens tokens, which have no rows, so serve with --disable-radix-cache"
	}
	return d.refuse(format.ErrCorrupt, c.at, keyStates, "hidden_states has %d rows, want %d for prompt_tokens %d and completion_tokens %d (cached_tokens %d): %s",
		got, want, r.PromptTokens, r.CompletionTokens, r.CachedTokens, cause)
}
