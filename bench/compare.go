package bench

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"hsx/bench/server"
	"hsx/bench/stats"
)

// maxRuns bounds the number of runs that is recommended: more is no advice.
const maxRuns = 200

// compare holds one arm against the baseline under one load.
func (a *analysis) compare(s *side, l Level) Comparison {
	mine, theirs := s.passes[l], a.base.passes[l]
	c := Comparison{
		Arm: s.Name, Baseline: a.base.Name, Outcome: Inconclusive,
		Paired: !a.base.stored && s.Launch == "" && a.base.Launch == "",
	}
	a.speedup(&c, mine, theirs)
	a.byPrompt(&c, mine, theirs)
	if l.Rate != 0 {
		c.Notes = append(c.Notes, "speed is tokens over latency here: in an open loop the arrivals set the throughput")
	}
	if t := a.acceptOf(s.Name, l); t != nil && c.Speedup.Value > 0 && t.Pooled.Value > 0 {
		c.AcceptLength = t.Pooled.Value
		c.BreakEven = stats.BreakEven(c.AcceptLength, 1, c.Speedup.Value)
		if t.Trust == server.Low {
			c.Notes = append(c.Notes, "the break-even accept length rests on an accept length of low trust")
		} else if a.promised(s) {
			c.AtPromise = c.Speedup.Value * a.promise.Promised / c.AcceptLength
		}
	}
	if a.log.Plan.Params.Temperature == 0 && len(mine) > 0 && len(theirs) > 0 {
		c.equalText(mine[0], theirs[0])
	}
	if voids := a.voids(s, l); len(voids) > 0 {
		c.Outcome = Void
		c.RunsToSettle = 0
		for _, why := range voids {
			c.Notes = append(c.Notes, "void: "+why)
		}
	}
	return c
}

// speedup compares the runs, in pairs where the arms took turns, and judges.
func (a *analysis) speedup(c *Comparison, mine, theirs []*Pass) {
	x, y := speeds(mine), speeds(theirs)
	if len(x) == 0 || len(y) == 0 {
		name := c.Arm
		if len(x) > 0 {
			name = c.Baseline
		}
		c.Notes = append(c.Notes, fmt.Sprintf("%s has no complete run with tokens at this load", name))
		return
	}
	var sd float64
	runs := min(len(x), len(y))
	if c.Paired {
		var logs []float64
		x, y, logs = c.pair(mine, theirs)
		runs, sd = len(logs), stats.Summarise(logs).SD
		c.Speedup = stats.PairedRatio(x, y, a.j.Confidence)
		c.Detectable = finite(stats.DetectablePaired(sd, runs))
	} else {
		sd = math.Hypot(logSD(x), logSD(y)) / math.Sqrt2
		c.Speedup = stats.Ratio(x, y, a.j.Confidence)
		c.Detectable = finite(stats.DetectableDifference(sd, runs))
	}
	c.Outcome = a.judge(c.Speedup)
	if c.Outcome == Inconclusive {
		a.explain(c, sd, runs)
	}
}

// judge is the verdict on the ratio's interval.
func (a *analysis) judge(e stats.Estimate) Outcome {
	switch {
	case !e.Bounded:
		return Inconclusive
	case e.Low > 1+a.j.Margin:
		return Pays
	case e.High < 1:
		return DoesNotPay
	}
	return Inconclusive
}

// explain says why a comparison is inconclusive. Where the ratio is between 1 and the
// margin, no number of runs settles it.
func (a *analysis) explain(c *Comparison, sd float64, runs int) {
	gap := 0.0
	switch r := c.Speedup.Value; {
	case r < 1:
		gap = -math.Log(r)
	case r > 1+a.j.Margin:
		gap = math.Log(r / (1 + a.j.Margin))
	}
	if n, ok := stats.RunsToSettle(sd, gap, c.Paired, maxRuns); ok && c.Speedup.Bounded {
		c.RunsToSettle = max(n, runs+1)
	}
	c.Notes = append(c.Notes, a.because(c))
}

// speeds are those of the runs that have any tokens.
func speeds(passes []*Pass) []float64 {
	var v []float64
	for _, p := range passes {
		if s := speed(p); s > 0 {
			v = append(v, s)
		}
	}
	return v
}

// pair matches runs by their number, and notes whether being first mattered.
func (c *Comparison) pair(mine, theirs []*Pass) (x, y, logs []float64) {
	var ratios []float64
	var first []bool
	for _, p := range mine {
		i := slices.IndexFunc(theirs, func(q *Pass) bool { return q.Run == p.Run })
		if i < 0 {
			continue
		}
		u, v := speed(p), speed(theirs[i])
		if u <= 0 || v <= 0 {
			continue
		}
		x, y = append(x, u), append(y, v)
		ratios, logs = append(ratios, u/v), append(logs, math.Log(u/v))
		first = append(first, p.Began.Before(theirs[i].Began))
	}
	if effect, p := stats.OrderEffect(ratios, first); p < 0.05 {
		verb := "faster"
		if effect < 0 {
			verb = "slower"
		}
		c.Notes = append(c.Notes, fmt.Sprintf("the order matters: the arm that runs first is %s %s for it (p %.2g)", percent(math.Abs(effect)), verb, p))
	}
	return x, y, logs
}

