package simserver

import (
	"net/http"
	"strings"
)

// dialect is how one engine words things. Events and documents are anything that
// encoding/json takes.
type dialect struct {
	version string // that is simulated unless another is given
	late    bool   // counters are added when an answer ends, not with each step
	routes  func(s *Server)
	models  func(s *Server) any
	refuse  func(s *Server, r refusal) any
	check   func(s *Server, q ask) *refusal       // what the engine itself refuses; nil: nothing
	open    func(x *exchange) []any               // events before the first token
	tokens  func(x *exchange, from, to int) []any // events of a step's tokens
	end     func(x *exchange) []any               // events after the last token
	whole   func(x *exchange) any                 // the answer that is no stream
}

func dialectOf(engine string) dialect {
	switch engine {
	case SGLang:
		return sglangDialect()
	case LlamaCpp:
		return llamaDialect()
	case TRTLLM:
		return trtllmDialect()
	case OpenAI:
		return openAIDialect()
	}
	return vllmDialect()
}

// openAIDialect is that of a server which has no more than the OpenAI routes.
func openAIDialect() dialect {
	return dialect{
		routes: func(*Server) {},
		models: func(s *Server) any { return s.modelList("system", nil) },
		refuse: func(_ *Server, r refusal) any { return openAIError(r) },
		check:  checkModel,
		open: func(x *exchange) []any {
			return x.roleEvent(x.choice(), "", nil)
		},
		tokens: func(x *exchange, from, to int) []any {
			c := x.choice()
			thinking, answer := x.split(from, to)
			if !c.put(x, thinking, answer) {
				return nil
			}
			return []any{x.event(c)}
		},
		end:   func(x *exchange) []any { return x.usageEvent(x.usage(), nil) },
		whole: func(x *exchange) any { return x.document("reasoning_content", x.usage(), nil) },
	}
}

// openAIError is an error in the form that most engines took from OpenAI.
func openAIError(r refusal) any {
	return map[string]any{"error": map[string]any{
		"message": r.message, "type": r.kind, "param": orNil(r.param), "code": r.status,
	}}
}

// checkModel refuses models that are not served.
func checkModel(s *Server, q ask) *refusal {
	if q.model == "" || q.model == s.opt.Model {
		return nil
	}
	return &refusal{http.StatusNotFound, "NotFoundError", "model",
		"The model `" + q.model + "` does not exist. Valid aliases: " + s.opt.Model + "."}
}

// modelList is the answer of /v1/models, with more about the model.
func (s *Server) modelList(owner string, more map[string]any) any {
	m := map[string]any{
		"id": s.opt.Model, "object": "model", "created": s.shown().started.Unix(), "owned_by": owner,
	}
	for k, v := range more {
		m[k] = v
	}
	return map[string]any{"object": "list", "data": []any{m}}
}

// okay answers a route with an empty 200.
func okay(http.ResponseWriter, *http.Request) {}

// split returns the thinking and the answer among the tokens from, to. Where a parser
// takes the thinking apart, its marks are gone.
func (x *exchange) split(from, to int) (thinking, answer string) {
	if x.s.opt.ThinkInline || x.ask.route != chat {
		return "", strings.Join(x.answer.tokens[from:to], "")
	}
	mid := min(max(x.answer.think, from), to)
	thinking = strings.Join(x.answer.tokens[from:mid], "")
	thinking = strings.TrimSuffix(strings.TrimPrefix(thinking, thinkOpens), thinkCloses)
	return thinking, strings.Join(x.answer.tokens[mid:to], "")
}

// reasoning is the number of reasoning tokens so far that the usage shows.
func (x *exchange) reasoning() int {
	if x.s.opt.Faults.WrongUsage {
		return x.emitted + 7
	}
	return min(x.answer.think, x.emitted)
}
