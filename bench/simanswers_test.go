package bench_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/server"
	"hsx/internal/simserver"
)

// simNear reports whether two figures agree within a millionth: hsx keeps times to the
// nanosecond, and gaps to the microsecond.
func simNear(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }

// TestSimAnswers has the traps that are in answers and in what they mean.
func TestSimAnswers(t *testing.T) {
	t.Parallel()
	const chat = "/v1/chat/completions"
	traps := map[string]simTrap{
		"9 prefill token, bonus token, pooled and macro": {
			run: simRun{spec: speculating(simserver.SGLang).with(func(a *simArm) {
				a.Generation, a.client.API, a.MinTokens, a.MaxTokens = "B", server.APISGLang, 4, 60
			})},
			promise: 1.9,
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				a, truth := r.Accept[0], run.truth["spec"]
				if said := float64(truth.Tokens) / float64(truth.Steps); said-a.Pooled.Value < 0.05 {
					t.Errorf("the server counts %v with the prefill's tokens, hsx %v: want it clearly lower", said, a.Pooled.Value)
				}
				if a.Macro.N != 20 || math.Abs(a.Macro.Value-a.Pooled.Value) < 1e-3 {
					t.Errorf("mean over prompts: got %v of %d, pooled %v, want another over 20", a.Macro, a.Macro.N, a.Pooled)
				}
				if !strings.Contains(r.Definitions["accept_length"], "bonus") || r.Definitions["macro"] == "" || a.Source == "" {
					t.Errorf("definitions: got %q, want the bonus token in them", r.Definitions["accept_length"])
				}
				if p := r.Promise; !p.Includes || p.Why == "" {
					t.Errorf("promise: got %+v, want it said how it was read", p)
				}
			},
		},
		"9 steps that draft nothing": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Undrafted = 0.4 })},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				truth := run.truth["spec"]
				all := float64(truth.Tokens - truth.Requests - truth.Accepted)
				wantSaid(t, "notes", r.Accept[0].Notes, fmt.Sprintf("with them a step gives %.2f tokens", float64(truth.Tokens-truth.Requests)/all))
			},
		},
		"10 a chunk is not a token": {
			run: simRun{spec: speculating(simserver.VLLM), base: plain(simserver.VLLM)},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				for _, arm := range r.Levels[0].Arms {
					truth, step := run.truth[arm.Arm], 0.010
					tokens, steps := float64(truth.Tokens), float64(truth.Tokens-truth.Requests)
					if arm.Arm == "spec" {
						steps, step = float64(truth.Steps), 0.012
					}
					if want := tokens / (steps * step); !simNear(arm.Throughput.Value, want) {
						t.Errorf("%s: got %v tok/s, want %v", arm.Arm, arm.Throughput.Value, want)
					}
					if math.Abs(arm.ICL.Min-step) > 2e-6 || math.Abs(arm.ICL.Max-step) > 2e-6 {
						t.Errorf("%s: got %v to %v s between chunks, want %v", arm.Arm, arm.ICL.Min, arm.ICL.Max, step)
					}
				}
				spec := r.Levels[0].Arms[0]
				if got, want := spec.ITL.Mean, 0.012/r.Accept[0].Macro.Value; math.Abs(got-want) > 0.1*want {
					t.Errorf("between tokens: got %v s, want about %v", got, want)
				}
				// Without prefills a verify step costs what the break-even length says.
				if got, want := r.Levels[0].Compared[0].BreakEven, 1.2; math.Abs(got-want) > 0.02 {
					t.Errorf("break-even: got %v, want %v, 12 ms against 10", got, want)
				}
			},
		},
		"10 a chunk for each token, in bursts": {
			run: simRun{spec: speculating(simserver.LlamaCpp)},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				arm, truth := r.Levels[0].Arms[0], run.truth["spec"]
				if want := float64(truth.Tokens) / (0.012 * float64(truth.Steps)); !simNear(arm.Throughput.Value, want) || arm.ICL.Min > 1e-6 {
					t.Errorf("got %v tok/s, %v s between chunks at least, want %v and none", arm.Throughput.Value, arm.ICL.Min, want)
				}
			},
		},
		"11 events that are no tokens": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) {
				a.Prefill = 50 * time.Millisecond
				a.Faults.KeepAlive, a.Faults.EmptyChoices, a.Faults.NoDone = true, true, true
				a.wrap = roleFirst
			})},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				arm := r.Levels[0].Arms[0]
				if !simNear(arm.TTFT.Min, 0.05) || !simNear(arm.TTFT.Max, 0.05) || arm.Failed != 0 || arm.Tokens != run.truth["spec"].Tokens {
					t.Errorf("got %v to %v s to the first token, %d failed, want 50 ms and none", arm.TTFT.Min, arm.TTFT.Max, arm.Failed)
				}
				for _, q := range run.log.Passes[1].Requests {
					if q.FirstChunk > time.Millisecond {
						t.Errorf("first chunk: got %v, want the one without a token, at once", q.FirstChunk)
					}
				}
			},
		},
		"11 thinking is no answer": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Steps, a.Think = 0, 40 })},
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				arm := r.Levels[0].Arms[0]
				// The first token is <think>, which a reasoning parser takes away.
				if !simNear(arm.TTFT.Median, 0.012) || !simNear(arm.TTFOT.Median, 40*0.012) {
					t.Errorf("got %v s to the first token and %v to the answer's, want 0.012 and 0.48", arm.TTFT.Median, arm.TTFOT.Median)
				}
			},
		},
		"12 more reasoning tokens than tokens": {
			run: simRun{spec: speculating(simserver.SGLang).with(func(a *simArm) { a.Faults.WrongUsage = true })},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				wantSaid(t, "doubts", r.Validity[0].Doubts, "reasoning_tokens is")
				if got, want := r.Levels[0].Arms[0].Tokens, run.truth["spec"].Tokens; got != want {
					t.Errorf("tokens: got %d, want %d", got, want)
				}
			},
		},
		"12 tokens that no step made": {
			run: simRun{spec: speculating(simserver.SGLang).with(func(a *simArm) {
				a.PerRequest, a.wrap = true, simEdit(chat, simReplace(`"completion_tokens":(\d+)`, `"completion_tokens":9${1}`))
			})},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				wantSaid(t, "doubts", r.Validity[0].Doubts, "verify steps with")
			},
		},
		"13 acceptance that the server makes up": {
			run: simRun{
				spec: speculating(simserver.VLLM).with(func(a *simArm) { a.PerRequest, a.Faults.Synthetic, a.MinTokens, a.MaxTokens = true, true, 100, 200 }),
				base: plain(simserver.VLLM).with(func(a *simArm) { a.MinTokens, a.MaxTokens = 100, 200 }),
			},
			check: wantSynthetic("no text is accepted so evenly"),
		},
		"13 acceptance that an argument makes up": {
			run: simRun{
				spec: speculating(simserver.SGLang).with(func(a *simArm) {
					a.Arguments = map[string]any{"speculative_config": `{"simulate_acc_len": 3.1}`}
				}),
				base: plain(simserver.SGLang),
			},
			check: wantSynthetic("simulate_acc_len=3.1"),
		},
		"14 baseline with other arguments": {
			run: simRun{
				spec: speculating(simserver.SGLang).with(func(a *simArm) { a.Arguments = map[string]any{"mem_fraction_static": 0.7, "log_level": "info"} }),
				base: plain(simserver.SGLang),
			},
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				want := bench.Difference{Argument: "mem_fraction_static", Spec: "0.7", Baseline: "0.85", Matters: "room for the key-value cache: at high concurrency fewer requests run at once"}
				if len(r.Differences) == 0 || r.Differences[0] != want {
					t.Errorf("differences: got %+v, want %+v first", r.Differences, want)
				}
				wantSaid(t, "diagnosis", rules(r), "arguments-differ")
			},
		},
		"15 the same draft on other hardware": {
			run: simRun{
				spec: speculating(simserver.SGLang).with(func(a *simArm) { a.Arguments = map[string]any{"tp_size": 8, "enable_dp_attention": true} }),
				base: plain(simserver.SGLang).with(func(a *simArm) { a.Arguments = map[string]any{"enable_dp_attention": false} }),
			},
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				for _, name := range []string{"tp_size", "enable_dp_attention"} {
					if !slices.ContainsFunc(r.Differences, func(d bench.Difference) bool { return d.Argument == name && d.Matters != "" }) {
						t.Errorf("differences: got %+v, want %s and why it matters", r.Differences, name)
					}
				}
			},
		},
		"16 no chat template": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.client.API = server.APICompletions })},
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				wantSaid(t, "diagnosis", rules(r), "no-chat-template")
				wantSaid(t, "preflight's notes", r.Arms[0].Info.Notes, "no chat template")
			},
		},
		"16 only one arm thinks": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Think = 20 }), base: plain(simserver.VLLM)},
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				wantSaid(t, "diagnosis", rules(r), "thinking-differs")
				wantSaid(t, "warnings", r.Verdict.Warnings, "not the same work")
			},
		},
		"17 positions that the draft was not trained on": {
			run: simRun{
				spec: speculating(simserver.VLLM).with(func(a *simArm) { a.PerRequest, a.Reach, a.MaxTokens = true, 100, 420 }),
				plan: func(p *bench.Plan) { p.Prompts, p.Runs = simPrompts(40), 1 },
			},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				wantSaid(t, "diagnosis", rules(r), "falls-with-length")
			},
		},
	}
	for _, engine := range []string{simserver.VLLM, simserver.SGLang, simserver.LlamaCpp, simserver.TRTLLM} {
		traps["14 baseline speculates, "+engine] = simTrap{
			run: simRun{spec: speculating(engine), base: speculating(engine)},
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				wantSaid(t, "void", r.Verdict.Void, "base speculates")
				wantSaid(t, "diagnosis", rules(r), "baseline-speculates")
				if len(r.Accept) != 1 {
					t.Errorf("accept lengths: got %d, want that of the arm under test", len(r.Accept))
				}
			},
		}
	}
	simTraps(t, traps)
}

