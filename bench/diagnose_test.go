package bench_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
	"hsx/bench/server"
)

// oneStep is the server of the field case: asked for 16 draft tokens, it runs one step.
func oneStep() server.Speculation {
	return server.Speculation{
		Known: true, On: true, Method: "EAGLE3", Steps: 1, TopK: 1, DraftTokens: 2,
		AskedSteps: 15, AskedBy: "speculative_num_draft_tokens",
	}
}

// drafting makes an arm's answers carry a, whose accept length differs by spread between
// prompts.
func drafting(arm simulated, a *server.Accept, spread float64) simulated {
	arm.tau = 0
	arm.request = func(r *bench.Request) {
		b := *a
		b.Accepted += b.Steps * spread * float64(1-2*int(r.Prompt[2]%2))
		r.Accept = &b
	}
	return arm
}

func with(arm simulated, change func(*simulated)) simulated {
	change(&arm)
	return arm
}

// lasting changes every request of an arm after it was built.
func lasting(arm simulated, change func(*bench.Request)) simulated {
	before := arm.request
	arm.request = func(r *bench.Request) {
		if before != nil {
			before(r)
		}
		change(r)
	}
	return arm
}

func TestDiagnosis(t *testing.T) {
	t.Parallel()
	base := func() simulated { return baseArm(spread5(90, 0.03, true)) }
	spec := func(rate float64) simulated { return specArm(spread5(rate, 0.03, false), 0) }
	good := func(rate float64) simulated { return drafting(spec(rate), chained(0.75, 0.7, 0.65), 0.05) }
	trained := positions(0.75, 0.7, 0.65)
	field := bench.Judgement{Promise: number(2.95)}
	tests := map[string]struct {
		arms   []simulated
		levels []bench.Level
		j      bench.Judgement
		rules  []string
		first  string // a part of the first message
		do     string // a part of the first advice
	}{
		"nothing to say": {arms: []simulated{good(150), base()}},
		"field case, step 1: a cap of 512 on a model that thinks": {
			arms: []simulated{
				lasting(with(good(56.8), func(s *simulated) { s.info.Thinks = true; s.pass = func(p *bench.Pass) { p.MaxTokens = 512 } }),
					func(r *bench.Request) {
						if r.Prompt >= "p08" {
							r.Tokens, r.FinishReason = 512, "length"
						}
					}),
			},
			rules: []string{"truncated"}, first: "60 % of speculation's answers at 512 tokens", do: "--max-tokens 8192",
		},
		"field case, step 2: one step runs, 16 draft tokens were asked for": {
			arms: []simulated{drafting(with(spec(56.8), func(s *simulated) { s.info.Speculation = oneStep() }), ofLength(1, 1.65), 0.05), base()},
			j:    field, rules: []string{"fewer-steps-than-asked", "promise-kept-step-cost"},
			first: "speculation was asked for 15 steps by speculative_num_draft_tokens and runs 1: an accept length above 2 is out of its reach",
			do:    "steps, top-k and draft tokens",
		},
		"field case, step 5: a clean server": {
			arms: []simulated{drafting(spec(71.3), ofLength(3, 1.6), 0.1), base()},
			j:    bench.Judgement{Promise: trained}, rules: []string{"promise-broken", "step-cost"},
			first: "accept length 1.60 measured, 2.62 promised at 3 steps: not known by position",
		},
		"field case, step 6: two steps are best": {
			arms: []simulated{
				drafting(with(spec(80), func(s *simulated) {
					s.arm.Name, s.arm.Steps, s.info.Speculation = "steps=1", 1, chain(1)
				}), ofLength(1, 1.5), 0.05),
				drafting(with(spec(94), func(s *simulated) {
					s.arm.Name, s.arm.Steps, s.info.Speculation = "steps=2", 2, chain(2)
				}), ofLength(2, 1.6), 0.05),
				base(),
			},
		},
		"the resolver goes first": {
			arms:  []simulated{drafting(with(spec(56.8), func(s *simulated) { s.info.Speculation = oneStep() }), ofLength(1, 1.65), 0.05), base()},
			j:     bench.Judgement{Mismatch: []string{"layers differ", "and more"}, Promise: number(2.95)},
			rules: []string{"resolver-mismatch", "resolver-mismatch", "fewer-steps-than-asked", "promise-kept-step-cost"}, first: "layers differ",
		},
		"cost without a promise": {
			arms: []simulated{drafting(spec(71.3), ofLength(3, 1.6), 0.1), base()}, rules: []string{"step-cost"},
			first: "each step costs 2.0 plain steps, so speculation is faster above an accept length of 2.02, and has 1.60", do: "make a step cheaper",
		},
		"the first position": {
			arms: []simulated{drafting(spec(94), chained(0.3, 0.68, 0.64), 0.05), base()},
			j:    bench.Judgement{Promise: trained}, rules: []string{"promise-broken-first-position", "accept-length-limits"},
			first: "position 1 is accepted in 30 % of the steps, promised 75 %: the first position is where inputs show", do: "hsx validate --layers IDS --draft DRAFT --server sglang DATA",
		},
		"a later position": {
			arms: []simulated{drafting(spec(150), chained(0.74, 0.3, 0.3), 0.05), base()},
			j:    bench.Judgement{Promise: trained}, rules: []string{"promise-broken-later", "accept-length-limits"},
			first: "position 2 is accepted in 30 % of the cases that reach it, promised 70 %", do: "train with as many of the draft's own steps",
		},
		"a promise that can be read in two ways": {
			arms: []simulated{drafting(spec(150), ofLength(3, 2.5), 0.05), base()}, j: field,
			rules: []string{"promise-unclear"}, first: "accept length 2.50 measured, 2.39 promised at 3 steps: kept or broken, as the number is read",
		},
		"falls with the length of answers": {
			arms: []simulated{lasting(good(150), func(r *bench.Request) {
				r.Tokens = 100
				if r.Prompt >= "p10" {
					r.Tokens, r.Accept = 600, ofLength(3, 1.9)
				}
			}), base()},
			j: bench.Judgement{Promise: trained}, rules: []string{"falls-with-length", "accept-length-limits"},
			first: "the accept length falls from 2.62 in short answers to 1.90 in long ones", do: "max_position_embeddings",
		},
		"falls with the length of answers, without a promise": {
			arms: []simulated{lasting(good(150), func(r *bench.Request) {
				if r.Tokens = 100; r.Prompt >= "p10" {
					r.Tokens, r.Accept = 600, ofLength(3, 1.9)
				}
			}), base()},
			rules: []string{"falls-with-length"}, first: "the accept length falls from",
		},
		"synthetic acceptance": {
			arms:  []simulated{with(good(150), func(s *simulated) { s.info.Speculation.Synthetic = "rejection_sample_method=synthetic" }), base()},
			rules: []string{"synthetic-acceptance"}, first: "rejection_sample_method=synthetic", do: "start the server without it",
		},
		"the baseline speculates": {
			arms:  []simulated{good(150), with(base(), func(s *simulated) { s.info.Speculation = chain(3) })},
			rules: []string{"baseline-speculates"}, first: "the baseline speculates itself, by eagle3",
		},
		"nothing is accepted": {
			arms:  []simulated{drafting(spec(80), ofLength(3, 1), 0), base()},
			rules: []string{"nothing-accepted", "step-cost"}, first: "not one of 300000 draft tokens was accepted", do: "only extracts hidden states",
		},
		"under load": {
			arms: []simulated{with(good(150), func(s *simulated) {
				s.pass = func(p *bench.Pass) {
					if p.Level.Concurrency == 32 {
						p.Wall *= 2
					}
				}
			}), base()},
			levels: concurrency(1, 32), rules: []string{"concurrency-loses"},
			first: "it pays at concurrency 1 (1.67×) and not at concurrency 32 (0.83×)", do: "serve fewer draft tokens under load",
		},
		"loops": {
			arms:  []simulated{lasting(good(150), func(r *bench.Request) { r.Distinct4 = 0.01 }), base()},
			rules: []string{"repetition"}, first: "100 % of speculation's answers repeat themselves", do: "--keep-text",
		},
		"no chat template": {
			arms:  []simulated{with(good(150), func(s *simulated) { s.info.API = server.APISGLang }), base()},
			rules: []string{"no-chat-template"}, first: "prompts go to speculation's sglang route without a chat template", do: "--api chat",
		},
		"thinking in one arm": {
			arms:  []simulated{with(good(150), func(s *simulated) { s.info.Thinks = true }), base()},
			rules: []string{"thinking-differs"}, first: "speculation thinks before it answers and baseline does not", do: "--thinking",
		},
		"other clients": {
			arms: []simulated{with(good(150), func(s *simulated) {
				s.pass = func(p *bench.Pass) {
					n := 0
					for _, q := range p.Requests {
						n += q.Tokens
					}
					p.Before.Generated, p.After.Generated = new(0.), new(float64(n)/0.95)
					p.Before.Source, p.After.Source = "counters", "counters"
				}
			}), base()},
			rules: []string{"other-clients"}, first: "5 % of the tokens that speculation made were for other clients", do: "nobody else uses",
		},
		"no source": {
			arms:  []simulated{with(spec(150), func(s *simulated) { s.info.Engine = server.VLLM }), with(base(), func(s *simulated) { s.info.Engine = server.VLLM })},
			rules: []string{"no-accept-length"}, first: "speculation does not tell its accept length", do: "--per-request-spec-decode-metrics detailed",
		},
		"arguments differ": {
			arms: []simulated{
				with(good(150), func(s *simulated) {
					s.info.Arguments = map[string]string{"mem_fraction_static": "0.7", "speculative_num_steps": "3", "dtype": "bf16", "tp_size": "8", "max_running_requests": "64"}
				}),
				with(base(), func(s *simulated) {
					s.info.Arguments = map[string]string{"mem_fraction_static": "0.88", "dtype": "fp16", "tp_size": "4", "max_running_requests": "256"}
				}),
			},
			rules: []string{"arguments-differ"}, first: "mem_fraction_static is 0.7, baseline 0.88 (room for", do: "the same arguments",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			levels := tt.levels
			if levels == nil {
				levels = concurrency(1)
			}
			found := bench.Analyse(logOf(levels, tt.arms...), tt.j).Diagnosis
			var rules []string
			for _, f := range found {
				rules = append(rules, f.Rule)
			}
			if diff := cmp.Diff(tt.rules, rules); diff != "" {
				t.Fatalf("rules (-want +got):\n%s\n%+v", diff, found)
			}
			if len(found) > 0 && (!strings.Contains(found[0].Message, tt.first) || !strings.Contains(found[0].Do, tt.do)) {
				t.Errorf("got %q, do %q; want %q and %q in them", found[0].Message, found[0].Do, tt.first, tt.do)
			}
		})
	}
}

