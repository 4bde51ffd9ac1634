package bench_test

import (
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/server"
	"hsx/internal/simserver"
)

// TestSimCounters has the traps that are in what a server counts. Rows of one number are one trap.
func TestSimCounters(t *testing.T) {
	t.Parallel()
	const metrics = "/metrics"
	noSteps := simEdit(metrics, simReplace(`(?m)^.*sglang:spec_verify_calls_total.*\n`, ""))
	noContinuous := simAsk(simReplace(`"continuous_usage_stats":true,?`, ""))
	average := func(of string) func(http.Handler) http.Handler {
		return simEdit("/server_info", simReplace(`"avg_spec_accept_length":[0-9.]+,?`, of))
	}
	untrusted := func(value float64, source string) func(*testing.T, *bench.Report, *simResult) {
		return func(t *testing.T, r *bench.Report, _ *simResult) {
			a := r.Accept[0]
			if a.Trust != server.Low || a.Source != source || math.Abs(a.Pooled.Value-value) > 1e-9 {
				t.Errorf("accept length: got %v by %s, trust %s, want %v by %s, low", a.Pooled, a.Source, a.Trust, value, source)
			}
			if r.Promise.Outcome != "not comparable" {
				t.Errorf("promise: got %q, want no verdict", r.Promise.Outcome)
			}
			if r.Gate.Outcome != bench.GateVoid {
				t.Errorf("gate: got %q, want it void", r.Gate.Outcome)
			}
		}
	}
	traps := map[string]simTrap{
		"1 gauge of other days beside counters": {
			run: simRun{spec: speculating(simserver.SGLang).with(func(a *simArm) { a.Faults.StaleGauge = true })},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				a := r.Accept[0]
				i := slices.IndexFunc(a.Others, func(o bench.OtherSource) bool { return o.Source == "sglang metrics, gauge" })
				if i < 0 || a.Others[i].Value != 4 || a.Others[i].Trust != server.Low {
					t.Errorf("other sources: got %+v, want a gauge of 4 and low trust", a.Others)
				}
				wantUnsaid(t, "notes", a.Notes, "disagree")
			},
		},
		"1 nothing but the gauge": {
			run: simRun{spec: speculating(simserver.SGLang).with(func(a *simArm) {
				a.Faults.StaleGauge, a.wrap = true, simWraps(noSteps, noContinuous, average(""))
			})},
			promise: 2.9,
			check:   untrusted(4, "sglang metrics, gauge"),
		},
		"2 average of a server's whole life": {
			run: simRun{spec: speculating(simserver.SGLang).with(func(a *simArm) {
				a.Faults.MetricsAuth, a.wrap = true, simWraps(noContinuous, average(`"avg_spec_accept_length":3.9,`))
			})},
			promise: 2.9,
			check:   untrusted(3.9, "/server_info"),
		},
		"2 average of a life that is all ours": {
			run: simRun{
				spec: speculating(simserver.SGLang).with(func(a *simArm) { a.Faults.MetricsAuth, a.wrap = true, noContinuous }),
				plan: func(p *bench.Plan) { p.WarmUpRuns = 0 },
			},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				a, want := r.Accept[0], simTau(run.truth["spec"])
				if a.Source != "/server_info" || a.Trust != server.Approx || math.Abs(a.Pooled.Value-want) > 0.05 {
					t.Errorf("accept length: got %v by %s, trust %s, want about %v, approximate", a.Pooled, a.Source, a.Trust, want)
				}
			},
		},
		"5 tensor-parallel ranks repeat each other": {
			run: simRun{spec: speculating(simserver.SGLang).with(func(a *simArm) {
				a.wrap = simEdit(metrics, simReplace(`(?m)^(sglang:(?:spec_verify_calls|generation_tokens|num_requests)_total\{)(.*)$`, "${1}tp_rank=\"0\",${2}\n${1}tp_rank=\"1\",${2}"))
			})},
			check: wantTruth,
		},
		"6 what else metrics hold": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) {
				a.Model = "a \"model\" of {2} \\ kinds\nand lines"
				a.Faults.MetricsNaN, a.Faults.Malformed = true, true
				a.wrap = simWraps(
					simEdit(metrics, simReplace(`(?m)^(vllm:\S*tokens_total\{.*\}) (\d+)(\d)\.0$`, `${1} ${2}.${3}e+01 # {trace_id="x"} 1 1700000000.5`)),
					simEdit(metrics, simReplace(`\z`, "# EOF\n")),
				)
			})},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				if a := r.Accept[0]; a.Trust != server.Idle {
					t.Errorf("source: got %s, %s, want counters", a.Source, a.Trust)
				}
				wantSaid(t, "doubts", r.Validity[0].Doubts, "malformed metrics line")
			},
		},
		"7 metrics want the key": {
			run:   simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Key, a.client.Key = "sim-key", "sim-key" })},
			check: wantTruth,
		},
		"7 metrics of two servers behind a router": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) {
				a.replicas, a.client.MetricsURLs = 1, []string{"http://spec", "http://spec-1/metrics"}
			})},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run)
				if f := r.Validity[0].Foreign; f == nil || *f != 0 {
					t.Errorf("tokens of others: got %v, want none", f)
				}
			},
		},
		"7 metrics of one of two servers behind a router": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.replicas = 1 })},
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				wantSaid(t, "doubts", r.Validity[0].Doubts, "a rank's are missing")
			},
		},
		"7 metrics at another path": {
			run: simRun{spec: speculating(simserver.TRTLLM).with(func(a *simArm) {
				a.client.MetricsURLs = []string{"http://spec/prometheus/metrics"}
			})},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run) // by the answers
				want := bench.OtherSource{Source: "tensorrt-llm metrics, steps = drafts / positions", Trust: server.Approx, Value: simTau(run.truth["spec"])}
				if len(r.Accept[0].Others) == 0 || r.Accept[0].Others[0] != want {
					t.Errorf("other sources: got %+v, want %+v first", r.Accept[0].Others, want)
				}
			},
		},
		"7 metrics that nobody may read": {
			run: simRun{spec: speculating(simserver.LlamaCpp).with(func(a *simArm) { a.Faults.MetricsAuth = true })},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run) // by the answers
				wantSaid(t, "doubts", r.Validity[0].Doubts, "refuses access (HTTP 401)")
			},
		},
		"8 a few tokens for others": {
			run:     simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Faults.Foreign = 0.05 }), base: plain(simserver.VLLM)},
			promise: 2.9,
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				if f := r.Validity[0].Foreign; f == nil || math.Abs(*f-0.05/1.05) > 0.002 {
					t.Errorf("tokens of others: got %v, want %v", f, 0.05/1.05)
				}
				i := slices.IndexFunc(r.Accept[0].Others, func(o bench.OtherSource) bool { return o.Source == "vllm metrics" })
				if i < 0 || r.Accept[0].Others[i].Trust != server.Low {
					t.Errorf("other sources: got %+v, want the counters, of low trust", r.Accept[0].Others)
				}
				wantSaid(t, "notes", r.Accept[0].Notes, "contaminated: 4.8 % of the server's tokens")
				wantSaid(t, "warnings", r.Verdict.Warnings, "4.8 % of the tokens that the server made are of other clients")
				wantSaid(t, "diagnosis", rules(r), "other-clients")
			},
		},
		"8 many tokens for others": {
			run: simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Faults.Foreign, a.PerRequest = 0.5, true }), base: plain(simserver.VLLM)},
			check: func(t *testing.T, r *bench.Report, run *simResult) {
				wantTruth(t, r, run) // what an answer says of itself is ours alone
				wantSaid(t, "void", r.Verdict.Void, "33 % of the tokens that the server made are of other clients")
			},
		},
	}
	for _, engine := range []string{simserver.VLLM, simserver.SGLang, simserver.LlamaCpp, simserver.TRTLLM} {
		traps["3 late counters, "+engine] = simTrap{
			run:   simRun{spec: speculating(engine).with(func(a *simArm) { a.Faults.LateCounters = 700 * time.Millisecond })},
			check: wantTruth,
		}
		traps["5 ranks, "+engine] = simTrap{
			run:   simRun{spec: speculating(engine).with(func(a *simArm) { a.Ranks = 3 })},
			check: wantTruth,
		}
		if engine == simserver.TRTLLM {
			continue // its list has no counters that could go back
		}
		traps["4 counters go back, "+engine] = simTrap{
			run: simRun{spec: speculating(engine).with(func(a *simArm) { a.Faults.ResetAfter = 30 }), base: plain(engine)},
			check: func(t *testing.T, r *bench.Report, _ *simResult) {
				if !r.Validity[0].Restarted || r.Validity[1].Restarted {
					t.Errorf("restarted: got %v and %v, want the first only", r.Validity[0].Restarted, r.Validity[1].Restarted)
				}
				wantSaid(t, "void", r.Verdict.Void, "spec: the server restarted in the middle")
				wantSaid(t, "notes", r.Accept[0].Notes, "no accept length by counters: the server restarted")
				if strings.Contains(r.Accept[0].Source, "metrics") {
					t.Errorf("source: got %s, want no counters", r.Accept[0].Source)
				}
			},
		}
	}
	simTraps(t, traps)
}
