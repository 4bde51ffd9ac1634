// Package report writes what a benchmark found: as one HTML file that opens offline, as
// Markdown for an issue, and as CSV. Each begins with the verdict, and a void one says so
// in words. The package measures nothing and judges nothing.
package report

import (
	_ "embed"
	"html/template"
	"io"

	"hsx/bench"
	"hsx/bench/stats"
	"hsx/internal/chart"
)

// Embedded text has to be in package variables; nothing writes to them.
var (
	//go:embed report.tmpl
	pageText string
	//go:embed report.css
	styleText string
)

// page is what the template draws.
type page struct {
	*bench.Report
	Style     template.CSS
	Title     string
	Class     string   // of the verdict
	Notes     []string // on the servers
	Compared  bool
	BreakEven bool
	Positions []armPositions
	Rows      [][]row // of each load
	Metrics   []metric
	Facts     []fact
	Charts    map[string]chart.Figure
}

// armPositions are the draft positions of one arm.
type armPositions struct {
	Arm      string
	Rows     []position
	Promised bool
}

// row is one metric of one arm.
type row struct {
	Metric metric
	Arm    string
	stats.Summary
}

// HTML writes a report as one file: no script, nothing from the network, light and dark,
// printable. Whatever servers and users wrote is text in it. Its error is that of w, or
// of a plot.
func HTML(w io.Writer, r *bench.Report) error {
	t, err := chart.Parse(pageText, template.FuncMap{
		"number": number, "total": total, "positive": positive, "interval": interval, "times": times, "percent": percent,
		"chance": chance, "seconds": seconds, "when": when, "plural": plural, "trust": trust, "length": length,
		"orAll": orAll, "orNone": orNone, "yes": yes, "cut": cut, "valid": valid, "server": serverFacts, "acceptNotes": acceptNotes, "problems": problems, "unsaid": unsaid,
	})
	if err != nil {
		return err
	}
	p := page{
		Report: r, Style: chart.Style() + template.CSS(styleText), Title: title(r), Class: class(r.Verdict.Outcome),
		Notes: notes(r), Metrics: metrics(), Facts: planFacts(r), Charts: map[string]chart.Figure{},
	}
	for _, l := range r.Levels {
		for _, c := range l.Compared {
			p.Compared = true
			p.BreakEven = p.BreakEven || c.BreakEven != 0
		}
		var rows []row
		for _, m := range p.Metrics {
			for a := range l.Arms {
				if s := m.Of(&l.Arms[a]); s.N > 0 {
					rows = append(rows, row{m, l.Arms[a].Arm, s})
				}
			}
		}
		p.Rows = append(p.Rows, rows)
	}
	for i := range r.Accept {
		a, promise := &r.Accept[i], promiseOf(r, i)
		if rows := positions(a, promise); a.Level == "" && len(rows) > 0 {
			p.Positions = append(p.Positions, armPositions{a.Arm, rows, promise != nil && len(promise.Positions) > 0})
		}
	}
	for _, c := range charts(r) {
		if p.Charts[c.ID], err = c.Draw(); err != nil {
			return err
		}
	}
	return t.Execute(w, p)
}

// class is the verdict's in the style sheet.
func class(o bench.Outcome) string {
	switch o {
	case bench.Pays, bench.Faster:
		return ""
	case bench.DoesNotPay, bench.Slower:
		return "error"
	case bench.Inconclusive:
		return "warning"
	case bench.Void:
		return "void"
	}
	return "info"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
