package bench

import (
	"fmt"

	"hsx/bench/server"
	"hsx/bench/stats"
)

// The outcomes of a gate. Of several reasons the worst decides: void, then not met, then
// inconclusive.
const (
	GateMet          = "met"
	GateNotMet       = "not met"
	GateInconclusive = "inconclusive"
	GateVoid         = "void"
)

// gate holds the arm that the verdict is on against what was asked, under the first load.
func (a *analysis) gate(r *Report) *GateResult {
	if a.j.Gate == nil {
		return nil
	}
	g := &GateResult{Gate: *a.j.Gate, Outcome: GateMet, Reasons: []string{}}
	if r.Verdict.Outcome == Void {
		g.Outcome, g.Reasons = GateVoid, append(g.Reasons, r.Verdict.Void...)
		return g
	}
	s, level := a.judged(r), a.levels[0]
	switch c := r.Levels[0].compared(s.Name); {
	case g.MinSpeedup == 0 && g.MinAcceptLength > 0:
	case c == nil:
		g.reason(GateVoid, "no baseline to compare with")
	case g.MinSpeedup > 0:
		g.atLeast(fmt.Sprintf("speedup at %s", level), c.Speedup, g.MinSpeedup)
	case c.Outcome == Pays:
		g.reason(GateMet, r.Verdict.Sentence)
	case c.Outcome == DoesNotPay:
		g.reason(GateNotMet, r.Verdict.Sentence)
	default:
		g.reason(GateInconclusive, r.Verdict.Sentence)
	}
	if g.MinAcceptLength > 0 {
		switch t := a.acceptOf(s.Name, level); {
		case t == nil || t.Pooled.N == 0:
			g.reason(GateVoid, "no source of the accept length")
		case t.Trust == server.Low:
			g.reason(GateVoid, fmt.Sprintf("accept length %s is of low trust: %s", t.Pooled, t.Source))
		default:
			g.atLeast("accept length", t.Pooled, g.MinAcceptLength)
		}
	}
	return g
}

// atLeast asks that the whole interval is not below a bound.
func (g *GateResult) atLeast(name string, e stats.Estimate, bound float64) {
	outcome := GateInconclusive
	switch {
	case e.N > 0 && e.Bounded && e.Low >= bound:
		outcome = GateMet
	case e.N > 0 && e.Bounded && e.High < bound:
		outcome = GateNotMet
	}
	g.reason(outcome, fmt.Sprintf("%s %s, wanted at least %g: %s", name, e, bound, outcome))
}

func (g *GateResult) reason(outcome, why string) {
	g.Reasons = append(g.Reasons, why)
	if severity(outcome) > severity(g.Outcome) {
		g.Outcome = outcome
	}
}

func severity(outcome string) int {
	switch outcome {
	case GateVoid:
		return 3
	case GateNotMet:
		return 2
	case GateInconclusive:
		return 1
	}
	return 0
}
