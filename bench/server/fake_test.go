package server

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
)

// fake is a server of which every route is given; counters are a function of how many
// requests for text it has had.
type fake struct {
	answers map[string]string
	status  map[string]int
	metrics func(requests int64) string
	stream  string // of events
	key     string
	asked   atomic.Int64
	body    atomic.Value
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.key != "" && r.Header.Get("Authorization") != "Bearer "+f.key {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	path := r.URL.Path
	if status := f.status[path]; status != 0 {
		w.WriteHeader(status)
	}
	answer, ok := f.answers[path]
	switch {
	case path == "/metrics" && f.metrics != nil:
		answer = f.metrics(f.asked.Load())
	case path == "/v1/chat/completions" || path == "/generate":
		body, _ := io.ReadAll(r.Body) // what is missing, a test misses
		f.body.Store(string(body))
		f.asked.Add(1)
		w.Header().Set("Content-Type", "text/event-stream")
		answer = f.stream
	case !ok && f.status[path] == 0:
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, answer) // the client may have left
}

// answer64 is an answer of 64 tokens in the events of the OpenAI routes.
func answer64(delta, last string) string {
	return fmt.Sprintf("data: {\"choices\":[{\"index\":0,\"delta\":{%s}}]}\n\n", delta) +
		"data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}]}\n\n" +
		fmt.Sprintf("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":64,\"total_tokens\":69}%s}\n\n", last) +
		"data: [DONE]\n\n"
}
