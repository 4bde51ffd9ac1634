package server

import (
	"encoding/json"
	"strings"
)

// generateBody is a request to SGLang's own route. It takes no chat template, so the
// prompt is the messages' contents, one a line.
func generateBody(r Request) map[string]any {
	sampling := map[string]any{"temperature": r.Params.Temperature}
	if r.Params.MaxTokens > 0 {
		sampling["max_new_tokens"] = r.Params.MaxTokens
	}
	if r.Params.TopP != 0 {
		sampling["top_p"] = r.Params.TopP
	}
	if r.Params.IgnoreEOS {
		sampling["ignore_eos"] = true
	}
	if r.Params.Seed != nil && r.Params.Temperature > 0 { // older versions refuse the name
		sampling["sampling_seed"] = *r.Params.Seed
	}
	return map[string]any{"text": plainPrompt(r.Messages), "sampling_params": sampling, "stream": true}
}

// generateChunk is one event of /generate.
type generateChunk struct {
	Text  *string `json:"text"`
	Meta  raw     `json:"meta_info"`
	Error raw     `json:"error"`
}

// generateMeta is the part of meta_info that is no matter of speculation.
type generateMeta struct {
	Finish     finish `json:"finish_reason"`
	Prompt     int    `json:"prompt_tokens"`
	Completion *int   `json:"completion_tokens"`
	Cached     int    `json:"cached_tokens"`
	Reasoning  int    `json:"reasoning_tokens"`
}

// newGenerateDecoder reads the events of one answer. An event repeats the whole text
// so far, unless the server runs with --stream-output; the second text tells which.
func newGenerateDecoder() func(data []byte, p *piece) error {
	var soFar string
	var texts int
	var apart bool
	return func(data []byte, p *piece) error {
		var c generateChunk
		err := json.Unmarshal(data, &c)
		p.choices = c.Text != nil
		if c.Text != nil && *c.Text != "" {
			texts++
			if texts == 2 {
				apart = !strings.HasPrefix(*c.Text, soFar)
			}
			p.text = *c.Text
			if !apart {
				p.text = p.text[min(len(soFar), len(p.text)):]
				soFar = *c.Text
			}
		}
		if c.Error != nil {
			p.failure = serverMessage(data)
		}
		if c.Meta == nil {
			return misfit(err)
		}
		var meta generateMeta
		if metaErr := json.Unmarshal(c.Meta, &meta); err == nil {
			err = metaErr
		}
		p.finish = meta.Finish
		p.claims.meta = c.Meta
		if meta.Completion != nil {
			p.usage = usage{known: true, prompt: meta.Prompt, completion: *meta.Completion, cached: meta.Cached, reasoning: meta.Reasoning}
		}
		return misfit(err)
	}
}
