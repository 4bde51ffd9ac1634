package server

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// served is a client of a server with these answers by path, and of an engine.
func served(t *testing.T, engine Engine, opt Options, answers map[string]string) *Client {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	opt.URL = s.URL
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	c.use(&Info{Engine: engine, Model: "m"})
	return c
}

func TestCounters(t *testing.T) {
	t.Parallel()
	n := func(v float64) *float64 { return &v }
	idle := Load{Known: true}
	for name, tc := range map[string]struct {
		engine  Engine
		metrics string // text, or with a leading @ a recorded file
		info    string // of /server_info
		prom    string // of /prometheus/metrics
		want    Snapshot
	}{
		"vllm without speculation": {engine: VLLM, metrics: "@vllm-base-metrics-after.txt", want: Snapshot{
			Generated: n(620), Finished: n(10), Started: n(1.79600024782e9), Load: idle, Ranks: 1, Source: "vllm metrics",
		}},
		"vllm before the first request": {engine: VLLM, metrics: "@vllm-eagle3-metrics-before.txt", want: Snapshot{
			Steps: n(0), Accepted: n(0), Drafted: n(0), Positions: []float64{0, 0, 0},
			Generated: n(0), Finished: n(0), Started: n(1.79600084942e9), Load: idle, Ranks: 1, Source: "vllm metrics",
		}},
		"vllm eagle3": {engine: VLLM, metrics: "@vllm-eagle3-metrics-after.txt", want: Snapshot{
			Steps: n(184), Accepted: n(429), Drafted: n(552), Positions: []float64{165, 147, 117},
			Generated: n(620), Finished: n(10), Started: n(1.79600084942e9), Load: idle, Ranks: 1, Source: "vllm metrics",
		}},
		"vllm ngram": {engine: VLLM, metrics: "@vllm-ngram-metrics-after.txt", want: Snapshot{
			Steps: n(62), Accepted: n(68), Drafted: n(248), Positions: []float64{25, 18, 14, 11},
			Generated: n(620), Finished: n(10), Started: n(1.79600035698e9), Load: idle, Ranks: 1, Source: "vllm metrics",
		}},
		"vllm extracting hidden states": {engine: VLLM, metrics: "@vllm-hs-metrics.txt", want: Snapshot{
			Steps: n(45), Accepted: n(0), Drafted: n(45), Positions: []float64{0},
			Generated: n(61), Finished: n(16), Started: n(1.79600062266e9), Load: idle, Ranks: 1, Source: "vllm metrics",
		}},
		"llama.cpp without speculation": {engine: LlamaCpp, metrics: "@llamacpp-base-metrics-after.txt", want: Snapshot{
			Steps: n(0), Accepted: n(0), Drafted: n(0), Generated: n(2239), Load: idle, Ranks: 1, Source: "llama.cpp metrics",
		}},
		"llama.cpp draft": {engine: LlamaCpp, metrics: "@llamacpp-draft-metrics-after.txt", want: Snapshot{
			Steps: n(573), Accepted: n(1650), Drafted: n(2259), Positions: []float64{492, 425, 381, 352},
			Generated: n(2233), Load: idle, Ranks: 1, Source: "llama.cpp metrics",
		}},
		"two data-parallel engines": {engine: VLLM, metrics: `
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 30
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 5
vllm:spec_decode_num_accepted_tokens_total{engine="1",model_name="m"} 45
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 4
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="1"} 1
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="0"} 25
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",model_name="m",position="1"} 20
vllm:num_requests_running{engine="0",model_name="m"} 1
vllm:num_requests_running{engine="1",model_name="m"} 2
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:num_requests_waiting{engine="1",model_name="m"} 4`, want: Snapshot{
			Steps: n(40), Accepted: n(50), Positions: []float64{29, 21}, Load: Load{true, 3, 4}, Ranks: 2, Source: "vllm metrics",
		}},
		"tensor-parallel ranks repeat each other": {engine: SGLang, metrics: `
sglang:spec_verify_calls_total{model_name="m"} 180
sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="0",pp_rank="0"} 3
sglang:num_running_reqs{model_name="m",dp_rank="0",tp_rank="1",pp_rank="0"} 3
sglang:num_running_reqs{model_name="m",dp_rank="1",tp_rank="2",pp_rank="0"} 4
sglang:num_running_reqs{model_name="m",dp_rank="1",tp_rank="3",pp_rank="0"} 4
sglang:spec_accept_length{model_name="m",dp_rank="0",tp_rank="0"} 0
sglang:spec_accept_length{model_name="m",dp_rank="1",tp_rank="2"} 2.5`, want: Snapshot{
			Steps: n(180), Load: Load{Known: true, Running: 7}, Window: n(2.5), Ranks: 2, Source: "sglang metrics",
		}},
		"priorities have their sum beside them": {engine: SGLang, metrics: `
sglang:num_running_reqs{model_name="m",priority=""} 3
sglang:num_running_reqs{model_name="m",priority="1"} 2
sglang:num_running_reqs{model_name="m",priority="5"} 1
sglang:num_queue_reqs{model_name="m",priority=""} 0`, want: Snapshot{
			Load: Load{Known: true, Running: 3}, Ranks: 1, Source: "sglang metrics",
		}},
		"streaming or not is no rank": {engine: SGLang, metrics: `
sglang:num_requests_total{is_streaming="true",model_name="m"} 4
sglang:num_requests_total{is_streaming="false",model_name="m"} 3`, want: Snapshot{Finished: n(7), Source: "sglang metrics"}},
		"a gauge and an average are no counters": {engine: SGLang, metrics: "sglang:spec_accept_length 2.4\n",
			info: `{"speculative_algorithm":"EAGLE3","internal_states":[{"avg_spec_accept_length":2.0},{"avg_spec_accept_length":null},{"avg_spec_accept_length":3.0}]}`,
			want: Snapshot{Window: n(2.4), Lifetime: n(2.5), Source: "sglang metrics"},
		},
		"another model's counters": {engine: VLLM, metrics: `
vllm:generation_tokens_total{engine="0",model_name="other"} 1000
vllm:generation_tokens_total{engine="0",model_name="m"} 7`, want: Snapshot{Generated: n(7), Source: "vllm metrics"}},
		"counters of models that were not asked for": {engine: VLLM, metrics: `
vllm:generation_tokens_total{engine="0",model_name="a"} 1
vllm:generation_tokens_total{engine="0",model_name="b"} 7`, want: Snapshot{
			Generated: n(8), Source: "vllm metrics", Problems: []string{`counters of models a, b are added up: none is "m"`},
		}},
		"numbers that are none": {engine: VLLM, metrics: `
vllm:spec_decode_num_drafts_total{engine="0"} NaN
vllm:spec_decode_num_drafts_created{engine="0"} 1.796e+09
vllm:spec_decode_num_accepted_tokens_total{engine="0"} 1e1
vllm:num_requests_running{engine="0"} NaN
vllm:num_requests_running{engine="1"} 2
vllm:broken{
# EOF`, want: Snapshot{
			Accepted: n(10), Load: Load{Known: true, Running: 2}, Ranks: 1, Source: "vllm metrics", Problems: []string{
				"vllm_num_requests_running is NaN: left out",
				"vllm_spec_decode_num_drafts_total is NaN: left out",
				`1 malformed metrics lines left out, the first is "vllm:broken{"`,
			},
		}},
		"names passed on by another collector": {engine: VLLM, metrics: "vllm_generation_tokens_total{job=\"x\"} 7 1700000000\n",
			want: Snapshot{Generated: n(7), Source: "vllm metrics"}},
		"tensorrt-llm by position": {engine: TRTLLM, metrics: `
trtllm_spec_decode_num_draft_tokens_total{model_name="m",engine_type="trtllm"} 999
trtllm_spec_decode_num_accepted_tokens_total{model_name="m",engine_type="trtllm"} 99
trtllm_spec_decode_drafted_tokens_total{model_name="m",engine_type="trtllm",token_position="0"} 100
trtllm_spec_decode_drafted_tokens_total{model_name="m",engine_type="trtllm",token_position="1"} 100
trtllm_spec_decode_accepted_tokens_total{model_name="m",engine_type="trtllm",token_position="0"} 70
trtllm_spec_decode_accepted_tokens_total{model_name="m",engine_type="trtllm",token_position="1"} 40
trtllm_spec_decode_acceptance_length{model_name="m",engine_type="trtllm"} 1.9`, want: Snapshot{
			Steps: n(100), Accepted: n(110), Drafted: n(200), Positions: []float64{70, 40}, Window: n(1.9), Source: "tensorrt-llm metrics",
		}},
		"tensorrt-llm without positions": {engine: TRTLLM, metrics: `
trtllm_spec_decode_drafted_tokens_total{model_name="m"} 5
trtllm_spec_decode_num_draft_tokens_total{model_name="m"} 300
trtllm_spec_decode_num_accepted_tokens_total{model_name="m"} 90
trtllm_num_requests_running{model_name="m"} 1`, want: Snapshot{
			Accepted: n(90), Drafted: n(300), Load: Load{Known: true, Running: 1}, Ranks: 1, Source: "tensorrt-llm metrics",
		}},
		"tensorrt-llm lists no iterations": {engine: TRTLLM, metrics: "[]", prom: "trtllm_generation_tokens_total 7\n",
			want: Snapshot{Generated: n(7), Source: "tensorrt-llm metrics"}},
		"no metrics of anybody": {engine: OpenAI, metrics: "go_goroutines 5\n",
			want: Snapshot{Problems: []string{"counters: URL/metrics has no metrics of a known engine"}}},
		"no metrics": {engine: OpenAI, want: Snapshot{Problems: []string{"counters: URL/metrics: HTTP 404 404 page not found"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]string{}
			if file, ok := strings.CutPrefix(tc.metrics, "@"); ok {
				answers["/metrics"] = preflightAnswer(t, file).body
			} else if tc.metrics != "" {
				answers["/metrics"] = tc.metrics
			}
			if tc.info != "" {
				answers["/server_info"] = tc.info
			}
			if tc.prom != "" {
				answers["/prometheus/metrics"] = tc.prom
			}
			c := served(t, tc.engine, Options{}, answers)
			got := c.Counters(t.Context())
			for i := range got.Problems {
				got.Problems[i] = strings.ReplaceAll(got.Problems[i], c.String(), "URL")
			}
			if got.At.IsZero() {
				t.Error("Counters: no time")
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Snapshot{}, "At")); diff != "" {
				t.Errorf("Counters: (-want +got)\n%s", diff)
			}
		})
	}
}

