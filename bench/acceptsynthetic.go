package bench

import (
	"cmp"
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

const (
	evenPrompts = 8    // that must agree before acceptance is called synthetic
	evenSteps   = 16   // of an answer: of shorter ones the last, cut step is too large a part
	evenChance  = 1e-4 // that a draft of the same accept length on every text agrees so well
)

// syntheticAcceptance says why an arm's acceptance is not the draft's own, "" when nothing
// speaks for that: the server says so, or the prompts' accept lengths differ by much less
// than even a draft of one accept length would by chance. All drafts accepted and none
// accepted are the same for every prompt too, and are no sign of it.
func syntheticAcceptance(l *Log, arm string) string {
	s := newSide(l, Arm{Name: arm})
	var steps float64
	if s.info != nil {
		if fake := s.info.Info.Speculation.Synthetic; fake != "" {
			return "the server fakes acceptance: " + fake
		}
		steps = float64(s.info.Info.Speculation.Steps)
	}
	t, _ := byAnswer(s.all(l.Plan.Levels))
	if t == nil {
		return ""
	}
	mean := t.value() - 1
	positions := cmp.Or(over(t.sum.Drafted, t.sum.Steps), steps, math.Ceil(mean))
	// That of so many independent drafts a step: drafts that count only after those
	// before them were accepted vary more.
	variance := mean * (1 - mean/positions)
	if !(variance > 0.02*mean) {
		return ""
	}
	asked := map[turn]bool{} // other runs of a question repeat its acceptance
	prompts := map[string]bool{}
	var square float64
	for _, a := range t.answers {
		if asked[a.turn] || a.steps < evenSteps {
			continue
		}
		asked[a.turn], prompts[a.prompt] = true, true
		d := a.accepted/a.steps - mean
		square += a.steps * d * d / variance
	}
	if len(prompts) < evenPrompts || (distuv.ChiSquared{K: float64(len(asked) - 1)}).CDF(square) > evenChance {
		return ""
	}
	return fmt.Sprintf("the accept length is %.2f on each of %d prompts: no text is accepted so evenly", 1+mean, len(prompts))
}
