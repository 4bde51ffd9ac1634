package producer

import (
	"slices"

	"hsx/format"
)

// chosen are the places in a layout of the states to emit.
type chosen struct {
	aux   []int
	final int // -1 when there is none, or the files hold none
}

// choose picks the states, or says why the reader could not take them.
func (t *TargetDescription) choose(l format.Layout, o format.Origin, opt EmitOptions) (chosen, error) {
	c := chosen{final: -1}
	if o.Shifted {
		return c, unsupported("input_ids", "are stored one position to the left of the states (%s), and the first token is lost", o.Producer)
	}
	var captured format.Layers
	for i, s := range l.States {
		switch s.Role {
		case format.RoleBlock:
			return c, unsupported(s.Column(), "is of an unknown layer: ingest again and name the layers (--layers)")
		case format.RoleFinal:
			if t.Final != nil {
				c.final = i
			}
		case format.RoleLayer:
			captured = append(captured, s.Layer)
			if opt.Layers == nil && s.Layer != format.Embedding || slices.Contains(opt.Layers, s.Layer) {
				c.aux = append(c.aux, i)
			}
		}
	}
	for _, k := range opt.Layers {
		if !slices.Contains(captured, k) {
			return c, unsupported("", "%s was not captured: the samples hold %s", k, captured)
		}
	}
	if err := t.checkAux(l, c, captured); err != nil {
		return c, err
	}
	return c, t.checkFinal(l, c)
}

// checkAux reports aux states that the reader could not take.
func (t *TargetDescription) checkAux(l format.Layout, c chosen, captured format.Layers) error {
	joined := c.aux // the states that share a tensor, and so a type
	switch {
	case t.has(partStack) && c.final >= 0:
		joined = append(slices.Clone(c.aux), c.final)
	case t.has(partEach):
		joined = nil
		if len(c.aux) == 0 && c.final < 0 {
			return unsupported("", "samples hold no state but the embedding, which is taken when it is asked for (--layers)")
		}
	}
	switch n := len(c.aux); {
	case n == 0 && !t.has(partEach):
		return unsupported("", "%s needs aux layers, and the samples hold %s (the embedding is one when it is asked for: --layers)", t.Name, captured)
	case t.Layers > 0 && n != t.Layers:
		return unsupported("", "%s wants %d layers, not %d: choose among %s (--layers)", t.Name, t.Layers, n, captured)
	}
	for _, i := range joined {
		if first := l.States[joined[0]]; l.States[i].DType != first.DType {
			return unsupported(l.States[i].Column(), "is %s, %s is %s: %s wants them in one tensor", l.States[i].DType, first.Column(), first.DType, t.Name)
		}
	}
	return nil
}

// checkFinal reports a final that is missing, or in a form that the reader does not
// take.
func (t *TargetDescription) checkFinal(l format.Layout, c chosen) error {
	if c.final < 0 {
		if t.NeedFinal {
			return unsupported(finalColumn, "is missing, and %s needs it", t.Name)
		}
		return nil
	}
	norm := l.States[c.final].Norm
	switch {
	case slices.Contains(t.Final, norm):
		return nil
	case norm == format.NormUnknown:
		return unsupported(finalColumn, "is of unknown norm state, and %s wants %s: ingest again and say which it is (--final)", t.Name, t.Final[0])
	case norm == format.NormPre:
		return unsupported(finalColumn, "is before the norm, and %s wants it after: that needs the weight of the final norm (--target)", t.Name)
	}
	return unsupported(finalColumn, "is after the norm, and %s wants it before: nothing undoes the norm, the RMS of each row is lost", t.Name)
}

func (t *TargetDescription) has(p part) bool {
	return slices.ContainsFunc(t.slots, func(s slot) bool { return s.part == p })
}
