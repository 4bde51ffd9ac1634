package server

import (
	"encoding/json"
	"fmt"
	"math"
)

// claims are what the answer to one request said about its speculation, each in the
// dialect of its engine.
type claims struct {
	vllm    raw     // metrics.speculative_decoding
	sglext  raw     // sglext.spec_tokens_details
	meta    raw     // meta_info
	timings raw     // timings
	perIter float64 // avg_decoded_tokens_per_iter
}

// add keeps the last of each.
func (c *claims) add(next claims) {
	for _, pair := range [][2]*raw{{&c.vllm, &next.vllm}, {&c.sglext, &next.sglext}, {&c.meta, &next.meta}, {&c.timings, &next.timings}} {
		if *pair[1] != nil {
			*pair[0] = *pair[1]
		}
	}
	if next.perIter != 0 {
		c.perIter = next.perIter
	}
}

// accept is what speculation did for the request, nil when the server does not say. An
// error says what was wrong with what it said. Tokens is -1 when the server counted
// none; speculates is whether preflight found speculation.
func (c *claims) accept(tokens int, speculates bool) (*Accept, error) {
	switch {
	case c.vllm != nil:
		return acceptVLLM(c.vllm, tokens)
	case c.sglext != nil:
		return acceptSGLang(c.sglext, tokens, "sglang sglext.spec_tokens_details")
	case c.meta != nil:
		return acceptSGLang(c.meta, tokens, "sglang meta_info")
	case c.timings != nil:
		return acceptLlamaCpp(c.timings)
	case c.perIter > 1 || c.perIter == 1 && speculates:
		return acceptTRTLLM(c.perIter, tokens)
	}
	return nil, nil
}

// acceptVLLM reads vLLM's own counts. Steps are those that drafted something; the
// others are what is left of the tokens, less the one of the prefill.
func acceptVLLM(data raw, tokens int) (*Accept, error) {
	const source = "vllm metrics.speculative_decoding"
	var m struct {
		Steps     *float64  `json:"num_spec_steps"`
		Accepted  *float64  `json:"num_accepted_draft_tokens"`
		Drafted   float64   `json:"num_draft_tokens"`
		Histogram []float64 `json:"acceptance_histogram"`
		PerStep   []float64 `json:"per_step_accepted"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", source, misfit(err))
	}
	if m.Steps == nil || m.Accepted == nil {
		return nil, fmt.Errorf("%s: has no num_spec_steps or num_accepted_draft_tokens", source)
	}
	if m.Histogram == nil {
		m.Histogram = histogram(m.PerStep)
	}
	a := &Accept{Steps: *m.Steps, Accepted: *m.Accepted, Drafted: m.Drafted, Source: source}
	if tokens >= 0 {
		a.Tokens = float64(tokens)
		a.PlainStep = max(0, a.Tokens-1-a.Steps-a.Accepted)
	}
	return a.checked(m.Histogram)
}

// acceptSGLang reads each generation of the names that SGLang gave to its counts. The
// oldest has verify steps only: then what the steps emitted beside their own token and
// the prefill's was drafted. Its spec_accept_length is not used: the prefill's token is
// in it.
func acceptSGLang(data raw, tokens int, source string) (*Accept, error) {
	var m struct {
		Steps       float64   `json:"spec_verify_ct"`
		Correct     *float64  `json:"spec_num_correct_drafts"` // current
		Accepted    *float64  `json:"spec_accepted_drafts"`    // 2026
		AcceptToken *float64  `json:"spec_accept_token_num"`   // 2026-02
		Proposed    *float64  `json:"spec_num_proposed_drafts"`
		Drafts      *float64  `json:"spec_proposed_drafts"`
		DraftToken  *float64  `json:"spec_draft_token_num"`
		CorrectHist []float64 `json:"spec_correct_drafts_histogram"`
		AcceptHist  []float64 `json:"spec_accept_histogram"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", source, misfit(err))
	}
	if m.Steps == 0 {
		return nil, nil
	}
	a := &Accept{Steps: m.Steps, Tokens: float64(max(tokens, 0)), Source: source}
	if drafted := firstOf(m.Proposed, m.Drafts, m.DraftToken); drafted != nil {
		a.Drafted = *drafted
	}
	if accepted := firstOf(m.Correct, m.Accepted, m.AcceptToken); accepted != nil {
		a.Accepted = *accepted
	} else if tokens > 0 {
		a.Accepted, a.Approx = max(0, a.Tokens-1-a.Steps), true
	} else {
		return nil, fmt.Errorf("%s: has verify steps only, and the server counted no tokens", source)
	}
	if m.CorrectHist == nil {
		m.CorrectHist = m.AcceptHist
	}
	return a.checked(m.CorrectHist)
}

