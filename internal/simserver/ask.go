package simserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// route is the kind of request.
type route int

const (
	chat route = iota
	completions
	generate // SGLang's own
)

// maxBody bounds what is read of a request.
const maxBody = 64 << 20

// ask is what a request asks for.
type ask struct {
	route      route
	model      string
	prompt     string
	promptLen  int // tokens
	maxTokens  int // 0: not said
	ignoreEOS  bool
	noThinking bool
	stream     bool
	usage      bool // a last event with the usage
	continuous bool // usage in every event
	details    bool // SGLang: return_spec_tokens_details
	timings    bool // llama.cpp: timings_per_token
}

// body is a request of any route.
type body struct {
	Model    string          `json:"model"`
	Prompt   json.RawMessage `json:"prompt"`
	Text     json.RawMessage `json:"text"`
	Messages []struct {
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	MaxTokens           *int     `json:"max_tokens"`
	MaxCompletionTokens *int     `json:"max_completion_tokens"`
	Temperature         *float64 `json:"temperature"`
	IgnoreEOS           bool     `json:"ignore_eos"`
	Stream              bool     `json:"stream"`
	StreamOptions       struct {
		IncludeUsage         bool `json:"include_usage"`
		ContinuousUsageStats bool `json:"continuous_usage_stats"`
	} `json:"stream_options"`
	Template map[string]any `json:"chat_template_kwargs"`
	Details  bool           `json:"return_spec_tokens_details"`
	Timings  bool           `json:"timings_per_token"`
	Sampling struct {
		MaxNewTokens *int `json:"max_new_tokens"`
		IgnoreEOS    bool `json:"ignore_eos"`
	} `json:"sampling_params"`
}

func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
}

// parseAsk reads a request of the route, or says how it is refused.
func (s *Server) parseAsk(rt route, raw []byte) (ask, *refusal) {
	bad := func(param, format string, args ...any) (ask, *refusal) {
		return ask{}, &refusal{http.StatusBadRequest, "BadRequestError", param, fmt.Sprintf(format, args...)}
	}
	var b body
	if err := json.Unmarshal(raw, &b); err != nil {
		return bad("body", "JSON decode error: %v", err)
	}
	q := ask{
		route: rt, model: b.Model, ignoreEOS: b.IgnoreEOS || b.Sampling.IgnoreEOS, stream: b.Stream,
		usage: b.StreamOptions.IncludeUsage, continuous: b.StreamOptions.ContinuousUsageStats,
		details: b.Details, timings: b.Timings,
		noThinking: b.Template["enable_thinking"] == false || b.Template["thinking"] == false,
	}
	var parts []string
	switch rt {
	case chat:
		if len(b.Messages) == 0 {
			return bad("messages", "messages: Field required")
		}
		for _, m := range b.Messages {
			parts = append(parts, text(m.Content))
		}
	case completions:
		parts = []string{text(b.Prompt)}
	case generate:
		parts = []string{text(b.Text)}
	}
	q.prompt = strings.Join(parts, "\n")
	q.promptLen = max(1, len(strings.Fields(q.prompt)))
	for _, n := range []*int{b.Sampling.MaxNewTokens, b.MaxCompletionTokens, b.MaxTokens} {
		if n == nil {
			continue
		}
		if *n < 1 {
			return bad("max_tokens", "max_tokens must be at least 1, got %d.", *n)
		}
		q.maxTokens = *n
	}
	if b.Temperature != nil && *b.Temperature < 0 && s.opt.Engine != LlamaCpp {
		return bad("temperature", "temperature must be non-negative, got %v.", *b.Temperature)
	}
	if s.dialect.check == nil {
		return q, nil
	}
	return q, s.dialect.check(s, q)
}

// text is the text of a prompt or content, and where it is no string what was sent.
func text(raw json.RawMessage) string {
	var t string
	if json.Unmarshal(raw, &t) == nil {
		return t
	}
	return string(raw)
}

// limit is the number of tokens at which the answer is cut.
func (s *Server) limit(q ask) int {
	room := max(1, s.opt.Context-q.promptLen)
	if q.maxTokens == 0 {
		return room
	}
	return min(q.maxTokens, room)
}
