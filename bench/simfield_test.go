package bench_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"hsx/bench"
	"hsx/internal/simserver"
)

// fieldArm is the draft of the field case: one step runs, though 16 draft tokens were
// asked for. Its verify step takes so long that it gives so many tokens a second at an
// accept length of 1.6.
func fieldArm(rate float64) *simArm {
	return &simArm{Options: simserver.Options{
		Engine: simserver.SGLang, PerRequest: true, Steps: 1, AskedSteps: 16, Accept: []float64{0.6}, Seed: 4,
		MinTokens: 60, MaxTokens: 150, Step: time.Duration(1.6 / rate * 1e9),
	}}
}

func fieldBaseline() *simArm {
	return &simArm{Options: simserver.Options{Engine: simserver.SGLang, Seed: 4, MinTokens: 60, MaxTokens: 150, Step: time.Second / 90}}
}

// TestSimFieldCase has the field case of a draft that promised 2.95 on simulated servers:
// 56.8, 71.3 and 94 against 90 tokens a second.
func TestSimFieldCase(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rate, spread float64
		outcome      bench.Outcome
		sentence     string // how it begins
		breakEven    float64
	}{
		"16 draft tokens":        {56.8, 0, bench.DoesNotPay, "Speculation does not pay: 0.63× (95 % CI 0.63–0.63) at concurrency 1", 2.54},
		"clean server":           {71.3, 0, bench.DoesNotPay, "Speculation does not pay: 0.79× (95 % CI 0.79–0.79) at concurrency 1", 2.02},
		"2 steps":                {94, 0, bench.Pays, "Speculation pays: 1.04× (95 % CI 1.04–1.04) at concurrency 1", 1.53},
		"16 draft tokens, noise": {56.8, 0.03, bench.DoesNotPay, "Speculation does not pay: 0.6", 2.54},
		"clean server, noise":    {71.3, 0.03, bench.DoesNotPay, "Speculation does not pay: 0.", 2.02},
		"2 steps, noise":         {94, 0.03, bench.Inconclusive, "Speculation: inconclusive, 1.0", 1.53},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// Phases of 17 requests are the first one with the warm-up, and then the runs.
			const requests = 17
			noisy := func(a *simArm) { a.Spread, a.Phase = tt.spread, requests }
			run := simulate(t, simRun{
				spec: fieldArm(tt.rate).with(noisy), base: fieldBaseline().with(noisy),
				plan: func(p *bench.Plan) { p.Prompts, p.Runs = simPrompts(requests), 5 },
			})
			if run.err != nil {
				t.Fatalf("Run: got error %v, want none", run.err)
			}
			r := bench.Analyse(run.log, bench.Judgement{Promise: &bench.Promise{Given: 2.95, ExcludesBonus: new(false), Form: "number"}})
			c, arms := r.Levels[0].Compared[0], r.Levels[0].Arms
			if r.Verdict.Outcome != tt.outcome || !strings.HasPrefix(r.Verdict.Sentence, tt.sentence) {
				t.Errorf("verdict: got %s, %q, want %s, %q", r.Verdict.Outcome, r.Verdict.Sentence, tt.outcome, tt.sentence)
			}
			for what, pair := range map[string][2]float64{
				"rate": {arms[0].Throughput.Value, tt.rate}, "baseline": {arms[1].Throughput.Value, 90},
				"speedup": {c.Speedup.Value, tt.rate / 90}, "break-even": {c.BreakEven, tt.breakEven},
				"accept length": {r.Accept[0].Pooled.Value, 1.6}, "spread": {1 + arms[0].CV, 1 + tt.spread},
			} {
				if got, want := pair[0], pair[1]; math.Abs(got-want) > (0.02+1.5*tt.spread)*want {
					t.Errorf("%s: got %v, want about %v", what, got, want)
				}
			}
			// What was promised was promised for more steps than run.
			sp := r.Arms[0].Info.Speculation
			if sp.Steps != 1 || sp.AskedSteps != 15 || sp.AskedBy != "speculative_num_draft_tokens" {
				t.Errorf("speculation: got %+v, want 1 step of 15 that were asked for", sp)
			}
			if p := r.Promise; p.Outcome != "kept" || p.Steps != 1 || math.Abs(p.Promised-1.66) > 0.01 {
				t.Errorf("promise: got %+v, want 1.66 at one step, kept", p)
			}
			wantSaid(t, "diagnosis", rules(r)[:1], "fewer-steps-than-asked")
			if tt.outcome == bench.DoesNotPay {
				wantSaid(t, "diagnosis", rules(r), "promise-kept-step-cost")
			}
		})
	}
}

// TestSimFieldTruncated is its first benchmark: a model that thinks, cut at 512 tokens,
// once and cold.
func TestSimFieldTruncated(t *testing.T) {
	t.Parallel()
	thinks := func(a *simArm) { a.Think = 400 }
	run := simulate(t, simRun{
		spec: fieldArm(56.8).with(thinks), base: fieldBaseline().with(thinks),
		plan: func(p *bench.Plan) { p.Runs, p.WarmUpRuns, p.Params.MaxTokens = 1, 0, 512 },
	})
	if run.err != nil {
		t.Fatalf("Run: got error %v, want none", run.err)
	}
	r := run.report()
	if v := r.Validity[0]; r.Verdict.Outcome != bench.Void || v.Truncated < 0.5 || v.Needed != 8192 || !v.Thinking {
		t.Errorf("got %s, %v cut, use %d tokens, thinks %v; want no verdict, most of them, 8192", r.Verdict.Outcome, v.Truncated, v.Needed, v.Thinking)
	}
	wantSaid(t, "void", r.Verdict.Void, "of the answers were cut at 512 tokens")
	if c := r.Levels[0].Compared[0]; c.Speedup.Bounded {
		t.Errorf("speedup of one run: got %+v, want no interval", c.Speedup)
	}
}

