package simserver_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"hsx/internal/simserver"
)

func start(t *testing.T, o simserver.Options) (*simserver.Server, string) {
	t.Helper()
	s := simserver.New(o)
	srv := httptest.NewServer(s)
	t.Cleanup(srv.Close)
	t.Cleanup(s.Close)
	return s, srv.URL
}

// reply is what came back.
type reply struct {
	status   int
	header   http.Header
	body     []byte
	err      error // of reading
	events   []map[string]any
	done     bool // [DONE] was seen
	comments int
	longest  int // line
}

func do(t *testing.T, method, url, body string, header ...string) reply {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return reply{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	return parse(t, reply{status: resp.StatusCode, header: resp.Header, body: raw, err: err})
}

func parse(t *testing.T, r reply) reply {
	t.Helper()
	if !strings.HasPrefix(r.header.Get("Content-Type"), "text/event-stream") {
		return r
	}
	lines := bufio.NewScanner(strings.NewReader(string(r.body)))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		r.longest = max(r.longest, len(line))
		if strings.HasPrefix(line, ":") {
			r.comments++
		}
		data, ok := strings.CutPrefix(line, "data: ")
		switch {
		case !ok:
		case data == "[DONE]":
			r.done = true
		default:
			var e map[string]any
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				t.Fatalf("event %q: %v", data, err)
			}
			r.events = append(r.events, e)
		}
	}
	return r
}

// chatBody is a chat of one message, with more members such as `"max_tokens":3`.
func chatBody(prompt string, more ...string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],%s}`, prompt,
		strings.Join(append(more, `"stream":true,"stream_options":{"include_usage":true}`), ","))
}

func chat(t *testing.T, url, prompt string, more ...string) reply {
	t.Helper()
	return do(t, http.MethodPost, url+"/v1/chat/completions", chatBody(prompt, more...))
}

// document is the body as JSON.
func (r reply) document(t *testing.T) map[string]any {
	t.Helper()
	var d map[string]any
	if err := json.Unmarshal(r.body, &d); err != nil {
		t.Fatalf("body %q: %v", r.body, err)
	}
	return d
}

// at follows a path of members and indices through JSON; nil where there is none.
func at(v any, path ...any) any {
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[p]
		case int:
			l, _ := v.([]any)
			if p < 0 || p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// count is the number at a path, 0 where there is none.
func count(v any, path ...any) int64 {
	n, _ := at(v, path...).(float64)
	return int64(n)
}

// text is the thinking and the answer of a stream, and its last finish reason.
func (r reply) text() (thinking, answer, finish string) {
	for _, e := range r.events {
		c := at(e, "choices", 0)
		for _, key := range []string{"reasoning", "reasoning_content"} {
			s, _ := at(c, "delta", key).(string)
			thinking += s
		}
		for _, path := range [][]any{{"delta", "content"}, {"text"}} {
			s, _ := at(c, path...).(string)
			answer += s
		}
		if s, ok := at(c, "finish_reason").(string); ok {
			finish = s
		}
	}
	return thinking, answer, finish
}

// last is the last event.
func (r reply) last() map[string]any {
	if len(r.events) == 0 {
		return nil
	}
	return r.events[len(r.events)-1]
}

func scrape(t *testing.T, url string) map[string]float64 {
	t.Helper()
	return samples(t, do(t, http.MethodGet, url, "").body)
}

// samples adds up those of each metric, and of each metric and draft position.
func samples(t *testing.T, text []byte) map[string]float64 {
	t.Helper()
	sums := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metrics line %q: %v", line, err)
		}
		name, labels, _ := strings.Cut(key, "{")
		sums[name] += n
		if _, position, ok := strings.Cut(labels, `position="`); ok {
			sums[name+"/"+position[:strings.IndexByte(position, '"')]] += n
		}
	}
	return sums
}
