package bench

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
)

// storedName is that of a baseline from an earlier measurement.
const storedName = "stored baseline"

// useStored takes the baseline of an earlier log, where this one has none of its own.
func (a *analysis) useStored(l *Log) {
	if a.base != nil {
		a.warnings = append(a.warnings, "the stored baseline is left aside: this measurement has its own")
		return
	}
	arm, ok := baselineOf(l)
	if !ok {
		a.void = append(a.void, "the stored measurement has no baseline arm")
		return
	}
	a.against(renamed(l, arm, storedName, Baseline))
}

// Compare reports measurement a with b in the place of its baseline: of each the first
// arm that speculates, or else the first, called A and B. Their runs are not paired. A
// comparison of other prompts, or of other sampling, is void.
func Compare(a, b *Log, j Judgement) *Report {
	first, second := speculatingOf(a), speculatingOf(b)
	left := renamed(a, first, "A", Spec)
	an := newAnalysis(left, j)
	an.between = true
	an.words = wording{"A", "is faster than B", "is slower than B"}
	an.accept = append(acceptReports(left, an.j.Confidence), acceptReports(renamed(b, second, "B", Spec), an.j.Confidence)...)
	an.against(renamed(b, second, "B", Baseline))
	r := an.report()
	r.Verdict.Outcome = r.Verdict.Outcome.between()
	for i := range r.Levels {
		for j := range r.Levels[i].Compared {
			c := &r.Levels[i].Compared[j]
			c.Outcome = c.Outcome.between()
		}
	}
	return r
}

// between is the outcome's word where the second arm is no baseline.
func (o Outcome) between() Outcome {
	switch o {
	case Pays:
		return Faster
	case DoesNotPay:
		return Slower
	}
	return o
}

// against makes the one arm of another log the baseline.
func (a *analysis) against(l *Log) {
	a.base = newSide(l, l.Plan.Arms[0])
	a.base.stored = true
	a.sides = append(a.sides, a.base)
	p, q := &a.log.Plan, &l.Plan
	if p.Digest != q.Digest {
		a.void = append(a.void, fmt.Sprintf("the prompts are not the same: %s and %s", named(p), named(q)))
	}
	for _, d := range paramsDiffer(p, q) {
		a.void = append(a.void, "answers were not asked for in the same way: "+d)
	}
	if a.log.Began.Equal(l.Began) {
		a.warnings = append(a.warnings, "both are of one measurement")
	}
	for _, level := range a.levels {
		if !slices.Contains(q.Levels, level) {
			a.warnings = append(a.warnings, fmt.Sprintf("%s was not measured at %s", a.base.Name, level))
		}
	}
}

// paramsDiffer names what must be equal and is not. Limits of length and seeds are no
// part of it: the first have a warning of their own.
func paramsDiffer(p, q *Plan) []string {
	x, y := p.Params, q.Params
	var out []string
	differ := func(name string, u, v any) {
		if !reflect.DeepEqual(u, v) {
			out = append(out, fmt.Sprintf("%s %v and %v", name, u, v))
		}
	}
	differ("temperature", x.Temperature, y.Temperature)
	differ("top_p", x.TopP, y.TopP)
	differ("ignore_eos", x.IgnoreEOS, y.IgnoreEOS)
	differ("thinking", cmp.Or(x.Thinking, "default"), cmp.Or(y.Thinking, "default"))
	if len(x.Extra)+len(y.Extra) > 0 {
		differ("extra", x.Extra, y.Extra)
	}
	return out
}

func named(p *Plan) string {
	return fmt.Sprintf("%d of %s (%s)", p.NumPrompts, cmp.Or(p.PromptSet, "an unnamed set"), cmp.Or(p.Digest, "no digest"))
}

// baselineOf is a log's baseline, or its only arm.
func baselineOf(l *Log) (Arm, bool) {
	for _, arm := range l.Plan.Arms {
		if arm.Role == Baseline {
			return arm, true
		}
	}
	if len(l.Plan.Arms) == 1 {
		return l.Plan.Arms[0], true
	}
	return Arm{}, false
}

// speculatingOf is a log's first arm that speculates, or else its first.
func speculatingOf(l *Log) Arm {
	for _, arm := range l.Plan.Arms {
		if arm.Role != Baseline {
			return arm
		}
	}
	if len(l.Plan.Arms) > 0 {
		return l.Plan.Arms[0]
	}
	return Arm{}
}

// renamed is a copy of a log with one arm only, under another name and role.
func renamed(l *Log, arm Arm, name string, role Role) *Log {
	c := *l
	c.Arms, c.Passes = nil, nil
	for _, info := range l.Arms {
		if info.Arm == arm.Name {
			info.Arm = name
			c.Arms = append(c.Arms, info)
		}
	}
	for _, p := range l.Passes {
		if p.Arm != arm.Name {
			continue
		}
		p.Arm = name
		p.Requests = slices.Clone(p.Requests)
		for i := range p.Requests {
			p.Requests[i].Arm = name
		}
		c.Passes = append(c.Passes, p)
	}
	arm.Name, arm.Role = name, role
	c.Plan.Arms = []Arm{arm}
	return &c
}
