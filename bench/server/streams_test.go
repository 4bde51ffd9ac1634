package server_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/server"
)

// story is the greedy answer of 48 tokens that every recorded server gave.
const story = ", there was a little girl named Lily. She loved to play outside in the park. One day, she saw a big, red ball. She wanted to play with it,"

func TestRecordedStreams(t *testing.T) {
	t.Parallel()
	eagle := &server.Accept{Steps: 12, Accepted: 35, Drafted: 36, Positions: []float64{12, 12, 11}, Tokens: 48, Source: "vllm metrics.speculative_decoding"}
	draft := &server.Accept{Steps: 10, Accepted: 37, Drafted: 37, Tokens: 48, Approx: true, Source: "llama.cpp timings"}
	for name, tc := range map[string]struct {
		info   server.Info
		chunks int
		tokens []int // of each chunk
		usage  bool
		cached int
		accept *server.Accept
	}{
		"vllm-base-chat-stream-continuous": {
			info: server.Info{Engine: server.VLLM}, chunks: 48, tokens: ones(48), usage: true,
		},
		"vllm-base-completions-stream": {
			info: server.Info{API: server.APICompletions}, chunks: 48, usage: true,
		},
		"vllm-ngram-chat-stream-continuous": {
			info: server.Info{Engine: server.VLLM}, chunks: 48, tokens: ones(48), usage: true,
			accept: &server.Accept{Steps: 2, Drafted: 8, Positions: []float64{0, 0, 0, 0}, Tokens: 48, PlainStep: 45, Source: eagle.Source},
		},
		"vllm-eagle3-chat-stream-continuous": {
			info: server.Info{Engine: server.VLLM}, chunks: 13, tokens: []int{1, 4, 4, 4, 4, 4, 4, 4, 3, 4, 4, 4, 4}, usage: true, accept: eagle,
		},
		"vllm-eagle3-chat-stream-usage":   {chunks: 13, usage: true, accept: eagle},
		"vllm-eagle3-chat-stream-nousage": {chunks: 13},
		"vllm-eagle3-completions-stream":  {info: server.Info{API: server.APICompletions}, chunks: 13, usage: true, accept: eagle},
		"llamacpp-base-chat-stream-usage": {info: server.Info{Engine: server.LlamaCpp}, chunks: 48, usage: true, cached: 4},
		"llamacpp-draft-chat-stream-usage": {
			info: server.Info{Engine: server.LlamaCpp}, chunks: 48, usage: true, cached: 4, accept: draft,
		},
		"llamacpp-draft-chat-stream-nousage": {chunks: 48, accept: draft},
		"llamacpp-draft-completions-stream": {
			info: server.Info{API: server.APICompletions}, chunks: 48, usage: true, cached: 4, accept: draft,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := readTranscript(t, name+".sse")
			var sent []byte
			c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				sent, _ = io.ReadAll(r.Body) // compared below
				tr.ServeHTTP(w, r)
			}), server.Options{Model: "stories260k"})
			tc.info.Model = "stories260k"
			c.Use(&tc.info)
			got := c.Do(t.Context(), ask(48))

			want := server.Outcome{
				Attempts: 1, Status: 200, FinishReason: "length", Text: story, TextBytes: len(story), Distinct4: 1,
				Usage: tc.usage, CachedTokens: tc.cached, Accept: tc.accept, Continuous: tc.tokens != nil, ChunkTokens: tc.tokens,
			}
			if tc.usage {
				want.PromptTokens, want.Tokens = 5, 48
			}
			if len(got.GapsUS) != tc.chunks-1 {
				t.Errorf("got %d gaps, want %d chunks with text", len(got.GapsUS), tc.chunks)
			}
			times := []time.Duration{1, got.FirstChunk, got.FirstToken, got.FirstAnswer, got.LastToken, got.Done}
			if !slices.IsSorted(times) || got.FirstToken != got.FirstAnswer {
				t.Errorf("times are out of order: %v", times)
			}
			if diff := cmp.Diff(want, timeless(got)); diff != "" {
				t.Errorf("Do (-want +got):\n%s", diff)
			}
			if strings.Contains(name, "nousage") {
				return // was asked for without stream_options
			}
			var asked, recorded any
			if err := json.Unmarshal(sent, &asked); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tr.request), &recorded); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(recorded, asked); diff != "" {
				t.Errorf("request (-recorded +sent):\n%s", diff)
			}
		})
	}
}

