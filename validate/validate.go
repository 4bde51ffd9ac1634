// Package validate says whether a dataset fits the draft model that is to be trained
// on it, and what a careful person would want to know of it first.
//
// A rule proves one thing, by what it needs: a draft's config, its checkpoint, the
// data, a few weights of the target, or a reference. What it finds is a Finding,
// which is data; an error means that something could not be read. The package reads
// samples through shard and opens no file: configs, tensors and weights are given to
// it.
package validate

import (
	"fmt"
	"slices"
)

// Severity says what a finding means for training.
type Severity uint8

// The severities. A dataset with an Error should not be trained on. A Warning is a
// fact that may be meant, or an opinion of statistics. Info is worth knowing.
const (
	Info Severity = iota
	Warning
	Error
)

// String is "info", "warning" or "error".
func (s Severity) String() string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	}
	return "info"
}

// ParseSeverity reads what String writes.
func ParseSeverity(s string) (Severity, error) {
	for _, v := range []Severity{Info, Warning, Error} {
		if v.String() == s {
			return v, nil
		}
	}
	return 0, fmt.Errorf("severity %q is not known, want info, warning or error", s)
}

// MarshalText writes what String writes.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what [ParseSeverity] reads.
func (s *Severity) UnmarshalText(b []byte) error {
	v, err := ParseSeverity(string(b))
	if err == nil {
		*s = v
	}
	return err
}

// Rule is one thing that can be checked. Its name is stable.
type Rule struct {
	Name     string   `json:"name"`
	Doc      string   `json:"proves"`   // in one sentence
	Cost     string   `json:"cost"`     // what it reads
	Needs    string   `json:"needs"`    // what must be given: config, draft, data, target, reference
	Severity Severity `json:"severity"` // the worst that it reports
}

// Finding is what a rule found in one place.
type Finding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Sample   string   `json:"sample,omitempty"` // its id; "" when no single sample is meant
	Column   string   `json:"column,omitempty"` // of a state: layer_2, final
	Token    int      `json:"token"`            // a position in the sample, -1 when none is meant
	Message  string   `json:"message"`          // what was seen and what was wanted, in one clause
	Do       string   `json:"do,omitempty"`     // what to do about it, in one clause
}

// Rules are all rules, in the order in which they are reported.
func Rules() []Rule {
	return slices.Concat(configRules(), draftRules(), dataRules(), crossRules(), targetRules(), referenceRules())
}

// Collector gathers findings: the first few of each rule, and the count of all. The
// zero value keeps nothing; see NewCollector. It is for one goroutine.
type Collector struct {
	keep    int
	enabled map[string]bool // nil: all
	groups  map[string]*Group
}

// Group is what one rule found.
type Group struct {
	Rule     string    `json:"rule"`
	Severity Severity  `json:"severity"` // of the worst finding
	Count    int       `json:"count"`
	Findings []Finding `json:"findings"` // the first few
}

// NewCollector keeps up to keep findings of each enabled rule; nil enables all.
func NewCollector(keep int, enabled map[string]bool) *Collector {
	return &Collector{keep: keep, enabled: enabled, groups: map[string]*Group{}}
}

// Enabled reports whether findings of a rule are wanted, so that work for nothing can
// be left out.
func (c *Collector) Enabled(rule string) bool { return c.enabled == nil || c.enabled[rule] }

// Add takes a finding.
func (c *Collector) Add(f Finding) {
	if !c.Enabled(f.Rule) {
		return
	}
	g := c.groups[f.Rule]
	if g == nil {
		g = &Group{Rule: f.Rule, Findings: []Finding{}}
		c.groups[f.Rule] = g
	}
	g.Count++
	g.Severity = max(g.Severity, f.Severity)
	if len(g.Findings) < c.keep {
		g.Findings = append(g.Findings, f)
	}
}

// Merge takes over what a later collector has.
func (c *Collector) Merge(later *Collector) {
	for name, o := range later.groups {
		g := c.groups[name]
		if g == nil {
			g = &Group{Rule: name, Findings: []Finding{}}
			c.groups[name] = g
		}
		g.Count += o.Count
		g.Severity = max(g.Severity, o.Severity)
		g.Findings = append(g.Findings, o.Findings[:min(len(o.Findings), max(0, c.keep-len(g.Findings)))]...)
	}
}

// Groups are the findings by rule, most severe first, then in the order of [Rules].
func (c *Collector) Groups() []Group {
	out := []Group{}
	for _, r := range Rules() {
		if g := c.groups[r.Name]; g != nil {
			out = append(out, *g)
		}
	}
	slices.SortStableFunc(out, func(a, b Group) int { return int(b.Severity) - int(a.Severity) })
	return out
}

// Worst is the worst severity found; ok is false when nothing was.
func (c *Collector) Worst() (worst Severity, ok bool) {
	for _, g := range c.groups {
		worst, ok = max(worst, g.Severity), true
	}
	return worst, ok
}
