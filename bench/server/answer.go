package server

import (
	"fmt"
	"slices"
	"time"
)

// maxText bounds the text of one answer.
const maxText = 16 << 20

// answer gathers the pieces of one answer into an outcome.
type answer struct {
	out        *Outcome
	maxTokens  int
	speculates bool

	choices   bool
	ended     bool // a finish reason came, or the usage that follows it
	whole     bool // it did not come as a stream
	reasoning []byte
	content   content
	usage     usage
	claims    claims

	texts int // pieces with text
	bare  int // of these, those without usage
	given int // tokens that pieces with text were given
}

// add takes one piece, at an offset.
func (a *answer) add(p *piece, at time.Duration) error {
	if p.failure != "" {
		return brokenError("server gave up: " + p.failure)
	}
	switch p.finish.reason {
	case "":
	case "abort", "error":
		return brokenError(fmt.Sprintf("server gave up: finish reason %q %s", p.finish.reason, printable(p.finish.message, 500)))
	default:
		a.out.FinishReason = printable(p.finish.reason, 40)
	}
	a.choices = a.choices || p.choices
	a.ended = a.ended || p.finish.reason != "" || p.usage.known && !p.choices
	a.claims.add(p.claims)
	if p.usage.known {
		if p.usage.completion < a.usage.completion {
			a.doubt("completion_tokens went back from %d to %d", a.usage.completion, p.usage.completion)
		}
		a.usage = p.usage
	}
	if p.text == "" && p.reasoning == "" {
		return nil
	}
	a.texts++
	if !p.usage.known {
		a.bare++
	}
	if !a.whole {
		a.time(at)
	}
	if p.reasoning != "" {
		a.reasoning = append(a.reasoning, p.reasoning...)
		a.content.settled = true
	}
	if p.text != "" {
		if a.content.add(p.text) {
			a.out.FirstAnswer = 0
		}
		if a.out.FirstAnswer == 0 && a.content.spoken && !a.whole {
			a.out.FirstAnswer = at
		}
	}
	if len(a.reasoning)+len(a.content.text) > maxText {
		return brokenError(fmt.Sprintf("answer is longer than %d bytes", maxText))
	}
	return nil
}

// time notes a piece with text.
func (a *answer) time(at time.Duration) {
	if a.out.FirstToken == 0 {
		a.out.FirstToken = at
	} else {
		a.out.GapsUS = append(a.out.GapsUS, int((at-a.out.LastToken)/time.Microsecond))
	}
	a.out.LastToken = at
	tokens := max(0, a.usage.completion-a.given)
	a.out.ChunkTokens = append(a.out.ChunkTokens, tokens)
	a.given += tokens
}

// close fills in what is known at the end, good or bad.
func (a *answer) close() {
	out := a.out
	thinking, text := a.content.parts()
	out.Reasoning, out.Text = string(a.reasoning)+thinking, text
	out.TextDigest = digest(out.Reasoning, out.Text)
	out.TextBytes = len(out.Reasoning) + len(out.Text)
	out.Distinct4 = distinct4(out.Reasoning + "\n" + out.Text)
	out.Continuous = a.texts > 0 && a.bare == 0 && !a.whole
	if !out.Continuous {
		out.ChunkTokens = nil
	}
	tokens := -1
	if u := a.usage; u.known && u.completion >= 0 {
		tokens = u.completion
		out.Usage = true
		out.PromptTokens, out.CachedTokens, out.Tokens, out.ReasoningTokens = u.prompt, u.cached, tokens, u.reasoning
	}
	var err error
	if out.Accept, err = a.claims.accept(tokens, a.speculates); err != nil {
		a.doubt("%v", err)
	}
	if out.Fault == FaultNone {
		a.doubtCounts()
	}
}

// doubtCounts looks for counts that contradict each other.
func (a *answer) doubtCounts() {
	out := a.out
	if out.FinishReason == "" {
		a.doubt("no finish reason")
	}
	if !a.usage.known {
		return
	}
	u, tokens := a.usage, a.usage.completion
	if tokens < 0 {
		a.doubt("completion_tokens is %d", tokens)
		return
	}
	if out.ReasoningTokens > tokens {
		a.doubt("reasoning_tokens is %d, of %d completion_tokens", out.ReasoningTokens, tokens)
	}
	if tokens == 0 && out.TextBytes > 0 {
		a.doubt("completion_tokens is 0, for %d bytes of text", out.TextBytes)
	}
	if tokens > 0 && out.TextBytes == 0 {
		a.doubt("completion_tokens is %d, without any text", tokens)
	}
	if u.total != 0 && u.total != u.prompt+tokens {
		a.doubt("total_tokens is %d, want %d+%d", u.total, u.prompt, tokens)
	}
	if a.maxTokens > 0 && tokens > a.maxTokens {
		a.doubt("completion_tokens is %d, asked for at most %d", tokens, a.maxTokens)
	}
	if a.maxTokens > 0 && tokens >= a.maxTokens && out.FinishReason == "stop" {
		a.doubt("finish reason is %q at the limit of %d tokens", "stop", a.maxTokens)
	}
	a.doubtSteps(tokens)
}

// doubtSteps holds the tokens against the verify steps. The last step may be cut, by at
// most the drafts of one step; two more tokens are for a prefill that was repeated.
func (a *answer) doubtSteps(tokens int) {
	const slack = 2
	acc := a.out.Accept
	if acc == nil || acc.Approx || acc.Steps == 0 {
		return
	}
	emitted := 1 + acc.Steps + acc.Accepted + acc.PlainStep
	cut := max(acc.Drafted/acc.Steps, float64(len(acc.Positions)))
	if t := float64(tokens); t > emitted+slack || t < emitted-cut-slack {
		a.doubt("completion_tokens is %d, but %g verify steps with %g accepted drafts emit %g", tokens, acc.Steps, acc.Accepted, emitted)
	}
}

// doubt notes a contradiction, the same one once, and not more than ten.
func (a *answer) doubt(format string, args ...any) {
	text := printable(fmt.Sprintf(format, args...), 300)
	if len(a.out.Doubts) < 10 && !slices.Contains(a.out.Doubts, text) {
		a.out.Doubts = append(a.out.Doubts, text)
	}
}

// complete reports whether an answer came to its end and was counted.
func (a *answer) complete() bool { return a.ended && a.usage.known }

// verdict is the fault of a stream that ended by itself.
func (a *answer) verdict(events int) (Fault, string) {
	switch {
	case !a.ended:
		return FaultCut, fmt.Sprintf("stream ended after %d events, without a finish reason or [DONE]", events)
	case !a.choices:
		return FaultProtocol, fmt.Sprintf("stream of %d events has no choices", events)
	}
	return FaultNone, ""
}
