package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"hsx/bench/server"
	"hsx/bench/stats"
)

const (
	wantCovered  = 0.95 // share of good answers that must carry accept counts
	sourcesAgree = 0.03 // relative difference of two sources up to which they agree
	minBucket    = 8    // answers in a bucket of output length
)

// acceptReports are the accept lengths of the speculating arms: for each one over all its
// loads and, when the plan has several, one for each load. An arm without a complete pass
// has none; one whose server does not tell has a report of source "none" that says why.
func acceptReports(l *Log, confidence float64) []AcceptReport {
	var reports []AcceptReport
	for _, arm := range l.Plan.Arms {
		if arm.Role != Spec {
			continue
		}
		s := newSide(l, arm)
		passes := s.all(l.Plan.Levels)
		if len(passes) == 0 {
			continue
		}
		reports = append(reports, acceptReport(s, passes, "", confidence))
		if len(l.Plan.Levels) < 2 {
			continue
		}
		for _, level := range l.Plan.Levels {
			if p := s.passes[level]; len(p) > 0 {
				reports = append(reports, acceptReport(s, p, level.String(), confidence))
			}
		}
	}
	return reports
}

// acceptReport derives the accept length of passes from the best source that they have.
func acceptReport(s *side, passes []*Pass, level string, confidence float64) AcceptReport {
	r := AcceptReport{Arm: s.Name, Level: level, Source: "none", Trust: server.Low}
	var sp server.Speculation
	if s.info != nil {
		sp = s.info.Info.Speculation
	}
	var found []tally
	found, r.Notes = tallies(passes, sp)
	if len(found) == 0 {
		if sp.Known && !sp.On {
			r.Notes = append(r.Notes, "the server says that it does not speculate")
		} else {
			r.Notes = append(r.Notes, "the server does not tell its accept length: no counts in its answers and no counters at its metrics URL")
		}
		return r
	}
	seed := s.log.Plan.Seed
	best := found[0]
	r.Source, r.Trust = best.source, best.trust
	r.Pooled = best.estimate(seed, confidence)
	r.Steps, r.Drafted, r.Accepted = best.sum.Steps, best.sum.Drafted, best.sum.Accepted
	r.Rate, r.PerStep = over(r.Accepted, r.Drafted), over(r.Drafted, r.Steps)
	for _, t := range found[1:] {
		o := OtherSource{Source: t.source, Trust: t.trust, Value: t.value()}
		r.Others = append(r.Others, o)
		// Chunks that hold several steps and windows of a log are no second opinion.
		counts := o.Trust != server.Low && o.Trust != server.Proxy
		if d := over(o.Value, r.Pooled.Value) - 1; counts && math.Abs(d) > sourcesAgree {
			r.Notes = append(r.Notes, fmt.Sprintf("the sources disagree by %s: %s says %.2f, %s %.2f", percent(math.Abs(d)), r.Source, r.Pooled.Value, o.Source, o.Value))
		}
	}
	r.positions(found)
	r.perAnswer(found, seed, confidence)
	r.explain(best, sp)
	return r
}

// positions takes the acceptance by position from the first source that has it.
func (r *AcceptReport) positions(found []tally) {
	i := slices.IndexFunc(found, func(t tally) bool { return t.trust != server.Low && len(t.sum.Positions) > 0 && t.sum.Steps > 0 })
	switch {
	case i >= 0:
		for _, n := range found[i].sum.Positions {
			r.Joint = append(r.Joint, n/found[i].sum.Steps)
		}
	case r.Steps > 0 && math.Abs(r.PerStep-1) < 0.02: // one position: its share is all there is
		r.Joint = []float64{r.Accepted / r.Steps}
	default:
		return
	}
	r.Conditional = stats.JointToConditional(r.Joint)
}

// perAnswer derives what only counts in the answers can tell, from the first source that
// has them.
func (r *AcceptReport) perAnswer(found []tally, seed uint64, confidence float64) {
	i := slices.IndexFunc(found, func(t tally) bool { return len(t.answers) > 0 })
	if i < 0 {
		return
	}
	t := found[i]
	if i > 0 {
		r.Notes = append(r.Notes, "the mean over prompts, and the accept lengths by category and output length, are from "+t.source)
	}
	var lengths []float64
	for _, c := range t.clusters() {
		if c.steps > 0 {
			lengths = append(lengths, 1+c.accepted/c.steps)
		}
	}
	r.Macro = stats.ClusterRatio(lengths, slices.Repeat([]float64{1}, len(lengths)), confidence, seed)
	r.byLength(t.answers)
	r.byCategory(t.answers)
}

