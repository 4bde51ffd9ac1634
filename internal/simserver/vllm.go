package simserver

import (
	"fmt"
	"net/http"
	"slices"
)

// vllmDialect is that of vLLM 0.32, after its recorded answers.
func vllmDialect() dialect {
	return dialect{
		version: "0.32.0",
		routes:  vllmRoutes,
		models: func(s *Server) any {
			return s.modelList("vllm", map[string]any{
				"root": s.opt.Model, "parent": nil, "max_model_len": s.opt.Context, "permission": []any{},
			})
		},
		refuse: vllmRefuse,
		check:  vllmCheck,
		open:   vllmOpen,
		tokens: vllmTokens,
		end: func(x *exchange) []any {
			return x.usageEvent(x.vllmUsage(false), func(e *event) {
				e.Fingerprint = x.vllmFingerprint()
				if sp := x.vllmSpeculation(); sp != nil {
					e.Metrics = map[string]any{"speculative_decoding": sp}
				}
			})
		},
		whole: vllmWhole,
	}
}

func vllmRoutes(s *Server) {
	s.mux.HandleFunc("GET /health", okay)
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"version": s.opt.Version})
	})
	s.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		writeMetrics(w, "text/plain; version=1.0.0; charset=utf-8", s.vllmMetrics())
	})
}

func vllmRefuse(_ *Server, r refusal) any {
	switch {
	case r.status == http.StatusUnauthorized:
		return map[string]any{"error": r.message}
	case r.status == http.StatusNotFound && r.param == "":
		return map[string]any{"detail": r.message}
	}
	return openAIError(r)
}

func vllmCheck(s *Server, q ask) *refusal {
	switch {
	case q.maxTokens > s.opt.Context:
		return &refusal{http.StatusBadRequest, "BadRequestError", "max_tokens", fmt.Sprintf(
			"max_tokens=%d cannot be greater than max_model_len=%d. Please request fewer output tokens. (parameter=max_tokens, value=%d)",
			q.maxTokens, s.opt.Context, q.maxTokens)}
	case q.promptLen >= s.opt.Context:
		return &refusal{http.StatusBadRequest, "BadRequestError", "input_tokens", fmt.Sprintf(
			"This model's maximum context length is %d tokens. However, your request has %d input tokens.",
			s.opt.Context, q.promptLen)}
	}
	return checkModel(s, q)
}

// vllmUsage is the usage, which has its details in every event but the last.
func (x *exchange) vllmUsage(details bool) *usage {
	u := x.usage()
	switch {
	case x.answer.think > 0:
		u.CompletionDetails = map[string]any{"reasoning_tokens": x.reasoning()}
	case details && u.CompletionDetails == nil:
		u.CompletionDetails = null()
	}
	return u
}

func vllmOpen(x *exchange) []any {
	events := x.roleEvent(choice{Logprobs: null()}, "", x.vllmUsage(true))
	for _, e := range events {
		e := e.(*event)
		e.PromptTokenIDs, e.PromptText = null(), null()
	}
	return events
}

func vllmTokens(x *exchange, from, to int) []any {
	c := x.choice()
	c.Logprobs, c.TokenIDs = null(), null()
	if x.ask.route == completions {
		c.PromptTokenIDs = null()
	}
	if c.Finish != nil || x.ask.route == completions {
		c.Stop = null()
	}
	thinking, answer := x.split(from, to)
	if !c.put(x, thinking, answer) {
		return nil
	}
	e := x.event(c)
	if x.wantsUsage(true) {
		e.Usage = x.vllmUsage(true)
	}
	if c.Finish != nil && !x.wantsUsage(false) {
		e.Fingerprint = x.vllmFingerprint()
	}
	return []any{e}
}

func vllmWhole(x *exchange) any {
	doc := x.document("reasoning", x.vllmUsage(true), map[string]any{
		"system_fingerprint": x.vllmFingerprint(), "kv_transfer_params": nil, "metrics": nil,
	})
	if sp := x.vllmSpeculation(); sp != nil {
		doc["metrics"] = map[string]any{
			"time_to_first_token_ms": nil, "generation_time_ms": nil, "queue_time_ms": nil,
			"mean_itl_ms": nil, "tokens_per_second": nil, "speculative_decoding": sp,
		}
	}
	return doc
}

func (x *exchange) vllmFingerprint() string { return "vllm-" + x.s.opt.Version + "-simulated" }

// vllmSpeculation is the acceptance of one request.
type vllmSpeculation struct {
	Mean            float64 `json:"mean_acceptance_length"`
	Rate            float64 `json:"draft_acceptance_rate"`
	Histogram       []int   `json:"acceptance_histogram"`
	Steps           int64   `json:"num_spec_steps"`
	Accepted        int64   `json:"num_accepted_draft_tokens"`
	Drafted         int64   `json:"num_draft_tokens"`
	SpecTokens      int     `json:"num_spec_tokens"`
	PerStepAccepted []int   `json:"per_step_accepted"`
	PerStepDrafted  []int   `json:"per_step_drafted"`
}

func (x *exchange) vllmSpeculation() *vllmSpeculation {
	if !x.s.opt.PerRequest || x.s.opt.Steps == 0 {
		return nil
	}
	c := x.sofar
	sp := &vllmSpeculation{
		Mean: 1 + ratio(c.accepted, c.steps), Rate: ratio(c.accepted, c.drafted),
		Histogram: x.histogram(),
		Steps:     c.steps, Accepted: c.accepted, Drafted: c.drafted, SpecTokens: x.s.opt.Steps,
		PerStepAccepted: []int{},
		PerStepDrafted:  slices.Repeat([]int{x.s.opt.Steps}, int(c.steps)),
	}
	for _, st := range x.answer.steps {
		if st.drafted > 0 {
			sp.PerStepAccepted = append(sp.PerStepAccepted, st.accepted)
		}
	}
	return sp
}

// histogram is the number of steps with drafts that accepted 0, 1, 2 and so on of them.
func (x *exchange) histogram() []int {
	h := make([]int, x.s.opt.Steps+1)
	for _, st := range x.answer.steps {
		if st.drafted > 0 {
			h[st.accepted]++
		}
	}
	return h
}

// ratio is a/b, and 0 of nothing.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}
