package server

import "fmt"

// Change is what the counters of a server say of the time between two snapshots. It
// counts everybody's requests: how much of it is the caller's is for the caller to say.
type Change struct {
	Accept    *Accept  // nil: not known, Problems say why
	Log       *Accept  // by the server's log, nil without one: a ratio to be trusted low, no counts
	Generated *float64 // tokens, nil when not counted
	Finished  *float64 // requests, nil when not counted
	Restarted bool     // the process is another one, or its counters went back
	Problems  []string
}

// Delta is what happened between two snapshots of one server. The engine's draft
// positions (0 when unknown) stand in for a count of steps where the engine keeps none.
// A counter that goes back makes its numbers unknown, never 0; one that is absent from
// the first snapshot and present in the second began at 0, as counters do that appear
// with their first event.
func Delta(before, after Snapshot, positions int) Change {
	var c Change
	if before.Source == "" || after.Source == "" {
		c.Problems = append(c.Problems, "counters were not read before and after")
		c.Log = logDelta(before, after)
		return c
	}
	c.Restarted = restarted(before, after)
	if c.Restarted {
		c.Problems = append(c.Problems, "the server restarted or its counters went back: no deltas")
		return c
	}
	if before.Source != after.Source {
		c.Problems = append(c.Problems, fmt.Sprintf("counters came from %s before and from %s after: no deltas", before.Source, after.Source))
		return c
	}
	if after.Ranks < before.Ranks {
		c.Problems = append(c.Problems, fmt.Sprintf("counters of %d ranks before and of %d after: no deltas", before.Ranks, after.Ranks))
		return c
	}
	c.Generated = minus(after.Generated, before.Generated)
	c.Finished = minus(after.Finished, before.Finished)
	c.Log = logDelta(before, after)
	c.Accept, c.Problems = acceptDelta(before, after, positions, c)
	return c
}

// acceptDelta derives what an engine does not count: SGLang no accepted drafts, and
// TensorRT-LLM no steps.
func acceptDelta(before, after Snapshot, positions int, c Change) (*Accept, []string) {
	a := Accept{Source: after.Source}
	steps, accepted := minus(after.Steps, before.Steps), minus(after.Accepted, before.Accepted)
	if drafted := minus(after.Drafted, before.Drafted); drafted != nil {
		a.Drafted = *drafted
	}
	if c.Generated != nil {
		a.Tokens = *c.Generated
	}
	for i, n := range after.Positions {
		if i < len(before.Positions) {
			n -= before.Positions[i]
		}
		a.Positions = append(a.Positions, n)
	}
	switch {
	case steps == nil && accepted == nil:
		return nil, nil
	case steps == nil && positions == 0:
		return nil, []string{after.Source + " count no verify steps, and how many drafts each has is unknown"}
	case steps == nil:
		a.Accepted, a.Approx = *accepted, true
		a.Steps = a.Drafted / float64(positions)
		a.Source += ", steps = drafts / positions"
	case accepted != nil:
		a.Steps, a.Accepted = *steps, *accepted
	case c.Generated == nil || c.Finished == nil:
		return nil, []string{after.Source + " count verify steps, but neither accepted drafts nor all of what they derive from"}
	default:
		// Each step emits its accepted drafts and one token more, each prefill one token.
		a.Steps, a.Approx = *steps, true
		a.Accepted = *c.Generated - *c.Finished - *steps
		a.Source += ", accepted = generated − finished − steps"
	}
	if a.Accepted < 0 {
		return nil, []string{fmt.Sprintf("%s contradict themselves: %g accepted drafts in %g steps", a.Source, a.Accepted, a.Steps)}
	}
	return &a, nil
}

func logDelta(before, after Snapshot) *Accept {
	steps, tokens := minus(after.LogSteps, before.LogSteps), minus(after.LogTokens, before.LogTokens)
	if steps == nil || tokens == nil || *steps <= 0 || *tokens < *steps {
		return nil
	}
	return &Accept{Steps: *steps, Accepted: *tokens - *steps, Approx: true, Source: "server log"}
}

// restarted looks at every number that may only grow.
func restarted(before, after Snapshot) bool {
	if before.Started != nil && after.Started != nil && *before.Started != *after.Started {
		return true
	}
	pairs := [][2]*float64{
		{before.Steps, after.Steps}, {before.Accepted, after.Accepted}, {before.Drafted, after.Drafted},
		{before.Generated, after.Generated}, {before.Finished, after.Finished},
	}
	for i := range before.Positions {
		now := new(float64)
		if i < len(after.Positions) {
			now = &after.Positions[i]
		}
		pairs = append(pairs, [2]*float64{&before.Positions[i], now})
	}
	for _, p := range pairs {
		if p[0] != nil && *p[0] > 0 && (p[1] == nil || *p[1] < *p[0]) {
			return true
		}
	}
	return false
}

func minus(after, before *float64) *float64 {
	if after == nil {
		return nil
	}
	d := *after
	if before != nil {
		d -= *before
	}
	return &d
}
