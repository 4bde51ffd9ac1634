// Package report draws an audit as one HTML file that opens offline: the verdict and
// the findings first, then the figures and plots behind them. The file has no script,
// asks the network for nothing, follows the reader's light or dark scheme and can be
// printed. The package reads no dataset and judges nothing.
package report

import (
	_ "embed"
	"html/template"
	"io"
	"math"
	"strconv"

	"hsx/internal/chart"
	"hsx/validate"
)

// Embedded text has to be in a package variable; nothing writes to it.
//
//go:embed report.tmpl
var pageText string

// mostFindings is the number of findings of a rule that are shown, so that the file stays
// small whatever the data holds.
const mostFindings = 10

// page is what the template draws.
type page struct {
	*validate.Audit
	Style    template.CSS
	Worst    string // severity of the findings, "" when there are none
	Verdict  string // in a sentence
	Findings []ruleFindings
	Charts   map[string]chart.Figure
	Outliers int // channels, of all states
}

// ruleFindings is what one rule found.
type ruleFindings struct {
	validate.Group
	Proves string // the rule in one sentence
	Do     string // what all of the findings ask for
	PerRow bool   // or each asks for something of its own
	More   int    // findings that are counted and not shown
}

// Write writes the report of an audit. Its error is that of w, or of a plot.
func Write(w io.Writer, a *validate.Audit) error {
	t, err := chart.Parse(pageText, template.FuncMap{
		"bytes": bytesText, "percent": percent, "width": width, "number": number, "table": newTokenTable,
	})
	if err != nil {
		return err
	}
	p := page{Audit: a, Style: chart.Style(), Charts: map[string]chart.Figure{}}
	proves := map[string]string{}
	for _, r := range validate.Rules() {
		proves[r.Name] = r.Doc
	}
	if a.Report != nil {
		p.Worst, p.Verdict = verdict(a.Report)
		for _, g := range a.Report.Groups {
			p.Findings = append(p.Findings, newRuleFindings(g, proves[g.Rule]))
		}
	}
	if a.Stats != nil {
		for _, st := range a.Stats.States {
			p.Outliers += len(st.Channels.Outliers)
		}
		for _, c := range charts(a.Stats) {
			if p.Charts[c.ID], err = c.Draw(); err != nil {
				return err
			}
		}
	}
	return t.Execute(w, p)
}

// verdict is the worst severity found, and what that means for the dataset.
func verdict(r *validate.Report) (worst, sentence string) {
	found := map[validate.Severity]int{}
	top := validate.Info
	for _, g := range r.Groups {
		found[g.Severity]++
		top = max(top, g.Severity)
	}
	if len(r.Groups) > 0 {
		worst = top.String()
	}
	switch r.Verdict {
	case validate.Unfit:
		return worst, "Unfit for training: errors from " + rules(found[validate.Error]) + ", warnings from " + rules(found[validate.Warning]) + "."
	case validate.Doubtful:
		return worst, "Doubtful: warnings from " + rules(found[validate.Warning]) + ", no errors."
	case validate.Sound:
		return worst, "Sound: no rule that ran has found an error or a warning."
	}
	return worst, string(r.Verdict)
}

func rules(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return chart.Count(n) + " rules"
}

func newRuleFindings(g validate.Group, proves string) ruleFindings {
	g.Findings = g.Findings[:min(len(g.Findings), mostFindings)]
	r := ruleFindings{Group: g, Proves: proves, More: g.Count - len(g.Findings)}
	for i, f := range g.Findings {
		if i == 0 {
			r.Do = f.Do
		}
		r.PerRow = r.PerRow || f.Do != r.Do
	}
	if r.PerRow {
		r.Do = ""
	}
	return r
}

func bytesText(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if v < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	return number(v) + " " + unit
}

// number writes a float with 3 figures, in full as long as that is short.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100 && a < 1e6:
		return chart.Count(int(math.Round(v)))
	case a == 0 || a >= 0.001 && a < 100:
		return strconv.FormatFloat(v, 'f', max(0, 2-exponent(a)), 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// exponent is that of the leading decimal digit.
func exponent(v float64) int {
	if v == 0 {
		return 2
	}
	return int(math.Floor(math.Log10(v)))
}

// shareOf is the value of a share that can be a number or null.
func shareOf(share any) (v float64, ok bool) {
	switch s := share.(type) {
	case *float64:
		if s == nil {
			return 0, false
		}
		return *s, true
	case float64:
		return s, true
	}
	return 0, false
}

// percent writes a share, "–" when there is none.
func percent(share any) string {
	v, ok := shareOf(share)
	if !ok {
		return "–"
	}
	switch {
	case v > 0 && v < 0.0005:
		return "< 0.1 %"
	case v < 1 && v > 0.9995:
		return "> 99.9 %"
	}
	return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
}

// width is a share in percent for a bar.
func width(share any) float64 {
	v, _ := shareOf(share)
	return 100 * min(max(v, 0), 1)
}

// tokenTable is a table of token ids.
type tokenTable struct {
	Caption string
	Rows    []validate.TokenCount
}

func newTokenTable(caption string, rows []validate.TokenCount) tokenTable {
	return tokenTable{caption, rows}
}
