package server

import "strings"

// thinks tells whether answers begin with thinking, and by what that is known. The
// answer itself says most: one that thinks does, whatever was asked for.
func (e *evidence) thinks(params Params, probe *Outcome) (bool, string) {
	text := strings.TrimSpace(probe.Text)
	switch {
	case probe.Reasoning != "" || probe.ReasoningTokens > 0 || strings.HasPrefix(text, "<think"):
		return true, "first answer"
	case params.Thinking == "off":
		return false, ""
	case e.props != nil && thinkingTemplate(e.props.Template):
		return true, "chat template"
	case e.sglang != nil && e.sglang.text("reasoning_parser") != "":
		return true, "reasoning_parser argument"
	}
	return false, ""
}

func thinkingTemplate(template string) bool {
	for _, sign := range []string{"<think", "enable_thinking", "[THINK]", "<|channel|>", "reasoning_effort"} {
		if strings.Contains(template, sign) {
			return true
		}
	}
	return false
}