// Eight streams at once: the README of the recordings says 547 of 1257 drafts accepted.
func TestRecordedDelta(t *testing.T) {
	t.Parallel()
	read := func(file string) Snapshot {
		return served(t, VLLM, Options{}, map[string]string{"/metrics": preflightAnswer(t, file).body}).Counters(t.Context())
	}
	got := Delta(read("vllm-eagle3-conc8-metrics-before.txt"), read("vllm-eagle3-conc8-metrics-after.txt"), 0)
	if a := got.Accept; a == nil || a.Accepted != 547 || a.Drafted != 1257 || a.Steps != 419 || *got.Finished != 8 {
		t.Errorf("Delta: got %+v, want 547 of 1257 drafts accepted in 419 steps of 8 requests", got)
	}
	if back := Delta(read("vllm-eagle3-conc8-metrics-after.txt"), read("vllm-eagle3-conc8-metrics-before.txt"), 0); !back.Restarted || back.Accept != nil {
		t.Errorf("Delta of counters that go back: got %+v, want a restart and no number", back)
	}
}

// An aborted stream is counted under no reason: the tokens are, the request is not.
func TestAbortedIsNotFinished(t *testing.T) {
	t.Parallel()
	c := served(t, VLLM, Options{}, map[string]string{"/metrics": preflightAnswer(t, "vllm-eagle3-abort-metrics-after.txt").body})
	before := served(t, VLLM, Options{}, map[string]string{"/metrics": preflightAnswer(t, "vllm-eagle3-conc8-metrics-after.txt").body})
	d := Delta(before.Counters(t.Context()), c.Counters(t.Context()), 0)
	if d.Finished == nil || *d.Finished != 0 || d.Generated == nil || *d.Generated <= 0 {
		t.Errorf("Delta: got %+v finished and %+v tokens, want none and some", d.Finished, d.Generated)
	}
}

