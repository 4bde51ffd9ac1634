package bench_test

import (
	"slices"
	"strings"
	"testing"

	"hsx/bench"
	"hsx/bench/server"
)

func TestGate(t *testing.T) {
	t.Parallel()
	baseless := logOf(concurrency(1), specArm(spread5(118, 0.01, false), 1.6))
	silent := pair(118, func(s, b *simulated) { s.tau = 0 })
	gauge := pair(118, func(s, b *simulated) {
		s.tau = 0
		s.pass = func(p *bench.Pass) { p.After.Window = new(1.6) }
	})
	synthetic := pair(118, func(s, b *simulated) { s.info.Speculation.Synthetic = "a flag" })
	tests := map[string]struct {
		log    *bench.Log
		gate   bench.Gate
		want   string
		reason string
	}{
		"pays":                        {pair(118, nil), bench.Gate{}, bench.GateMet, "Speculation pays"},
		"does not pay":                {pair(80, nil), bench.Gate{}, bench.GateNotMet, "Speculation does not pay"},
		"neither":                     {pair(91, nil), bench.Gate{}, bench.GateInconclusive, "inconclusive"},
		"void":                        {synthetic, bench.Gate{MinSpeedup: 1.1}, bench.GateVoid, "acceptance is synthetic"},
		"no baseline":                 {baseless, bench.Gate{}, bench.GateVoid, "no baseline to compare with"},
		"no baseline for the speedup": {baseless, bench.Gate{MinSpeedup: 1.1}, bench.GateVoid, "no baseline to compare with"},
		"speedup met":                 {pair(118, nil), bench.Gate{MinSpeedup: 1.28}, bench.GateMet, "speedup at concurrency 1 1.31 (1.29–1.33), wanted at least 1.28: met"},
		"speedup not met":             {pair(118, nil), bench.Gate{MinSpeedup: 1.4}, bench.GateNotMet, "wanted at least 1.4: not met"},
		"speedup uncertain":           {pair(118, nil), bench.Gate{MinSpeedup: 1.31}, bench.GateInconclusive, "wanted at least 1.31: inconclusive"},
		"accept length met":           {baseless, bench.Gate{MinAcceptLength: 1.5}, bench.GateMet, "accept length 1.60 (1.56–1.64), wanted at least 1.5: met"},
		"accept length not met":       {baseless, bench.Gate{MinAcceptLength: 1.7}, bench.GateNotMet, "wanted at least 1.7: not met"},
		"accept length uncertain":     {baseless, bench.Gate{MinAcceptLength: 1.6}, bench.GateInconclusive, "wanted at least 1.6: inconclusive"},
		"accept length not told":      {silent, bench.Gate{MinAcceptLength: 1.5}, bench.GateVoid, "no source of the accept length"},
		"accept length of a gauge":    {gauge, bench.Gate{MinAcceptLength: 1.5}, bench.GateVoid, "is of low trust"},
		"the worst decides":           {pair(118, nil), bench.Gate{MinSpeedup: 1.31, MinAcceptLength: 1.7}, bench.GateNotMet, "wanted at least 1.7: not met"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := bench.Analyse(tt.log, bench.Judgement{Gate: &tt.gate}).Gate
			if g.Outcome != tt.want || !slices.ContainsFunc(g.Reasons, func(s string) bool { return strings.Contains(s, tt.reason) }) {
				t.Errorf("got %s: %q, want %s with %q", g.Outcome, g.Reasons, tt.want, tt.reason)
			}
		})
	}
	if g := bench.Analyse(pair(118, nil), bench.Judgement{}).Gate; g != nil {
		t.Errorf("got %+v without a gate, want none", g)
	}
}

// TestLowTrust keeps a low-trust accept length from being used as if it were measured.
func TestLowTrust(t *testing.T) {
	t.Parallel()
	l := pair(118, func(s, b *simulated) {
		s.tau = 0
		s.pass = func(p *bench.Pass) { p.After.Window = new(1.6) }
	})
	promise := &bench.Promise{Given: 2.95, ExcludesBonus: new(false)}
	r := bench.Analyse(l, bench.Judgement{Promise: promise})
	c := r.Levels[0].Compared[0]
	if r.Accept[0].Trust != server.Low || c.AtPromise != 0 || !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.Contains(n, "low trust") }) {
		t.Errorf("got trust %q, speedup at promise %g, notes %q, want low trust, 0 and a note", r.Accept[0].Trust, c.AtPromise, c.Notes)
	}
}
