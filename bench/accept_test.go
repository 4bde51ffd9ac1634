package bench_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hsx/bench"
	"hsx/bench/server"
)

// acceptCase is one speculating arm of three runs and what its server tells.
type acceptCase struct {
	sp      server.Speculation
	request func(r *bench.Request)
	pass    func(p *bench.Pass)
}

func (c acceptCase) report(t *testing.T) bench.AcceptReport {
	t.Helper()
	arm := specArm([]float64{100, 101, 99}, 0)
	arm.info.Speculation, arm.request, arm.pass = c.sp, c.request, c.pass
	r := bench.Analyse(logOf(concurrency(1), arm), bench.Judgement{})
	if len(r.Accept) != 1 || r.Accept[0].Level != "" {
		t.Fatalf("got accept lengths %+v, want one over all loads", r.Accept)
	}
	return r.Accept[0]
}

func chain(steps int) server.Speculation {
	return server.Speculation{Known: true, On: true, Method: "eagle3", Steps: steps, TopK: 1}
}

// eagle3 gives a request what vLLM said of 300 tokens with a trained EAGLE-3 draft of
// three positions.
func eagle3(r *bench.Request) {
	r.Tokens = 300
	r.Accept = &server.Accept{Steps: 104, Accepted: 195, Drafted: 312, Positions: []float64{84, 63, 48}, Source: "vllm metrics.speculative_decoding"}
}

// countersOf gives a pass snapshots whose growth is that of its 20 requests.
func countersOf(steps, accepted, drafted, tokens float64, positions ...float64) func(*bench.Pass) {
	return func(p *bench.Pass) {
		const n = simulatedPrompts
		at := func(before float64) server.Snapshot {
			s := server.Snapshot{
				Source: "vllm counters", Steps: new(1000 + before*steps*n), Accepted: new(500 + before*accepted*n), Drafted: new(3000 + before*drafted*n),
				Generated: new(7000 + before*tokens*n), Finished: new(70 + before*n), Started: new(1.0), Ranks: 1,
			}
			for _, v := range positions {
				s.Positions = append(s.Positions, 10+before*v*n)
			}
			return s
		}
		p.Before, p.After = at(0), at(1)
	}
}

func both(fs ...func(*bench.Pass)) func(*bench.Pass) {
	return func(p *bench.Pass) {
		for _, f := range fs {
			f(p)
		}
	}
}

func tokens(n int) func(*bench.Request) { return func(r *bench.Request) { r.Tokens = n } }

const average = "the server's own average: the warm-up is in it, and all that went before since the server started or was flushed"