func TestMetricsURLs(t *testing.T) {
	t.Parallel()
	var seen atomic.Value
	metrics := func(body string, guarded bool) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen.Store(r.URL.Path)
			if guarded && r.Header.Get("Authorization") != "Bearer hush" {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			_, _ = io.WriteString(w, body)
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	one := metrics("vllm:generation_tokens_total 5\nprocess_start_time_seconds 100\nvllm:num_requests_running 1\nvllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 1\n", false)
	two := metrics("vllm:generation_tokens_total 6\nprocess_start_time_seconds 300\nvllm:num_requests_running 2\nvllm:spec_decode_num_drafts_total 4\nvllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 1\n", true)
	other := metrics("sglang:generation_tokens_total 6\n", false)
	n := func(v float64) *float64 { return &v }
	for name, tc := range map[string]struct {
		urls []string
		key  string
		want Snapshot
	}{
		"two are added up": {urls: []string{one + "/metrics", two}, key: "hush", want: Snapshot{
			Generated: n(11), Steps: n(4), Positions: []float64{1, 1}, Started: n(300),
			Load: Load{Known: true, Running: 3}, Ranks: 2, Source: "vllm metrics",
		}},
		"one wants a key: the other alone is no sum": {urls: []string{one, two}, want: Snapshot{Problems: []string{
			"counters: " + two + "/metrics refuses access (HTTP 401): it wants the key or a header, see --api-key-env and --header",
		}}},
		"another engine": {urls: []string{one, other}, want: Snapshot{Problems: []string{
			"vllm metrics and sglang metrics cannot be added up",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			c := served(t, VLLM, Options{MetricsURLs: tc.urls, Key: tc.key}, nil)
			got := c.Counters(t.Context())
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(Snapshot{}, "At")); diff != "" {
				t.Errorf("Counters: (-want +got)\n%s", diff)
			}
			if seen.Load() != "/metrics" {
				t.Errorf("asked %v, want /metrics", seen.Load())
			}
		})
	}
}

// Gotcha 3: SGLang counts a request when it has ended, some time after its last byte.
func TestSettle(t *testing.T) {
	t.Parallel()
	var reads atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "sglang:generation_tokens_total %d\n", 10*min(reads.Add(1), 4)/4*4)
	}))
	t.Cleanup(s.Close)
	c, err := New(Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	begun := time.Now()
	got := c.Settle(t.Context(), func(s Snapshot) bool { return s.Generated != nil && *s.Generated >= 40 })
	if got.Generated == nil || *got.Generated != 40 {
		t.Errorf("Settle: got %v tokens, want 40", got.Generated)
	}
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("Settle: took %s, want about one second", took)
	}
}
