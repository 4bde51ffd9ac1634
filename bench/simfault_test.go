package bench_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
	"hsx/bench/server"
	"hsx/internal/simserver"
)

// TestSimRetries measures a server that turns requests away now and then as if it had
// not: what is lost so is counted, and is in no figure.
func TestSimRetries(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		level bench.Level
		wrap  func(http.Handler) http.Handler
	}{
		"429":              {bench.Level{Concurrency: 1}, simEvery(3, 0, simStatus(http.StatusTooManyRequests, 0))},
		"429, wait":        {bench.Level{Concurrency: 1}, simEvery(5, 0, simStatus(http.StatusTooManyRequests, 7))},
		"500, slow":        {bench.Level{Concurrency: 1}, simEvery(4, time.Second, simStatus(http.StatusInternalServerError, 0))},
		"503, open loop":   {bench.Level{Rate: 0.2}, simEvery(4, 0, simStatus(http.StatusServiceUnavailable, 3))},
		"dropped, no word": {bench.Level{Concurrency: 1}, simEvery(3, 0, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			measure := func(wrap func(http.Handler) http.Handler) *simResult {
				run := simulate(t, simRun{
					spec: speculating(simserver.VLLM).with(func(a *simArm) { a.wrap = wrap }), base: plain(simserver.VLLM),
					plan: func(p *bench.Plan) { p.Levels = []bench.Level{tt.level} },
				})
				if run.err != nil {
					t.Fatalf("Run: got error %v, want none", run.err)
				}
				return run
			}
			clean, run := measure(nil).report(), measure(tt.wrap)
			r := run.report()
			waited := 0
			for _, p := range run.log.Passes {
				for _, q := range p.Requests {
					if p.Complete && !p.WarmUp {
						waited += q.Attempts - 1
					}
				}
			}
			if v := r.Validity[0]; v.Retries == 0 || v.Retries != waited || v.Failed != 0 {
				t.Errorf("got %d retries, %d failed, want %d and none", v.Retries, v.Failed, waited)
			}
			got, want := r.Levels[0].Arms[0], clean.Levels[0].Arms[0]
			got.ByRunTimes, want.ByRunTimes = nil, nil
			if tt.level.Rate != 0 {
				got.ByRun, want.ByRun = nil, nil // over the wall time, which is the arrivals'
				got.Throughput, got.CV = want.Throughput, want.CV
			}
			if diff := cmp.Diff(want, got, simAlmost()); diff != "" {
				t.Errorf("figures (-without +with retries):\n%s", diff)
			}
			if a, b := r.Levels[0].Compared[0].Speedup, clean.Levels[0].Compared[0].Speedup; !simNear(a.Value, b.Value) {
				t.Errorf("speedup: got %v, without retries %v", a, b)
			}
		})
	}
}

// simAlmost compares figures by [simNear].
func simAlmost() cmp.Option {
	return cmp.Comparer(func(a, b float64) bool { return simNear(a, b) || a-b < 2e-6 && b-a < 2e-6 })
}

