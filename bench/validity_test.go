package bench_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
	"hsx/bench/server"
)

func TestValidity(t *testing.T) {
	t.Parallel()
	n := 0
	l := pair(118, func(s, b *simulated) {
		s.info.Load = server.Load{Known: true, Waiting: 2}
		s.tokens = 110
		s.request = func(r *bench.Request) {
			n++
			switch r.Prompt {
			case "p00":
				r.Fault, r.Error = server.FaultBusy, fmt.Sprintf("503 at attempt %d", n)
			case "p01":
				r.Usage, r.Tokens = false, 0
			case "p02":
				r.FinishReason = "length"
			case "p03":
				r.ReasoningTokens, r.Doubts = 200, []string{fmt.Sprintf("reasoning_tokens 200 > completion_tokens %d", n)}
			case "p04":
				r.Retried = []string{"429", "429"}
			}
		}
		s.pass = func(p *bench.Pass) { p.After.Problems = []string{"metrics: 401"} }
	})
	l.Passes[0].Requests[0].Error = "connection reset"
	got := bench.Analyse(l, bench.Judgement{}).Validity[0]
	want := bench.ValidityReport{
		Arm: "speculation", Requests: 100, Truncated: 5.0 / 95, MaxTokens: 2048, Needed: 8192, Thinking: true,
		Failed: 5, Faults: map[string]int{"busy": 5}, Errors: []string{"connection reset", "503 at attempt 21 (4 times)"},
		Retries: 10, NoUsage: 5, OutputRatio: 1.1, WasBusy: true,
		Doubts: []string{"reasoning_tokens 200 > completion_tokens 4 (5 times)", "metrics: 401 (5 times)"},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(near)); d != "" {
		t.Errorf("validity (-want +got):\n%s", d)
	}
}

// TestForeign counts others' tokens over clean passes, and doubts counters that lag.
func TestForeign(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		before, after server.Snapshot
		fail          bool
		want          float64 // -1: not known
		doubt         string
	}{
		"none":                   {counters(500), counters(2500), false, 0, ""},
		"a fifth":                {counters(500), counters(3000), false, 0.2, ""},
		"counters late":          {counters(500), counters(2000), false, 0, "the server counted 7500 tokens where its answers hold 10000"},
		"not counted":            {server.Snapshot{}, server.Snapshot{}, false, -1, ""},
		"not counted before":     {server.Snapshot{Source: "test"}, counters(9000), false, -1, ""},
		"a pass with a failure":  {counters(500), counters(3000), true, -1, ""},
		"the counters went back": {counters(3000), counters(500), false, -1, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := pair(118, func(s, b *simulated) {
				s.pass = func(p *bench.Pass) {
					p.Before, p.After = tt.before, tt.after
					if tt.fail {
						p.Requests[3].Fault = server.FaultCut
					}
				}
			})
			v := bench.Analyse(l, bench.Judgement{}).Validity[0]
			got := -1.0
			if v.Foreign != nil {
				got = *v.Foreign
			}
			if !near(got, tt.want) || !strings.Contains(strings.Join(v.Doubts, ";"), tt.doubt) {
				t.Errorf("got %g, doubts %q, want %g with %q", got, v.Doubts, tt.want, tt.doubt)
			}
		})
	}
}
