package simserver

import (
	"net/http"
	"time"
)

// llamaDialect is that of llama.cpp's llama-server, after its recorded answers.
func llamaDialect() dialect {
	return dialect{
		version: "b11434-simulated",
		routes:  llamaRoutes,
		models: func(s *Server) any {
			return s.modelList("llamacpp", map[string]any{
				"aliases": []string{s.opt.Model}, "tags": []string{},
				"meta": map[string]any{"n_ctx": s.opt.Context, "n_ctx_train": s.opt.Context, "ftype": "all F32"},
			})
		},
		refuse: llamaRefuse,
		open:   func(x *exchange) []any { return x.llamaRole() },
		tokens: llamaTokens,
		end:    llamaEnd,
		whole: func(x *exchange) any {
			return x.document("reasoning_content", x.llamaUsage(), map[string]any{
				"system_fingerprint": x.s.opt.Version, "timings": x.timings(x.emitted),
			})
		},
	}
}

func llamaRoutes(s *Server) {
	s.mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	s.mux.HandleFunc("GET /props", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.llamaProps())
	})
	s.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		writeMetrics(w, "text/plain; version=0.0.4", s.llamaMetrics())
	})
}

func llamaRefuse(_ *Server, r refusal) any {
	kind := "invalid_request_error"
	switch r.status {
	case http.StatusNotFound:
		kind, r.message = "not_found_error", "File Not Found"
	case http.StatusUnauthorized:
		kind, r.message = "authentication_error", "Invalid API Key"
	case http.StatusServiceUnavailable:
		kind, r.message = "unavailable_error", "Loading model"
	}
	return map[string]any{"error": map[string]any{"code": r.status, "message": r.message, "type": kind}}
}

// llamaProps is /props, which says that nothing is speculated whatever runs.
func (s *Server) llamaProps() any {
	template := "{% for message in messages %}{{ message['content'] }}{% endfor %}"
	if s.opt.Think > 0 {
		template += "{% if enable_thinking %}<think>{% endif %}"
	}
	params := map[string]any{"temperature": 0.8, "n_predict": -1, "reasoning_format": "none", "speculative.types": "none"}
	if s.opt.AskedSteps > 0 {
		params["speculative.n_max"] = s.opt.AskedSteps
	}
	props := map[string]any{
		"default_generation_settings": map[string]any{"params": params, "n_ctx": s.opt.Context},
		"total_slots":                 max(1, s.opt.Slots), "model_alias": s.opt.Model, "model_path": s.opt.Model + ".gguf",
		"chat_template": template, "build_info": s.opt.Version, "endpoint_metrics": true, "endpoint_props": true,
	}
	for k, v := range s.opt.Arguments {
		props[k] = v
	}
	return props
}

// llamaMark puts the fingerprint into events.
func llamaMark(x *exchange, events []any) []any {
	for _, e := range events {
		e.(*event).Fingerprint = x.s.opt.Version
	}
	return events
}

func (x *exchange) llamaRole() []any {
	return llamaMark(x, x.roleEvent(choice{}, null(), nil))
}

// llamaTokens gives each token an event of its own: those of a step come at once.
func llamaTokens(x *exchange, from, to int) []any {
	var events []any
	for i := from; i < to; i++ {
		c := choice{}
		if x.ask.route == completions {
			c.Logprobs = null()
		}
		thinking, answer := x.split(i, i+1)
		if !c.put(x, thinking, answer) {
			continue
		}
		e := x.event(c)
		if x.ask.timings {
			e.Timings = x.timings(i + 1)
		}
		events = append(events, e)
	}
	return llamaMark(x, events)
}

