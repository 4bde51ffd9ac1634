package bench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hsx/bench/server"
	"hsx/bench/stats"
)

// minAverage is the number of steps from which on a server's lifetime average is worth
// anything.
const minAverage = 200

// tally is what one source says of the accept length of some passes.
type tally struct {
	source  string
	trust   server.Trust
	note    string        // what limits it
	sum     server.Accept // counts over all passes; of a source that gives only a ratio, 0
	ratio   float64       // of such a source
	answers []answer      // of a source that counts by answer
	runs    []float64     // accept length of each pass, of a source that counts by pass
}

// answer is what one good answer says of its own verify steps.
type answer struct {
	turn
	category                string
	tokens, steps, accepted float64
}

// cluster is all that is known of one prompt: its turns belong together, and its runs
// repeat each other.
type cluster struct{ steps, accepted float64 }

// tallies are the sources that these passes have, the best first: counts in the answers,
// counters, a lifetime average, tokens per chunk, the log, a gauge. Derived counts give way
// to exact ones, and contaminated counters to anything.
func tallies(passes []*Pass, sp server.Speculation) (found []tally, notes []string) {
	add := func(t *tally, note string) {
		if t != nil {
			found = append(found, *t)
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	add(byAnswer(passes))
	add(byCounters(passes, sp.Steps))
	add(byLifetime(passes), "")
	if sp.On || !sp.Known { // any server bundles tokens now and then
		add(byChunk(passes), "")
	}
	add(byLog(passes), "")
	add(byGauge(passes), "")
	trust := []server.Trust{server.Exact, server.Idle, server.Approx, server.Proxy, server.Low}
	slices.SortStableFunc(found, func(a, b tally) int {
		return cmp.Compare(slices.Index(trust, a.trust), slices.Index(trust, b.trust))
	})
	return found, notes
}

// value is the accept length by this source.
func (t *tally) value() float64 {
	if t.sum.Steps > 0 {
		return 1 + t.sum.Accepted/t.sum.Steps
	}
	return t.ratio
}

// estimate is the accept length with its interval: over prompts where the source counts
// by answer, over passes where it counts by pass.
func (t *tally) estimate(seed uint64, confidence float64) stats.Estimate {
	if len(t.answers) > 0 {
		var steps, accepted []float64
		for _, c := range t.clusters() {
			steps, accepted = append(steps, c.steps), append(accepted, c.accepted)
		}
		e := stats.ClusterRatio(accepted, steps, confidence, seed)
		if e.N > 0 {
			e.Value, e.Low, e.High = 1+e.Value, 1+e.Low, 1+e.High
		}
		return e
	}
	e := stats.Mean(t.runs, confidence)
	if e.Bounded {
		e.Method += ": how much other prompts would differ is not in it"
	}
	shift := t.value() - e.Value // the passes pooled, where e weighs them alike
	e.Value, e.Low, e.High = e.Value+shift, max(e.Low+shift, 1), e.High+shift
	return e
}

// clusters are the prompts in the order of their names, so that the same journal gives
// the same interval.
func (t *tally) clusters() []cluster {
	sums := map[string]cluster{}
	for _, a := range t.answers {
		c := sums[a.prompt]
		sums[a.prompt] = cluster{c.steps + a.steps, c.accepted + a.accepted}
	}
	var out []cluster
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		out = append(out, sums[name])
	}
	return out
}

// goodRequests are the good requests of passes that have more than the prefill's token:
// others have no verify step that could be counted.
func goodRequests(passes []*Pass) []*Request {
	var good []*Request
	for _, p := range passes {
		for i := range p.Requests {
			if q := &p.Requests[i]; q.good() && q.Usage && q.Tokens > 1 {
				good = append(good, q)
			}
		}
	}
	return good
}

// byAnswer adds up the counts in the answers, if nearly all carry them.
func byAnswer(passes []*Pass) (t *tally, note string) {
	t = &tally{trust: server.Exact}
	requests, counting := goodRequests(passes), 0
	tokens, positions := 0.0, true
	for _, q := range requests {
		a := q.Accept
		if a == nil || !countable(a) || a.Steps+a.PlainStep <= 0 {
			continue
		}
		counting++
		t.source = cmp.Or(t.source, a.Source)
		if a.Approx {
			t.trust, t.sum.Approx = server.Approx, true
		}
		t.add(*a)
		positions = positions && (len(a.Positions) > 0 || a.Steps == 0)
		tokens += float64(q.Tokens)
		t.answers = append(t.answers, answer{turnOf(q), q.Category, float64(q.Tokens), a.Steps, a.Accepted})
	}
	if !positions {
		t.sum.Positions = nil
	}
	switch {
	case counting == 0 || t.sum.Steps == 0:
		return nil, ""
	case float64(counting) < wantCovered*float64(len(requests)):
		return nil, fmt.Sprintf("%d of %d answers carry accept counts: too few to go by", counting, len(requests))
	}
	// Every token is of the prefill, of a verify step or of a step that drafted nothing.
	if plain := tokens - float64(counting) - t.sum.Steps - t.sum.Accepted; t.sum.PlainStep == 0 && !t.sum.Approx {
		t.sum.PlainStep = max(plain, 0)
	}
	return t, ""
}

// countable reports whether counts are such as a server can have: their sums and ratios
// are finite.
func countable(a *server.Accept) bool {
	counts := append([]float64{a.Steps, a.Accepted, a.Drafted, a.PlainStep}, a.Positions...)
	return !slices.ContainsFunc(counts, func(n float64) bool { return n != 0 && !(n >= 1e-6 && n <= 1e15) })
}

func (t *tally) add(a server.Accept) {
	t.sum.Steps += a.Steps
	t.sum.Accepted += a.Accepted
	t.sum.Drafted += a.Drafted
	t.sum.PlainStep += a.PlainStep
	for i, n := range a.Positions {
		if i == len(t.sum.Positions) {
			t.sum.Positions = append(t.sum.Positions, 0)
		}
		t.sum.Positions[i] += n
	}
}

// byCounters adds up what the counters grew by in each pass. One pass whose counters went
// back or were not read leaves no number: a part would be taken for the whole.
func byCounters(passes []*Pass, positions int) (t *tally, note string) {
	t = &tally{trust: server.Idle}
	var generated, ours, emitted, prefills float64
	for _, p := range passes {
		c := server.Delta(p.Before, p.After, positions)
		if c.Accept == nil || !countable(c.Accept) {
			if len(c.Problems) > 0 && p.Before.Source+p.After.Source != "" {
				note = fmt.Sprintf("no accept length by counters: %s (%s, run %d)", c.Problems[0], p.Level, p.Run)
			}
			return nil, note
		}
		t.source = c.Accept.Source
		t.sum.Approx = t.sum.Approx || c.Accept.Approx
		t.add(*c.Accept)
		if c.Accept.Steps > 0 {
			t.runs = append(t.runs, 1+c.Accept.Accepted/c.Accept.Steps)
		}
		if c.Generated != nil && c.Finished != nil {
			emitted += *c.Generated
			prefills += *c.Finished
		}
		if c.Generated != nil && !slices.ContainsFunc(p.Requests, unmeasured) {
			tokens, _ := tokensOf(p)
			generated += *c.Generated
			ours += tokens
		}
	}
	if t.sum.Steps == 0 {
		return nil, ""
	}
	if t.sum.Approx {
		t.trust = server.Approx
	} else {
		t.sum.PlainStep = max(emitted-prefills-t.sum.Steps-t.sum.Accepted, 0)
	}
	if foreign := over(generated-ours, generated); foreign > warnForeign {
		t.trust = server.Low
		note = fmt.Sprintf("contaminated: %s of the server's tokens are not of this measurement, so its counters are others' too", percent(foreign))
	}
	return t, note
}

// byLog is the mean of the accept lengths in the server's log, weighted by the requests
// that ran.
func byLog(passes []*Pass) *tally {
	t := &tally{trust: server.Low, note: "the log gives means of its windows, of all that the server did"}
	var weight, accepted float64
	for _, p := range passes {
		if c := server.Delta(p.Before, p.After, 0).Log; c != nil && countable(c) {
			t.source = c.Source
			weight += c.Steps
			accepted += c.Accepted
		}
	}
	if weight == 0 {
		return nil
	}
	t.ratio = 1 + accepted/weight
	t.runs = []float64{t.ratio}
	return t
}

// byLifetime is the average that SGLang keeps of itself.
func byLifetime(passes []*Pass) *tally {
	last := passes[len(passes)-1].After.Lifetime
	if last == nil || !(*last >= 1 && *last <= 1e6) {
		return nil
	}
	t := &tally{
		source: "/server_info", trust: server.Approx, ratio: *last, runs: []float64{*last},
		note: "the server's own average: the warm-up is in it, and all that went before since the server started or was flushed",
	}
	tokens := 0.0
	for _, p := range passes {
		n, _ := tokensOf(p)
		tokens += n
	}
	// Without an average before the first pass, the server's life is this measurement.
	if tokens / *last < minAverage || passes[0].Before.Lifetime != nil {
		t.trust = server.Low
	}
	return t
}

// byChunk takes each chunk after the first for a verify step, where the answers tell how
// many tokens each chunk holds.
func byChunk(passes []*Pass) *tally {
	t := &tally{source: "tokens per chunk", trust: server.Proxy, note: "each chunk is taken for one verify step; one that holds more makes the accept length too high"}
	requests := goodRequests(passes)
	for _, q := range requests {
		if len(q.ChunkTokens) < 2 {
			continue
		}
		tokens := 0
		for _, n := range q.ChunkTokens[1:] {
			tokens += n
		}
		steps := len(q.ChunkTokens) - 1
		a := server.Accept{Steps: float64(steps), Accepted: float64(max(tokens-steps, 0))}
		t.add(a)
		t.answers = append(t.answers, answer{turnOf(q), q.Category, float64(q.Tokens), a.Steps, a.Accepted})
	}
	// A server that sends each token by itself shows no speculation, whatever it does.
	if t.sum.Accepted == 0 || float64(len(t.answers)) < wantCovered*float64(len(requests)) {
		return nil
	}
	return t
}

// byGauge is the mean of the gauges seen after each pass, each of its last moments only.
func byGauge(passes []*Pass) *tally {
	t := &tally{trust: server.Low, note: "the gauge shows the last moments before it is read, not the measurement"}
	for _, p := range passes {
		if w := p.After.Window; w != nil && *w >= 1 && *w <= 1e6 {
			t.runs, t.source = append(t.runs, *w), strings.TrimPrefix(p.After.Source+", gauge", ", ")
		}
	}
	if len(t.runs) == 0 {
		return nil
	}
	t.ratio = stats.Mean(t.runs, 0).Value
	return t
}