// TestSimBadServers ends with what is known, and says what is not.
func TestSimBadServers(t *testing.T) {
	t.Parallel()
	broken := func(change func(f *simserver.Faults)) simRun {
		return simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) {
			a.client.IdleTimeout = 5 * time.Second
			change(&a.Faults)
		}), base: plain(simserver.VLLM)}
	}
	before := func(wrap func(http.Handler) http.Handler) simRun {
		return simRun{spec: speculating(simserver.VLLM).with(func(a *simArm) { a.wrap = wrap }), base: plain(simserver.VLLM)}
	}
	// failed wants so many failures of a kind, of 42 measured requests, in no figure.
	failed := func(kind server.Fault, n int, said string) func(*testing.T, *bench.Report, *simResult) {
		return func(t *testing.T, r *bench.Report, run *simResult) {
			v, arm := r.Validity[0], r.Levels[0].Arms[0]
			if diff := cmp.Diff(map[string]int{string(kind): n}, v.Faults); diff != "" || v.Failed != n || v.Requests != 42 {
				t.Errorf("faults of %d requests (-want +got):\n%s", v.Requests, diff)
			}
			if arm.E2E.N != 42-n || arm.Tokens >= run.truth["spec"].Tokens {
				t.Errorf("got %d requests with %d tokens in the figures, want %d", arm.E2E.N, arm.Tokens, 42-n)
			}
			wantSaid(t, "errors", v.Errors, said)
			for _, p := range run.log.Passes {
				for _, q := range p.Requests {
					if q.Fault == server.FaultStalled && q.Done-q.LastToken != 5*time.Second {
						t.Errorf("stalled: given up %v after the last token, want 5s", q.Done-q.LastToken)
					}
				}
			}
			if n > 2 {
				wantSaid(t, "void", r.Verdict.Void, fmt.Sprintf("of the requests failed (%d %s)", n, kind))
			} else {
				wantSaid(t, "warnings", r.Verdict.Warnings, fmt.Sprintf("%d of 42 requests failed (%d %s) and are in no figure", n, n, kind))
				if r.Verdict.Outcome != bench.Pays {
					t.Errorf("verdict: got %+v, want that it pays", r.Verdict)
				}
			}
		}
	}
	clean := func(t *testing.T, r *bench.Report, run *simResult) {
		wantTruth(t, r, run)
		if r.Verdict.Outcome != bench.Pays || len(r.Verdict.Warnings) > 0 || len(r.Validity[0].Doubts) > 0 {
			t.Errorf("got %+v and doubts %q, want that it pays", r.Verdict, r.Validity[0].Doubts)
		}
	}
	// stopped wants the run before the last, and the baseline, to be kept.
	stopped := func(t *testing.T, r *bench.Report, run *simResult) {
		if r.Interrupted == "" || r.Interrupted != run.err.Error() {
			t.Errorf("interrupted: got %q, want %q", r.Interrupted, run.err)
		}
		wantSaid(t, "warnings", r.Verdict.Warnings, "not everything was measured")
		if spec, base := r.Levels[0].Arms[0], r.Levels[0].Arms[1]; spec.Runs != 1 || base.Runs != 2 || spec.Failed != 0 || spec.Tokens == 0 {
			t.Errorf("got %d and %d runs, %d failed, want 1 and 2", spec.Runs, base.Runs, spec.Failed)
		}
		c := r.Levels[0].Compared[0]
		if c.Outcome != bench.Inconclusive || c.Speedup.N != 1 {
			t.Errorf("comparison: got %+v, want one pair, inconclusive", c)
		}
		wantTruth(t, r, run)
	}
	nothing := func(t *testing.T, r *bench.Report, _ *simResult) {
		if r.Verdict.Outcome != bench.Void || r.Interrupted == "" {
			t.Errorf("got %+v, interrupted %q, want no verdict", r.Verdict, r.Interrupted)
		}
	}
	tests := map[string]struct {
		run   simRun
		err   string // of Run
		check func(t *testing.T, r *bench.Report, run *simResult)
	}{
		"cut streams":          {broken(func(f *simserver.Faults) { f.CutEvery = 7 }), "", failed(server.FaultCut, 7, "stream was cut after")},
		"one stream cut":       {broken(func(f *simserver.Faults) { f.CutEvery = 25 }), "", failed(server.FaultCut, 2, "stream was cut after")},
		"silent stalls":        {broken(func(f *simserver.Faults) { f.StallEvery = 25 }), "", failed(server.FaultStalled, 2, "nothing came for 5s")},
		"stalls with pings":    {broken(func(f *simserver.Faults) { f.StallEvery, f.KeepAlive = 25, true }), "", failed(server.FaultStalled, 2, "nothing came for 5s")},
		"errors in the middle": {broken(func(f *simserver.Faults) { f.ErrorEvery = 25 }), "", failed(server.FaultProtocol, 2, "the engine met an error")},
		"no usage": {broken(func(f *simserver.Faults) { f.NoUsage = true }), "", func(t *testing.T, r *bench.Report, _ *simResult) {
			wantSaid(t, "void", r.Verdict.Void, "100 % of the answers came without usage")
			if arm := r.Levels[0].Arms[0]; arm.Tokens != 0 || arm.Throughput.N != 0 || arm.E2E.N != 42 {
				t.Errorf("figures: got %d tokens, %v tok/s, %d latencies, want nothing but latencies", arm.Tokens, arm.Throughput, arm.E2E.N)
			}
			wantSaid(t, "preflight's notes", r.Arms[0].Info.Notes, "tokens cannot be counted")
		}},
		"one long line":      {broken(func(f *simserver.Faults) { f.BigLine = 300_000 }), "", clean},
		"no end, no choices": {broken(func(f *simserver.Faults) { f.NoDone, f.EmptyChoices, f.KeepAlive = true, true, true }), "", clean},
		"no stream": {broken(func(f *simserver.Faults) { f.NoStream = true }), "", func(t *testing.T, r *bench.Report, run *simResult) {
			wantTruth(t, r, run)
			wantSaid(t, "doubts", r.Validity[0].Doubts, "the server did not stream")
			if arm := r.Levels[0].Arms[0]; arm.TTFT.N != 0 || arm.E2E.N != 42 || arm.Tokens != run.truth["spec"].Tokens {
				t.Errorf("got %d times to the first token, %d latencies, %d tokens; want 0, 42, %d", arm.TTFT.N, arm.E2E.N, arm.Tokens, run.truth["spec"].Tokens)
			}
		}},
		"redirect": {before(simRedirect), "", func(t *testing.T, r *bench.Report, run *simResult) {
			clean(t, r, run)
			wantSaid(t, "preflight's notes", r.Arms[0].Info.Notes, "requests are redirected to http://spec/inner/v1/chat/completions")
		}},
		"redirect elsewhere": {broken(func(f *simserver.Faults) { f.RedirectTo = "http://base" }), "redirected to another server, which gets no key and no prompt", nothing},
		"cut at the limit, and says stop": {
			simRun{
				spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Faults.TruncateSilently = true }), base: plain(simserver.VLLM),
				plan: func(p *bench.Plan) { p.Params.MaxTokens = 50 },
			}, "",
			func(t *testing.T, r *bench.Report, run *simResult) {
				if v := r.Validity; v[0].Truncated < 0.3 || v[0].Truncated != v[1].Truncated || v[0].Needed != 100 {
					t.Errorf("cut: got %v of them, use %d, and %v of the baseline's; want the same share, and 100", v[0].Truncated, v[0].Needed, v[1].Truncated)
				}
				wantSaid(t, "void", r.Verdict.Void, "of the answers were cut at 50 tokens, above the limit of 20 %: use --max-tokens 100")
				wantSaid(t, "diagnosis", rules(r), "truncated")
				wantSaid(t, "doubts", r.Validity[0].Doubts, `finish reason is "stop" at the limit`)
			},
		},
		"loops": {
			simRun{
				spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Faults.Loop = true }), base: plain(simserver.VLLM),
				plan: func(p *bench.Plan) { p.Params.MaxTokens = 90 },
			}, "",
			func(t *testing.T, r *bench.Report, _ *simResult) {
				wantSaid(t, "void", r.Verdict.Void, "spec: 100 % of the answers are repetition loops")
				wantSaid(t, "diagnosis", rules(r), "repetition")
			},
		},
		"small context": {
			simRun{
				spec: speculating(simserver.SGLang).with(func(a *simArm) { a.Context = 300 }), base: plain(simserver.SGLang),
				plan: func(p *bench.Plan) { p.Prompts[5].Turns[0] = strings.Repeat("long ", 400) },
			}, "",
			func(t *testing.T, r *bench.Report, run *simResult) {
				if v := r.Validity[0]; v.Failed != 2 || v.Faults["refused"] != 2 {
					t.Errorf("faults: got %v, want the long prompt refused in both runs", v.Faults)
				}
				wantSaid(t, "errors", r.Validity[0].Errors, "exceeds the model's maximum context length")
			},
		},
		"dies in the middle":  {broken(func(f *simserver.Faults) { f.DieAfter = 1 + 16 + 21 + 7 }), "the server does not answer any more", stopped},
		"busy for ever":       {before(simGiveUp(1 + 16 + 21 + 7)), "the server does not answer any more", stopped},
		"dies in the warm-up": {broken(func(f *simserver.Faults) { f.DieAfter = 5 }), "the server does not answer any more", nothing},
		"never there":         {before(func(http.Handler) http.Handler { return simStatus(http.StatusBadGateway, 0) }), "is not ready", nothing},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := simulate(t, tt.run)
			if tt.err == "" && run.err != nil || tt.err != "" && !strings.Contains(fmt.Sprint(run.err), tt.err) {
				t.Fatalf("Run: got error %v, want %q", run.err, tt.err)
			}
			tt.check(t, run.report(), run)
		})
	}
}