// byPrompt compares conversation by conversation: the median over an arm's runs of
// tokens over latency.
func (a *analysis) byPrompt(c *Comparison, mine, theirs []*Pass) {
	x, y := promptSpeeds(mine), promptSpeeds(theirs)
	var ratios, logs []float64
	left := 0
	for _, id := range slices.Sorted(maps.Keys(x)) {
		v, both := y[id]
		if !both {
			continue
		}
		if x[id] <= 0 || v <= 0 {
			left++
			continue
		}
		ratios, logs = append(ratios, x[id]/v), append(logs, math.Log(x[id]/v))
		if x[id] < v {
			c.Slower++
		}
	}
	if left > 0 {
		c.Notes = append(c.Notes, fmt.Sprintf("%s without a good run in one of the arms: left out of the comparison by prompt", counted(left, "prompt")))
	}
	c.Prompts = len(ratios)
	c.ByPrompt = stats.ClusterGeoMean(ratios, a.j.Confidence, a.log.Plan.Seed)
	c.Wilcoxon = stats.Wilcoxon(logs)
}

// promptSpeeds are those of all conversations that were tried: 0 where none of the runs
// has all turns good.
func promptSpeeds(passes []*Pass) map[string]float64 {
	rates := map[string][]float64{}
	for _, p := range passes {
		type total struct {
			tokens, latency float64
			bad             bool
		}
		totals := map[string]*total{}
		for i := range p.Requests {
			q := &p.Requests[i]
			t := totals[q.Prompt]
			if t == nil {
				t = &total{}
				totals[q.Prompt] = t
			}
			t.tokens += float64(q.Tokens)
			t.latency += q.Latency().Seconds()
			t.bad = t.bad || !q.good() || !q.Usage
		}
		for id, t := range totals {
			if t.bad {
				rates[id] = slices.Clip(rates[id]) // tried, and nothing gained
			} else {
				rates[id] = append(rates[id], over(t.tokens, t.latency))
			}
		}
	}
	medians := map[string]float64{}
	for id, r := range rates {
		slices.Sort(r)
		medians[id] = stats.Quantile(r, 0.5)
	}
	return medians
}

// equalText compares the answers of each arm's first run.
func (c *Comparison) equalText(p, q *Pass) {
	digests := map[turn]string{}
	for i := range q.Requests {
		if r := &q.Requests[i]; r.good() && r.TextDigest != "" {
			digests[turnOf(r)] = r.TextDigest
		}
	}
	n, equal := 0, 0
	for i := range p.Requests {
		r := &p.Requests[i]
		if d, ok := digests[turnOf(r)]; ok && r.good() && r.TextDigest != "" {
			n++
			if d == r.TextDigest {
				equal++
			}
		}
	}
	if n == 0 {
		return
	}
	c.EqualText = new(float64(equal) / float64(n))
	if equal < n {
		c.Notes = append(c.Notes, fmt.Sprintf("speculation must not change greedy text; %d of %d answers differ (batch non-invariance, sampling, or a wrong verify)", n-equal, n))
	}
}

// turn is one question of one conversation.
type turn struct {
	prompt string
	turn   int
}

func turnOf(r *Request) turn { return turn{r.Prompt, r.Turn} }

func (t turn) compare(u turn) int {
	return cmp.Or(cmp.Compare(t.prompt, u.prompt), cmp.Compare(t.turn, u.turn))
}

// acceptOf is the accept length of an arm under a load, or over all loads.
func (a *analysis) acceptOf(arm string, l Level) *AcceptReport {
	var overall *AcceptReport
	for i := range a.accept {
		switch r := &a.accept[i]; {
		case r.Arm == arm && r.Level == l.String():
			return r
		case r.Arm == arm && r.Level == "":
			overall = r
		}
	}
	return overall
}

// promised reports whether the promise is one for this arm: it was cut to the steps of one.
func (a *analysis) promised(s *side) bool {
	return a.promise != nil && a.promise.Promised > 0 && (len(a.speculating()) == 1 || s.Steps == a.promise.Steps)
}

func logSD(xs []float64) float64 {
	logs := make([]float64, len(xs))
	for i, x := range xs {
		logs[i] = math.Log(x)
	}
	return stats.Summarise(logs).SD
}

// finite is x, or 0 for what JSON cannot hold.
func finite(x float64) float64 {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	return x
}
