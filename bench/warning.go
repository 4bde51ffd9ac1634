package bench

import "fmt"

// warn is what a verdict on an arm has to be read with, of the arm and of its baseline.
func (a *analysis) warn(s *side, r *Report) []string {
	var w warnings
	w = append(w, a.warnings...)
	if r.Interrupted != "" {
		w.add("not everything was measured: %s", r.Interrupted)
	}
	sides := []*side{s}
	if a.base != nil && a.base != s {
		sides = append(sides, a.base)
		w.pair(s, a.base, a.levels)
	}
	p := &a.log.Plan
	for _, s := range sides {
		v := a.validity(s, s.all(a.levels))
		w.validity(s, &v, a.j.MaxTruncated)
		if ratio := v.OutputRatio; p.Params.Temperature == 0 && ratio > 0 && (ratio < 0.9 || ratio > 1.1) {
			w.add("%s's answers have %.2f times the tokens of the baseline's at temperature 0: not the same work", s.Name, ratio)
		}
		for i := range r.Levels {
			w.spread(r.Levels[i].arm(s.Name), r.Levels[i].Level)
		}
	}
	for i := range r.Levels {
		w.otherPrompts(r.Levels[i].compared(s.Name), r.Levels[i].Level)
	}
	if p.Params.IgnoreEOS {
		w.add("answers go on after their end (ignore_eos): what follows is no text that users get, and often loops")
	}
	if n := p.NumPrompts; n > 0 && n < 20 {
		w.add("few prompts (%d) say little of others: intervals over prompts need 20", n)
	}
	if r.Sweep != nil && a.base != nil {
		w.add("the best of several arms looks better than it is: measure it once more against the baseline")
	}
	return w
}

type warnings []string

func (w *warnings) add(format string, args ...any) { *w = append(*w, fmt.Sprintf(format, args...)) }

// pair warns of what is not the same in two arms.
func (w *warnings) pair(s, base *side, levels []Level) {
	switch {
	case base.stored:
		w.add("%s was measured on %s, not in turns with %s", base.Name, base.log.Began.UTC().Format("2006-01-02 15:04"), s.Name)
	case s.Launch != "" || base.Launch != "":
		w.add("the arms were measured one after the other, not in turns: a drift of the machine is in the ratio")
	}
	if s.info != nil && base.info != nil && s.info.Info.Model != base.info.Info.Model {
		w.add("the arms serve different models: %q and %q", s.info.Info.Model, base.info.Info.Model)
	}
	if x, y := maxTokens(s.all(levels)), maxTokens(base.all(levels)); x != y && x > 0 && y > 0 {
		w.add("answers end at %d tokens in %s and at %d in %s", x, s.Name, y, base.Name)
	}
}

func maxTokens(passes []*Pass) int {
	n := 0
	for _, p := range passes {
		n = max(n, p.MaxTokens)
	}
	return n
}

// otherPrompts warns when an outcome holds for these prompts only.
func (w *warnings) otherPrompts(c *Comparison, l Level) {
	if c == nil || !c.ByPrompt.Bounded {
		return
	}
	if e := c.ByPrompt; c.Outcome == Pays && e.Low <= 1 || c.Outcome == DoesNotPay && e.High >= 1 {
		w.add("sure for these prompts only: over prompts like these it is %s at %s, %d of %d slower", ratio(e, false), l, c.Slower, c.Prompts)
	}
}

// validity warns of what an arm's figures suffer from. More answers cut than most are a
// void reason, and said there.
func (w *warnings) validity(s *side, v *ValidityReport, most float64) {
	if v.Truncated > warnTruncated && v.Truncated <= most && !s.log.Plan.Params.IgnoreEOS {
		w.add("%s: %s of the answers were cut at %d tokens: their speed is that of their beginning; %s", s.Name, percent(v.Truncated), v.MaxTokens, v.cure())
	}
	if v.Failed > 0 {
		w.add("%s: %d of %d requests failed (%s) and are in no figure", s.Name, v.Failed, v.Requests, v.faults())
	}
	if v.NoUsage > 0 {
		w.add("%s: %d answers came without usage and are in no figure of tokens", s.Name, v.NoUsage)
	}
	if v.Foreign != nil && *v.Foreign > warnForeign {
		w.add("%s: %s of the tokens that the server made are of other clients", s.Name, percent(*v.Foreign))
	}
	if v.Loops > warnLoops {
		w.add("%s: %s of the answers are repetition loops", s.Name, percent(v.Loops))
	}
	if v.WasBusy {
		w.add("%s: the server was busy before the first request", s.Name)
	}
	if s.restartedBetween() {
		w.add("%s: the server restarted between two passes", s.Name)
	}
	if s.info != nil && s.info.Info.Insecure {
		w.add("%s: the server's certificate was not verified", s.Name)
	}
}

func (w *warnings) spread(r *ArmReport, l Level) {
	if r.Spread == "fair" || r.Spread == "bad" {
		w.add("%s: the spread of runs is %s at %s: coefficient of variation %s", r.Arm, r.Spread, l, percent(r.CV))
	}
	if r.Warm != "" {
		w.add("%s: %s at %s", r.Arm, r.Warm, l)
	}
}