// TestSimInterrupted stops measurements at any moment: they end in that moment, and what
// was measured by then is reported.
func TestSimInterrupted(t *testing.T) {
	t.Parallel()
	late := func(a *simArm) { a.Faults.LateCounters = time.Hour } // so that much time goes into waiting for them
	runs := map[string]simRun{
		"good servers":   {spec: speculating(simserver.VLLM).with(late), base: plain(simserver.SGLang)},
		"stalls":         {spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Faults.StallEvery = 20 })},
		"busy":           {spec: speculating(simserver.VLLM).with(func(a *simArm) { a.wrap = simEvery(7, 0, simStatus(http.StatusTooManyRequests, 30)) })},
		"slow to answer": {spec: speculating(simserver.VLLM).with(func(a *simArm) { a.Prefill = 10 * time.Second })},
	}
	for name, run := range runs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			whole := simulate(t, run)
			if whole.err != nil {
				t.Fatalf("Run: got error %v, want none", whole.err)
			}
			const moments = 11 // a prime, so that no moment is one at which something happens
			kept := 0
			for i := range moments {
				run.interrupt = whole.took * time.Duration(i+1) / (moments + 1)
				got := simulate(t, run)
				if !errors.Is(got.err, context.Canceled) || got.took != run.interrupt {
					t.Errorf("Run: got error %v after %v, want %v after %v", got.err, got.took, context.Canceled, run.interrupt)
				}
				r := got.report()
				if r.Interrupted != "interrupted by the user" {
					t.Errorf("interrupted after %v: got %q, want by the user", run.interrupt, r.Interrupted)
				}
				arm := r.Levels[0].Arms[0]
				kept += arm.Runs
				if arm.Runs == 0 && r.Verdict.Outcome != bench.Void {
					t.Errorf("verdict on nothing: got %+v, want none", r.Verdict)
				}
				if arm.Runs > 0 {
					wantSaid(t, "warnings", r.Verdict.Warnings, "not everything was measured: interrupted by the user")
				}
				if whole, want := arm.Tokens, got.truth["spec"]; arm.Failed == 0 && whole != want.Tokens {
					t.Errorf("after %v: got %d tokens in %d runs, want %d", run.interrupt, whole, arm.Runs, want.Tokens)
				}
			}
			if kept == 0 {
				t.Error("runs: got none at any moment, want the first to be kept at some")
			}
		})
	}
}
