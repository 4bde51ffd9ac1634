package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func probe(t *testing.T, opt Options, params Params) (*Info, error) {
	t.Helper()
	c, err := New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.Probe(t.Context(), params)
}

func TestProbeRecorded(t *testing.T) {
	t.Parallel()
	const (
		continuous = "-chat-stream-continuous.sse"
		final      = "-chat-stream-usage.sse"
		vllmSpec   = "vllm:spec_decode metrics"
	)
	counters := Source{Name: "vllm metrics", Trust: Idle, Why: "differences of counters: exact while nobody else uses the server"}
	request := Source{Name: "vllm metrics.speculative_decoding", Trust: Exact, Why: "per request, as the server counted"}
	chunks := Source{Name: "tokens per chunk", Trust: Proxy, Why: "continuous usage: a chunk may hold more than one step"}
	llama := Source{Name: "llama.cpp metrics", Trust: Idle, Why: counters.Why}
	for name, tc := range map[string]struct {
		stream string
		why    string
		spec   Speculation
		source []Source
	}{
		"vllm-base":     {continuous, "its metrics", Speculation{Known: true, Evidence: "no " + vllmSpec}, []Source{}},
		"vllm-ngram":    {continuous, "its metrics", Speculation{Known: true, On: true, Steps: 4, Evidence: vllmSpec}, []Source{request, counters, chunks}},
		"vllm-eagle3":   {continuous, "its metrics", Speculation{Known: true, On: true, Steps: 3, Evidence: vllmSpec}, []Source{request, counters, chunks}},
		"llamacpp-base": {final, "/props", Speculation{Known: true, Evidence: "/slots"}, []Source{}},
		"llamacpp-draft": {final, "/props", Speculation{Known: true, On: true, Method: "draft-simple", Steps: 4, Evidence: "/slots"}, []Source{
			llama, {Name: "llama.cpp timings", Trust: Approx, Why: "per request, steps or drafts derived"},
		}},
		// This method drafted nothing for the probe: requests alone would not show it.
		"llamacpp-ngram": {final, "/props", Speculation{Known: true, On: true, Method: "ngram-simple", Steps: 48, Evidence: "/slots"}, []Source{llama}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := replay(t, name, tc.stream)
			got, err := probe(t, Options{URL: s.URL}, Params{})
			if err != nil {
				t.Fatalf("Probe: %v", err)
			}
			want := &Info{
				URL: s.URL, Engine: VLLM, Why: tc.why, Version: "0.32.0", Model: "stories260k", API: APIChat, MaxContext: 512,
				Speculation: tc.spec, Load: Load{Known: true}, Sources: tc.source,
			}
			if strings.HasPrefix(name, "llama") {
				want.Engine, want.Version = LlamaCpp, "b0-unknown"
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Info{}, "Probe", "Arguments")); diff != "" {
				t.Errorf("Probe: (-want +got)\n%s", diff)
			}
			if p := got.Probe; p.Tokens != 48 || !p.Usage || p.Fault != FaultNone {
				t.Errorf("Probe: got request %+v, want 48 tokens", p)
			}
			for argument, want := range map[string]map[string]string{
				"vllm":  {"root": "./stories260k-hf-hd32", "cache_config.block_size": "128"},
				"llama": {"n_ctx": "512", "model_path": "stories260k.gguf"},
			}[name[:strings.IndexAny(name, "-c")]] {
				if got.Arguments[argument] != want {
					t.Errorf("argument %q: got %q, want %q", argument, got.Arguments[argument], want)
				}
			}
		})
	}
}

