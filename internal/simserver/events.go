package simserver

import "encoding/json"

// event is one event of a stream in the form that all engines took from OpenAI. Each
// sets what it has: the rest is left out.
type event struct {
	ID             string          `json:"id"`
	Object         string          `json:"object"`
	Created        int64           `json:"created"`
	Model          string          `json:"model"`
	Choices        []choice        `json:"choices"`
	Usage          any             `json:"usage,omitempty"`
	PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"`
	PromptText     json.RawMessage `json:"prompt_text,omitempty"`
	Fingerprint    string          `json:"system_fingerprint,omitempty"`
	Metrics        any             `json:"metrics,omitempty"`
	SGLExt         any             `json:"sglext,omitempty"`
	Timings        any             `json:"timings,omitempty"`
}

type choice struct {
	Index          int             `json:"index"`
	Delta          *delta          `json:"delta,omitempty"`
	Text           *string         `json:"text,omitempty"`
	Logprobs       json.RawMessage `json:"logprobs,omitempty"`
	Finish         *string         `json:"finish_reason"`
	Stop           json.RawMessage `json:"stop_reason,omitempty"`
	Matched        json.RawMessage `json:"matched_stop,omitempty"`
	PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"`
	TokenIDs       json.RawMessage `json:"token_ids,omitempty"`
	TokensPerStep  *float64        `json:"avg_decoded_tokens_per_iter,omitempty"`
}

type delta struct {
	Role             string `json:"role,omitempty"`
	Reasoning        string `json:"reasoning,omitempty"`
	ReasoningContent string `json:"reasoning_content,omitempty"`
	Content          any    `json:"content,omitempty"`
}

// usage is the token counts as most engines write them.
type usage struct {
	Prompt            int  `json:"prompt_tokens"`
	Total             int  `json:"total_tokens"`
	Completion        int  `json:"completion_tokens"`
	PromptDetails     any  `json:"prompt_tokens_details,omitempty"`
	CompletionDetails any  `json:"completion_tokens_details,omitempty"`
	Reasoning         *int `json:"reasoning_tokens,omitempty"`
}

// null is JSON's.
func null() json.RawMessage { return json.RawMessage("null") }

// orNil is s, or null in JSON where it is empty.
func orNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// choice returns the only choice of an event, with the finish reason once all tokens
// are emitted.
func (x *exchange) choice() choice {
	c := choice{}
	if x.finished() {
		c.Finish = &x.answer.finish
	}
	return c
}

// put sets the text of a choice. It reports false where there is nothing to say.
func (c *choice) put(x *exchange, thinking, answer string) bool {
	if thinking == "" && answer == "" && c.Finish == nil {
		return false
	}
	if x.ask.route != chat {
		c.Text = &answer
		return true
	}
	c.Delta = &delta{ReasoningContent: thinking}
	if x.s.opt.Engine == VLLM {
		c.Delta = &delta{Reasoning: thinking}
	}
	if answer != "" || thinking == "" {
		c.Delta.Content = answer
	}
	return true
}

// event returns one with the choices.
func (x *exchange) event(choices ...choice) *event {
	return &event{
		ID: x.ident(), Object: x.object(true), Created: x.created, Model: x.s.opt.Model,
		Choices: append([]choice{}, choices...),
	}
}

// roleEvent is the first event of a chat, which says who speaks and nothing else. The
// usage goes into it where it is continuous.
func (x *exchange) roleEvent(c choice, content, usage any) []any {
	if x.ask.route != chat {
		return nil
	}
	c.Delta = &delta{Role: "assistant", Content: content}
	e := x.event(c)
	if usage != nil && x.wantsUsage(true) {
		e.Usage = usage
	}
	return []any{e}
}

// usageEvent is the last event, without choices, where it is asked for; more adds to it.
func (x *exchange) usageEvent(usage any, more func(*event)) []any {
	if !x.wantsUsage(false) {
		return nil
	}
	e := x.event()
	e.Usage = usage
	if more != nil {
		more(e)
	}
	return []any{e}
}

// wantsUsage reports whether usage goes into events: the last, or every one.
func (x *exchange) wantsUsage(every bool) bool {
	return !x.s.opt.Faults.NoUsage && x.ask.usage && (!every || x.ask.continuous)
}

// usage is the token counts so far, without details.
func (x *exchange) usage() *usage {
	u := &usage{Prompt: x.ask.promptLen, Completion: x.emitted, Total: x.ask.promptLen + x.emitted}
	if x.s.opt.Faults.WrongUsage {
		u.CompletionDetails = map[string]any{"reasoning_tokens": x.reasoning()}
	}
	return u
}

// document is the whole answer of one that is no stream; thinkingKey names the member
// that has the thinking. more is added to the document.
func (x *exchange) document(thinkingKey string, usage any, more map[string]any) map[string]any {
	thinking, answer := x.split(0, x.emitted)
	c := map[string]any{"index": 0, "finish_reason": x.answer.finish, "logprobs": nil}
	if x.ask.route == chat {
		c["message"] = map[string]any{"role": "assistant", "content": answer, thinkingKey: orNil(thinking)}
	} else {
		c["text"] = answer
	}
	doc := map[string]any{
		"id": x.ident(), "object": x.object(false), "created": x.created, "model": x.s.opt.Model,
		"choices": []any{c},
	}
	if !x.s.opt.Faults.NoUsage {
		doc["usage"] = usage
	}
	for k, v := range more {
		doc[k] = v
	}
	return doc
}

// object is the member of that name.
func (x *exchange) object(stream bool) string {
	switch {
	case x.ask.route != chat:
		return "text_completion"
	case stream:
		return "chat.completion.chunk"
	}
	return "chat.completion"
}

// ident is the id of the request in its form for the engine and the route.
func (x *exchange) ident() string {
	switch {
	case x.s.opt.Engine == SGLang:
		return x.id
	case x.ask.route == chat || x.s.opt.Engine == LlamaCpp:
		return "chatcmpl-" + x.id
	}
	return "cmpl-" + x.id
}
