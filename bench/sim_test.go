package bench_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hsx/bench"
	"hsx/bench/server"
	"hsx/internal/simserver"
)

// TestSimTruth measures servers of each dialect, and finds in the report what really
// happened on them.
func TestSimTruth(t *testing.T) {
	t.Parallel()
	type sim = simserver.Options
	generate := server.Options{API: server.APISGLang}
	const derived = "sglang metrics, accepted = generated − finished − steps"
	tests := map[string]struct {
		arm       simArm
		source    string
		trust     server.Trust
		positions bool    // known
		drafted   bool    // known
		within    float64 // of the accept length, relative; 0 is as exact as a float64
	}{
		"vLLM, per request":       {simArm{Options: sim{PerRequest: true}}, "vllm metrics.speculative_decoding", server.Exact, true, true, 0},
		"vLLM, counters":          {simArm{}, "vllm metrics", server.Idle, true, true, 0},
		"vLLM, ranks":             {simArm{Options: sim{Ranks: 2}}, "vllm metrics", server.Idle, true, true, 0},
		"vLLM, completions":       {simArm{Options: sim{PerRequest: true}, client: server.Options{API: server.APICompletions}}, "vllm metrics.speculative_decoding", server.Exact, true, true, 0},
		"vLLM, thinking":          {simArm{Options: sim{PerRequest: true, Think: 9}}, "vllm metrics.speculative_decoding", server.Exact, true, true, 0},
		"vLLM, chunks only":       {simArm{Options: sim{Faults: simserver.Faults{MetricsAuth: true}}}, "tokens per chunk", server.Proxy, false, false, 0.05},
		"SGLang, sglext":          {simArm{Options: sim{Engine: simserver.SGLang, PerRequest: true}}, "sglang sglext.spec_tokens_details", server.Exact, true, true, 0},
		"SGLang, counters":        {simArm{Options: sim{Engine: simserver.SGLang}}, derived, server.Approx, false, false, 0},
		"SGLang, ranks":           {simArm{Options: sim{Engine: simserver.SGLang, Ranks: 2}}, derived, server.Approx, false, false, 0},
		"SGLang, generation A":    {simArm{Options: sim{Engine: simserver.SGLang, Generation: "A"}, client: generate}, "sglang meta_info", server.Approx, false, false, 0},
		"SGLang, generation B":    {simArm{Options: sim{Engine: simserver.SGLang, Generation: "B"}, client: generate}, "sglang meta_info", server.Approx, false, false, 0},
		"SGLang, generation C":    {simArm{Options: sim{Engine: simserver.SGLang, Generation: "C"}, client: generate}, "sglang meta_info", server.Exact, true, true, 0},
		"SGLang, generation D":    {simArm{Options: sim{Engine: simserver.SGLang, Generation: "D"}, client: generate}, "sglang meta_info", server.Exact, true, true, 0},
		"SGLang, generation E":    {simArm{Options: sim{Engine: simserver.SGLang, Generation: "E"}, client: generate}, "sglang meta_info", server.Exact, true, true, 0},
		"llama.cpp, counters":     {simArm{Options: sim{Engine: simserver.LlamaCpp}}, "llama.cpp metrics", server.Idle, true, true, 0},
		"llama.cpp, timings":      {simArm{Options: sim{Engine: simserver.LlamaCpp, Faults: simserver.Faults{MetricsAuth: true}}}, "llama.cpp timings", server.Approx, false, true, 0},
		"TensorRT-LLM, list":      {simArm{Options: sim{Engine: simserver.TRTLLM}}, "tensorrt-llm iteration statistics", server.Idle, false, true, 0},
		"TensorRT-LLM, ranks":     {simArm{Options: sim{Engine: simserver.TRTLLM, Ranks: 2}}, "tensorrt-llm iteration statistics", server.Idle, false, true, 0},
		"TensorRT-LLM, answers":   {simArm{Options: sim{Engine: simserver.TRTLLM, Faults: simserver.Faults{MetricsAuth: true}}}, "tensorrt-llm avg_decoded_tokens_per_iter", server.Approx, false, false, 0},
		"OpenAI routes, no count": {simArm{Options: sim{Engine: simserver.OpenAI}}, "none", server.Low, false, false, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arm := tt.arm
			arm.Steps, arm.Accept, arm.MinTokens, arm.MaxTokens = 3, []float64{0.8, 0.6, 0.4}, 4, 60
			base := simArm{Options: sim{Engine: arm.Engine, MinTokens: 4, MaxTokens: 60, Think: arm.Think}, client: arm.client}
			run := simulate(t, simRun{spec: &arm, base: &base, plan: func(p *bench.Plan) { p.Levels = concurrency(4) }})
			if run.err != nil {
				t.Fatalf("Run: got error %v, want none", run.err)
			}
			r, truth := run.report(), run.truth["spec"]
			for i, arm := range r.Levels[0].Arms {
				if want := run.truth[arm.Arm]; arm.Tokens != want.Tokens || int64(arm.Requests) != want.Requests || arm.Failed != 0 {
					t.Errorf("%s: got %d tokens in %d requests, %d failed; want %d in %d", arm.Arm, arm.Tokens, arm.Requests, arm.Failed, want.Tokens, want.Requests)
				}
				for _, d := range r.Validity[i].Doubts {
					if tt.trust == server.Exact || tt.trust == server.Idle || !strings.HasPrefix(d, "counters: http://") {
						t.Errorf("%s: got doubt %q, want none but for metrics that are not there", arm.Arm, d)
					}
				}
			}
			if text := r.Levels[0].Compared[0].EqualText; text == nil || *text != 1 {
				t.Errorf("equal text: got %v, want all", text)
			}
			if len(r.Accept) != 1 {
				t.Fatalf("accept lengths: got %d, want that of the arm that speculates", len(r.Accept))
			}
			a := r.Accept[0]
			if a.Source != tt.source || a.Trust != tt.trust {
				t.Errorf("source: got %s, %s, want %s, %s", a.Source, a.Trust, tt.source, tt.trust)
			}
			if tt.source == "none" {
				return
			}
			want := bench.AcceptReport{Steps: float64(truth.Steps), Accepted: float64(truth.Accepted)}
			if tt.drafted {
				want.Drafted = float64(truth.Drafted)
			}
			if tt.positions {
				for _, n := range truth.Positions {
					want.Joint = append(want.Joint, float64(n)/float64(truth.Steps))
				}
			}
			if got, want := a.Pooled.Value, simTau(truth); math.Abs(got-want) > max(tt.within, 1e-12)*want {
				t.Errorf("accept length: got %v, want %v", got, want)
			}
			if tt.within > 0 {
				return
			}
			got := bench.AcceptReport{Steps: a.Steps, Accepted: a.Accepted, Drafted: a.Drafted, Joint: a.Joint}
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-12, 0)); diff != "" {
				t.Errorf("counts (-truth +report):\n%s", diff)
			}
			if !a.Pooled.Bounded || a.Pooled.Low > a.Pooled.Value || a.Pooled.High < a.Pooled.Value {
				t.Errorf("interval: got %+v, want one around the value", a.Pooled)
			}
			for _, o := range a.Others {
				if o.Trust != server.Low && o.Trust != server.Proxy && math.Abs(o.Value-simTau(truth)) > 0.03*simTau(truth) {
					t.Errorf("%s: got %v, want %v", o.Source, o.Value, simTau(truth))
				}
			}
		})
	}
}
