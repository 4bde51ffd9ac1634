package bench_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/prompts"
	"hsx/bench/server"
	"hsx/internal/simserver"
)

// A whole measurement over the network: what the journal holds is what the servers know
// to have happened.
func TestRunOverTheNetwork(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{simserver.VLLM, simserver.SGLang, simserver.LlamaCpp} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			spec := simserver.New(simserver.Options{Engine: engine, Steps: 3, Accept: []float64{0.7, 0.6, 0.5}, PerRequest: true, MinTokens: 20, MaxTokens: 60})
			base := simserver.New(simserver.Options{Engine: engine, MinTokens: 20, MaxTokens: 60})
			p := runPlan("spec", "base")
			p.Levels, p.Prompts, p.WarmUp = []bench.Level{{Concurrency: 4}, {Rate: 200}}, prompts.Builtin()[:12], prompts.WarmUp()
			for i, s := range []*simserver.Server{spec, base} {
				web := httptest.NewServer(s)
				t.Cleanup(func() { s.Close(); web.Close() })
				p.Arms[i].URL = web.URL
			}
			name := t.TempDir() + "/bench.jsonl"
			j, err := bench.CreateJournal(name)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err = bench.Run(ctx, p, j, bench.Options{Dial: func(_ context.Context, arm bench.Arm) (*bench.Link, error) {
				c, err := server.New(server.Options{URL: arm.URL, Connections: 8})
				if err != nil {
					return nil, err
				}
				return &bench.Link{Target: c, Meter: c, Close: c.Close}, nil
			}})
			if err := errors.Join(err, j.Close()); err != nil {
				t.Fatalf("Run: got error %v, want none", err)
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			log := runRead(t, data)
			if want := 2 * 2 * (1 + 2); len(log.Passes) != want { // arms, levels, warm-up and runs
				t.Errorf("passes: got %d, want %d", len(log.Passes), want)
			}
			tokens, probes := map[string]int64{}, map[string]int64{}
			for _, a := range log.Arms {
				probes[a.Arm] += int64(a.Info.Probe.Tokens)
			}
			for _, pass := range log.Passes {
				var sum int64
				for _, r := range pass.Requests {
					if r.Fault != "" || !r.Usage {
						t.Errorf("%v %s turn %d: got fault %q %s, usage %v, want a good answer", pass.Key, r.Prompt, r.Turn, r.Fault, r.Error, r.Usage)
					}
					sum += int64(r.Tokens)
				}
				if !pass.Complete || len(pass.Requests) == 0 || pass.Wall <= 0 {
					t.Errorf("%v: complete %v, %d requests in %v: %s", pass.Key, pass.Complete, len(pass.Requests), pass.Wall, pass.Stopped)
				}
				if b, a := pass.Before.Generated, pass.After.Generated; b == nil || a == nil {
					t.Errorf("%v: got no counter of tokens: %v", pass.Key, pass.After.Problems)
				} else if got := int64(*a - *b); got != sum {
					t.Errorf("%v: counters say %d tokens, requests %d", pass.Key, got, sum)
				}
				tokens[pass.Arm] += sum
			}
			for arm, s := range map[string]*simserver.Server{"spec": spec, "base": base} {
				if got, want := tokens[arm]+probes[arm], s.Truth().Tokens; got != want {
					t.Errorf("%s: measured %d tokens, with the first request %d, and the server sent %d", arm, tokens[arm], got, want)
				}
			}
		})
	}
}