// TestSimTemplate looks at what is asked for: chats, whose template the server applies,
// with thinking as it was asked for.
func TestSimTemplate(t *testing.T) {
	t.Parallel()
	var chats, others, switched atomic.Int64
	arm := speculating(simserver.VLLM).with(func(a *simArm) {
		a.Seen = func(r *http.Request, body []byte) {
			if r.URL.Path != "/v1/chat/completions" {
				others.Add(1)
			}
			chats.Add(1)
			if strings.Contains(string(body), `"chat_template_kwargs":{"enable_thinking":false,"thinking":false}`) {
				switched.Add(1)
			}
		}
		a.Think = 30
	})
	run := simulate(t, simRun{spec: arm, plan: func(p *bench.Plan) { p.Params.Thinking = "off" }})
	if run.err != nil {
		t.Fatalf("Run: got error %v, want none", run.err)
	}
	if n := int64(1 + 16 + 2*21); chats.Load() != n || others.Load() != 0 || switched.Load() != n {
		t.Errorf("got %d requests, %d not to the chat route, %d without thinking; want %d, 0 and all", chats.Load(), others.Load(), switched.Load(), n)
	}
	if r := run.report(); r.Validity[0].Thinking {
		t.Error("thinking: got it in the answers, want it off")
	}
}

// roleFirst sends an event that says who speaks before the server has any token.
func roleFirst(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			body, err := io.ReadAll(r.Body) // after the first write it is closed
			if err != nil {
				return // the client left
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = w.Write([]byte(`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"))
			_ = http.NewResponseController(w).Flush() // a client that has left is not told
		}
		h.ServeHTTP(w, r)
	})
}

// wantSynthetic wants a void verdict, and no accept length that a gate takes.
func wantSynthetic(why string) func(*testing.T, *bench.Report, *simResult) {
	return func(t *testing.T, r *bench.Report, _ *simResult) {
		if r.Verdict.Outcome != bench.Void || r.Gate.Outcome != bench.GateVoid {
			t.Errorf("got verdict %q and gate %q, want both void", r.Verdict.Outcome, r.Gate.Outcome)
		}
		wantSaid(t, "void", r.Verdict.Void, why)
		wantSaid(t, "diagnosis", rules(r), "synthetic-acceptance")
	}
}
