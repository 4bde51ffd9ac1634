package simserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"hsx/internal/simserver"
)

func TestThinking(t *testing.T) {
	t.Parallel()
	const off = `"chat_template_kwargs":{"enable_thinking":false}`
	for name, test := range map[string]struct {
		inline          bool
		more            string
		thinks          bool
		answer          string // how it begins
		reasoningTokens bool
	}{
		"parsed": {false, `"n":1`, true, " ", true},
		"inline": {true, `"n":1`, false, "<think>", true},
		"off":    {false, off, false, " ", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, engine := range engines() {
				_, url := start(t, simserver.Options{Engine: engine, Think: 12, ThinkInline: test.inline, Steps: 2, Accept: []float64{0.9}})
				r := chat(t, url, "x", test.more)
				thinking, answer, _ := r.text()
				if (thinking != "") != test.thinks || !strings.HasPrefix(answer, test.answer) || strings.Contains(thinking, "think>") {
					t.Errorf("%s: got %q, %q", engine, thinking, answer)
				}
				want := int64(16 + 12)
				if name == "off" {
					want = 16
				}
				if got := count(r.last(), "usage", "completion_tokens"); got != want {
					t.Errorf("%s: got %d tokens, want %d", engine, got, want)
				}
			}
		})
	}
}

func TestAnswersWithoutAStream(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		_, url := start(t, simserver.Options{Engine: engine, Think: 4, Steps: 2, Accept: []float64{0.5}})
		_, want, _ := chat(t, url, "x").text()
		d := do(t, http.MethodPost, url+"/v1/chat/completions", `{"messages":[{"content":[{"type":"text","text":"y"}]},{"content":"x"}]}`)
		if d.status != http.StatusOK || at(d.document(t), "choices", 0, "message", "content") == want {
			t.Errorf("%s: content in parts: got status %d, or the text of another prompt", engine, d.status)
		}
		whole := do(t, http.MethodPost, url+"/v1/chat/completions", `{"messages":[{"content":"x"}]}`).document(t)
		if got := at(whole, "choices", 0, "message", "content"); got != want || count(whole, "usage", "completion_tokens") != 20 {
			t.Errorf("%s: got %v, want %q", engine, whole, want)
		}
		text := do(t, http.MethodPost, url+"/v1/completions", `{"prompt":"x"}`).document(t)
		got, _ := at(text, "choices", 0, "text").(string)
		if !strings.HasPrefix(got, "<think>") || !strings.HasSuffix(got, "</think>"+want) {
			t.Errorf("%s: completion: got %q", engine, got)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		engine, more string
		status       int
		tokens       int64
	}{
		"ends":                  {simserver.VLLM, `"n":1`, 200, 30},
		"max_completion_tokens": {simserver.VLLM, `"max_completion_tokens":7`, 200, 7},
		"beyond the context":    {simserver.VLLM, `"max_tokens":101`, 400, 0},
		"sglang beyond":         {simserver.SGLang, `"max_tokens":100`, 400, 0},
		"llama.cpp cuts":        {simserver.LlamaCpp, `"max_tokens":1000000000,"ignore_eos":true`, 200, 99},
		"ignore_eos":            {simserver.VLLM, `"max_tokens":40,"ignore_eos":true`, 200, 40},
		"none":                  {simserver.VLLM, `"max_tokens":0`, 400, 0},
		"temperature":           {simserver.VLLM, `"temperature":-1`, 400, 0},
		"llama.cpp temperature": {simserver.LlamaCpp, `"temperature":-1`, 200, 30},
		"model":                 {simserver.VLLM, `"model":"other"`, 404, 0},
		"own model":             {simserver.VLLM, `"model":"simulated"`, 200, 30},
		"llama.cpp model":       {simserver.LlamaCpp, `"model":"other"`, 200, 30},
		"bad JSON":              {simserver.VLLM, `"x`, 400, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := start(t, simserver.Options{Engine: test.engine, MinTokens: 30, Context: 100})
			r := chat(t, url, "x", test.more)
			if got := count(r.last(), "usage", "completion_tokens"); r.status != test.status || got != test.tokens {
				t.Errorf("got status %d, %d tokens, want %d, %d: %s", r.status, got, test.status, test.tokens, r.body)
			}
		})
	}
}

// Steps without drafts are no verify steps, and beyond its reach a draft is useless.
func TestUndraftedAndReach(t *testing.T) {
	t.Parallel()
	s, url := start(t, simserver.Options{Steps: 4, Accept: []float64{0.9}, Undrafted: 0.5, MinTokens: 2000, PerRequest: true})
	last := chat(t, url, "x").last()
	truth := s.Truth()
	plain := truth.Tokens - 1 - truth.Steps - truth.Accepted
	if plain < truth.Steps/2 || plain > truth.Steps*2 {
		t.Errorf("plain steps: got %d beside %d with drafts, want about as many", plain, truth.Steps)
	}
	if got := count(last, "metrics", "speculative_decoding", "num_spec_steps"); got != truth.Steps {
		t.Errorf("steps of the answer: got %d, want %d", got, truth.Steps)
	}
	s, url = start(t, simserver.Options{Steps: 3, Accept: []float64{1}, Reach: 100, MinTokens: 1000})
	chat(t, url, "x")
	if truth := s.Truth(); truth.Accepted != 75 || truth.Steps != 25+899 {
		t.Errorf("all drafts accepted up to token 100: got %+v, want 25 steps with 3 and no more", truth)
	}
}

func TestSeen(t *testing.T) {
	t.Parallel()
	var path, body string
	_, url := start(t, simserver.Options{
		Faults: simserver.Faults{Fail503: -1},
		Seen:   func(r *http.Request, b []byte) { path, body = r.URL.Path, string(b) },
	})
	do(t, http.MethodPost, url+"/v1/completions", `{"prompt":"x"}`)
	if path != "/v1/completions" || body != `{"prompt":"x"}` {
		t.Errorf("seen: got %q, %q", path, body)
	}
}

// One with the OpenAI routes alone has nothing else.
func TestNothingButOpenAI(t *testing.T) {
	t.Parallel()
	_, url := start(t, simserver.Options{Engine: simserver.OpenAI, Steps: 3})
	for _, path := range []string{"/metrics", "/version", "/health", "/props", "/server_info"} {
		if got := do(t, http.MethodGet, url+path, "").status; got != http.StatusNotFound {
			t.Errorf("%s: got status %d, want 404", path, got)
		}
	}
	if body := string(chat(t, url, "x").body); strings.Contains(body, "spec") {
		t.Errorf("answer: got %s", body)
	}
}

func BenchmarkStream(b *testing.B) {
	s := simserver.New(simserver.Options{MinTokens: 1000, Steps: 3, Accept: []float64{0.5}})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		serve(b.Context(), s, fmt.Sprint(i), `"ignore_eos":false`)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(s.Truth().Steps), "ns/step")
}
