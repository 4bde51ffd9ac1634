package producer

import (
	"fmt"
	"strings"

	"hsx/format"
)

// Mapping says which tensors hold a column: those whose name, or file name, matches
// Glob. A glob holds at most one star, which stands for any text. When a glob matches
// several names, what the star stands for tells the samples apart.
type Mapping struct {
	Column string // layer_<k>, final, input_ids, loss_mask or attention_mask
	Glob   string
}

// ParseMapping reads "layer_2=*.aux0.npy".
func ParseMapping(s string) (Mapping, error) {
	column, glob, ok := strings.Cut(s, "=")
	if !ok || glob == "" {
		return Mapping{}, fmt.Errorf("mapping %q is not column=name, such as layer_2=*.aux0.npy", s)
	}
	switch column {
	case finalColumn, idsColumn, maskColumn, attentionColumn:
	default:
		if _, isLayer := layerOf(column); !isLayer {
			return Mapping{}, fmt.Errorf("mapping %q is for column %q, want layer_<k>, final, input_ids, loss_mask or attention_mask", s, column)
		}
	}
	if n := strings.Count(glob, "*"); n > 1 {
		return Mapping{}, fmt.Errorf("mapping %q has %d stars, want at most one", s, n)
	}
	return Mapping{Column: column, Glob: glob}, nil
}

// String is the form that [ParseMapping] reads.
func (m Mapping) String() string { return m.Column + "=" + m.Glob }

// Match reports whether the mapping is for a name, and what its star stands for.
// Names of arrays come without the suffix of their file.
func (m Mapping) Match(name string) (star string, ok bool) {
	glob, name := strings.TrimSuffix(m.Glob, ".npy"), strings.TrimSuffix(name, ".npy")
	before, after, wild := strings.Cut(glob, "*")
	if !wild {
		return "", name == glob
	}
	if len(name) < len(before)+len(after) || !strings.HasPrefix(name, before) || !strings.HasSuffix(name, after) {
		return "", false
	}
	return name[len(before) : len(name)-len(after)], true
}

// mapped applies the user's mappings: one set for each sample they tell apart, in
// the order of the record. A set is complete only if it is not the only one.
func mapped(v *view) ([]columnSet, error) {
	if len(v.facts.Map) == 0 {
		return nil, nil
	}
	type hit struct {
		column, star string
		field        field
	}
	var hits []hit
	several := false
	for _, m := range v.facts.Map {
		n := 0
		for _, f := range v.rec.Fields {
			star, ok := m.Match(f.Key)
			t, isTensor := f.Value.(*format.Tensor)
			if !ok || !isTensor || t == nil {
				continue
			}
			hits = append(hits, hit{m.Column, star, field{f.Key, t}})
			n++
		}
		if n == 0 {
			return nil, &UnknownError{Keys: v.rec.Keys(), Reason: "--map " + m.String() + " matches none of the names"}
		}
		several = several || n > 1
	}
	var sets []columnSet
	place := make(map[string]int)
	for _, h := range hits {
		star := h.star
		if !several {
			star = "" // one sample, however its tensors are called
		}
		i, ok := place[star]
		if !ok {
			i = len(sets)
			place[star] = i
			sets = append(sets, columnSet{})
		}
		if err := sets[i].put(h.column, h.field); err != nil {
			return nil, err
		}
	}
	return sets, nil
}