func TestProbeOthers(t *testing.T) {
	t.Parallel()
	text := `"content":"one two"`
	model := func(owner string) map[string]string {
		return map[string]string{"/v1/models": `{"data":[{"id":"a","owned_by":"` + owner + `"},{"id":"b"}]}`, "/version": `{"version":"1.2"}`}
	}
	for name, tc := range map[string]struct {
		fake *fake
		opt  Options
		want Info
	}{
		"tensorrt-llm, iterations": {
			fake: &fake{answers: model("tensorrt_llm"), stream: answer64(text, ""), metrics: func(n int64) string {
				if n == 0 {
					return "[]"
				}
				return `[{"iter":6},{"iter":7,"numActiveRequests":0,"specDecodingStats":{"numDraftTokens":90,"numAcceptedTokens":33,"numRequestsWithDraftTokens":30}}]`
			}},
			want: Info{
				Engine: TRTLLM, Why: `owned_by "tensorrt_llm" in /v1/models`, Version: "1.2", Model: "a", API: APIChat,
				Speculation: Speculation{Known: true, On: true, Evidence: "tensorrt-llm iteration statistics"},
				Sources:     []Source{{"tensorrt-llm iteration statistics", Idle, "differences of counters: exact while nobody else uses the server"}},
			},
		},
		"tensorrt-llm, no drafts": {
			fake: &fake{answers: model("tensorrt_llm"), stream: answer64(text, ""), metrics: func(n int64) string {
				return fmt.Sprintf(`[{"iter":%d,"numActiveRequests":3}]`, 7+n)
			}},
			want: Info{
				Engine: TRTLLM, Why: "its metrics", Version: "1.2", Model: "a", API: APIChat, Load: Load{Known: true},
				Speculation: Speculation{Known: true, Evidence: "tensorrt-llm iteration statistics without drafts"}, Sources: []Source{},
			},
		},
		"tensorrt-llm, prometheus": {
			fake: &fake{answers: model("tensorrt_llm"), stream: answer64(text, ""), metrics: func(n int64) string {
				return fmt.Sprintf("trtllm_speculative_config_info{model_name=\"a\",spec_enabled=\"true\",spec_method=\"Eagle3\",spec_draft_model=\"/d\",spec_num_tokens=\"3\"} 1\n"+
					"trtllm_num_requests_running 2\ntrtllm_num_requests_waiting 1\n"+
					"trtllm_spec_decode_num_draft_tokens_total %d\ntrtllm_spec_decode_num_accepted_tokens_total %d\n", 90*n, 33*n)
			}},
			want: Info{
				Engine: TRTLLM, Why: "its metrics", Version: "1.2", Model: "a", API: APIChat, Load: Load{true, 2, 1},
				Speculation: Speculation{Known: true, On: true, Method: "eagle3", Draft: "/d", Steps: 3, Evidence: "trtllm_speculative_config_info"},
				Sources:     []Source{{"tensorrt-llm metrics, steps = drafts / positions", Approx, "differences of counters, derived; only while nobody else uses the server"}},
			},
		},
		"a server that extracts hidden states": {
			fake: &fake{answers: model("vllm"), stream: answer64(text, ""), metrics: func(n int64) string {
				return fmt.Sprintf("vllm:spec_decode_num_drafts_total %d\nvllm:spec_decode_num_accepted_tokens_total 0\nvllm:spec_decode_num_draft_tokens_total %d\n"+
					"vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 0\n", 63*n, 63*n)
			}},
			opt: Options{Model: "b"},
			want: Info{
				Engine: VLLM, Why: "its metrics", Version: "1.2", Model: "b", API: APIChat,
				Speculation: Speculation{Known: true, On: true, Steps: 1, Evidence: "vllm:spec_decode metrics"},
				Sources:     []Source{{"vllm metrics", Idle, "differences of counters: exact while nobody else uses the server"}},
				Notes: []string{
					"63 drafts were counted and none accepted: a server that extracts hidden states does this, and so does a draft that fits in nothing",
					"accept lengths of single requests need --per-request-spec-decode-metrics at the server's start",
				},
			},
		},
		"vllm with counters elsewhere": {
			fake: &fake{answers: model("vllm"), stream: answer64(text, "")},
			want: Info{
				Engine: VLLM, Why: `owned_by "vllm" in /v1/models`, Version: "1.2", Model: "a", API: APIChat, Sources: []Source{},
				Notes: []string{"counters: URL/metrics: HTTP 404 404 page not found"},
			},
		},
		"any other, and a model that it does not list": {
			fake: &fake{answers: model(`x\u001b[2J`), stream: strings.ReplaceAll(answer64(text, ""), `"usage"`, `"nothing"`)},
			opt:  Options{Model: "c", API: APIChat, Insecure: true},
			want: Info{
				Engine: OpenAI, Why: "no route of a known engine", Version: "1.2", Model: "c", API: APIChat, Sources: []Source{}, Insecure: true,
				Notes: []string{
					`the server does not list model "c"`,
					"the server gives no usage: tokens cannot be counted",
					"counters: URL/metrics: HTTP 404 404 page not found",
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(tc.fake)
			t.Cleanup(s.Close)
			tc.opt.URL = s.URL
			got, err := probe(t, tc.opt, Params{})
			if err != nil {
				t.Fatalf("Probe: %v", err)
			}
			for i := range got.Notes {
				got.Notes[i] = strings.ReplaceAll(got.Notes[i], s.URL, "URL")
			}
			if diff := cmp.Diff(&tc.want, got, cmpopts.IgnoreFields(Info{}, "URL", "Probe", "Arguments")); diff != "" {
				t.Errorf("Probe: (-want +got)\n%s", diff)
			}
		})
	}
}

func TestProbeThinks(t *testing.T) {
	t.Parallel()
	props := func(template string) *evidence { return &evidence{props: &llamaProps{Template: template}} }
	for name, tc := range map[string]struct {
		evidence *evidence
		thinking string
		answer   Outcome
		want     string
	}{
		"plain":                       {props("{{ messages }}"), "", Outcome{Text: "hello"}, ""},
		"reasoning field":             {props(""), "", Outcome{Reasoning: "hm"}, "first answer"},
		"counted":                     {props(""), "", Outcome{ReasoningTokens: 5}, "first answer"},
		"switched off, thinks anyway": {props("enable_thinking"), "off", Outcome{Reasoning: "hm"}, "first answer"},
		"switched off":                {props("enable_thinking"), "off", Outcome{Text: "hello"}, ""},
		"template":                    {props("{%- if enable_thinking %}<think>"), "", Outcome{Text: "hello"}, "chat template"},
		"nothing known":               {&evidence{}, "on", Outcome{}, ""},
	} {
		thinks, by := tc.evidence.thinks(Params{Thinking: tc.thinking}, &tc.answer)
		if by != tc.want || thinks != (tc.want != "") {
			t.Errorf("%s: got %v by %q, want by %q", name, thinks, by, tc.want)
		}
	}
}

func TestProbeRefused(t *testing.T) {
	t.Parallel()
	models := map[string]string{"/v1/models": `{"data":[{"id":"a"}]}`}
	for name, tc := range map[string]struct {
		fake *fake
		key  string
		want string
	}{
		"no key":                 {&fake{key: "hush"}, "", "/health: HTTP 401: the key is missing or wrong: name the variable that holds it with --api-key-env"},
		"wrong key":              {&fake{key: "hush"}, "psst", "/health: HTTP 401: the key is missing or wrong"},
		"models want a key":      {&fake{status: map[string]int{"/v1/models": 403}}, "", "/v1/models: HTTP 403: the key is missing or wrong"},
		"loading":                {&fake{status: map[string]int{"/health": 503}, answers: map[string]string{"/health": `{"error":{"message":"Loading model"}}`}}, "", "is not ready: /health: HTTP 503 Loading model"},
		"models fail":            {&fake{status: map[string]int{"/v1/models": 500}}, "", "is not ready: /v1/models: HTTP 500"},
		"no model":               {&fake{}, "", "/v1/models lists no model: name one with --model"},
		"the request is refused": {&fake{answers: models, status: map[string]int{"/v1/chat/completions": 400}, stream: `{"error":{"message":"no chat template"}}`}, "", "first request: server answered 400 Bad Request: no chat template"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(tc.fake)
			t.Cleanup(s.Close)
			info, err := probe(t, Options{URL: s.URL, Key: tc.key}, Params{})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Probe: got error %v, want %q", err, tc.want)
			}
			if info == nil || info.URL != s.URL {
				t.Errorf("Probe: got %+v, want what is known", info)
			}
			if tc.key != "" && strings.Contains(err.Error(), tc.key) {
				t.Errorf("Probe: the error %q holds the key", err)
			}
		})
	}
}

func TestProbeStops(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/models":
			_, _ = io.WriteString(w, `{"data":[{"id":"a"}]}`)
		case "/v1/chat/completions":
			_, _ = io.Copy(io.Discard, r.Body) // only then is it noticed that the client left
			cancel()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(s.Close)
	c, err := New(Options{URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	info, err := c.Probe(ctx, Params{})
	if !errors.Is(err, context.Canceled) || info == nil || info.Model != "a" {
		t.Errorf("Probe: got %+v and error %v, want model a and %v", info, err, context.Canceled)
	}
}
