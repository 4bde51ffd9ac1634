package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"hsx/bench"
	"hsx/bench/stats"
)

// CSV writes the figures of a report in long form, one to a row, below the header
//
//	level,arm,metric,statistic,value,unit
//
// level is the load, such as "concurrency 8", and empty for what is over all loads; arm is
// empty for what is over all arms. metric is the name in the JSON document, whose
// definitions say what it means, but for: accept_length, its pooled value, and
// accept_length_macro; promised_ and predicted_, for what was not measured; and outcome,
// which holds a verdict as statistic, with the value 1. Other statistics are value, low
// and high (an interval), n, mean, median, sd, cv, min, max, p90, p99, total, "run 2" and
// "position 1". Values are plain numbers; those that there are not have no row. A name
// that a spreadsheet would take for a formula has a quote before it. The error is that of
// w.
func CSV(w io.Writer, r *bench.Report) error {
	t := &table{w: csv.NewWriter(w)}
	t.write("level", "arm", "metric", "statistic", "value", "unit")
	t.outcome(string(r.Verdict.Outcome))
	for i := range r.Levels {
		l := &r.Levels[i]
		t.level = l.Level.String()
		for a := range l.Arms {
			t.armReport(&l.Arms[a])
		}
		for c := range l.Compared {
			t.comparison(&l.Compared[c])
		}
	}
	t.sweep(r)
	for i := range r.Accept {
		t.acceptLength(&r.Accept[i], promiseOf(r, i))
	}
	t.level = ""
	for i := range r.Validity {
		t.validity(&r.Validity[i])
	}
	t.w.Flush()
	return t.w.Error()
}

// table writes rows of one load and arm. Its errors wait in the writer.
type table struct {
	w          *csv.Writer
	level, arm string
}

func (t *table) write(cells ...string) { _ = t.w.Write(cells) } // Error has it

func (t *table) add(metric, statistic string, v float64, unit string) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	form := byte('f')
	if a := math.Abs(v); a >= 1e15 || a < 1e-6 {
		form = 'g'
	}
	t.write(t.level, formulaless(t.arm), metric, formulaless(statistic), strconv.FormatFloat(v, form, -1, 64), unit)
}

// known adds a figure whose 0 means that there is none.
func (t *table) known(metric, statistic string, v float64, unit string) {
	if v != 0 {
		t.add(metric, statistic, v, unit)
	}
}

// share adds one that may not be known.
func (t *table) share(metric string, v *float64) {
	if v != nil {
		t.add(metric, "value", *v, "share")
	}
}

func (t *table) outcome(o string) {
	if o != "" {
		t.add("outcome", o, 1, "")
	}
}

func (t *table) estimate(metric string, e stats.Estimate, unit string) {
	if e.N == 0 {
		return
	}
	t.add(metric, "value", e.Value, unit)
	if e.Bounded {
		t.add(metric, "low", e.Low, unit)
		t.add(metric, "high", e.High, unit)
	}
	t.add(metric, "n", float64(e.N), "")
}

func (t *table) summary(metric string, s stats.Summary, unit string) {
	if s.N == 0 {
		return
	}
	t.add(metric, "n", float64(s.N), "")
	t.add(metric, "mean", s.Mean, unit)
	t.add(metric, "median", s.Median, unit)
	t.add(metric, "sd", s.SD, unit)
	t.add(metric, "cv", s.CV, "share")
	t.add(metric, "min", s.Min, unit)
	t.add(metric, "max", s.Max, unit)
	if s.P90 != nil {
		t.add(metric, "p90", *s.P90, unit)
	}
	if s.P99 != nil {
		t.add(metric, "p99", *s.P99, unit)
	}
}

func (t *table) armReport(a *bench.ArmReport) {
	t.arm = a.Arm
	t.add("runs", "total", float64(a.Runs), "runs")
	t.add("requests", "total", float64(a.Requests), "requests")
	t.add("failed", "total", float64(a.Failed), "requests")
	t.add("completion_tokens", "total", float64(a.Tokens), "tokens")
	t.estimate("tokens_per_second", a.Throughput, "tok/s")
	for run, v := range a.ByRun {
		t.add("tokens_per_second", fmt.Sprintf("run %d", run+1), v, "tok/s")
	}
	if len(a.ByRun) > 1 {
		t.add("tokens_per_second", "cv", a.CV, "share")
	}
	for _, m := range metrics() {
		t.summary(m.Name, m.Of(a), m.Unit)
	}
}

