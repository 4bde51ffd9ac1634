package server

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestProbeSGLang(t *testing.T) {
	t.Parallel()
	const models = `{"data":[{"id":"kimi","owned_by":"sglang","root":"/models/kimi","max_model_len":262144}]}`
	metrics := func(steps int) func(int64) string {
		return func(n int64) string {
			text := fmt.Sprintf("sglang:num_running_reqs{model_name=\"kimi\"} 0\nsglang:num_queue_reqs{model_name=\"kimi\"} 0\n"+
				"sglang:spec_num_steps{model_name=\"kimi\"} %d\nsglang:spec_num_draft_tokens{model_name=\"kimi\"} %d\n"+
				"sglang:spec_accept_length{model_name=\"kimi\"} 1.6\n", steps, steps+1)
			if n > 0 { // these appear with the first request that ends
				text += fmt.Sprintf("sglang:generation_tokens_total{model_name=\"kimi\"} %d\nsglang:num_requests_total{model_name=\"kimi\"} %d\n"+
					"sglang:spec_verify_calls_total{model_name=\"kimi\"} %d\n", 64*n, n, 40*n)
			}
			return text
		}
	}
	details := `,"sglext":{"spec_tokens_details":{"spec_verify_ct":40,"spec_num_correct_drafts":23,"spec_num_proposed_drafts":40,"spec_correct_drafts_histogram":[17,23]}}`
	text := `"content":"one two three"`
	derived := Source{Name: "sglang metrics, accepted = generated − finished − steps", Trust: Approx, Why: "differences of counters, derived; only while nobody else uses the server"}
	average := Source{Name: "/server_info", Trust: Approx, Why: "average since /flush_cache, of all traffic; its last 40 batches are missing, needs 200 steps or more"}
	gauge := Source{Name: "sglang metrics, gauge", Trust: Low, Why: "average of the last log window only"}
	for name, tc := range map[string]struct {
		fake   *fake
		params Params
		spec   Speculation
		source []Source
		thinks string
		notes  []string
	}{
		"asked for 16, runs 1": {
			fake: &fake{metrics: metrics(1), stream: answer64(`"reasoning_content":"hm"`, details), answers: map[string]string{"/get_server_info": infoNested}},
			spec: Speculation{
				Known: true, On: true, Method: "eagle", Steps: 1, TopK: 1, DraftTokens: 2,
				AskedSteps: 15, AskedBy: "speculative_num_draft_tokens", Evidence: "server arguments",
			},
			source: []Source{{Name: "sglang sglext.spec_tokens_details", Trust: Exact, Why: "per request, as the server counted"}, derived, gauge},
			thinks: "first answer",
			notes:  []string{"speculative_num_draft_tokens asks for 15 draft positions, 1 run"},
		},
		"what runs is believed before what was asked": {
			fake: &fake{metrics: metrics(2), stream: answer64(text, ""), answers: map[string]string{"/server_info": infoFlat}},
			spec: Speculation{
				Known: true, On: true, Method: "eagle3", Draft: "/models/draft", Steps: 2, TopK: 1, DraftTokens: 3,
				AskedSteps: 3, AskedBy: "speculative_num_steps", Evidence: "server arguments, sglang:spec_num_steps",
			},
			source: []Source{derived, gauge},
			thinks: "reasoning_parser argument",
			notes: []string{
				"speculative_num_steps asks for 3 draft positions, 2 run",
				"this version tells accept lengths of single requests on /generate only (--api sglang)",
			},
		},
		"a request shows what runs": {
			fake:   &fake{metrics: metrics(0), stream: answer64(text, details), answers: map[string]string{"/server_info": infoFlat}},
			params: Params{Thinking: "off"},
			spec: Speculation{
				Known: true, On: true, Method: "eagle3", Draft: "/models/draft", Steps: 1, TopK: 1, DraftTokens: 2,
				AskedSteps: 3, AskedBy: "speculative_num_steps", Evidence: "server arguments, sglang sglext.spec_tokens_details",
			},
			source: []Source{{Name: "sglang sglext.spec_tokens_details", Trust: Exact, Why: "per request, as the server counted"}, derived, gauge},
			notes:  []string{"speculative_num_steps asks for 3 draft positions, 1 run"},
		},
		"without metrics": {
			fake: &fake{stream: answer64(text, ""), answers: map[string]string{"/server_info": infoFlat}},
			spec: Speculation{
				Known: true, On: true, Method: "eagle3", Draft: "/models/draft", Steps: 3, TopK: 1, DraftTokens: 4, Evidence: "server arguments",
			},
			source: []Source{average},
			thinks: "reasoning_parser argument",
			notes: []string{
				"this version tells accept lengths of single requests on /generate only (--api sglang)",
				"counters: URL/metrics: HTTP 404 404 page not found (SGLang needs --enable-metrics)",
			},
		},
		"a baseline": {
			fake: &fake{metrics: func(n int64) string { return fmt.Sprintf("sglang:generation_tokens_total %d\n", 64*n) },
				stream: answer64(text, ""), answers: map[string]string{"/server_info": infoPlain}},
			spec:   Speculation{Known: true, Evidence: "server arguments"},
			source: []Source{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.fake.answers["/v1/models"], tc.fake.answers["/health"] = models, ""
			s := httptest.NewServer(tc.fake)
			t.Cleanup(s.Close)
			got, err := probe(t, Options{URL: s.URL}, tc.params)
			if err != nil {
				t.Fatalf("Probe: %v", err)
			}
			if got.Engine != SGLang || got.Why != "/server_info" || got.Model != "kimi" || got.MaxContext != 262144 {
				t.Errorf("Probe: got %q by %q, model %q with %d tokens", got.Engine, got.Why, got.Model, got.MaxContext)
			}
			if diff := cmp.Diff(tc.spec, got.Speculation); diff != "" {
				t.Errorf("speculation: (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(tc.source, got.Sources); diff != "" {
				t.Errorf("sources: (-want +got)\n%s", diff)
			}
			if got.Thinks != (tc.thinks != "") || got.ThinksBy != tc.thinks {
				t.Errorf("thinks: got %v by %q, want by %q", got.Thinks, got.ThinksBy, tc.thinks)
			}
			for i := range got.Notes {
				got.Notes[i] = strings.ReplaceAll(got.Notes[i], s.URL, "URL")
			}
			if diff := cmp.Diff(tc.notes, got.Notes, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("notes: (-want +got)\n%s", diff)
			}
			if body, _ := tc.fake.body.Load().(string); !strings.Contains(body, `"max_tokens":64`) || !strings.Contains(body, `"return_spec_tokens_details":true`) {
				t.Errorf("probe sent %s, want 64 tokens and details", body)
			}
		})
	}
}
