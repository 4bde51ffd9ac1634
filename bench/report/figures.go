package report

import (
	"hsx/bench"
	"hsx/bench/stats"
)

// metric is one figure of an arm's requests.
type metric struct {
	Name  string // in the JSON document
	Title string
	Unit  string // tok/s or s
	Of    func(*bench.ArmReport) stats.Summary
}

// Show writes a value of the metric.
func (m metric) Show(v *float64) string {
	switch {
	case v == nil:
		return none
	case m.Unit == "s":
		return seconds(*v)
	}
	return number(*v)
}

func metrics() []metric {
	return []metric{
		{"request_tokens_per_second", "tok/s of a request", "tok/s", func(a *bench.ArmReport) stats.Summary { return a.Request }},
		{"decode_tokens_per_second", "tok/s while decoding", "tok/s", func(a *bench.ArmReport) stats.Summary { return a.Decode }},
		{"ttft_seconds", "Time to first token (TTFT)", "s", func(a *bench.ArmReport) stats.Summary { return a.TTFT }},
		{"ttfot_seconds", "Time to first answer token (TTFOT)", "s", func(a *bench.ArmReport) stats.Summary { return a.TTFOT }},
		{"itl_seconds", "Time between tokens (ITL)", "s", func(a *bench.ArmReport) stats.Summary { return a.ITL }},
		{"icl_seconds", "Time between chunks (ICL)", "s", func(a *bench.ArmReport) stats.Summary { return a.ICL }},
		{"e2e_seconds", "End to end (E2E)", "s", func(a *bench.ArmReport) stats.Summary { return a.E2E }},
		{"due_to_sent_seconds", "Due to sent", "s", func(a *bench.ArmReport) stats.Summary { return a.Delay }},
	}
}

// position is one draft position, as measured and as promised; nil is not known.
type position struct {
	Position                                             int
	Joint, PromisedJoint, Conditional, PromisedCondition *float64
}

// positions are those of an accept length. The promise is one for the first of a report;
// nil for the others.
func positions(a *bench.AcceptReport, p *bench.PromiseReport) []position {
	at := func(v []float64, i int) *float64 {
		if i >= len(v) {
			return nil
		}
		return &v[i]
	}
	var joint, conditional []float64
	if p != nil {
		product := 1.0
		for _, g := range p.Positions {
			product *= g.Promised
			joint, conditional = append(joint, product), append(conditional, g.Promised)
		}
	}
	var out []position
	for i := range max(len(a.Joint), len(a.Conditional), len(joint)) {
		out = append(out, position{i + 1, at(a.Joint, i), at(joint, i), at(a.Conditional, i), at(conditional, i)})
	}
	return out
}

// promiseOf is the promise where it is one for the i-th accept length.
func promiseOf(r *bench.Report, i int) *bench.PromiseReport {
	if i > 0 {
		return nil
	}
	return r.Promise
}