func (t *table) comparison(c *bench.Comparison) {
	t.arm = c.Arm
	t.outcome(string(c.Outcome))
	t.estimate("speedup", c.Speedup, "ratio")
	t.estimate("speedup_by_prompt", c.ByPrompt, "ratio")
	if c.Prompts > 0 {
		t.add("prompts", "total", float64(c.Prompts), "prompts")
		t.add("prompts_slower", "total", float64(c.Slower), "prompts")
		t.add("wilcoxon_p", "value", c.Wilcoxon, "p")
	}
	t.known("detectable", "value", c.Detectable, "share")
	t.known("runs_to_settle", "value", float64(c.RunsToSettle), "runs")
	t.known("break_even_accept_length", "value", c.BreakEven, "tokens")
	t.known("speedup_at_promise", "value", c.AtPromise, "ratio")
	t.share("equal_text", c.EqualText)
}

// sweep adds the points that were predicted: the others are arms.
func (t *table) sweep(r *bench.Report) {
	if r.Sweep == nil || len(r.Levels) == 0 {
		return
	}
	t.level = r.Levels[0].Level.String()
	for _, p := range r.Sweep.Points {
		if p.Predicted {
			t.arm = fmt.Sprintf("steps=%d", p.Steps)
			t.estimate("predicted_tokens_per_second", p.Throughput, "tok/s")
			t.known("predicted_accept_length", "value", p.Accept, "tokens")
		}
	}
}

func (t *table) acceptLength(a *bench.AcceptReport, p *bench.PromiseReport) {
	t.level, t.arm = a.Level, a.Arm
	t.estimate("accept_length", a.Pooled, "tokens")
	t.estimate("accept_length_macro", a.Macro, "tokens")
	if a.Drafted > 0 {
		t.add("acceptance_rate", "value", a.Rate, "share")
	}
	t.known("verify_steps", "total", a.Steps, "steps")
	t.known("draft_tokens", "total", a.Drafted, "tokens")
	if a.Steps > 0 {
		t.add("accepted_drafts", "total", a.Accepted, "tokens")
	}
	t.known("drafted_per_step", "value", a.PerStep, "tokens")
	if p != nil {
		t.known("promised_accept_length", "value", p.Promised, "tokens")
	}
	for _, row := range positions(a, p) {
		at := fmt.Sprintf("position %d", row.Position)
		for _, v := range []struct {
			metric string
			value  *float64
		}{
			{"joint", row.Joint}, {"promised_joint", row.PromisedJoint},
			{"conditional", row.Conditional}, {"promised_conditional", row.PromisedCondition},
		} {
			if v.value != nil {
				t.add(v.metric, at, *v.value, "share")
			}
		}
	}
}

func (t *table) validity(v *bench.ValidityReport) {
	t.arm = v.Arm
	t.add("truncated", "value", v.Truncated, "share")
	t.add("max_tokens", "value", float64(v.MaxTokens), "tokens")
	t.known("max_tokens_to_use", "value", float64(v.Needed), "tokens")
	t.add("failed", "total", float64(v.Failed), "requests")
	for _, kind := range slices.Sorted(maps.Keys(v.Faults)) {
		t.add("failed", kind, float64(v.Faults[kind]), "requests")
	}
	t.add("retries", "total", float64(v.Retries), "")
	t.add("without_usage", "total", float64(v.NoUsage), "requests")
	t.share("foreign_tokens", v.Foreign)
	t.add("repetition", "value", v.Loops, "share")
	t.known("output_ratio", "value", v.OutputRatio, "ratio")
}

// formulaless is a name that no spreadsheet calculates.
func formulaless(name string) string {
	if name != "" && strings.ContainsRune("=+-@\t\r", rune(name[0])) {
		return "'" + name
	}
	return name
}
