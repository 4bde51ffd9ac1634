package bench

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"hsx/bench/server"
)

const (
	warnTruncated = 0.05
	warnForeign   = 0.02 // below it the counters' own jitter
	voidForeign   = 0.2
	warnLoops     = 0.02
	voidLoops     = 0.1

	// thinkingCap is enough for a model that thinks; the default of 2048 for others is not.
	thinkingCap = 8192
)

// validity is whether the figures of an arm's passes can be trusted. It is derived for a
// whole arm, and for one load when a verdict is given on that.
func (a *analysis) validity(s *side, passes []*Pass) ValidityReport {
	v := ValidityReport{Arm: s.Name, Thinking: s.thinks()}
	var answers, cut, loops int
	var errs, doubts []string
	for _, p := range passes {
		v.MaxTokens = max(v.MaxTokens, p.MaxTokens)
		for i := range p.Requests {
			q := &p.Requests[i]
			v.Requests++
			v.Retries += len(q.Retried)
			doubts = append(doubts, q.Doubts...)
			if !q.good() {
				v.fault(q.Fault)
				errs = append(errs, q.Error)
				continue
			}
			answers++
			if !q.Usage {
				v.NoUsage++
			}
			if q.Truncated(p.MaxTokens) {
				cut++
			}
			if q.Tokens >= 64 && q.Distinct4 < 0.2 {
				loops++
			}
			v.Thinking = v.Thinking || q.ReasoningTokens > 0
		}
		doubts = append(append(doubts, p.Before.Problems...), p.After.Problems...)
	}
	v.Truncated, v.Loops = over(float64(cut), float64(answers)), over(float64(loops), float64(answers))
	if v.Truncated > warnTruncated && !s.log.Plan.Params.IgnoreEOS {
		v.Needed = s.moreTokens(v.MaxTokens, v.Thinking)
	}
	v.Errors, v.Doubts = distinct(errs), distinct(doubts)
	v.foreign(passes)
	v.Restarted = slices.ContainsFunc(passes, restartedIn)
	if s.restartedBetween() {
		v.Doubts = append(v.Doubts, "the server restarted between two passes: after that it was cold again")
	}
	if s.Role == Spec || a.between {
		v.Synthetic = syntheticAcceptance(s.log, s.Name)
	}
	if s.Role == Spec && a.base != nil {
		v.OutputRatio = outputRatio(passes, a.base.all(a.levels))
	}
	if s.info != nil {
		load := s.info.Info.Load
		v.WasBusy = load.Known && load.Running+load.Waiting > 0
	}
	return v
}

// moreTokens is the limit to use when too many answers were cut: how long they would
// have been is not known, so twice what there was. It is 0 when the context has no room.
func (s *side) moreTokens(limit int, thinks bool) int {
	more := 2 * limit
	if thinks {
		more = max(more, thinkingCap)
	}
	if s.info != nil && s.info.Info.MaxContext > 0 {
		more = min(more, s.info.Info.MaxContext)
	}
	if more <= limit {
		return 0
	}
	return more
}

// cure says what to do about answers that were cut.
func (v *ValidityReport) cure() string {
	if v.Needed == 0 {
		return "the server's context has no room for more"
	}
	return fmt.Sprintf("use --max-tokens %d", v.Needed)
}

func (v *ValidityReport) fault(f server.Fault) {
	v.Failed++
	if v.Faults == nil {
		v.Faults = map[string]int{}
	}
	if f == server.FaultNone {
		f = server.FaultProtocol
	}
	v.Faults[string(f)]++
}

func (v *ValidityReport) failedShare() float64 { return over(float64(v.Failed), float64(v.Requests)) }

func (v *ValidityReport) noUsageShare() float64 {
	return over(float64(v.NoUsage), float64(v.Requests-v.Failed))
}

// foreign compares the tokens that the server counted with those of our answers. A pass
// with a failed answer is left out: how much of it the server counted is not known.
func (v *ValidityReport) foreign(passes []*Pass) {
	var made, ours float64
	for _, p := range passes {
		generated := server.Delta(p.Before, p.After, 0).Generated
		if p.Before.Generated == nil || generated == nil || slices.ContainsFunc(p.Requests, unmeasured) {
			continue
		}
		tokens, _ := tokensOf(p)
		made += *generated
		ours += tokens
	}
	if made <= 0 {
		return
	}
	share := (made - ours) / made
	if share < -warnForeign {
		v.Doubts = append(v.Doubts, fmt.Sprintf("the server counted %.0f tokens where its answers hold %.0f: its counters are late, or a rank's are missing", made, ours))
	}
	v.Foreign = new(max(share, 0))
}

func unmeasured(q Request) bool { return !q.good() || !q.Usage }

// restartedIn reports whether the server's process is another one after the pass.
func restartedIn(p *Pass) bool { return server.Delta(p.Before, p.After, 0).Restarted }

// restartedBetween reports whether it is another one at the next pass. A server that hsx
// starts itself is a new one when a measurement is resumed.
func (s *side) restartedBetween() bool {
	var last *Pass
	for i := range s.log.Passes {
		p := &s.log.Passes[i]
		if p.Arm != s.Name || s.Launch != "" {
			continue
		}
		if last != nil && server.Delta(last.After, p.Before, 0).Restarted {
			return true
		}
		last = p
	}
	return false
}

// outputRatio is how long the answers are against the baseline's, of the same questions:
// the sum over questions of the mean over passes.
func outputRatio(mine, theirs []*Pass) float64 {
	x, y := lengths(mine), lengths(theirs)
	var a, b float64
	for _, t := range slices.SortedFunc(maps.Keys(x), turn.compare) {
		if m, ok := y[t]; ok {
			a += x[t]
			b += m
		}
	}
	return over(a, b)
}

// lengths are the mean completion tokens of each question.
func lengths(passes []*Pass) map[turn]float64 {
	sum, n := map[turn]float64{}, map[turn]float64{}
	for _, p := range passes {
		for i := range p.Requests {
			if q := &p.Requests[i]; q.good() && q.Usage {
				sum[turnOf(q)] += float64(q.Tokens)
				n[turnOf(q)]++
			}
		}
	}
	for t := range sum {
		sum[t] /= n[t]
	}
	return sum
}

// distinct are the first ten different sentences, with how often each came. Those that
// differ in nothing but numbers are one.
func distinct(sentences []string) []string {
	counts, order := map[string]int{}, []string{}
	first := map[string]string{}
	for _, s := range sentences {
		if s == "" {
			continue
		}
		key := strings.Map(func(r rune) rune {
			if r >= '0' && r <= '9' {
				return -1
			}
			return r
		}, s)
		if counts[key]++; counts[key] == 1 {
			order, first[key] = append(order, key), s
		}
	}
	var out []string
	for _, key := range order[:min(len(order), 10)] {
		s := first[key]
		if counts[key] > 1 {
			s = fmt.Sprintf("%s (%d times)", s, counts[key])
		}
		out = append(out, s)
	}
	return out
}

// faults lists the kinds of failure: "3 cut, 1 stalled".
func (v *ValidityReport) faults() string {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(v.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", v.Faults[k], k))
	}
	return strings.Join(kinds, ", ")
}
