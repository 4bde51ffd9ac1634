package simserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/internal/simserver"
)

func recorded(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t *testing.T, raw []byte) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	return v
}

// shape is the paths of a JSON value with their types; elements of lists are one.
func shape(v any) map[string]string {
	paths := map[string]string{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			paths[path] = "object"
			for k, m := range v {
				walk(path+"."+k, m)
			}
		case []any:
			paths[path] = "list"
			for _, m := range v {
				walk(path+"[]", m)
			}
		default:
			paths[path] = fmt.Sprintf("%T", v)
		}
	}
	walk("", v)
	return paths
}

// Events have the members that recorded ones have, no more and no less: the first
// three, the last but one, and the last.
func TestStreamsAreAsRecorded(t *testing.T) {
	t.Parallel()
	const usage = `,"stream_options":{"include_usage":true}`
	chats, texts := `/v1/chat/completions {"messages":[{"content":"x"}]`, `/v1/completions {"prompt":"x"`
	tests := map[string]struct {
		engine, ask string
		steps       int
	}{
		"vllm-eagle3-chat-stream-continuous": {
			simserver.VLLM, chats + `,"stream_options":{"include_usage":true,"continuous_usage_stats":true}`, 3,
		},
		"vllm-base-chat-stream-usage":       {simserver.VLLM, chats + usage, 0},
		"vllm-ngram-chat-stream-nousage":    {simserver.VLLM, chats, 3},
		"vllm-eagle3-completions-stream":    {simserver.VLLM, texts + usage, 3},
		"llamacpp-draft-chat-stream-usage":  {simserver.LlamaCpp, chats + usage, 3},
		"llamacpp-base-chat-stream-nousage": {simserver.LlamaCpp, chats, 0},
		"llamacpp-draft-completions-stream": {simserver.LlamaCpp, texts + usage, 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := start(t, simserver.Options{Engine: test.engine, Steps: test.steps, Accept: []float64{0.9}, MinTokens: 30, PerRequest: true})
			path, body, _ := strings.Cut(test.ask, " ")
			got := do(t, http.MethodPost, url+path, body+`,"max_tokens":20,"stream":true}`)
			want := parse(t, reply{body: recorded(t, name+".sse"), header: http.Header{"Content-Type": {"text/event-stream"}}})
			if !got.done {
				t.Error("stream: got no [DONE]")
			}
			for _, i := range []int{0, 1, 2, -2, -1} {
				if d := cmp.Diff(shape(nth(want.events, i)), shape(nth(got.events, i))); d != "" {
					t.Errorf("event %d (-recorded +got):\n%s", i, d)
				}
			}
		})
	}
}

// nth is the i-th event, from the end where i is negative.
func nth(events []map[string]any, i int) any {
	if i < 0 {
		i += len(events)
	}
	return any(events[i])
}

// Documents have no member that a recorded one lacks; some that no benchmark reads are
// left out.
func TestDocumentsAreAsRecorded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ engine, method, path, body string }{
		"vllm-eagle3-chat":              {simserver.VLLM, "POST", "/v1/chat/completions", `{"messages":[{"content":"x"}],"max_tokens":9}`},
		"vllm-eagle3-models":            {simserver.VLLM, "GET", "/v1/models", ""},
		"vllm-eagle3-err-model":         {simserver.VLLM, "POST", "/v1/chat/completions", `{"model":"no-such-model","messages":[{"content":"x"}]}`},
		"vllm-eagle3-err-maxtokens":     {simserver.VLLM, "POST", "/v1/chat/completions", `{"max_tokens":100000,"messages":[{"content":"x"}]}`},
		"vllm-eagle3-err-404":           {simserver.VLLM, "GET", "/v1/nothing", ""},
		"llamacpp-draft-chat":           {simserver.LlamaCpp, "POST", "/v1/chat/completions", `{"messages":[{"content":"x"}],"max_tokens":9}`},
		"llamacpp-draft-models":         {simserver.LlamaCpp, "GET", "/v1/models", ""},
		"llamacpp-draft-props":          {simserver.LlamaCpp, "GET", "/props", ""},
		"llamacpp-draft-err-404":        {simserver.LlamaCpp, "GET", "/version", ""},
		"llamacpp-draft-err-nomessages": {simserver.LlamaCpp, "POST", "/v1/chat/completions", `{}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := start(t, simserver.Options{Engine: test.engine, Steps: 3, Accept: []float64{0.9}, PerRequest: true})
			got, want := shape(decode(t, do(t, test.method, url+test.path, test.body).body)), shape(decode(t, recorded(t, name+".json")))
			for path, kind := range got {
				if path == ".choices[].message.reasoning_content" || path == ".choices[].logprobs" {
					continue // null, and left out by llama.cpp without thinking
				}
				if want[path] != kind {
					t.Errorf("%s: got %s, recorded %q", path, kind, want[path])
				}
			}
		})
	}
}

// Metrics have the names, types and labels that recorded ones have.
func TestMetricsAreAsRecorded(t *testing.T) {
	t.Parallel()
	for name, engine := range map[string]string{"vllm-eagle3-metrics": simserver.VLLM, "llamacpp-draft-metrics": simserver.LlamaCpp} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := start(t, simserver.Options{Engine: engine, Steps: 3, Accept: []float64{0.9}})
			chat(t, url, "x")
			want := series(recorded(t, name+".txt"))
			for line := range series(do(t, http.MethodGet, url+"/metrics", "").body) {
				if !want[line] {
					t.Errorf("metrics: got %q, which was not recorded", line)
				}
			}
		})
	}
}

// series is the lines of metrics without values and help, with the labels' names alone
// in their order.
func series(text []byte) map[string]bool {
	lines := map[string]bool{}
	value := regexp.MustCompile(`="[^"]*"`)
	for line := range strings.Lines(string(text)) {
		switch {
		case strings.HasPrefix(line, "# HELP"):
		case strings.HasPrefix(line, "#"):
			lines[strings.TrimSpace(line)] = true
		default:
			key, _, _ := strings.Cut(line, " ")
			names := strings.Split(strings.Trim(value.ReplaceAllString(key, ""), "}"), "{")
			lines[strings.Join(names, " ")] = true
		}
	}
	return lines
}
