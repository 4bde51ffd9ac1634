package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/server"
)

// TestRequestBody is what each route and engine is asked.
func TestRequestBody(t *testing.T) {
	t.Parallel()
	seed := int64(42)
	full := server.Params{MaxTokens: 7, Temperature: 0.5, TopP: 0.9, Seed: &seed, IgnoreEOS: true}
	for name, tc := range map[string]struct {
		info   server.Info
		params server.Params
		path   string
		want   string
	}{
		"before preflight": {
			params: full, path: "/v1/chat/completions",
			want: `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"temperature":0.5,"top_p":0.9,"seed":42,"ignore_eos":true}`,
		},
		"zero": {
			path: "/v1/chat/completions",
			want: `{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true},"temperature":0}`,
		},
		"vllm": {
			info: server.Info{Engine: server.VLLM, API: server.APIChat, Model: "m"}, path: "/v1/chat/completions",
			params: server.Params{Thinking: "off"},
			want:   `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"temperature":0,"chat_template_kwargs":{"enable_thinking":false,"thinking":false}}`,
		},
		"sglang chat, with more members": {
			info: server.Info{Engine: server.SGLang, Model: "m"}, path: "/v1/chat/completions",
			params: server.Params{Thinking: "on", Extra: map[string]any{"temperature": 1, "top_k": 20, "chat_template_kwargs": map[string]any{"style": "x"}}},
			want:   `{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"temperature":1,"top_k":20,"return_spec_tokens_details":true,"chat_template_kwargs":{"enable_thinking":true,"thinking":true,"style":"x"}}`,
		},
		"completions": {
			info: server.Info{API: server.APICompletions}, path: "/v1/completions", params: server.Params{MaxTokens: 7, Thinking: "on"},
			want: `{"prompt":"Be brief.\nHi","stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"temperature":0}`,
		},
		"generate": {
			info: server.Info{Engine: server.SGLang, API: server.APISGLang, Model: "m"}, path: "/generate", params: full,
			want: `{"text":"Be brief.\nHi","stream":true,"sampling_params":{"max_new_tokens":7,"temperature":0.5,"top_p":0.9,"ignore_eos":true,"sampling_seed":42}}`,
		},
		"generate, greedy": {
			info: server.Info{Engine: server.SGLang, API: server.APISGLang}, path: "/generate",
			params: server.Params{Seed: &seed, Extra: map[string]any{"sampling_params": map[string]any{"top_k": 1}}},
			want:   `{"text":"Be brief.\nHi","stream":true,"sampling_params":{"temperature":0,"top_k":1}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var path string
			var body []byte
			c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				path = r.URL.Path
				body, _ = io.ReadAll(r.Body) // compared below
				emit(w, "data: [DONE]\n\n")
			}), server.Options{})
			if tc.info.Engine != "" || tc.info.API != "" {
				c.Use(&tc.info)
			}
			c.Do(t.Context(), server.Request{
				Messages: []server.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: "Hi"}},
				Params:   tc.params,
			})
			var got, want any
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); path != tc.path || diff != "" {
				t.Errorf("got %s, want %s; body (-want +got):\n%s", path, tc.path, diff)
			}
		})
	}
}

// TestAnswers are streams with something particular, as far as it is no fault.
func TestAnswers(t *testing.T) {
	t.Parallel()
	const usage = `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}`
	chat := func(text, reasoning, reason string) string {
		f := "null"
		if reason != "" {
			f = `"` + reason + `"`
		}
		return `{"choices":[{"delta":{"content":` + text + reasoning + `},"finish_reason":` + f + `}]}`
	}
	for name, tc := range map[string]struct {
		events []string
		want   server.Outcome
	}{
		"plain": {
			events: []string{role, hello, world, finished, counted, done},
			want:   server.Outcome{Text: "Hello world", Usage: true},
		},
		"no [DONE]": {
			events: []string{role, hello, world, finished, counted},
			want:   server.Outcome{Text: "Hello world", Usage: true},
		},
		"no usage is not counted from chunks": {
			events: []string{role, hello, world, finished, done},
			want:   server.Outcome{Text: "Hello world"},
		},
		"empty usage": {
			events: []string{role, hello, finished, `{"choices":[],"usage":{}}`, done},
			want:   server.Outcome{Text: "Hello"},
		},
		"usage null, then twice": {
			events: []string{`{"choices":[{"delta":{"content":"Hello"}}],"usage":null}`, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`, counted, done},
			want:   server.Outcome{Text: "Hello", Usage: true},
		},
		"choices [] in the middle": {
			events: []string{role, hello, `{"choices":[]}`, world, finished, counted, done},
			want:   server.Outcome{Text: "Hello world", Usage: true},
		},
		"reasoning_content": {
			events: []string{role, chat(`null`, `,"reasoning_content":"Well."`, ""), chat(`"Yes"`, `,"reasoning_content":null`, ""), finished, usage, done},
			want:   server.Outcome{Text: "Yes", Reasoning: "Well.", Usage: true},
		},
		"reasoning under both names": {
			events: []string{role, chat(`""`, `,"reasoning":"Well.","reasoning_content":"Well."`, ""), chat(`"Yes"`, ``, ""), finished, usage, done},
			want:   server.Outcome{Text: "Yes", Reasoning: "Well.", Usage: true},
		},
		"reasoning in the content": {
			events: []string{role, chat(`"<think>Well."`, ``, ""), chat(`"</think>\n\nYes"`, ``, ""), finished, usage, done},
			want:   server.Outcome{Text: "Yes", Reasoning: "Well.", Usage: true},
		},
		"tags in an answer with reasoning of its own": {
			events: []string{role, chat(`""`, `,"reasoning":"Well."`, ""), chat(`"a</think>b"`, ``, ""), finished, usage, done},
			want:   server.Outcome{Text: "a</think>b", Reasoning: "Well.", Usage: true},
		},
		"tool calls are text": {
			events: []string{role, `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"call_1","function":{"name":"f","arguments":"{}"}}]}}]}`, finished, usage, done},
			want:   server.Outcome{Text: "f{}", Usage: true},
		},
		"counts of reasoning and cache": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":2}}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true, CachedTokens: 4, ReasoningTokens: 2},
		},
		"reasoning counted in one of two places": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"completion_tokens_details":{"reasoning_tokens":2},"reasoning_tokens":0}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true, ReasoningTokens: 2},
		},
		"details null": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"prompt_tokens_details":null,"completion_tokens_details":null}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true},
		},
		"more reasoning than tokens": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,"reasoning_tokens":4}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true, ReasoningTokens: 4, Doubts: []string{"reasoning_tokens is 4, of 3 completion_tokens"}},
		},
		"total that is no sum": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":9}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true, Doubts: []string{"total_tokens is 9, want 5+3"}},
		},
		"no tokens": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":0,"total_tokens":5}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true, Tokens: -1, Doubts: []string{"completion_tokens is 0, for 5 bytes of text"}},
		},
		"no text": {
			events: []string{role, finished, usage, done},
			want:   server.Outcome{Usage: true, Doubts: []string{"completion_tokens is 3, without any text"}},
		},
		"negative tokens": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":-2,"total_tokens":3}}`, done},
			want:   server.Outcome{Text: "Hello", Doubts: []string{"completion_tokens went back from 0 to -2", "completion_tokens is -2"}},
		},
		"more than asked for": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":49,"total_tokens":54}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true, Tokens: 49, Doubts: []string{"completion_tokens is 49, asked for at most 48", `finish reason is "stop" at the limit of 48 tokens`}},
		},
		"no finish reason": {
			events: []string{hello, usage, done},
			want:   server.Outcome{Text: "Hello", Usage: true, FinishReason: "-", Doubts: []string{"no finish reason"}},
		},
		"a finish reason and text at once": {
			events: []string{hello, chat(`" world"`, ``, "length"), usage, done},
			want:   server.Outcome{Text: "Hello world", Usage: true, FinishReason: "length"},
		},
		"count as a string": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":"3"}}`, done},
			want:   server.Outcome{Text: "Hello", Doubts: []string{`event 3: "completion_tokens" is of type string`}},
		},
		"more tokens than verify steps emit": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":40,"total_tokens":45},"sglext":{"spec_tokens_details":{"spec_verify_ct":10,"spec_num_correct_drafts":12,"spec_num_proposed_drafts":30}}}`, done},
			want: server.Outcome{Text: "Hello", Usage: true, Tokens: 40, Doubts: []string{"completion_tokens is 40, but 10 verify steps with 12 accepted drafts emit 23"},
				Accept: &server.Accept{Steps: 10, Accepted: 12, Drafted: 30, Tokens: 40, Source: "sglang sglext.spec_tokens_details"}},
		},
		"fewer tokens than verify steps emit": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":14,"total_tokens":19},"metrics":{"speculative_decoding":{"num_spec_steps":10,"num_accepted_draft_tokens":12,"num_draft_tokens":30}}}`, done},
			want: server.Outcome{Text: "Hello", Usage: true, Tokens: 14, Doubts: []string{"completion_tokens is 14, but 10 verify steps with 12 accepted drafts emit 23"},
				Accept: &server.Accept{Steps: 10, Accepted: 12, Drafted: 30, Tokens: 14, Source: "vllm metrics.speculative_decoding"}},
		},
		"a last step that was cut": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":20,"total_tokens":25},"metrics":{"speculative_decoding":{"num_spec_steps":10,"num_accepted_draft_tokens":12,"num_draft_tokens":30}}}`, done},
			want: server.Outcome{Text: "Hello", Usage: true, Tokens: 20,
				Accept: &server.Accept{Steps: 10, Accepted: 12, Drafted: 30, Tokens: 20, Source: "vllm metrics.speculative_decoding"}},
		},
		"accept counts of a bad shape": {
			events: []string{hello, finished, `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8},"metrics":{"speculative_decoding":7}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true, Doubts: []string{`vllm metrics.speculative_decoding: "all of it" is of type number`}},
		},
		"metrics of a bad shape": {
			events: []string{hello, finished, `{"choices":[],"metrics":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}`, done},
			want:   server.Outcome{Text: "Hello", Usage: true, Doubts: []string{`event 3: "metrics" is of type array`}},
		},
		"tensorrt-llm": {
			events: []string{hello, `{"choices":[{"delta":{},"finish_reason":"stop","avg_decoded_tokens_per_iter":1.5}]}`, usage, done},
			want: server.Outcome{Text: "Hello", Usage: true,
				Accept: &server.Accept{Steps: 1, Accepted: 1, Tokens: 3, Approx: true, Source: "tensorrt-llm avg_decoded_tokens_per_iter"}},
		},
		"continuous usage": {
			events: []string{
				`{"choices":[{"delta":{"role":"assistant","content":""}}],"usage":{"prompt_tokens":5,"completion_tokens":0,"total_tokens":5}}`,
				`{"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}`,
				`{"choices":[{"delta":{"content":""}}],"usage":{"prompt_tokens":5,"completion_tokens":2,"total_tokens":7}}`,
				`{"choices":[{"delta":{"content":"b"}}],"usage":{"prompt_tokens":5,"completion_tokens":4,"total_tokens":9}}`,
				`{"choices":[{"delta":{"content":"c"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}`,
				usage, done,
			},
			want: server.Outcome{Text: "abc", Usage: true, Continuous: true, ChunkTokens: []int{1, 3, 0}, Doubts: []string{"completion_tokens went back from 4 to 3"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := timeless(dial(t, events(tc.events...), server.Options{}).Do(t.Context(), ask(48)))
			want := tc.want
			want.Attempts, want.Status, want.Distinct4 = 1, 200, 1
			want.TextBytes = len(want.Text) + len(want.Reasoning)
			switch want.FinishReason {
			case "":
				want.FinishReason = "stop"
			case "-":
				want.FinishReason = ""
			}
			if want.Usage {
				want.PromptTokens = 5
				if want.Tokens == 0 {
					want.Tokens = 3
				}
				want.Tokens = max(want.Tokens, 0)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Do (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGenerate(t *testing.T) {
	t.Parallel()
	spec := `,"spec_verify_ct":2,"spec_num_correct_drafts":3,"spec_num_proposed_drafts":6,"spec_correct_drafts_histogram":[0,1,1]`
	accept := &server.Accept{Steps: 2, Accepted: 3, Drafted: 6, Positions: []float64{2, 1}, Tokens: 6, Source: "sglang meta_info"}
	for name, texts := range map[string][3]string{
		"the whole text each time": {`"One"`, `"One two three"`, `"One two three four"`},
		"the new text each time":   {`"One"`, `" two three"`, `" four"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, events(
				`{"text":`+texts[0]+`,"meta_info":{"finish_reason":null,"prompt_tokens":5,"completion_tokens":1,"cached_tokens":2}}`,
				`{"text":`+texts[1]+`,"meta_info":{"finish_reason":null,"prompt_tokens":5,"completion_tokens":4,"cached_tokens":2,"spec_verify_ct":1}}`,
				`{"text":`+texts[2]+`,"meta_info":{"finish_reason":{"type":"stop","matched":151645},"prompt_tokens":5,"completion_tokens":6,"cached_tokens":2`+spec+`}}`,
				done,
			), server.Options{API: server.APISGLang})
			want := server.Outcome{
				Attempts: 1, Status: 200, FinishReason: "stop", Text: "One two three four", TextBytes: 18, Distinct4: 1, Accept: accept,
				Usage: true, Continuous: true, PromptTokens: 5, CachedTokens: 2, Tokens: 6, ChunkTokens: []int{1, 3, 2},
			}
			if diff := cmp.Diff(want, timeless(c.Do(t.Context(), ask(48)))); diff != "" {
				t.Errorf("Do (-want +got):\n%s", diff)
			}
		})
	}
}
