package bench

import (
	"cmp"
	"slices"
	"time"
)

// Analyse derives the whole report from a log: no server is needed, and the same log and
// judgement give the same report. Only complete measured passes count; failed requests
// are in no speed or latency, and neither are their tokens. A log that lacks anything, an
// empty one too, gives a report that says so.
func Analyse(l *Log, j Judgement) *Report {
	a := newAnalysis(l, j)
	if j.Baseline != nil {
		a.useStored(j.Baseline)
	}
	return a.report()
}

// analysis is a log on its way to a report.
type analysis struct {
	log      *Log
	j        Judgement // with its defaults filled in
	words    wording
	between  bool    // of two measurements: either may speculate
	sides    []*side // the arms in the order of the plan, a stored baseline last
	base     *side   // nil without a baseline
	levels   []Level
	accept   []AcceptReport
	promise  *PromiseReport
	void     []string // why no comparison at all can be made
	warnings []string // known before any figure
}

// wording is what the sentence says.
type wording struct{ subject, better, worse string }

// side is one arm with those of its passes that count.
type side struct {
	Arm
	log    *Log
	info   *ArmInfo          // nil when preflight never reached it
	passes map[Level][]*Pass // complete and measured, by run
	stored bool              // of an earlier measurement
}

func newAnalysis(l *Log, j Judgement) *analysis {
	a := &analysis{
		log: l, j: j, levels: slices.Clone(l.Plan.Levels),
		words: wording{"Speculation", "pays", "does not pay"},
	}
	a.j.Margin = cmp.Or(j.Margin, 0.03)
	a.j.Confidence = cmp.Or(j.Confidence, 0.95)
	a.j.MaxTruncated = cmp.Or(j.MaxTruncated, 0.2)
	a.j.MaxFailed = cmp.Or(j.MaxFailed, 0.05)
	for _, arm := range l.Plan.Arms {
		s := newSide(l, arm)
		a.sides = append(a.sides, s)
		if arm.Role == Baseline && a.base == nil {
			a.base = s
		}
	}
	return a
}

func newSide(l *Log, arm Arm) *side {
	s := &side{Arm: arm, log: l, passes: map[Level][]*Pass{}}
	for i := range l.Arms {
		if l.Arms[i].Arm == arm.Name {
			s.info = &l.Arms[i]
		}
	}
	for i := range l.Passes {
		if p := &l.Passes[i]; p.Arm == arm.Name && p.Complete && !p.WarmUp {
			s.passes[p.Level] = append(s.passes[p.Level], p)
		}
	}
	for _, passes := range s.passes {
		slices.SortStableFunc(passes, func(p, q *Pass) int { return cmp.Compare(p.Run, q.Run) })
	}
	return s
}

// all are the passes that count, of the levels that the report has.
func (s *side) all(levels []Level) []*Pass {
	var passes []*Pass
	for _, l := range levels {
		passes = append(passes, s.passes[l]...)
	}
	return passes
}

func (s *side) thinks() bool { return s.info != nil && s.info.Info.Thinks }

// speculating are the arms that are held against the baseline.
func (a *analysis) speculating() []*side {
	var sides []*side
	for _, s := range a.sides {
		if s.Role == Spec {
			sides = append(sides, s)
		}
	}
	return sides
}

// report goes from what is measured to what it means; each step reads those before it.
func (a *analysis) report() *Report {
	r := &Report{
		Version: ReportVersion, Plan: a.log.Plan, Events: a.log.Events,
		Began: a.log.Began, Ended: ended(a.log), Interrupted: interrupted(a.log),
		Levels: []LevelReport{}, Validity: []ValidityReport{}, Arms: a.infos(),
		Definitions: definitions(),
	}
	if a.accept == nil {
		a.accept = acceptReports(a.log, a.j.Confidence)
	}
	r.Accept = append([]AcceptReport{}, a.accept...)
	if a.j.Promise != nil {
		a.promise = promiseReport(a.j.Promise, a.accept, r.Arms)
		r.Promise = a.promise
	}
	for _, s := range a.sides {
		r.Validity = append(r.Validity, a.validity(s, s.all(a.levels)))
	}
	for _, l := range a.levels {
		r.Levels = append(r.Levels, a.level(l))
	}
	r.Sweep = a.sweep(r.Levels)
	r.Verdict = a.verdict(r)
	r.Gate = a.gate(r)
	if spec := a.speculating(); len(spec) > 0 && a.base != nil {
		r.Differences = differences(spec[0].info, a.base.info)
	}
	r.Diagnosis = append([]Finding{}, diagnose(r, a.log, a.j)...)
	return r
}

// infos are the last that preflight learned of each arm.
func (a *analysis) infos() []ArmInfo {
	infos := []ArmInfo{}
	for _, s := range a.sides {
		if s.info != nil {
			infos = append(infos, *s.info)
		}
	}
	return infos
}

func ended(l *Log) time.Time {
	if l.End != nil {
		return l.End.At
	}
	last := l.Began
	for _, p := range l.Passes {
		if at := p.Began.Add(p.Wall); at.After(last) {
			last = at
		}
	}
	return last
}

func interrupted(l *Log) string {
	switch {
	case l.End == nil:
		return "the measurement was killed: its journal has no end"
	case l.End.Reason != "":
		return l.End.Reason
	case l.End.Interrupted:
		return "interrupted by the user"
	}
	return ""
}
