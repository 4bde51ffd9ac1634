package bench_test

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/prompts"
	"hsx/bench/server"
)

// What hsx itself spends on a request of 200 chunks, with 256 under way: the target
// answers at once.
func BenchmarkPass256(b *testing.B) {
	gaps := make([]int, 200)
	for i := range gaps {
		gaps[i] = 10_000 + i
	}
	servers := &benchServers{server.Outcome{
		Attempts: 1, Status: 200, Usage: true, PromptTokens: 100, Tokens: 600, FinishReason: "stop", Done: time.Second,
		GapsUS: gaps, ChunkTokens: gaps, Text: "text", TextDigest: "0123456789abcdef", Accept: &server.Accept{Steps: 200, Accepted: 400, Positions: []float64{180, 140, 80}},
	}}
	const requests = 2048
	p := bench.Plan{Arms: []bench.Arm{{Name: "spec", Role: bench.Spec}}, Levels: []bench.Level{{Concurrency: 256}}, Runs: 1}
	for i := range requests {
		p.Prompts = append(p.Prompts, prompts.Prompt{ID: fmt.Sprint(i), Turns: []string{"say something"}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := bench.Run(b.Context(), p, bench.NewJournal(io.Discard, "none"), bench.Options{
			Dial: func(context.Context, bench.Arm) (*bench.Link, error) {
				return &bench.Link{Target: servers, Meter: servers}, nil
			},
			Progress: func(bench.Progress) {},
		}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/requests, "ns/request")
}

type benchServers struct{ answer server.Outcome }

func (s *benchServers) Probe(context.Context, server.Params) (*server.Info, error) {
	return &server.Info{}, nil
}
func (s *benchServers) Counters(context.Context) server.Snapshot { return server.Snapshot{} }
func (s *benchServers) Settle(context.Context, func(server.Snapshot) bool) server.Snapshot {
	return server.Snapshot{}
}
func (s *benchServers) Do(context.Context, server.Request) server.Outcome {
	out := s.answer
	out.Sent = time.Now()
	return out
}
