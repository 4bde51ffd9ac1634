package producer

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"hsx/format"
)

func arrays() []layout {
	const key = "hidden_state"
	return []layout{{
		name: "arrays", title: "plain arrays", numbering: "layer_<k> is the output of layer k, layer_-1 the embedding", from: Arrays,
		gather: gather,
		fits:   func(*view) (string, bool, error) { return "the names of the arrays", true, nil },
	}, {
		name: "arrays", title: "aux states under the name that EAGLE gives the final", numbering: postNumbers,
		ids: "input_ids", mask: "loss_mask", bare: key, absent: []string{"aux_hidden_state"},
		fits: func(v *view) (string, bool, error) {
			c, because, err := byWidth(v, key)
			return because, c != finalOnly, err
		},
	}}
}

// The columns that a name can stand for beside layer_<k>.
const (
	idsColumn       = "input_ids"
	maskColumn      = "loss_mask"
	attentionColumn = "attention_mask"
	finalColumn     = "final"
	auxColumn       = "aux"  // side by side, or one per slot
	bareColumn      = "bare" // aux or final
)

// columnOf is the column that a name stands for without a mapping, "" for none.
func columnOf(key string) string {
	switch key {
	case "input_ids", "token_ids", "tokens":
		return idsColumn
	case "loss_mask":
		return maskColumn
	case "attention_mask":
		return attentionColumn
	case "aux_hidden_states", "aux_hidden_state":
		return auxColumn
	case "final", "last_hidden_states", "last_hidden_state", "target_hiddens", "target_last_hidden_states":
		return finalColumn
	case "hidden_states", "hidden_state":
		return bareColumn
	}
	if _, ok := layerOf(key); ok {
		return key
	}
	return ""
}

// layerOf reads a column name: "layer_30".
func layerOf(column string) (format.Layer, bool) {
	digits, ok := strings.CutPrefix(column, "layer_")
	k, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || k < int64(format.Embedding) || strconv.FormatInt(k, 10) != digits {
		return 0, false
	}
	return format.Layer(k), true
}

// columnSet is one sample's tensors by column.
type columnSet map[string]field

func (c columnSet) put(column string, f field) error {
	if had, ok := c[column]; ok {
		return &AmbiguousError{
			Candidates: []string{label(had.key) + " as " + column, label(f.key) + " as " + column},
			Decides:    "mapping one of them (--map)",
		}
	}
	c[column] = f
	return nil
}

// gather makes the parts of a record of arrays: by its mapping, else by its names.
func gather(v *view) ([]parts, error) {
	sets, err := mapped(v)
	if err != nil {
		return nil, err
	}
	if len(sets) > 1 {
		out := make([]parts, len(sets))
		for i, c := range sets {
			if out[i], err = c.parts(); err != nil {
				out[i] = parts{err: err}
			}
		}
		return out, nil
	}
	c := columnSet{}
	taken := make(map[string]bool)
	for _, set := range sets {
		c = set
		for _, f := range set {
			taken[f.key] = true
		}
	}
	for _, f := range v.rec.Fields {
		t, ok := f.Value.(*format.Tensor)
		if !ok || t == nil || taken[f.Key] {
			continue
		}
		column := columnOf(f.Key)
		switch {
		case column != "":
			if err := c.put(column, field{f.Key, t}); err != nil {
				return nil, err
			}
		case len(sets) == 0 && len(t.Shape) >= 2:
			// It may be a state; leaving it out in silence would lose one.
			return nil, &UnknownError{Keys: v.rec.Keys(), Reason: "nothing says what " + label(f.Key) + " is, and --map can"}
		}
	}
	p, err := c.parts()
	if err != nil {
		if _, lacks := errors.AsType[*FieldError](err); lacks {
			err = &UnknownError{Keys: v.rec.Keys(), Reason: err.Error()}
		}
		return nil, err
	}
	return []parts{p}, nil
}

// parts settles what aux and bare tensors are among the others.
func (c columnSet) parts() (parts, error) {
	p := parts{
		ids: c[idsColumn], mask: c[maskColumn], attention: c[attentionColumn],
		aux: c[auxColumn], bare: c[bareColumn], final: c[finalColumn], maybeSlotted: true,
	}
	for column := range c {
		if k, ok := layerOf(column); ok {
			p.layers = append(p.layers, k)
		}
	}
	// By layer, so that the order of a directory does not matter.
	slices.Sort(p.layers)
	for _, k := range p.layers {
		p.named = append(p.named, c[format.State{Role: format.RoleLayer, Layer: k}.Column()])
	}
	if p.bare.t != nil {
		switch hasAux := p.aux.t != nil || len(p.named) > 0; {
		case hasAux && p.final.t != nil:
			return parts{}, unsupported(p.bare.key, "is neither the aux states nor the final, which other tensors are")
		case hasAux:
			p.final, p.bare = p.bare, field{}
		case p.final.t != nil:
			p.aux, p.bare = p.bare, field{}
		}
	}
	switch {
	case p.ids.t == nil:
		return parts{}, unsupported("", "no tensor holds the token ids (input_ids)")
	case p.aux.t != nil && len(p.named) > 0:
		return parts{}, unsupported(p.aux.key, "stands beside %s: want the aux states in one tensor or one per layer, not both", label(p.named[0].key))
	case p.aux.t == nil && p.bare.t == nil && p.final.t == nil && len(p.named) == 0:
		return parts{}, unsupported("", "no tensor holds states")
	}
	return p, nil
}
