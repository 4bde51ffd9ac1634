package bench

import (
	"fmt"
	"strings"

	"hsx/bench/server"
)

// voids say why a comparison of an arm with the baseline, or the arm's figures alone,
// prove nothing under a load.
func (a *analysis) voids(s *side, l Level) []string {
	voids := append([]string{}, a.void...)
	mine := a.validity(s, s.passes[l])
	voids = append(voids, a.flaws(s, &mine)...)
	if t := a.acceptOf(s.Name, l); !a.between && s.Role == Spec && saysOff(s) && (t == nil || t.Steps == 0) {
		voids = append(voids, fmt.Sprintf("%s does not speculate: %s", s.Name, evidence(s)))
	}
	if a.base == nil || a.base == s {
		return voids
	}
	theirs := a.validity(a.base, a.base.passes[l])
	voids = append(voids, a.flaws(a.base, &theirs)...)
	if why := speculates(a.base, a.base.passes[l]); why != "" && !a.between {
		voids = append(voids, fmt.Sprintf("%s speculates: %s", a.base.Name, why))
	}
	if !a.base.stored && s.Launch == "" && a.base.Launch == "" && root(s.URL) == root(a.base.URL) {
		voids = append(voids, fmt.Sprintf("%s and %s are one server, %s", s.Name, a.base.Name, s.URL))
	}
	if more := max(mine.Loops, theirs.Loops); more > warnLoops && more > 2*min(mine.Loops, theirs.Loops) && more <= voidLoops {
		voids = append(voids, fmt.Sprintf("answers loop more than twice as often in one arm: %s of %s's, %s of %s's", percent(mine.Loops), s.Name, percent(theirs.Loops), a.base.Name))
	}
	return voids
}

// flaws are those of one arm's passes alone.
func (a *analysis) flaws(s *side, v *ValidityReport) []string {
	var flaws []string
	add := func(format string, args ...any) {
		flaws = append(flaws, s.Name+": "+fmt.Sprintf(format, args...))
	}
	if v.Synthetic != "" {
		add("acceptance is synthetic: %s", v.Synthetic)
	}
	if share := v.failedShare(); share > a.j.MaxFailed {
		add("%s of the requests failed (%s), above the limit of %s", percent(share), v.faults(), percent(a.j.MaxFailed))
	}
	if share := v.noUsageShare(); share > a.j.MaxFailed {
		add("%s of the answers came without usage: no token counts, nothing to divide", percent(share))
	}
	if v.Truncated > a.j.MaxTruncated && !s.log.Plan.Params.IgnoreEOS {
		add("%s of the answers were cut at %d tokens, above the limit of %s: %s", percent(v.Truncated), v.MaxTokens, percent(a.j.MaxTruncated), v.cure())
	}
	if v.Loops > voidLoops {
		add("%s of the answers are repetition loops, which speculation drafts best of all", percent(v.Loops))
	}
	if v.Foreign != nil && *v.Foreign > voidForeign {
		add("%s of the tokens that the server made are of other clients", percent(*v.Foreign))
	}
	if v.Restarted {
		add("the server restarted in the middle")
	}
	return flaws
}

// speculates says by what an arm is seen to speculate, "" when it is not.
func speculates(s *side, passes []*Pass) string {
	if s.info != nil && s.info.Info.Speculation.Known && s.info.Info.Speculation.On {
		return evidence(s)
	}
	var drafted, steps float64
	answers := 0
	for _, p := range passes {
		if t := server.Delta(p.Before, p.After, 0).Accept; t != nil {
			drafted += t.Drafted
			steps += t.Steps
		}
		for i := range p.Requests {
			if t := p.Requests[i].Accept; t != nil && t.Accepted+t.Drafted > 0 {
				answers++
			}
		}
	}
	switch {
	case drafted > 0:
		return fmt.Sprintf("its counter of draft tokens rose by %.0f", drafted)
	case steps > 0:
		return fmt.Sprintf("its counter of verify steps rose by %.0f", steps)
	case answers > 0:
		return fmt.Sprintf("%d of its answers report draft tokens", answers)
	}
	return ""
}

func saysOff(s *side) bool {
	return s.info != nil && s.info.Info.Speculation.Known && !s.info.Info.Speculation.On
}

// evidence is where the server says whether it speculates.
func evidence(s *side) string {
	spec := s.info.Info.Speculation
	says := "the server says so"
	if spec.Evidence != "" {
		says = "says " + spec.Evidence
	}
	if spec.On && spec.Method != "" {
		says += fmt.Sprintf(" (%s)", spec.Method)
	}
	return says
}

// root is the part of a URL by which two servers are one.
func root(url string) string {
	return strings.TrimRight(strings.TrimSuffix(strings.TrimRight(url, "/"), "/v1"), "/")
}
