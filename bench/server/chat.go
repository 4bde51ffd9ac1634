package server

import (
	"encoding/json"
	"maps"
	"strings"
)

// route is how one request is asked for and its answer is read.
type route struct {
	path   string
	body   string
	decode func(data []byte, p *piece) error
}

// newRoute makes a request in the dialect that preflight chose. Renamed is whether the
// server wants max_completion_tokens.
func newRoute(r Request, info *Info, renamed bool) (rt route, err error) {
	var body map[string]any
	switch info.API {
	case APISGLang:
		rt.path, rt.decode = "/generate", newGenerateDecoder()
		body = generateBody(r)
	case APICompletions:
		rt.path, rt.decode = "/v1/completions", decodeChunk
		body = openAIBody(r.Params, info, renamed)
		body["prompt"] = plainPrompt(r.Messages)
	default:
		rt.path, rt.decode = "/v1/chat/completions", decodeChunk
		body = openAIBody(r.Params, info, renamed)
		body["messages"] = r.Messages
		if r.Params.Thinking != "" {
			on := r.Params.Thinking == "on"
			// Two names for one switch: Qwen's templates and DeepSeek's.
			body["chat_template_kwargs"] = map[string]any{"enable_thinking": on, "thinking": on}
		}
	}
	merge(body, r.Params.Extra)
	text, err := json.Marshal(body)
	rt.body = string(text)
	return rt, err
}

// openAIBody has the members that both OpenAI routes share.
func openAIBody(p Params, info *Info, renamed bool) map[string]any {
	usage := map[string]any{"include_usage": true}
	body := map[string]any{"stream": true, "stream_options": usage, "temperature": p.Temperature}
	if info.Engine == VLLM || info.Engine == SGLang {
		usage["continuous_usage_stats"] = true
	}
	if info.Engine == SGLang {
		body["return_spec_tokens_details"] = true
	}
	if info.Model != "" {
		body["model"] = info.Model
	}
	limit := "max_tokens"
	if renamed {
		limit = "max_completion_tokens"
	}
	if p.MaxTokens > 0 {
		body[limit] = p.MaxTokens
	}
	if p.TopP != 0 {
		body["top_p"] = p.TopP
	}
	if p.Seed != nil {
		body["seed"] = *p.Seed
	}
	if p.IgnoreEOS {
		body["ignore_eos"] = true
	}
	return body
}

// merge lays members over a body. An object is laid over an object, so that one
// template argument does not take the others away.
func merge(body, over map[string]any) {
	for name, value := range over {
		old, isMap := body[name].(map[string]any)
		more, isToo := value.(map[string]any)
		if isMap && isToo {
			maps.Copy(old, more)
		} else {
			body[name] = value
		}
	}
}

// plainPrompt is for the routes that know no messages: no chat template is applied.
func plainPrompt(messages []Message) string {
	contents := make([]string, len(messages))
	for i, m := range messages {
		contents[i] = m.Content
	}
	return strings.Join(contents, "\n")
}