func TestAcceptSource(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		acceptCase
		value  float64
		source string
		trust  server.Trust
		others []bench.OtherSource
		method string // of the interval, its beginning
		notes  []string
	}{
		"in the answers": {
			acceptCase: acceptCase{sp: chain(3), request: eagle3},
			value:      1 + 195./104, source: "vllm metrics.speculative_decoding", trust: server.Exact, method: "bootstrap over 20 prompts",
		},
		"in the answers and by counters": {
			acceptCase: acceptCase{sp: chain(3), request: eagle3, pass: countersOf(104, 195, 312, 300, 84, 63, 48)},
			value:      1 + 195./104, source: "vllm metrics.speculative_decoding", trust: server.Exact, method: "bootstrap over 20 prompts",
			others: []bench.OtherSource{{Source: "vllm counters", Trust: server.Idle, Value: 1 + 195./104}},
		},
		"sources disagree": {
			acceptCase: acceptCase{sp: chain(3), request: eagle3, pass: countersOf(104, 150, 312, 300)},
			value:      1 + 195./104, source: "vllm metrics.speculative_decoding", trust: server.Exact, method: "bootstrap over 20 prompts",
			others: []bench.OtherSource{{Source: "vllm counters", Trust: server.Idle, Value: 1 + 150./104}},
			notes:  []string{"the sources disagree by 15 %: vllm metrics.speculative_decoding says 2.88, vllm counters 2.44"},
		},
		"by counters": {
			acceptCase: acceptCase{sp: chain(3), request: tokens(300), pass: countersOf(104, 195, 312, 300, 84, 63, 48)},
			value:      1 + 195./104, source: "vllm counters", trust: server.Idle, method: "Student t over 3 runs: how much other prompts would differ is not in it",
		},
		"derived in the answers gives way to counters": {
			acceptCase: acceptCase{sp: chain(3), request: func(r *bench.Request) {
				eagle3(r)
				r.Accept.Approx, r.Accept.Source = true, "llama.cpp timings"
			}, pass: countersOf(104, 195, 312, 300)},
			value: 1 + 195./104, source: "vllm counters", trust: server.Idle, method: "Student t over 3 runs",
			others: []bench.OtherSource{{Source: "llama.cpp timings", Trust: server.Approx, Value: 1 + 195./104}},
			notes:  []string{"the mean over prompts, and the accept lengths by category and output length, are from llama.cpp timings"},
		},
		"too few answers count": {
			acceptCase: acceptCase{sp: chain(3), request: func(r *bench.Request) {
				if eagle3(r); r.Prompt < "p02" {
					r.Accept = nil
				}
			}, pass: countersOf(104, 195, 312, 300)},
			value: 1 + 195./104, source: "vllm counters", trust: server.Idle, method: "Student t over 3 runs",
			notes: []string{"54 of 60 answers carry accept counts: too few to go by"},
		},
		"SGLang's counters, derived": {
			acceptCase: acceptCase{sp: chain(3), request: tokens(300), pass: both(countersOf(104, 195, 312, 300), func(p *bench.Pass) {
				p.Before.Accepted, p.After.Accepted, p.Before.Drafted, p.After.Drafted = nil, nil, nil, nil
			})},
			value: 1 + 195./104, source: "vllm counters, accepted = generated − finished − steps", trust: server.Approx, method: "Student t over 3 runs",
			notes: []string{"derived: the server does not count all that τ is made of"},
		},
		"counters that others use too": {
			acceptCase: acceptCase{sp: chain(3), request: eagle3, pass: countersOf(104, 100, 312, 330)},
			value:      1 + 195./104, source: "vllm metrics.speculative_decoding", trust: server.Exact, method: "bootstrap over 20 prompts",
			others: []bench.OtherSource{{Source: "vllm counters", Trust: server.Low, Value: 1 + 100./104}},
			notes:  []string{"contaminated: 9.1 % of the server's tokens are not of this measurement, so its counters are others' too"},
		},
		"a server that restarts": {
			acceptCase: acceptCase{sp: chain(3), request: tokens(300), pass: both(countersOf(104, 195, 312, 300), func(p *bench.Pass) {
				if p.Run == 2 {
					p.After.Started = new(2.0)
				}
			})},
			source: "none", trust: server.Low,
			notes: []string{
				"no accept length by counters: the server restarted or its counters went back: no deltas (concurrency 1, run 2)",
				"the server does not tell its accept length: no counts in its answers and no counters at its metrics URL",
			},
		},
		"tokens a chunk": {
			acceptCase: acceptCase{sp: chain(3), request: func(r *bench.Request) {
				r.Tokens, r.ChunkTokens = 9, []int{2, 3, 1, 3}
			}},
			value: 7. / 3, source: "tokens per chunk", trust: server.Proxy, method: "bootstrap over 20 prompts",
			notes: []string{"each chunk is taken for one verify step; one that holds more makes the accept length too high"},
		},
		"a token a chunk is no sign": {
			acceptCase: acceptCase{sp: server.Speculation{}, request: func(r *bench.Request) {
				r.Tokens, r.ChunkTokens = 4, []int{1, 1, 1, 1}
			}},
			source: "none", trust: server.Low,
			notes: []string{"the server does not tell its accept length: no counts in its answers and no counters at its metrics URL"},
		},
		"an average over the server's life": {
			acceptCase: acceptCase{sp: chain(3), request: tokens(300), pass: func(p *bench.Pass) { p.After.Lifetime = new(2.5) }},
			value:      2.5, source: "/server_info", trust: server.Approx, method: "no interval",
			notes: []string{average},
		},
		"an average of too few steps": {
			acceptCase: acceptCase{sp: chain(3), request: tokens(3), pass: func(p *bench.Pass) { p.After.Lifetime = new(2.5) }},
			value:      2.5, source: "/server_info", trust: server.Low, method: "no interval",
			notes: []string{average},
		},
		"the log, then a gauge": {
			acceptCase: acceptCase{sp: chain(3), request: tokens(300), pass: func(p *bench.Pass) {
				p.Before.LogSteps, p.Before.LogTokens = new(100.), new(300.)
				p.After.LogSteps, p.After.LogTokens = new(200.), new(460.)
				p.After.Window = new(3.)
			}},
			value: 1.6, source: "server log", trust: server.Low, method: "no interval",
			others: []bench.OtherSource{{Source: "gauge", Trust: server.Low, Value: 3}},
			notes:  []string{"the log gives means of its windows, of all that the server did"},
		},
		"speculation is off": {
			acceptCase: acceptCase{sp: server.Speculation{Known: true}, request: func(r *bench.Request) {
				r.Tokens, r.ChunkTokens = 5, []int{1, 1, 2, 1}
			}},
			source: "none", trust: server.Low, notes: []string{"the server says that it does not speculate"},
		},
		"ngram, most steps draft nothing": { // as vLLM counted 300 tokens
			acceptCase: acceptCase{sp: server.Speculation{Known: true, On: true, Method: "ngram", Steps: 4}, request: func(r *bench.Request) {
				r.Tokens = 300
				r.Accept = &server.Accept{Steps: 50, Accepted: 68, Drafted: 170, Source: "vllm"}
			}},
			value: 2.36, source: "vllm", trust: server.Exact, method: "bootstrap over 20 prompts",
			notes: []string{"78 % of the decode steps drafted nothing and are not in the accept length: with them a step gives 1.29 tokens"},
		},
		"hidden states are extracted": { // vLLM counts drafts there too
			acceptCase: acceptCase{sp: server.Speculation{Known: true, On: true, Steps: 1}, request: tokens(46), pass: countersOf(45, 0, 45, 46, 0)},
			value:      1, source: "vllm counters", trust: server.Idle, method: "Student t over 3 runs", notes: []string{"not one of 2700 drafts was accepted"},
		},
		"16 tokens asked for, 1 step runs": {
			acceptCase: acceptCase{
				sp: server.Speculation{Known: true, On: true, Method: "EAGLE3", Steps: 1, TopK: 1, DraftTokens: 16, AskedSteps: 15, AskedBy: "speculative_num_draft_tokens"},
				request: func(r *bench.Request) {
					r.Accept = &server.Accept{Steps: 62, Accepted: 37, Drafted: 62, Source: "sglang"}
				},
			},
			value: 1 + 37./62, source: "sglang", trust: server.Exact, method: "bootstrap over 20 prompts", notes: []string{"15 steps asked for, 1 step run"},
		},
		"counts that no server has": {
			acceptCase: acceptCase{sp: chain(3), request: func(r *bench.Request) {
				r.Accept = &server.Accept{Steps: 1e308, Accepted: math.MaxFloat64, Source: "hostile"}
				if r.Prompt >= "p10" {
					r.Accept = &server.Accept{Steps: 1e-320, Accepted: 1, Drafted: 1, Source: "hostile"}
				}
			}, pass: both(countersOf(104, 195, 312, 100), func(p *bench.Pass) { p.After.Accepted = new(1e300) })},
			source: "none", trust: server.Low,
			notes: []string{"the server does not tell its accept length: no counts in its answers and no counters at its metrics URL"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.report(t)
			if math.Abs(got.Pooled.Value-tt.value) > 1e-9 || got.Source != tt.source || got.Trust != tt.trust {
				t.Errorf("got %.4f by %q (%s), want %.4f by %q (%s)", got.Pooled.Value, got.Source, got.Trust, tt.value, tt.source, tt.trust)
			}
			if !strings.HasPrefix(got.Pooled.Method, tt.method) || got.Pooled.Low > got.Pooled.Value || got.Pooled.High < got.Pooled.Value {
				t.Errorf("got %v by %q, want an interval around the value by %q", got.Pooled, got.Pooled.Method, tt.method)
			}
			if diff := cmp.Diff(tt.others, got.Others, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("other sources (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.notes, got.Notes); diff != "" {
				t.Errorf("notes (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAcceptPositions takes the acceptance by position from where it is.
func TestAcceptPositions(t *testing.T) {
	t.Parallel()
	want := []float64{84. / 104, 63. / 104, 48. / 104}
	tests := map[string]struct {
		acceptCase
		joint []float64
	}{
		"answers":  {acceptCase{sp: chain(3), request: eagle3}, want},
		"counters": {acceptCase{sp: chain(3), request: tokens(300), pass: countersOf(104, 195, 312, 300, 84, 63, 48)}, want},
		"answers without positions": {acceptCase{sp: chain(3), request: func(r *bench.Request) {
			eagle3(r)
			r.Accept.Positions = nil
		}, pass: countersOf(104, 195, 312, 300, 84, 63, 48)}, want},
		"one position": {acceptCase{sp: chain(1), request: func(r *bench.Request) {
			r.Accept = &server.Accept{Steps: 62, Accepted: 37, Drafted: 62, Source: "sglang"}
		}}, []float64{37. / 62}},
		"not known": {acceptCase{sp: chain(3), request: func(r *bench.Request) {
			eagle3(r)
			r.Accept.Positions = nil
		}}, nil},
		"some answers without": {acceptCase{sp: chain(3), request: func(r *bench.Request) {
			if eagle3(r); r.Prompt == "p07" {
				r.Accept.Positions = nil
			}
		}}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := tt.report(t)
			if diff := cmp.Diff(tt.joint, got.Joint, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("joint (-want +got):\n%s", diff)
			}
			if len(got.Conditional) != len(tt.joint) || len(tt.joint) == 3 && math.Abs(got.Conditional[2]-48./63) > 1e-9 {
				t.Errorf("got conditional %v of joint %v", got.Conditional, got.Joint)
			}
		})
	}
}

// TestAcceptGroups pools prompts, not answers: repeated runs narrow no interval, a long
// answer weighs more in the pooled figure and not in the mean over prompts.
func TestAcceptGroups(t *testing.T) {
	t.Parallel()
	long := func(r *bench.Request) bool { return r.Prompt >= "p10" }
	got := acceptCase{sp: chain(3), request: func(r *bench.Request) {
		r.Category, r.Tokens, r.Accept = "math", 101, &server.Accept{Steps: 40, Accepted: 60, Drafted: 120, Source: "x"}
		if long(r) {
			r.Category, r.Tokens, r.Accept = "writing", 601, &server.Accept{Steps: 400, Accepted: 200, Drafted: 1200, Source: "x"}
		}
	}}.report(t)
	if got.Pooled.N != simulatedPrompts || got.Macro.N != simulatedPrompts {
		t.Errorf("got %d and %d units, want the %d prompts", got.Pooled.N, got.Macro.N, simulatedPrompts)
	}
	if pooled, macro := 1+260./440, (2.5+1.5)/2; math.Abs(got.Pooled.Value-pooled) > 1e-9 || math.Abs(got.Macro.Value-macro) > 1e-9 {
		t.Errorf("got pooled %.4f, macro %.4f, want %.4f and %.4f", got.Pooled.Value, got.Macro.Value, pooled, macro)
	}
	if got.Steps != 3*10*440 || got.PerStep != 3 || math.Abs(got.Rate-260./1320) > 1e-9 {
		t.Errorf("got %g steps, %g drafted in each, rate %g", got.Steps, got.PerStep, got.Rate)
	}
	lengths := []bench.LengthBucket{{From: 0, To: 128, N: 10, Accept: 2.5}, {From: 512, To: 2048, N: 10, Accept: 1.5}}
	if diff := cmp.Diff(lengths, got.ByLength, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("by length (-want +got):\n%s", diff)
	}
	categories := []bench.CategoryAccept{{Category: "math", N: 10, Accept: 2.5}, {Category: "writing", N: 10, Accept: 1.5}}
	if diff := cmp.Diff(categories, got.ByCategory, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("by category (-want +got):\n%s", diff)
	}
}

// TestAcceptLevels reports each load when there are several, and no warm-up, no
// incomplete pass and no baseline.
func TestAcceptLevels(t *testing.T) {
	t.Parallel()
	arm := specArm([]float64{100, 101}, 0)
	arm.request = func(r *bench.Request) {
		r.Accept = &server.Accept{Steps: 50, Accepted: 50, Drafted: 150, Source: "x"}
		if r.Level.Concurrency == 8 {
			r.Accept.Accepted = 25
		}
	}
	log := logOf(concurrency(1, 8), arm, baseArm([]float64{90, 91}))
	for i := range log.Passes {
		p := log.Passes[i]
		p.Requests = append([]bench.Request{}, p.Requests...)
		for j := range p.Requests {
			p.Requests[j].Accept = &server.Accept{Steps: 1, Accepted: 3, Source: "not to be counted"}
		}
		unfinished, warmUp := p, p
		unfinished.Complete, unfinished.Run = false, 9
		warmUp.WarmUp, warmUp.Run = true, 1
		log.Passes = append(log.Passes, unfinished, warmUp)
	}
	type figure struct {
		Level string
		Value float64
	}
	var got []figure
	for _, a := range bench.Analyse(log, bench.Judgement{}).Accept {
		if a.Arm != "speculation" {
			t.Errorf("got an accept length of %s", a.Arm)
		}
		got = append(got, figure{a.Level, a.Pooled.Value})
	}
	want := []figure{{"", 1.75}, {"concurrency 1", 2}, {"concurrency 8", 1.5}}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("accept lengths (-want +got):\n%s", diff)
	}
}

// TestAcceptCoverage draws prompts of which each has an accept length of its own, and
// holds that the interval covers that of all such prompts about as often as it says.
func TestAcceptCoverage(t *testing.T) {
	t.Parallel()
	const trials, nominal = 120, 0.95
	covered := 0
	for seed := range uint64(trials) {
		rng := rand.New(rand.NewPCG(seed, 7))
		mean := map[string]float64{}
		got := acceptCase{sp: chain(3), request: func(r *bench.Request) {
			if _, ok := mean[r.Prompt]; !ok {
				mean[r.Prompt] = 0.8 + 0.6*rng.Float64() // 1.1 over all prompts
			}
			r.Accept = &server.Accept{Steps: 100, Accepted: 100 * mean[r.Prompt], Drafted: 300, Source: "x"}
		}}.report(t).Pooled
		if got.Low <= 2.1 && 2.1 <= got.High {
			covered++
		}
	}
	// 20 prompts cover 91 to 92 % instead of 95 % (percentile bootstrap), ±3 standard errors.
	if share := float64(covered) / trials; share < 0.915-0.077 || share > nominal+0.05 {
		t.Errorf("got the true accept length in %.1f %% of the intervals, want about 92 %%", 100*share)
	}
}
