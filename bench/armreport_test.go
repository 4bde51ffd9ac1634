package bench_test

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
	"hsx/bench/server"
)

const ms = time.Millisecond

func near(got, want float64) bool { return math.Abs(got-want) <= 1e-9*math.Abs(want) }

// oneRequest is a measurement of a single request by an arm without a partner.
func oneRequest(level bench.Level, r bench.Request, wall time.Duration) *bench.Log {
	key := bench.Key{Arm: "speculation", Level: level, Run: 1}
	r.Key, r.Prompt = key, "p"
	return &bench.Log{
		Plan:   bench.Plan{Arms: []bench.Arm{{Name: "speculation", Role: bench.Spec}}, Levels: []bench.Level{level}},
		Passes: []bench.Pass{{Key: key, Wall: wall, Complete: true, Requests: []bench.Request{r}}},
		End:    &bench.End{},
	}
}

func TestArmReport(t *testing.T) {
	t.Parallel()
	streamed := server.Outcome{
		Usage: true, Tokens: 31, FirstToken: 100 * ms, FirstAnswer: 300 * ms, LastToken: 900 * ms, Done: 1000 * ms,
		GapsUS: []int{200_000, 600_000},
	}
	chunked := streamed
	chunked.ChunkTokens = []int{11, 10, 10}
	silent := streamed
	silent.Usage, silent.Tokens, silent.ChunkTokens = false, 0, nil
	failed := streamed
	failed.Fault, failed.Error = server.FaultCut, "cut"
	type figures struct{ request, decode, ttft, ttfot, itl, icl, e2e, delay float64 }
	closed, open := bench.Level{Concurrency: 1}, bench.Level{Rate: 2}
	tests := map[string]struct {
		level  bench.Level
		o      server.Outcome
		waited time.Duration
		want   figures
		tokens int64
	}{
		"first chunk taken for a token":    {closed, streamed, 0, figures{31, 30 / 0.8, 0.1, 0.3, 0.8 / 30, 0.4, 1, 0.05}, 31},
		"first chunk counted":              {closed, chunked, 0, figures{31, 20 / 0.8, 0.1, 0.3, 0.8 / 20, 0.4, 1, 0.05}, 31},
		"open loop counts from due":        {open, chunked, 0, figures{31 / 1.05, 20 / 0.8, 0.15, 0.35, 0.8 / 20, 0.4, 1.05, 0.05}, 31},
		"retries are no part of it":        {open, chunked, 20 * ms, figures{31 / 1.03, 20 / 0.8, 0.13, 0.33, 0.8 / 20, 0.4, 1.03, 0.03}, 31},
		"no usage, no tokens":              {closed, silent, 0, figures{0, 0, 0.1, 0.3, 0, 0.4, 1, 0.05}, 0},
		"a failed request is in no figure": {closed, failed, 0, figures{}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bench.Request{Due: 10 * ms, Sent: 60 * ms, Outcome: tt.o}
			r.Waited = tt.waited
			a := bench.Analyse(oneRequest(tt.level, r, 2*time.Second), bench.Judgement{}).Levels[0].Arms[0]
			got := figures{a.Request.Mean, a.Decode.Mean, a.TTFT.Mean, a.TTFOT.Mean, a.ITL.Mean, a.ICL.Mean, a.E2E.Mean, a.Delay.Mean}
			if d := cmp.Diff(tt.want, got, cmp.AllowUnexported(figures{}), cmp.Comparer(near)); d != "" {
				t.Errorf("figures (-want +got):\n%s", d)
			}
			if a.Tokens != tt.tokens || !near(a.ByRun[0], float64(tt.tokens)/2) {
				t.Errorf("got %d tokens, %v tok/s, want %d over 2 s", a.Tokens, a.ByRun, tt.tokens)
			}
		})
	}
}

// TestOnlyCompletePassesCount leaves out warm-up and what was cut short.
func TestOnlyCompletePassesCount(t *testing.T) {
	t.Parallel()
	l := pair(118, nil)
	want := bench.Analyse(l, bench.Judgement{})
	cut, warm := l.Passes[0], l.Passes[1]
	cut.Complete, cut.Run, cut.Wall = false, 9, time.Nanosecond
	warm.WarmUp, warm.Wall = true, time.Nanosecond
	l.Passes = append(l.Passes, cut, warm)
	if d := cmp.Diff(want, bench.Analyse(l, bench.Judgement{})); d != "" {
		t.Errorf("with a cut and a warm-up pass (-want +got):\n%s", d)
	}
}