// acceptLlamaCpp derives steps: of the tokens one is the prefill's, and every step emits
// one beside the drafts that it accepted. Steps that drafted nothing are among them, so
// it is a lower bound on the accept length; /metrics counts exactly.
func acceptLlamaCpp(data raw) (*Accept, error) {
	const source = "llama.cpp timings"
	var m struct {
		Tokens   float64  `json:"predicted_n"`
		Drafted  *float64 `json:"draft_n"`
		Accepted float64  `json:"draft_n_accepted"`
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", source, misfit(err))
	}
	if m.Drafted == nil { // nothing was drafted
		return nil, nil
	}
	a := &Accept{Steps: m.Tokens - 1 - m.Accepted, Accepted: m.Accepted, Drafted: *m.Drafted, Tokens: m.Tokens, Approx: true, Source: source}
	return a.checked(nil)
}

// acceptTRTLLM derives both from TensorRT-LLM's tokens per iteration, in which the
// prefill is an iteration that emits one token.
func acceptTRTLLM(perIter float64, tokens int) (*Accept, error) {
	const source = "tensorrt-llm avg_decoded_tokens_per_iter"
	if tokens <= 0 {
		return nil, fmt.Errorf("%s: is %g, and the server counted no tokens", source, perIter)
	}
	iterations := math.Round(float64(tokens) / perIter)
	a := &Accept{Steps: iterations - 1, Accepted: float64(tokens) - iterations, Tokens: float64(tokens), Approx: true, Source: source}
	return a.checked(nil)
}

// checked adds the positions of a histogram whose member j is the number of steps that
// accepted j drafts, and refuses numbers that cannot be counts.
func (a *Accept) checked(histogram []float64) (*Accept, error) {
	const most = 1 << 40
	for _, n := range []float64{a.Steps, a.Accepted, a.Drafted} {
		if !(n >= 0 && n <= most) {
			return nil, fmt.Errorf("%s: %g is no count", a.Source, n)
		}
	}
	if a.Drafted > 0 && a.Accepted > a.Drafted {
		return nil, fmt.Errorf("%s: accepted %g of %g draft tokens", a.Source, a.Accepted, a.Drafted)
	}
	if len(histogram) < 2 {
		return a, nil
	}
	positions := make([]float64, len(histogram)-1)
	var steps, accepted float64
	for j := len(histogram) - 1; j >= 0; j-- {
		steps += histogram[j]
		accepted += float64(j) * histogram[j]
		if j > 0 {
			positions[j-1] = steps
		}
	}
	if steps != a.Steps || accepted != a.Accepted {
		return a, fmt.Errorf("%s: histogram says %g steps and %g accepted drafts, the counts say %g and %g", a.Source, steps, accepted, a.Steps, a.Accepted)
	}
	a.Positions = positions
	return a, nil
}

// histogram counts how many steps accepted 0, 1, … drafts.
func histogram(perStep []float64) []float64 {
	var h []float64
	for _, n := range perStep {
		if !(n >= 0 && n < 1024) || n != math.Trunc(n) {
			return nil
		}
		for len(h) <= int(n) {
			h = append(h, 0)
		}
		h[int(n)]++
	}
	return h
}

func firstOf(values ...*float64) *float64 {
	for _, v := range values {
		if v != nil {
			return v
		}
	}
	return nil
}
