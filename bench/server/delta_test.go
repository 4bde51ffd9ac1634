package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/server"
)

func TestDelta(t *testing.T) {
	t.Parallel()
	n := func(v float64) *float64 { return &v }
	vllm := func(steps, accepted, drafted float64, positions ...float64) server.Snapshot {
		return server.Snapshot{
			Source: "vllm metrics", Ranks: 1, Started: n(1.7e9),
			Steps: n(steps), Accepted: n(accepted), Drafted: n(drafted), Positions: positions,
		}
	}
	sglang := func(steps, generated, finished *float64) server.Snapshot {
		return server.Snapshot{Source: "sglang metrics", Steps: steps, Generated: generated, Finished: finished}
	}
	trt := func(accepted, drafted float64) server.Snapshot {
		return server.Snapshot{Source: "tensorrt-llm metrics", Accepted: n(accepted), Drafted: n(drafted)}
	}
	restarted := server.Change{Restarted: true, Problems: []string{"the server restarted or its counters went back: no deltas"}}
	for name, tc := range map[string]struct {
		before, after server.Snapshot
		positions     int
		want          server.Change
	}{
		"counted": {
			before: vllm(100, 150, 300, 80, 50, 20), after: vllm(300, 450, 900, 230, 150, 70),
			want: server.Change{Accept: &server.Accept{
				Steps: 200, Accepted: 300, Drafted: 600, Positions: []float64{150, 100, 50}, Source: "vllm metrics",
			}},
		},
		"nothing happened": {
			before: vllm(100, 150, 300, 150), after: vllm(100, 150, 300, 150),
			want: server.Change{Accept: &server.Accept{Positions: []float64{0}, Source: "vllm metrics"}},
		},
		"positions appear with the first draft": {
			before: vllm(0, 0, 0), after: vllm(10, 6, 20, 5, 1),
			want: server.Change{Accept: &server.Accept{
				Steps: 10, Accepted: 6, Drafted: 20, Positions: []float64{5, 1}, Source: "vllm metrics",
			}},
		},
		"one counter goes back": {before: vllm(100, 150, 300), after: vllm(101, 149, 303), want: restarted},
		"a position goes back":  {before: vllm(100, 150, 300, 90, 60), after: vllm(101, 152, 303, 93, 59), want: restarted},
		"counters are gone":     {before: sglang(n(5), n(50), n(3)), after: sglang(nil, nil, nil), want: restarted},
		"another process with larger counters": {
			before: vllm(100, 150, 300),
			after:  server.Snapshot{Source: "vllm metrics", Ranks: 1, Started: n(1.8e9), Steps: n(200), Accepted: n(300)},
			want:   restarted,
		},
		"a rank is missing": {
			before: server.Snapshot{Source: "vllm metrics", Ranks: 2, Steps: n(1)},
			after:  server.Snapshot{Source: "vllm metrics", Ranks: 1, Steps: n(5)},
			want:   server.Change{Problems: []string{"counters of 2 ranks before and of 1 after: no deltas"}},
		},
		"not read before": {
			after: vllm(100, 150, 300),
			want:  server.Change{Problems: []string{"counters were not read before and after"}},
		},
		"read elsewhere": {
			before: trt(1, 2), after: vllm(100, 150, 300),
			want: server.Change{Problems: []string{"counters came from tensorrt-llm metrics before and from vllm metrics after: no deltas"}},
		},
		"no speculation": {
			before: server.Snapshot{Source: "vllm metrics", Generated: n(10), Finished: n(1)},
			after:  server.Snapshot{Source: "vllm metrics", Generated: n(60), Finished: n(3)},
			want:   server.Change{Generated: n(50), Finished: n(2)},
		},
		// 402 tokens: one of the prefill, 180 of verify steps themselves, 221 accepted.
		"sglang derives accepted drafts": {
			before: sglang(n(20), n(100), n(3)), after: sglang(n(200), n(502), n(4)),
			want: server.Change{Generated: n(402), Finished: n(1), Accept: &server.Accept{
				Steps: 180, Accepted: 221, Tokens: 402, Approx: true,
				Source: "sglang metrics, accepted = generated − finished − steps",
			}},
		},
		"sglang's counters appear with the first request": {
			before: sglang(nil, nil, nil), after: sglang(n(180), n(402), n(1)),
			want: server.Change{Generated: n(402), Finished: n(1), Accept: &server.Accept{
				Steps: 180, Accepted: 221, Tokens: 402, Approx: true,
				Source: "sglang metrics, accepted = generated − finished − steps",
			}},
		},
		"sglang's counters contradict themselves": {
			before: sglang(n(0), n(0), n(0)), after: sglang(n(180), n(100), n(1)),
			want: server.Change{Generated: n(100), Finished: n(1), Problems: []string{
				"sglang metrics, accepted = generated − finished − steps contradict themselves: -81 accepted drafts in 180 steps",
			}},
		},
		"steps alone": {
			before: sglang(n(0), nil, nil), after: sglang(n(180), nil, nil),
			want: server.Change{Problems: []string{
				"sglang metrics count verify steps, but neither accepted drafts nor all of what they derive from",
			}},
		},
		"tensorrt-llm derives steps": {
			before: trt(10, 30), after: trt(100, 330), positions: 3,
			want: server.Change{Accept: &server.Accept{
				Steps: 100, Accepted: 90, Drafted: 300, Approx: true, Source: "tensorrt-llm metrics, steps = drafts / positions",
			}},
		},
		"tensorrt-llm without a draft length": {
			before: trt(10, 30), after: trt(100, 330),
			want: server.Change{Problems: []string{
				"tensorrt-llm metrics count no verify steps, and how many drafts each has is unknown",
			}},
		},
		"log": {
			before: server.Snapshot{LogSteps: n(0), LogTokens: n(0)}, after: server.Snapshot{LogSteps: n(10), LogTokens: n(16)},
			want: server.Change{
				Log:      &server.Accept{Steps: 10, Accepted: 6, Approx: true, Source: "server log"},
				Problems: []string{"counters were not read before and after"},
			},
		},
		// Gotchas 1 and 2: neither a gauge nor a lifetime average has a difference.
		"gauges": {
			before: server.Snapshot{Source: "sglang metrics", Window: n(2.5), Lifetime: n(2)},
			after:  server.Snapshot{Source: "sglang metrics", Window: n(3.5), Lifetime: n(2.2)},
			want:   server.Change{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := server.Delta(tc.before, tc.after, tc.positions)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Delta: (-want +got)\n%s", diff)
			}
		})
	}
}
