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

// simTrap is something that servers do and that a measurement must not fall for.
type simTrap struct {
	run     simRun
	promise float64 // 0: none
	check   func(t *testing.T, r *bench.Report, run *simResult)
}

func simTraps(t *testing.T, traps map[string]simTrap) {
	t.Helper()
	for name, trap := range traps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run := simulate(t, trap.run)
			if run.err != nil {
				t.Fatalf("Run: got error %v, want none", run.err)
			}
			j := bench.Judgement{Gate: &bench.Gate{MinAcceptLength: 1.01}}
			if trap.promise > 0 {
				j.Promise = &bench.Promise{Given: trap.promise, ExcludesBonus: new(false), Form: "number"}
			}
			trap.check(t, bench.Analyse(run.log, j), run)
		})
	}
}

// speculating is a server with a draft of three steps.
func speculating(engine string) *simArm {
	return &simArm{Options: simserver.Options{Engine: engine, Steps: 3, Accept: []float64{0.8, 0.6, 0.4}, MinTokens: 20, MaxTokens: 80, Step: 12 * time.Millisecond}}
}

// plain is the same without one: slower.
func plain(engine string) *simArm {
	return &simArm{Options: simserver.Options{Engine: engine, MinTokens: 20, MaxTokens: 80, Step: 10 * time.Millisecond}}
}

// with changes an arm.
func (a *simArm) with(change func(*simArm)) *simArm {
	change(a)
	return a
}

// wantTruth holds the accept length and the number of steps against what happened.
func wantTruth(t *testing.T, r *bench.Report, run *simResult) {
	t.Helper()
	a, truth := r.Accept[0], run.truth["spec"]
	if math.Abs(a.Pooled.Value-simTau(truth)) > 1e-12 || a.Steps != float64(truth.Steps) {
		t.Errorf("accept length by %s: got %v over %v steps, want %v over %d; notes %q", a.Source, a.Pooled, a.Steps, simTau(truth), truth.Steps, a.Notes)
	}
}

// wantSaid wants a text in one of several.
func wantSaid(t *testing.T, what string, texts []string, want string) {
	t.Helper()
	if !slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, want) }) {
		t.Errorf("%s: got %q, want %q in one", what, texts, want)
	}
}

// wantUnsaid wants it in none.
func wantUnsaid(t *testing.T, what string, texts []string, unwanted string) {
	t.Helper()
	if slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, unwanted) }) {
		t.Errorf("%s: got %q, want %q in none", what, texts, unwanted)
	}
}

func rules(r *bench.Report) []string {
	var names []string
	for _, f := range r.Diagnosis {
		names = append(names, f.Rule)
	}
	return names
}

// TestSimClean is what the others differ from: nothing is wrong, and nothing is said.
func TestSimClean(t *testing.T) {
	t.Parallel()
	traps := map[string]simTrap{}
	for _, engine := range []string{simserver.VLLM, simserver.SGLang, simserver.LlamaCpp, simserver.TRTLLM} {
		traps[engine] = simTrap{run: simRun{spec: speculating(engine), base: plain(engine)}, check: func(t *testing.T, r *bench.Report, run *simResult) {
			wantTruth(t, r, run)
			if r.Verdict.Outcome != bench.Pays || len(r.Verdict.Void)+len(r.Verdict.Warnings) > 0 || len(r.Diagnosis) > 0 {
				t.Errorf("verdict: got %+v, diagnosis %+v, want that it pays and nothing else", r.Verdict, r.Diagnosis)
			}
			if r.Gate.Outcome != bench.GateMet || r.Interrupted != "" || len(r.Differences) > 0 && engine != simserver.SGLang && engine != simserver.TRTLLM {
				t.Errorf("got gate %+v, interrupted %q, differences %+v, want none of it", r.Gate, r.Interrupted, r.Differences)
			}
			for _, v := range r.Validity {
				if v.Failed+v.Retries+v.NoUsage > 0 || v.Restarted || v.WasBusy || v.Truncated+v.Loops > 0 || v.Foreign != nil && *v.Foreign > 0 || len(v.Doubts) > 0 {
					t.Errorf("validity: got %+v, want nothing", v)
				}
			}
		}}
	}
	simTraps(t, traps)
}