// TestSimFieldSweep looks for the best number of steps: the third position is seldom
// accepted, and each costs time.
func TestSimFieldSweep(t *testing.T) {
	t.Parallel()
	steps := func(n int) *simArm {
		return fieldArm(90).with(func(a *simArm) {
			a.steps, a.Steps, a.AskedSteps, a.Accept = n, n, 0, []float64{0.6, 0.5, 0.1}
			a.Step, a.Draft = 15*time.Millisecond, 2*time.Millisecond
		})
	}
	run := simulate(t, simRun{sweep: []*simArm{steps(1), steps(2), steps(4)}, base: fieldBaseline()})
	if run.err != nil {
		t.Fatalf("Run: got error %v, want none", run.err)
	}
	s := run.report().Sweep
	if s == nil || s.Best != 2 || !s.Certain || !strings.HasPrefix(s.Sentence, "2 steps are best: ") {
		t.Fatalf("sweep: got %+v, want 2 steps to be best", s)
	}
	if len(s.StepSeconds) != 2 || math.Abs(s.StepSeconds[0]-0.015) > 0.0005 || math.Abs(s.StepSeconds[1]-0.002) > 0.0002 {
		t.Errorf("cost of a step: got %v, want 15 ms and 2 ms a position", s.StepSeconds)
	}
	i := slices.IndexFunc(s.Points, func(p bench.SweepPoint) bool { return p.Steps == 3 })
	if i < 0 || !s.Points[i].Predicted {
		t.Fatalf("points: got %+v, want a prediction for 3 steps", s.Points)
	}
	// The prediction is that of a measurement.
	measured := simulate(t, simRun{sweep: []*simArm{steps(3), steps(1)}, base: fieldBaseline()}).report()
	if got, want := s.Points[i].Throughput.Value, measured.Levels[0].Arms[0].Throughput.Value; math.Abs(got-want) > 0.01*want {
		t.Errorf("3 steps: predicted %v tok/s, measured %v", got, want)
	}
}

// TestSimLoad measures under several loads: what pays alone does not in a crowd.
func TestSimLoad(t *testing.T) {
	t.Parallel()
	crowd := func(a *simArm) { a.Crowd, a.MinTokens, a.MaxTokens, a.PerRequest = 3*time.Millisecond, 40, 60, true }
	run := simulate(t, simRun{
		spec: speculating(simserver.VLLM).with(crowd), base: plain(simserver.VLLM).with(crowd),
		plan: func(p *bench.Plan) { p.Levels = concurrency(1, 16) },
	})
	if run.err != nil {
		t.Fatalf("Run: got error %v, want none", run.err)
	}
	r := run.report()
	if s := r.Verdict.Sentence; !strings.HasPrefix(s, "Speculation pays: ") || !strings.Contains(s, "; does not pay at concurrency 16: 0.") {
		t.Errorf("sentence: got %q, want both loads", s)
	}
	wantSaid(t, "diagnosis", rules(r), "concurrency-loses")
	if len(r.Accept) != 3 || r.Accept[1].Level != "concurrency 1" || r.Accept[1].Pooled.Value != r.Accept[2].Pooled.Value {
		t.Errorf("accept lengths: got %+v, want the same under both loads", r.Accept)
	}
}

// TestSimOpenLoop holds latencies under a queue against those of a queue worked out by
// hand: a request waits for its turn, from when it was due, at the server's door or at
// hsx's own.
func TestSimOpenLoop(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ slots, inFlight int }{"queue of the server": {1, 0}, "queue of hsx": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := simulate(t, simRun{
				spec: speculating(simserver.VLLM).with(func(a *simArm) {
					a.Slots, a.PerRequest, a.Prefill = tt.slots, true, 30*time.Millisecond
				}),
				plan:    func(p *bench.Plan) { p.Levels, p.Prompts = []bench.Level{{Rate: 4}}, simPrompts(40) },
				options: bench.Options{MaxInFlight: tt.inFlight},
			})
			if run.err != nil {
				t.Fatalf("Run: got error %v, want none", run.err)
			}
			slowest, longest := 0.0, 0.0
			for _, p := range run.log.Passes {
				slices.SortFunc(p.Requests, func(a, b bench.Request) int { return int(a.Due - b.Due) })
				var free time.Duration
				queued := 0
				for _, q := range p.Requests {
					from := max(q.Due, free)
					if from > q.Due {
						queued++
					}
					first := from + 30*time.Millisecond
					free = first + time.Duration(q.Accept.Steps)*12*time.Millisecond
					if got, want := q.Latency(), free-q.Due; got != want {
						t.Errorf("run %d, due %v: got latency %v, want %v", p.Run, q.Due, got, want)
					}
					if !p.WarmUp {
						slowest, longest = max(slowest, (first-q.Due).Seconds()), max(longest, (free-q.Due).Seconds())
					}
				}
				if !p.WarmUp && (queued == 0 || p.Wall != free-p.Requests[0].Due) {
					t.Errorf("run %d: %d queued, wall %v, want some and %v", p.Run, queued, p.Wall, free-p.Requests[0].Due)
				}
			}
			r := run.report()
			if arm := r.Levels[0].Arms[0]; !simNear(arm.TTFT.Max, slowest) || !simNear(arm.E2E.Max, longest) || arm.Failed != 0 || arm.Requests != 80 {
				t.Errorf("got at most %v s to the first token, %v in all, want %v and %v; %d of %d failed", arm.TTFT.Max, arm.E2E.Max, slowest, longest, arm.Failed, arm.Requests)
			}
		})
	}
}