// byLength pools answers by their number of tokens. Runs of one question are one answer
// of their mean length: they are no further evidence.
func (r *AcceptReport) byLength(answers []answer) {
	type sum struct{ tokens, n, steps, accepted float64 }
	questions := map[turn]*sum{}
	for _, a := range answers {
		q := questions[a.turn]
		if q == nil {
			q = &sum{}
			questions[a.turn] = q
		}
		q.tokens += a.tokens
		q.n++
		q.steps += a.steps
		q.accepted += a.accepted
	}
	edges := []int{0, 128, 512, 2048, 8192, math.MaxInt}
	for i, from := range edges[:len(edges)-1] {
		b := LengthBucket{From: from, To: edges[i+1]}
		var steps, accepted float64
		for _, q := range questions {
			if mean := q.tokens / q.n; mean > float64(b.From) && mean <= float64(b.To) {
				b.N++
				steps += q.steps
				accepted += q.accepted
			}
		}
		if b.N < minBucket || steps == 0 {
			continue
		}
		if b.To == math.MaxInt {
			b.To = 0
		}
		b.Accept = 1 + accepted/steps
		r.ByLength = append(r.ByLength, b)
	}
}

func (r *AcceptReport) byCategory(answers []answer) {
	steps, accepted, n := map[string]float64{}, map[string]float64{}, map[string]map[turn]bool{}
	for _, a := range answers {
		if a.category == "" {
			continue
		}
		if n[a.category] == nil {
			n[a.category] = map[turn]bool{}
		}
		n[a.category][a.turn] = true
		steps[a.category] += a.steps
		accepted[a.category] += a.accepted
	}
	for _, name := range slices.Sorted(maps.Keys(n)) {
		if steps[name] > 0 {
			r.ByCategory = append(r.ByCategory, CategoryAccept{Category: name, N: len(n[name]), Accept: 1 + accepted[name]/steps[name]})
		}
	}
}

// explain notes what a reader would take for something else.
func (r *AcceptReport) explain(t tally, sp server.Speculation) {
	if plain := t.sum.PlainStep; plain > 0.02*(t.sum.Steps+plain) && t.sum.Steps > 0 {
		steps := t.sum.Steps + plain
		r.Notes = append(r.Notes, fmt.Sprintf("%s of the decode steps drafted nothing and are not in the accept length: with them a step gives %.2f tokens",
			percent(plain/steps), (steps+t.sum.Accepted)/steps))
	}
	if t.note != "" {
		r.Notes = append(r.Notes, t.note)
	}
	if t.sum.Approx {
		r.Notes = append(r.Notes, "derived: the server does not count all that τ is made of")
	}
	if asked, runs := stepsAsked(sp, r), stepsRun(sp, r); asked > runs && runs > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("%s asked for, %s run", counted(asked, "step"), counted(runs, "step")))
	}
	if r.Accepted == 0 && r.Drafted > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("not one of %.0f drafts was accepted", r.Drafted))
	}
}

// stepsRun is how many draft positions really run, 0 when that cannot be told. What the
// counters show goes before what the server says of itself, but for methods that draft
// as many tokens as they find, and for trees, whose drafts are nodes and not positions.
func stepsRun(sp server.Speculation, r *AcceptReport) int {
	if sp.TopK > 1 || r.PerStep <= 0 {
		return cmp.Or(sp.Steps, len(r.Joint))
	}
	drafted := min(r.PerStep, maxPromise)
	seen := int(math.Round(drafted))
	if sp.Steps == 0 {
		seen = int(math.Ceil(drafted - 0.05)) // some answers end before a step is full
	}
	for i, p := range r.Joint {
		if p > 0 {
			seen = max(seen, i+1)
		}
	}
	if sp.Steps == 0 || seen < sp.Steps && !draftsVary(sp.Method) {
		return max(seen, 1)
	}
	return sp.Steps
}

// stepsAsked is how many draft positions were asked for, 0 when that cannot be told.
func stepsAsked(sp server.Speculation, r *AcceptReport) int {
	asked := max(sp.AskedSteps, sp.Steps)
	if sp.TopK == 1 {
		asked = max(asked, sp.DraftTokens-1) // one of them is the token that starts the chain
	}
	return max(asked, stepsRun(sp, r))
}

// draftsVary reports whether a method drafts as many tokens as it finds or dares to.
func draftsVary(method string) bool {
	m := strings.ToLower(method)
	return slices.ContainsFunc([]string{"ngram", "lookup", "lookahead", "suffix", "dspark", "draft-"}, func(s string) bool { return strings.Contains(m, s) })
}
