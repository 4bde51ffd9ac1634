package bench

import (
	"fmt"
	"strings"

	"hsx/bench/prompts"
	"hsx/bench/server"
)

// Echo is the size of a plan in one line, such as "107 requests of 80 prompts × 5 runs
// × 2 arms = 1070 measured requests (+64 warm-up)". A prompt is a conversation; each of
// its turns is a request.
func (p Plan) Echo() string {
	requests := turns(p.Prompts)
	var b strings.Builder
	if requests != len(p.Prompts) {
		fmt.Fprintf(&b, "%s of ", counted(requests, "request"))
	}
	fmt.Fprintf(&b, "%s × %s × %s", counted(len(p.Prompts), "prompt"), counted(p.Runs, "run"), counted(len(p.Arms), "arm"))
	if len(p.Levels) > 1 {
		fmt.Fprintf(&b, " × %s", counted(len(p.Levels), "level"))
	}
	warmUp := 0
	for _, level := range p.Levels {
		warmUp += p.WarmUpRuns * len(p.Arms) * turns(p.warmUp(level))
	}
	fmt.Fprintf(&b, " = %d measured requests", requests*p.Runs*len(p.Arms)*len(p.Levels))
	if warmUp != 0 {
		fmt.Fprintf(&b, " (+%d warm-up)", warmUp)
	}
	return b.String()
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func turns(ps []prompts.Prompt) int {
	n := 0
	for _, p := range ps {
		n += len(p.Turns)
	}
	return n
}

// warmUp is the conversations of one warm-up pass: enough to fill every slot of the
// load once, since a server compiles and captures for each size of its batch.
func (p *Plan) warmUp(level Level) []prompts.Prompt {
	if len(p.WarmUp) == 0 {
		return nil
	}
	ps := make([]prompts.Prompt, max(16, level.Concurrency))
	for i := range ps {
		ps[i] = p.WarmUp[i%len(p.WarmUp)]
	}
	return ps
}

// conversations is what the pass of a key sends.
func (p *Plan) conversations(key Key) []prompts.Prompt {
	if key.WarmUp {
		return p.warmUp(key.Level)
	}
	return p.Prompts
}

// answerLimit is max_tokens where none was asked for: room for a long answer, and for
// the thinking before it; less where a conversation with answers of that length would
// not fit the smallest context. A prompt that takes most of the context by itself gets
// no say: the server refuses it, and the result says so.
func answerLimit(ps []prompts.Prompt, infos []*server.Info) int {
	limit := 2048
	for _, info := range infos {
		if info.Thinks {
			limit = 8192
		}
	}
	for _, info := range infos {
		if info.MaxContext == 0 {
			continue
		}
		for _, p := range ps {
			fits := (info.MaxContext - promptTokens(p)) / max(1, len(p.Turns))
			limit = min(limit, max(fits, info.MaxContext/4, 1))
		}
	}
	return limit
}

// promptTokens estimates, on the high side, the tokens of what a conversation gives:
// three bytes each, and a few for the template around every message.
func promptTokens(p prompts.Prompt) int {
	const perMessage, bytesPerToken = 8, 3
	n := perMessage * (len(p.Before) + 2*len(p.Turns))
	for _, m := range p.Before {
		n += len(m.Content) / bytesPerToken
	}
	for _, turn := range p.Turns {
		n += len(turn) / bytesPerToken
	}
	return n
}