// llamaEnd has the timings in its last event: that of the usage where it is asked for,
// else that of the finish reason.
func llamaEnd(x *exchange) []any {
	c := x.choice()
	if x.ask.route == completions {
		empty := ""
		c.Text, c.Logprobs = &empty, null()
		e := x.event(c)
		e.Timings = x.timings(x.emitted)
		if !x.s.opt.Faults.NoUsage {
			e.Usage = x.llamaUsage()
		}
		return llamaMark(x, []any{e})
	}
	c.Delta = &delta{}
	events := append([]any{x.event(c)}, x.usageEvent(x.llamaUsage(), nil)...)
	events[len(events)-1].(*event).Timings = x.timings(x.emitted)
	return llamaMark(x, events)
}

func (x *exchange) llamaUsage() *usage {
	u := x.usage()
	u.PromptDetails = map[string]any{"cached_tokens": 0}
	return u
}

// timings are llama.cpp's after so many tokens.
type timings struct {
	CacheN             int     `json:"cache_n"`
	PromptN            int     `json:"prompt_n"`
	PromptMS           float64 `json:"prompt_ms"`
	PromptPerTokenMS   float64 `json:"prompt_per_token_ms"`
	PromptPerSecond    float64 `json:"prompt_per_second"`
	PredictedN         int     `json:"predicted_n"`
	PredictedMS        float64 `json:"predicted_ms"`
	PredictedPerToken  float64 `json:"predicted_per_token_ms"`
	PredictedPerSecond float64 `json:"predicted_per_second"`
	DraftN             int64   `json:"draft_n,omitempty"`
	DraftAccepted      *int64  `json:"draft_n_accepted,omitempty"`
}

func (x *exchange) timings(tokens int) timings {
	t := timings{
		PromptN: x.ask.promptLen, PromptMS: milliseconds(x.first.Sub(x.began)),
		PredictedN: tokens, PredictedMS: milliseconds(x.last.Sub(x.first)), DraftN: x.sofar.drafted,
	}
	t.PromptPerTokenMS = t.PromptMS / float64(t.PromptN)
	t.PromptPerSecond = 1e3 / t.PromptPerTokenMS
	if tokens > 1 {
		t.PredictedPerToken = t.PredictedMS / float64(tokens-1)
		t.PredictedPerSecond = 1e3 / t.PredictedPerToken
	}
	if t.DraftN > 0 {
		accepted := x.sofar.accepted
		t.DraftAccepted = &accepted
	}
	return t
}

// milliseconds is d, and never 0: it is divided by.
func milliseconds(d time.Duration) float64 {
	return max(d, time.Microsecond).Seconds() * 1e3
}

// llamaMetrics is what llama.cpp shows, without labels.
func (s *Server) llamaMetrics() string {
	v := s.shown()
	m := s.metrics()
	m.created, m.plain = time.Time{}, true
	sum := v.sum()
	m.counter("llamacpp:prompt_tokens_total", "Number of prompt tokens processed, excluding cached tokens", "", sum.prompt)
	m.counter("llamacpp:tokens_predicted_total", "Number of generation tokens processed", "", sum.tokens)
	m.malformed("llamacpp:tokens_predicted_seconds_total")
	m.counter("llamacpp:n_decode_total",
		"Total number of llama_decode() calls, excluding speculative decoding and multimodal decoding", "", sum.decodes)
	m.counter("llamacpp:spec_decode_num_draft_tokens_total", "Speculative: Total draft tokens generated", "", sum.drafted)
	m.counter("llamacpp:spec_decode_num_accepted_tokens_total",
		"Speculative: Total draft tokens accepted by the target model", "", sum.accepted)
	m.counter("llamacpp:spec_decode_num_drafts_total",
		"Speculative: Total speculative decoding verification steps", "", sum.steps)
	m.family("llamacpp:requests_processing", "gauge", "Number of requests processing", sample{"", float64(v.running)})
	m.family("llamacpp:requests_deferred", "gauge", "Number of requests deferred", sample{"", float64(v.waiting)})
	if sum.steps > 0 {
		m.positions("llamacpp:spec_decode_num_accepted_tokens_per_pos_total", "Accepted tokens per draft position",
			[]string{""}, [][]int64{sum.positions})
	}
	return m.b.String()
}
