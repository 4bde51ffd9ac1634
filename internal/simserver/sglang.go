package simserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// sglangDialect is that of SGLang, after its sources: none was recorded.
func sglangDialect() dialect {
	return dialect{
		version: "0.5.23",
		late:    true,
		routes:  sglangRoutes,
		models: func(s *Server) any {
			return s.modelList("sglang", map[string]any{"root": s.opt.Model, "max_model_len": s.opt.Context})
		},
		refuse: sglangRefuse,
		check:  sglangCheck,
		open: func(x *exchange) []any {
			return x.roleEvent(choice{Logprobs: null(), Matched: null()}, "", nil)
		},
		tokens: sglangTokens,
		end:    sglangEnd,
		whole:  sglangWhole,
	}
}

func sglangRoutes(s *Server) {
	s.mux.HandleFunc("GET /health", okay)
	s.mux.HandleFunc("GET /health_generate", okay)
	s.mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		s.answer(w, r, generate)
	})
	info := func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, http.StatusOK, s.sglangInfo()) }
	s.mux.HandleFunc("GET /server_info", info)
	s.mux.HandleFunc("GET /get_server_info", info)
	flush := func(w http.ResponseWriter, _ *http.Request) {
		if !s.flushCache() {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write([]byte("Cache flushed.\n")) // a client that has left is not told
	}
	s.mux.HandleFunc("GET /flush_cache", flush)
	s.mux.HandleFunc("POST /flush_cache", flush)
	s.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		writeMetrics(w, "text/plain; version=0.0.4; charset=utf-8", s.sglangMetrics())
	})
}

func sglangRefuse(_ *Server, r refusal) any {
	switch r.status {
	case http.StatusUnauthorized:
		return map[string]any{"error": r.message}
	case http.StatusNotFound:
		return map[string]any{"detail": r.message}
	}
	return map[string]any{
		"object": "error", "message": r.message, "type": r.kind, "param": orNil(r.param), "code": r.status,
	}
}

func sglangCheck(s *Server, q ask) *refusal {
	if asked := q.promptLen + q.maxTokens; asked > s.opt.Context {
		return &refusal{http.StatusBadRequest, "BadRequestError", "", fmt.Sprintf(
			"Requested token count exceeds the model's maximum context length of %d tokens. You requested a total of %d tokens: "+
				"%d tokens from the input messages and %d tokens for the completion.",
			s.opt.Context, asked, q.promptLen, q.maxTokens)}
	}
	return nil
}

func (x *exchange) sglangUsage() *usage {
	u := x.usage()
	reasoning := x.reasoning()
	u.PromptDetails, u.CompletionDetails, u.Reasoning = null(), nil, &reasoning
	return u
}

// sglangTokens gives thinking and answer an event each; a chat's finish reason comes
// after them.
func sglangTokens(x *exchange, from, to int) []any {
	if x.ask.route == generate {
		return []any{x.sglangGenerated()}
	}
	thinking, answer := x.split(from, to)
	var events []any
	for _, part := range [][2]string{{thinking, ""}, {"", answer}} {
		c := choice{Logprobs: null(), Matched: null()}
		if x.ask.route == completions && x.finished() && part[0] == "" {
			c.Finish = &x.answer.finish
		}
		if !c.put(x, part[0], part[1]) {
			continue
		}
		e := x.event(c)
		if x.wantsUsage(true) {
			e.Usage = x.sglangUsage()
		}
		events = append(events, e)
	}
	return events
}

func sglangEnd(x *exchange) []any {
	var events []any
	switch x.ask.route {
	case generate:
		return nil
	case chat:
		c := x.choice()
		c.Delta, c.Logprobs, c.Matched = &delta{}, null(), x.sglangMatched()
		events = append(events, x.event(c))
	}
	return append(events, x.usageEvent(x.sglangUsage(), func(e *event) {
		e.SGLExt = x.sglangExt()
	})...)
}

func sglangWhole(x *exchange) any {
	if x.ask.route == generate {
		return x.sglangGenerated()
	}
	more := map[string]any{}
	if ext := x.sglangExt(); ext != nil {
		more["sglext"] = ext
	}
	return x.document("reasoning_content", x.sglangUsage(), more)
}

// sglangMatched is the token that ended the answer, null where it was cut.
func (x *exchange) sglangMatched() json.RawMessage {
	if x.answer.finish == "stop" {
		return json.RawMessage("2")
	}
	return null()
}

// sglangGenerated is the whole answer so far, as /generate gives it in every event.
func (x *exchange) sglangGenerated() any {
	ids := make([]int, x.emitted)
	for i := range ids {
		ids[i] = i
	}
	meta := map[string]any{
		"id": x.ident(), "finish_reason": nil, "prompt_tokens": x.ask.promptLen, "weight_version": "default",
		"total_retractions": 0, "cached_tokens": 0,
	}
	if !x.s.opt.Faults.NoUsage {
		meta["completion_tokens"] = x.emitted
		meta["reasoning_tokens"] = x.reasoning()
	}
	if x.finished() {
		meta["e2e_latency"] = x.last.Sub(x.began).Seconds()
		if x.answer.finish == "stop" {
			meta["finish_reason"] = map[string]any{"type": "stop", "matched": 2}
		} else {
			meta["finish_reason"] = map[string]any{"type": "length", "length": x.emitted}
		}
		for k, v := range x.sglangSpec(x.s.opt.Generation) {
			meta[k] = v
		}
	}
	return map[string]any{
		"text": strings.Join(x.answer.tokens[:x.emitted], ""), "output_ids": ids, "meta_info": meta,
	}
}

// sglangSpec is the acceptance of one request, in the names of a generation of SGLang,
// "A" to "E"; nil without speculation.
func (x *exchange) sglangSpec(generation string) map[string]any {
	if x.s.opt.Steps == 0 {
		return nil
	}
	c := x.sofar
	spec := map[string]any{"spec_verify_ct": c.steps}
	if generation == "A" {
		return spec
	}
	spec["spec_accept_rate"] = ratio(c.accepted, c.drafted)
	spec["spec_accept_length"] = ratio(int64(x.emitted), c.steps) // with the prefill's token, as SGLang counts
	switch generation {
	case "C":
		spec["spec_accept_token_num"] = c.accepted
		spec["spec_draft_token_num"] = c.drafted
	case "D", "E":
		spec["spec_accepted_drafts"] = c.accepted
		spec["spec_proposed_drafts"] = c.drafted
	}
	if generation != "B" {
		spec["spec_accept_histogram"] = x.histogram()
	}
	if generation == "E" {
		spec["spec_num_correct_drafts"] = c.accepted
		spec["spec_num_proposed_drafts"] = c.drafted
		spec["spec_correct_drafts_histogram"] = x.histogram()
	}
	return spec
}

// sglangExt is the acceptance in answers of the OpenAI routes, nil where it is not
// asked for or not known.
func (x *exchange) sglangExt() any {
	if !x.ask.details || !x.s.opt.PerRequest || x.s.opt.Steps == 0 {
		return nil
	}
	details := map[string]any{}
	for k, v := range x.sglangSpec("E") {
		switch k {
		case "spec_accepted_drafts", "spec_proposed_drafts", "spec_accept_histogram": // the older names
		default:
			details[k] = v
		}
	}
	return map[string]any{"spec_tokens_details": details}
}
