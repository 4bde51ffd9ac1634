package main

import (
	"fmt"
	"math"
	"strings"
	"text/tabwriter"

	"hsx/bench/stats"
)

func table(b *strings.Builder, fill func(*tabwriter.Writer)) {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fill(w)
	_ = w.Flush() // into memory
	for line := range strings.Lines(text.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
}

func row(w *tabwriter.Writer, cells ...string) {
	_, _ = fmt.Fprintln(w, strings.Join(cells, "\t")+"\t") // into memory
}

// interval is "1.31 (1.27–1.35)", or the value alone where there is no interval.
func interval(e stats.Estimate) string {
	if e.N == 0 {
		return "-"
	}
	if !e.Bounded {
		return number(e.Value)
	}
	return fmt.Sprintf("%s (%s–%s)", number(e.Value), number(e.Low), number(e.High))
}

// times is "1.31× (1.27–1.35)".
func times(e stats.Estimate) string {
	value, bounds, bounded := strings.Cut(interval(e), " ")
	if bounded {
		return value + "× " + bounds
	}
	return value + "×"
}

// number has three digits: 0.79, 71.3, 1250.
func number(x float64) string {
	switch a := math.Abs(x); {
	case a == 0:
		return "0"
	case a >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func numbers(xs []float64) string {
	out := make([]string, len(xs))
	for i, x := range xs {
		out[i] = number(x)
	}
	return strings.Join(out, " ")
}

func percentText(x float64) string { return number(100*x) + " %" }

func percents(xs []float64) string {
	out := make([]string, len(xs))
	for i, x := range xs {
		out[i] = percentText(x)
	}
	return strings.Join(out, ", ")
}

// secondsText is a time for people: "1.50 s", "12.3 ms", "340 µs".
func secondsText(s float64) string {
	switch {
	case s >= 0.9995:
		return number(s) + " s"
	case s >= 0.0009995:
		return number(1e3*s) + " ms"
	}
	return number(1e6*s) + " µs"
}

// quantiles are the median, p90 and p99, as far as there are requests enough.
func quantiles(s stats.Summary, unit func(float64) string) string {
	if s.N == 0 {
		return "-"
	}
	var out []string
	for _, q := range []*float64{s.P50, s.P90, s.P99} {
		if q != nil {
			out = append(out, unit(*q))
		}
	}
	return strings.Join(out, ", ")
}

func orNone(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func orNothing(x float64) string {
	if x == 0 {
		return ""
	}
	return number(x)
}