// timeless is an outcome without what differs from run to run.
func timeless(o server.Outcome) server.Outcome {
	var zero server.Outcome
	o.Sent, o.FirstChunk, o.FirstToken, o.FirstAnswer, o.LastToken, o.Done = zero.Sent, 0, 0, 0, 0, 0
	o.GapsUS, o.TextDigest = nil, ""
	return o
}

func ones(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

// With timings in each chunk the drafts counted run ahead of the tokens sent; only the
// last chunk's agree.
func TestTimingsPerToken(t *testing.T) {
	t.Parallel()
	c := dial(t, readTranscript(t, "llamacpp-draft-chat-stream-timings-per-token.sse"), server.Options{})
	got := c.Do(t.Context(), ask(24)).Accept
	want := &server.Accept{Steps: 5, Accepted: 18, Drafted: 18, Tokens: 24, Approx: true, Source: "llama.cpp timings"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Accept (-want +got):\n%s", diff)
	}
}

// The answers that were recorded whole have 300 tokens, of which the counts differ by
// the way of drafting.
func TestRecordedWhole(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]*server.Accept{
		"vllm-eagle3":    {Steps: 104, Accepted: 195, Drafted: 312, Positions: []float64{85, 67, 43}, Tokens: 300, Source: "vllm metrics.speculative_decoding"},
		"vllm-ngram":     {Steps: 50, Accepted: 68, Drafted: 200, Positions: []float64{25, 18, 14, 11}, Tokens: 300, PlainStep: 181, Source: "vllm metrics.speculative_decoding"},
		"llamacpp-draft": {Steps: 60, Accepted: 239, Drafted: 239, Tokens: 300, Approx: true, Source: "llama.cpp timings"},
		"llamacpp-ngram": {Steps: 281, Accepted: 18, Drafted: 120, Tokens: 300, Approx: true, Source: "llama.cpp timings"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dial(t, readTranscript(t, name+"-chat-ignore-eos.json"), server.Options{})
			got := c.Do(t.Context(), ask(300))
			if got.Error != "" || got.Tokens != 300 || !got.Usage || got.FinishReason != "length" {
				t.Errorf("got %q, %d tokens, finish reason %q, want 300 tokens and length", got.Error, got.Tokens, got.FinishReason)
			}
			if got.FirstChunk != 0 || got.FirstToken != 0 || got.LastToken != 0 || got.FirstAnswer != 0 || got.Done == 0 {
				t.Errorf("got times %v %v %v %v %v, want the last only", got.FirstChunk, got.FirstToken, got.LastToken, got.FirstAnswer, got.Done)
			}
			if diff := cmp.Diff([]string{"the server did not stream: no times of tokens"}, got.Doubts); diff != "" {
				t.Errorf("Doubts (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want, got.Accept); diff != "" {
				t.Errorf("Accept (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRecordedErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		status int
		want   string
	}{
		"vllm-base-err-model-stream":     {404, "server answered 404 Not Found: The model `no-such-model` does not exist. Valid aliases: stories260k."},
		"vllm-base-err-maxtokens-stream": {400, "server answered 400 Bad Request: max_tokens=100000 cannot be greater than max_model_len=512. Please request fewer output tokens. (parameter=max_tokens, value=100000)"},
		"vllm-base-err-404":              {404, "server answered 404 Not Found: Not Found"},
		"llamacpp-base-err-nomessages":   {400, "server answered 400 Bad Request: 'messages' is required"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := dial(t, readTranscript(t, name+".json"), server.Options{}).Do(t.Context(), ask(48))
			if got.Fault != server.FaultRefused || got.Error != tc.want || got.Status != tc.status || got.Attempts != 1 {
				t.Errorf("got %q %q, status %d after %d attempts, want %q, status %d after 1", got.Fault, got.Error, got.Status, got.Attempts, tc.want, tc.status)
			}
		})
	}
}
