package bench

import (
	"fmt"
	"slices"
	"strings"

	"hsx/bench/stats"
)

// verdict answers for one arm, the best of a sweep or else the first that speculates:
// the outcome under the first load, and a sentence on all.
func (a *analysis) verdict(r *Report) Verdict {
	s := a.judged(r)
	if s == nil || len(s.all(a.levels)) == 0 {
		why := append(slices.Clone(a.void), "no run was completed: nothing is measured")
		return Verdict{Outcome: Void, Sentence: "No verdict: " + why[0], Void: why, Warnings: a.warnings}
	}
	v := Verdict{Outcome: Measured, Void: a.voids(s, a.levels[0]), Warnings: a.warn(s, r)}
	c := r.Levels[0].compared(s.Name)
	if c != nil {
		v.Outcome = c.Outcome
	}
	switch {
	case len(v.Void) > 0:
		v.Outcome, v.Sentence = Void, "No verdict: "+strings.Join(v.Void, "; ")
	case c != nil:
		v.Sentence = a.sentence(s, r)
	default:
		v.Sentence = a.figures(s, r)
	}
	return v
}

// judged is the arm that the verdict and the gate are on; nil when there is none.
func (a *analysis) judged(r *Report) *side {
	sides := append(a.speculating(), a.sides...)
	if r.Sweep != nil && r.Sweep.Best > 0 {
		for _, s := range sides {
			if s.Steps == r.Sweep.Best {
				return s
			}
		}
	}
	if len(sides) == 0 {
		return nil
	}
	return sides[0]
}

// sentence is "Speculation pays: 1.31× (95 % CI 1.27–1.35) at concurrency 1; does not
// pay at concurrency 32: 0.97× (0.94–0.99)".
func (a *analysis) sentence(s *side, r *Report) string {
	subject := a.words.subject
	if r.Sweep != nil {
		subject += " with " + counted(s.Steps, "step")
	}
	var clauses []string
	for i := range r.Levels {
		c, level := r.Levels[i].compared(s.Name), r.Levels[i].Level
		verb := a.words.better
		if c.Outcome == DoesNotPay {
			verb = a.words.worse
		}
		speedup := ratio(c.Speedup, i == 0)
		clause := fmt.Sprintf("%s at %s: %s", verb, level, speedup)
		switch {
		case c.Outcome == Void:
			clause = fmt.Sprintf("no verdict at %s", level)
		case c.Outcome == Inconclusive && i == 0:
			clause = fmt.Sprintf("%s: inconclusive, %s at %s, %s", subject, speedup, level, a.because(c))
		case c.Outcome == Inconclusive:
			clause = fmt.Sprintf("inconclusive at %s: %s, %s", level, speedup, a.because(c))
		case i == 0:
			clause = fmt.Sprintf("%s %s: %s at %s", subject, verb, speedup, level)
		}
		clauses = append(clauses, clause)
	}
	return strings.Join(clauses, "; ")
}

// because says why a comparison is inconclusive, and what would settle it. Between 1 and
// the margin nothing does.
func (a *analysis) because(c *Comparison) string {
	e, margin := c.Speedup, percent(a.j.Margin)
	switch {
	case e.N == 0:
		return "an arm has no complete run"
	case !e.Bounded:
		return "one run has no spread: an interval needs 2 of each arm"
	case e.Low > 1 && e.High <= 1+a.j.Margin:
		return "faster, but by less than the margin of " + margin
	case c.RunsToSettle > 0 && e.Low > 1:
		return fmt.Sprintf("faster, but perhaps by less than the margin of %s: about %d runs of each arm would settle it", margin, c.RunsToSettle)
	case c.RunsToSettle > 0:
		return fmt.Sprintf("within the noise: about %d runs of each arm would settle it", c.RunsToSettle)
	case e.Low > 1:
		return "faster, but perhaps by less than the margin of " + margin
	}
	return fmt.Sprintf("within the noise, and %d runs would not settle it", maxRuns)
}

// figures is the sentence where there is nothing to compare with.
func (a *analysis) figures(s *side, r *Report) string {
	var clauses []string
	for i := range r.Levels {
		l := &r.Levels[i]
		if t := l.arm(s.Name).Throughput; t.N > 0 {
			clauses = append(clauses, fmt.Sprintf("%s tok/s at %s", t, l.Level))
		}
	}
	text := fmt.Sprintf("Measured %s: %s", s.Name, strings.Join(clauses, ", "))
	if t := a.acceptOf(s.Name, a.levels[0]); t != nil && t.Pooled.N > 0 {
		text += fmt.Sprintf("; accept length %s", t.Pooled)
	}
	if s.Role == Baseline {
		return text
	}
	return text + "; without a baseline nothing says whether it pays"
}

// ratio is "1.31× (95 % CI 1.27–1.35)", or without the words.
func ratio(e stats.Estimate, words bool) string {
	switch {
	case e.N == 0:
		return "not measured"
	case !e.Bounded:
		return fmt.Sprintf("%.2f×", e.Value)
	case words:
		return fmt.Sprintf("%.2f× (%.4g %% CI %.2f–%.2f)", e.Value, 100*e.Level, e.Low, e.High)
	}
	return fmt.Sprintf("%.2f× (%.2f–%.2f)", e.Value, e.Low, e.High)
}