// TestDiagnosisOfTwo says nothing of plain steps where both sides may speculate.
func TestDiagnosisOfTwo(t *testing.T) {
	t.Parallel()
	a := logOf(concurrency(1), drafting(specArm(spread5(70, 0.03, false), 0), ofLength(3, 1.6), 0.1))
	b := logOf(concurrency(1), drafting(specArm(spread5(90, 0.03, true), 0), ofLength(3, 2), 0.1))
	if found := bench.Compare(a, b, bench.Judgement{}).Diagnosis; len(found) != 0 {
		t.Errorf("got %+v, want nothing", found)
	}
}

func TestStepCostAtThePromise(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rate float64
		want string
	}{
		"0.63": {56.8, "each step costs 2.5 plain steps, so speculation is faster above an accept length of 2.54, and has 1.60; even the promised 2.95 would give 1.16×"},
		"0.79": {71.3, "each step costs 2.0 plain steps, so speculation is faster above an accept length of 2.02, and has 1.60; the promised 2.95 would give 1.46×"},
		"1.04": {94, "each step costs 1.5 plain steps, so what is missing is accept length: the promised 2.95 would give 1.93×"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := logOf(concurrency(1), specArm(spread5(tt.rate, 0.03, false), 1.6), baseArm(spread5(90, 0.03, true)))
			var got []string
			for _, f := range bench.Analyse(log, bench.Judgement{Promise: positions(0.8, 0.8, 0.8)}).Diagnosis {
				got = append(got, f.Message)
			}
			if len(got) != 2 || got[1] != tt.want {
				t.Errorf("got %q, want as its second %q", got, tt.want)
			}
		})
	}
}
