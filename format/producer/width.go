package producer

import (
	"errors"
	"fmt"

	"hsx/format"
)

// content is what a tensor holds whose name does not say it.
type content uint8

const (
	finalOnly    content = iota
	auxOnly              // aux states side by side
	auxThenFinal         // the same, and the final after them
)

// decide says what a tensor of rows of w elements holds, from what the user says:
// the target's hidden size, the layers, the final state. because says in one clause what
// decided.
func decide(key string, w int, f *Facts) (c content, because string, err error) {
	h, n := f.Target.HiddenSize, len(f.Layers)
	if h > 0 {
		return decideBySize(key, w, h, n, f.Final)
	}
	switch {
	case n > 0 && f.Final.there():
		if w%(n+1) != 0 {
			return 0, "", unsupported(key, "is %d wide, not a multiple of %d: the %d layers named and the final", w, n+1, n)
		}
		return auxThenFinal, fmt.Sprintf("%s is %d wide: the %d layers named and the final", key, w, n), nil
	case n > 0:
		if w%n != 0 {
			return 0, "", unsupported(key, "is %d wide, not a multiple of the %d layers named", w, n)
		}
		return auxOnly, fmt.Sprintf("%s is %d wide: the %d layers named", key, w, n), nil
	case f.Final.there():
		return finalOnly, "the user says that there is a final", nil
	case f.Final == FinalNone:
		return 0, "", unsupported(key, "is %d wide, and nothing says how many aux states that is: name the layers (--layers) or the target (--target)", w)
	}
	return 0, "", &AmbiguousError{
		Candidates: []string{fmt.Sprintf("one final state (%s is %d wide)", key, w), "aux states side by side"},
		Decides:    "the target's config (--target), the layers (--layers) or --final",
	}
}

func decideBySize(key string, w, h, n int, final Final) (c content, because string, err error) {
	if w%h != 0 {
		return 0, "", unsupported(key, "is %d wide, not a multiple of the target's hidden size %d", w, h)
	}
	k := w / h
	because = fmt.Sprintf("%s is %d × the target's hidden size %d wide", key, k, h)
	switch {
	case n == 0 && k == 1 && final != FinalNone:
		return finalOnly, because, nil
	case n == 0 && k > 1 && final.there():
		return 0, "", &AmbiguousError{
			Candidates: []string{fmt.Sprintf("%d aux states", k), fmt.Sprintf("%d aux states and the final", k-1)},
			Decides:    "the layers (--layers)",
		}
	case n == 0, n == k && !final.there():
		return auxOnly, because, nil
	case n == k-1 && final.there():
		return auxThenFinal, because, nil
	case n == k:
		return 0, "", unsupported(key, "is %d wide: %d states of hidden size %d, all %d of them named as layers, so none is left for the final that --final says is there", w, k, h, n)
	case n == k-1:
		return 0, "", unsupported(key, "is %d wide: %d states of hidden size %d, but %d layers are named (if the last is the final, --final says so)", w, k, h, n)
	}
	return 0, "", unsupported(key, "is %d wide: %d states of hidden size %d, but %d layers are named", w, k, h, n)
}

// decideOr is decide for a layout whose tensor is the final by habit: only a width
// that three states could have is in doubt.
func decideOr(key string, w int, f *Facts) (c content, because string, err error) {
	const eagle3 = 3
	c, because, err = decide(key, w, f)
	if ae, ok := errors.AsType[*AmbiguousError](err); ok && f.Final == FinalUnsaid && f.Target.HiddenSize == 0 {
		if w%eagle3 != 0 {
			return finalOnly, fmt.Sprintf("%s is %d wide, no multiple of 3: the final", key, w), nil
		}
		ae.Candidates = []string{
			fmt.Sprintf("eagle (a final state %d wide)", w),
			fmt.Sprintf("aux states alone (3 × %d)", w/eagle3),
		}
	}
	return c, because, err
}

// split cuts concatenated aux states into one block per layer.
func (m *Match) split(aux, final piece) ([]piece, error) {
	h, whose, err := m.hiddenSize(aux, final)
	if err != nil {
		return nil, err
	}
	w, n := aux.rows.Width, len(m.Layers)
	if w%h != 0 {
		return nil, unsupported(aux.key, "is %d wide, not a multiple of %s %d", w, whose, h)
	}
	if n > 0 && w/h != n {
		return nil, unsupported(aux.key, "is %d wide: %d states of hidden size %d, but %d layers are named (width %d)", w, w/h, h, n, n*h)
	}
	if w/h > mostStates {
		return nil, tooMany(aux.key, int64(w/h))
	}
	blocks := make([]piece, w/h)
	for i := range blocks {
		blocks[i] = piece{aux.key, columns(aux.rows, i*h, h)}
	}
	return blocks, nil
}

// hiddenSize is H, and a noun for where it comes from. final may be zero.
func (m *Match) hiddenSize(aux, final piece) (h int, whose string, err error) {
	h, whose = m.facts.Target.HiddenSize, "the target's hidden size"
	if am := m.dump.Siblings.Automodel; am != nil && m.layout.name == "automodel" && am.AuxHiddenDim > 0 && am.AuxHiddenDim != aux.rows.Width {
		return 0, "", unsupported(aux.key, "is %d wide, but manifest.json says aux_hidden_dim %d", aux.rows.Width, am.AuxHiddenDim)
	}
	if h == 0 && final.key != "" {
		return final.rows.Width, "the width of " + final.key + ",", nil
	}
	if h > 0 {
		return h, whose, nil
	}
	w, n := aux.rows.Width, len(m.Layers)
	if n == 0 {
		return 0, "", unsupported(aux.key, "is %d wide, and nothing says how many states that is: name the layers (--layers) or the target (--target)", w)
	}
	if w%n != 0 {
		return 0, "", unsupported(aux.key, "is %d wide, not a multiple of the %d layers named", w, n)
	}
	return w / n, "the hidden size", nil
}

// checkWidth refuses a state that is not as wide as the target, or as data_config.json
// says that the target is.
func (m *Match) checkWidth(p piece) error {
	if h := m.facts.Target.HiddenSize; h > 0 && p.rows.Width != h {
		return unsupported(p.key, "is %d wide, want the target's hidden size %d", p.rows.Width, h)
	}
	if v1 := m.dump.Siblings.V1; v1 != nil && m.layout.name == "speculators-v1" && v1.HiddenSize > 0 && p.rows.Width != v1.HiddenSize {
		return unsupported(p.key, "is %d wide, but data_config.json says hidden_size %d", p.rows.Width, v1.HiddenSize)
	}
	return nil
}

// piece is one state with the key of the tensor that it lies in.
type piece struct {
	key  string
	rows format.Rows
}
