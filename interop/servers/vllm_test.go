//go:build servers

package servers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/server"
)

// quick are flags for answers of a few dozen tokens: the model's stories seldom end.
func quick(more ...string) []string {
	return append([]string{"--max-tokens", "64", "--max-truncated", "1"}, more...)
}

// TestVLLM measures a server with a trained EAGLE-3 draft against one without
// speculation, both running at once.
func TestVLLM(t *testing.T) {
	base := startVLLM(t, "0")
	eagle := startVLLM(t, "3")

	t.Run("counters", func(t *testing.T) {
		before, baseBefore := eagle.counters(t, ""), base.counters(t, "")
		r, log := benchRun(t, quick("--url", eagle.url, "--baseline-url", base.url, "--runs", "3", "--warmup-runs", "1")...)
		counted, baseCounted := grown(before, eagle.counters(t, "")), grown(baseBefore, base.counters(t, ""))

		// All that hsx sent is all that the servers counted: no request is lost or double.
		tokens := func(q *bench.Request) float64 { return float64(q.Tokens) }
		wantEqual(t, "tokens of the speculating server", total(log, "speculation", tokens), counted["generation_tokens_total"])
		wantEqual(t, "tokens of the baseline", total(log, "baseline", tokens), baseCounted["generation_tokens_total"])
		accept := func(of func(*server.Accept) float64) float64 {
			return total(log, "speculation", func(q *bench.Request) float64 {
				if q.Accept == nil {
					t.Errorf("%s: the answer says nothing of its speculation", q.Prompt)
					return 0
				}
				return of(q.Accept)
			})
		}
		wantEqual(t, "verify steps", accept(func(a *server.Accept) float64 { return a.Steps }), counted["spec_decode_num_drafts_total"])
		wantEqual(t, "draft tokens", accept(func(a *server.Accept) float64 { return a.Drafted }), counted["spec_decode_num_draft_tokens_total"])
		wantEqual(t, "accepted drafts", accept(func(a *server.Accept) float64 { return a.Accepted }), counted["spec_decode_num_accepted_tokens_total"])
		for k := range 3 {
			wantEqual(t, "accepted at a position", accept(func(a *server.Accept) float64 { return a.Positions[k] }),
				counted["spec_decode_num_accepted_tokens_per_pos_total "+string(rune('0'+k))])
		}

		// What preflight says of both.
		for _, a := range r.Arms {
			if a.Info.Engine != server.VLLM || a.Info.Version != "0.32.0" || a.Info.Model != "stories260k" || a.Info.MaxContext != 512 {
				t.Errorf("%s: preflight got %s %s, model %s, context %d", a.Arm, a.Info.Engine, a.Info.Version, a.Info.Model, a.Info.MaxContext)
			}
			if s := a.Info.Speculation; !s.Known || s.On != (a.Arm == "speculation") || s.On && s.Steps != 3 {
				t.Errorf("%s: preflight got speculation %+v", a.Arm, s)
			}
		}

		// The report against sums of the journal.
		if len(r.Accept) != 1 || r.Accept[0].Trust != server.Exact || len(r.Accept[0].Joint) != 3 || r.Accept[0].PerStep != 3 {
			t.Fatalf("accept lengths: got %+v, want one, exact, of three positions", r.Accept)
		}
		a := r.Accept[0]
		if sum := 1 + a.Joint[0] + a.Joint[1] + a.Joint[2]; abs(sum-a.Pooled.Value) > 1e-9 {
			t.Errorf("accept length %v is not 1 + Σ p = %v", a.Pooled.Value, sum)
		}
		for _, o := range a.Others {
			if o.Trust == server.Idle && abs(o.Value-a.Pooled.Value) > 1e-9 {
				t.Errorf("%s: got %v, want %v as by request: nobody else used the server", o.Source, o.Value, a.Pooled.Value)
			}
		}
		c := r.Levels[0].Compared[0]
		if c.EqualText == nil || *c.EqualText != 1 {
			t.Errorf("greedy text differs between the arms: %v of it is equal", c.EqualText)
		}
		if !c.Paired || c.Prompts != 12 || c.Speedup.N != 3 || c.Speedup.Value <= 0 || c.BreakEven <= 0 {
			t.Errorf("comparison: got %+v", c)
		}
		if got := c.AcceptLength / c.Speedup.Value; abs(got-c.BreakEven) > 1e-9 {
			t.Errorf("break-even: got %v, want τ·B/S = %v", c.BreakEven, got)
		}
		for _, arm := range r.Levels[0].Arms {
			if arm.Runs != 3 || arm.Requests != 3*13 || arm.Failed != 0 || arm.TTFT.Median <= 0 || arm.E2E.Median < arm.TTFT.Median || arm.Tokens > 3*13*64 {
				t.Errorf("%s: got %+v", arm.Arm, arm)
			}
		}
		for _, v := range r.Validity {
			if v.Foreign == nil || *v.Foreign != 0 || v.Restarted || v.Retries != 0 || v.NoUsage != 0 {
				t.Errorf("%s: got %+v, want no stranger, restart, retry or missing usage", v.Arm, v)
			}
		}
		// One chunk carries several tokens: who counted chunks would be wrong by far.
		chunks := total(log, "speculation", func(q *bench.Request) float64 { return float64(len(q.GapsUS) + 1) })
		if all := total(log, "speculation", tokens); chunks > 0.8*all {
			t.Errorf("%v chunks for %v tokens: the test would not see the difference", chunks, all)
		}
	})

	t.Run("loaded", func(t *testing.T) {
		r, _ := benchRun(t, quick("--url", eagle.url, "--baseline-url", base.url, "--runs", "2", "--warmup-runs", "1", "--concurrency", "1,8", "--rate", "4")...)
		if len(r.Levels) != 3 || len(r.Levels[2].Compared) != 1 {
			t.Fatalf("levels: got %d, want three with a comparison each", len(r.Levels))
		}
		one, eight := r.Levels[0].Arms[0].Throughput.Value, r.Levels[1].Arms[0].Throughput.Value
		if eight < one {
			t.Errorf("eight at once: got %.0f tok/s, want more than the %.0f of one at a time", eight, one)
		}
		if open := r.Levels[2].Arms[0]; open.Delay.Median > 0.05 {
			t.Errorf("open loop: sent %v s after they were due, want under 50 ms", open.Delay.Median)
		}
	})

	t.Run("foreign traffic", func(t *testing.T) {
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() { // somebody else uses the server
			defer close(done)
			for {
				select {
				case <-stop:
					return
				default:
					cmd := exec.Command("curl", "-sf", "-o", "/dev/null", eagle.url+"/v1/completions", "-H", "Content-Type: application/json",
						"-d", `{"model":"stories260k","prompt":"Once","max_tokens":40,"temperature":0}`)
					if err := cmd.Run(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}()
		r, _ := benchRun(t, quick("--url", eagle.url, "--runs", "2", "--warmup-runs", "0")...)
		close(stop)
		<-done
		if v := r.Validity[0]; v.Foreign == nil || *v.Foreign < 0.02 {
			t.Errorf("foreign tokens: got %v, want them seen", v.Foreign)
		}
	})

	t.Run("refused", func(t *testing.T) {
		code, _, talk := hsx(t, "bench", "--journal", filepath.Join(t.TempDir(), "j"), "--url", eagle.url, "--model", "other", "--prompts", "2", "--runs", "1")
		if code != 1 {
			t.Errorf("unknown model: exit %d, want 1", code)
		}
		wantText(t, talk, "other", "stories260k")
	})

	t.Run("interrupt and resume", func(t *testing.T) {
		journal := filepath.Join(t.TempDir(), "bench.jsonl")
		args := append([]string{"bench", "--json", "--dataset", "prompts.jsonl", "--prompts", "12"},
			quick("--url", eagle.url, "--baseline-url", base.url, "--runs", "3", "--warmup-runs", "1")...)
		cmd := exec.Command(env(t, "HSX_BIN"), append(args, "--journal", journal)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for len(completeRuns(t, journal)) < 2 { // two of six are in
			time.Sleep(50 * time.Millisecond)
		}
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		at := time.Now()
		_ = cmd.Wait() // its exit code is what counts
		if code, took := cmd.ProcessState.ExitCode(), time.Since(at); code != 130 || took > 3*time.Second {
			t.Errorf("^C: exit %d after %s, want 130 at once", code, took)
		}
		held := completeRuns(t, journal)
		code, out, talk := hsx(t, append(args, "--resume", journal)...)
		if code != 0 {
			t.Fatalf("resume: exit %d\n%s", code, talk)
		}
		if now := completeRuns(t, journal); len(now) != 6 || !slices.Equal(now[:len(held)], held) {
			t.Errorf("resume: runs %v, then %v, want six with the first as they were", held, now)
		}
		if r := decodeReport(t, out); r.Levels[0].Arms[0].Runs != 3 || r.Interrupted != "" {
			t.Errorf("resume: got %d runs, interrupted %q", r.Levels[0].Arms[0].Runs, r.Interrupted)
		}
		code, again, _ := hsx(t, "bench", "report", "--json", "--max-truncated", "1", journal)
		if code != 0 || again != out {
			t.Errorf("report of the journal: exit %d, and it differs from what was printed", code)
		}
	})

	t.Run("death", func(t *testing.T) { // last: it ends a server
		journal := filepath.Join(t.TempDir(), "bench.jsonl")
		cmd := exec.Command(env(t, "HSX_BIN"), append([]string{"bench", "--dataset", "prompts.jsonl", "--prompts", "12", "--journal", journal},
			quick("--url", eagle.url, "--runs", "50", "--warmup-runs", "0")...)...)
		var out, talk strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &talk
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for len(completeRuns(t, journal)) < 2 {
			time.Sleep(50 * time.Millisecond)
		}
		_ = syscall.Kill(-eagle.cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 1 {
			t.Errorf("dead server: exit %d, want 1", code)
		}
		wantText(t, out.String(), "accept length", "by run")
		wantText(t, talk.String(), eagle.url)
	})
}

// completeRuns are the measured runs that a journal under way holds whole.
func completeRuns(t *testing.T, path string) []bench.Key {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	var keys []bench.Key
	for _, p := range readJournal(t, path).Passes {
		if p.Complete && !p.WarmUp {
			keys = append(keys, p.Key)
		}
	}
	return keys
}

// TestVLLMNgram measures speculation whose steps do not always draft.
func TestVLLMNgram(t *testing.T) {
	s := startVLLM(t, "ngram", "--api-key", "sesame-42")
	t.Setenv("HSX_TEST_KEY", "sesame-42")
	before := s.counters(t, "sesame-42")
	r, log := benchRun(t, quick("--url", s.url, "--api-key-env", "HSX_TEST_KEY", "--runs", "2", "--warmup-runs", "0")...)
	counted := grown(before, s.counters(t, "sesame-42"))
	steps := total(log, "speculation", func(q *bench.Request) float64 {
		if q.Accept == nil {
			return 0 // nothing was drafted in that answer
		}
		return q.Accept.Steps
	})
	wantEqual(t, "verify steps", steps, counted["spec_decode_num_drafts_total"])
	if notes := strings.Join(r.Accept[0].Notes, " "); !strings.Contains(notes, "drafted nothing") {
		t.Errorf("notes %q do not say that some steps drafted nothing and are not in the accept length", notes)
	}
	t.Run("key", func(t *testing.T) {
		code, out, talk := hsx(t, "bench", "--journal", filepath.Join(t.TempDir(), "j"), "--url", s.url, "--prompts", "2", "--runs", "1")
		if code != 1 || strings.Contains(out+talk, "sesame") {
			t.Errorf("no key: exit %d\n%s%s", code, out, talk)
		}
		wantText(t, talk, "401", "--api-key-env")
	})
}

// TestSweep has hsx start and stop the servers of a sweep itself.
func TestSweep(t *testing.T) {
	port := freePort(t)
	launch := strings.Join([]string{"./serve-vllm.sh", env(t, "HSX_VLLM"), env(t, "HSX_MODELS"), "{steps}", port}, " ")
	r, _ := benchRun(t, quick("--url", "http://127.0.0.1:"+port, "--steps", "0,1,3", "--relaunch", launch, "--runs", "2", "--warmup-runs", "1")...)
	if r.Sweep == nil {
		t.Fatal("no sweep in the report")
	}
	measured := map[int]float64{}
	predicted := 0
	for _, p := range r.Sweep.Points {
		if p.Predicted {
			predicted++
			continue
		}
		measured[p.Steps] = p.Accept
	}
	if measured[1] <= 1 || measured[3] <= measured[1] || measured[1] > 2 || measured[3] > 4 {
		t.Errorf("accept lengths by steps: got %v, want them to grow within their bounds", measured)
	}
	if predicted != 1 {
		t.Errorf("points: got %+v, want two steps predicted from one and three", r.Sweep.Points)
	}
	// The same draft at fewer steps accepts what the first positions of more steps say.
	for _, a := range r.Accept {
		if a.Arm == "steps=1" && abs(a.Joint[0]-jointOf(r, "steps=3")[0]) > 0.12 {
			t.Errorf("first position: got %s at one step and %s at three", percent(a.Joint[0]), percent(jointOf(r, "steps=3")[0]))
		}
	}
	if err := exec.Command("curl", "-sf", "-m", "2", "http://127.0.0.1:"+port+"/health").Run(); err == nil {
		t.Error("a server of the sweep is still there")
	}
}

func jointOf(r *bench.Report, arm string) []float64 {
	for _, a := range r.Accept {
		if a.Arm == arm {
			return a.Joint
		}
	}
	return []float64{0}
}

func abs(x float64) float64 { return max(x, -x) }
