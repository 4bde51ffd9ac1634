package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"hsx/bench"
	"hsx/bench/server"
	"hsx/bench/stats"
)

// benchText is a report for people: the verdict, what the draft reached against what
// was promised, what to mend, the figures, and how far they can be trusted.
func benchText(r *bench.Report) string {
	var b strings.Builder
	wrap(&b, 0, 0, r.Verdict.Sentence)
	for _, s := range r.Verdict.Warnings {
		fact(&b, "warning", "%s", s)
	}
	if g := r.Gate; g != nil {
		said := func(reason string) bool { return strings.Contains(r.Verdict.Sentence, reason) }
		reasons := slices.DeleteFunc(slices.Clone(g.Reasons), said)
		fact(&b, "gate", "%s", strings.Join(append([]string{g.Outcome}, reasons...), "; "))
	}
	acceptText(&b, r)
	comparedText(&b, r)
	if r.Sweep != nil {
		sweepText(&b, r.Sweep)
	}
	if len(r.Diagnosis) > 0 {
		b.WriteString("\ndiagnosis\n")
		for _, f := range r.Diagnosis {
			paragraph(&b, 2, "%s: %s", f.Rule, f.Message)
			if f.Do != "" {
				paragraph(&b, 4, "→ %s", f.Do)
			}
		}
	}
	for _, l := range r.Levels {
		levelText(&b, l)
	}
	for _, v := range r.Validity {
		validityText(&b, v)
	}
	differencesText(&b, r.Differences)
	provenanceText(&b, r)
	return b.String()
}

func acceptText(b *strings.Builder, r *bench.Report) {
	for _, a := range r.Accept {
		where := a.Arm
		if a.Level != "" {
			where += ", " + a.Level
		}
		fmt.Fprintf(b, "\naccept length (%s)\n", where)
		if a.Pooled.N == 0 { // the notes say why
			for _, n := range a.Notes {
				fact(b, "none", "%s", n)
			}
			continue
		}
		fact(b, "pooled", "%s: 1 + %.0f accepted drafts / %.0f verify steps, bonus token included", interval(a.Pooled), a.Accepted, a.Steps)
		if a.Macro.N > 0 {
			fact(b, "by prompt", "%s", interval(a.Macro))
		}
		fact(b, "source", "%s (%s)", a.Source, trustText(a.Trust))
		for _, o := range a.Others {
			fact(b, "also", "%.2f by %s (%s)", o.Value, o.Source, trustText(o.Trust))
		}
		if a.Rate > 0 {
			fact(b, "rate", "%s of %.0f drafted tokens accepted, %.2f drafted in a step", percentText(a.Rate), a.Drafted, a.PerStep)
		}
		if len(a.Joint) > 0 {
			fact(b, "joint", "%s: a draft token and all before it accepted, by position", percents(a.Joint))
			fact(b, "given", "%s: accepted when all before it were", percents(a.Conditional))
		}
		for _, l := range a.ByLength {
			to := fmt.Sprintf("to %d tokens", l.To)
			if l.To == 0 {
				to = "tokens and more"
			}
			fact(b, "length", "%d %s: %.2f over %s", l.From, to, l.Accept, count(int64(l.N), "request"))
		}
		for _, n := range a.Notes {
			fact(b, "note", "%s", n)
		}
	}
	if p := r.Promise; p != nil {
		b.WriteString("\npromise\n")
		fact(b, "given", "%.2f by %s; %s", p.Given, p.Source, p.Why)
		fact(b, "served", "at %s: %.2f, measured %s: %s", count(int64(p.Steps), "step"), p.Promised, interval(p.Measured), p.Outcome)
		if p.Alternative > 0 {
			fact(b, "", "%.2f if the number was meant the other way", p.Alternative)
		}
		for _, g := range p.Positions {
			fact(b, fmt.Sprintf("position %d", g.Position), "promised %s, measured %s", percentText(g.Promised), percentText(g.Measured))
		}
		if p.Meaning != "" {
			fact(b, "meaning", "%s", p.Meaning)
		}
	}
}

func comparedText(b *strings.Builder, r *bench.Report) {
	for _, l := range r.Levels {
		for _, c := range l.Compared {
			fmt.Fprintf(b, "\n%s against %s, %s: %s\n", c.Arm, c.Baseline, l.Level, c.Outcome)
			if c.Speedup.N > 0 {
				fact(b, "speedup", "%s on these prompts (%s)", times(c.Speedup), c.Speedup.Method)
			}
			if c.ByPrompt.N > 0 {
				fact(b, "", "%s on prompts like these (%s)", times(c.ByPrompt), c.ByPrompt.Method)
				fact(b, "slower", "on %d of %d prompts", c.Slower, c.Prompts)
			}
			if c.BreakEven > 0 {
				fact(b, "break-even", "accept length %.2f: that many plain steps are what a verify step costs; reached %.2f", c.BreakEven, c.AcceptLength)
			}
			if c.AtPromise > 0 {
				fact(b, "", "%.2f× at the promised accept length, at the same cost", c.AtPromise)
			}
			if c.Detectable > 0 {
				text := fmt.Sprintf("a difference of %s", percentText(c.Detectable))
				if c.RunsToSettle > 0 {
					text += fmt.Sprintf("; about %d runs would settle this one", c.RunsToSettle)
				}
				fact(b, "detectable", "%s", text)
			}
			if c.EqualText != nil {
				fact(b, "same text", "in %s of the answers of both arms", percentText(*c.EqualText))
			}
			for _, n := range c.Notes {
				if !strings.HasPrefix(n, "void: ") || c.Outcome != r.Verdict.Outcome { // the verdict has said it
					fact(b, "note", "%s", n)
				}
			}
		}
	}
}

func sweepText(b *strings.Builder, s *bench.SweepReport) {
	b.WriteString("\nsweep\n")
	paragraph(b, 2, "%s", s.Sentence)
	table(b, func(w *tabwriter.Writer) {
		row(w, "  steps", "tok/s", "speedup", "accept length", "")
		for _, p := range s.Points {
			speedup, what := "", ""
			if p.Speedup != nil && p.Speedup.N > 0 {
				speedup = times(*p.Speedup)
			}
			if p.Predicted {
				what = "predicted"
			} else if p.Steps == s.Best {
				what = "best"
			}
			row(w, fmt.Sprintf("  %d", p.Steps), interval(p.Throughput), speedup, orNothing(p.Accept), what)
		}
	})
}

// levelText is the figures of one load, in blocks of two arms.
func levelText(b *strings.Builder, l bench.LevelReport) {
	for arms := range slices.Chunk(l.Arms, 2) {
		fmt.Fprintf(b, "\n%s\n", l.Level)
		table(b, func(w *tabwriter.Writer) { armCells(w, arms) })
		for _, a := range arms {
			fact(b, "by run", "%s: %s tok/s", a.Arm, numbers(a.ByRun))
		}
		for _, a := range arms {
			for _, n := range []string{a.Warm, a.Burst} {
				if n != "" {
					fact(b, "note", "%s: %s", a.Arm, n)
				}
			}
		}
	}
}

// armCells is a block of figures, an arm in each column.
func armCells(w *tabwriter.Writer, arms []bench.ArmReport) {
	cells := func(name string, of func(bench.ArmReport) string) {
		line := []string{"  " + name}
		for _, a := range arms {
			line = append(line, of(a))
		}
		row(w, line...)
	}
	cells("", func(a bench.ArmReport) string { return a.Arm })
	cells("runs, requests", func(a bench.ArmReport) string { return fmt.Sprintf("%d, %d", a.Runs, a.Requests) })
	cells("tok/s, all requests", func(a bench.ArmReport) string { return interval(a.Throughput) })
	cells("", func(bench.ArmReport) string { return "p50, p90, p99" })
	for _, m := range []struct {
		name string
		of   func(bench.ArmReport) stats.Summary
		unit func(float64) string
	}{
		{"tok/s, a request", func(a bench.ArmReport) stats.Summary { return a.Request }, number},
		{"tok/s, decoding", func(a bench.ArmReport) stats.Summary { return a.Decode }, number},
		{"TTFT", func(a bench.ArmReport) stats.Summary { return a.TTFT }, secondsText},
		{"first answer token", func(a bench.ArmReport) stats.Summary { return a.TTFOT }, secondsText},
		{"ITL", func(a bench.ArmReport) stats.Summary { return a.ITL }, secondsText},
		{"between chunks", func(a bench.ArmReport) stats.Summary { return a.ICL }, secondsText},
		{"end to end", func(a bench.ArmReport) stats.Summary { return a.E2E }, secondsText},
		{"due to sent", func(a bench.ArmReport) stats.Summary { return a.Delay }, secondsText},
	} {
		cells(m.name, func(a bench.ArmReport) string { return quantiles(m.of(a), m.unit) })
	}
}

func validityText(b *strings.Builder, v bench.ValidityReport) {
	fmt.Fprintf(b, "\nvalidity (%s)\n", v.Arm)
	text := fmt.Sprintf("%s of %s at %d tokens", percentText(v.Truncated), count(int64(v.Requests), "answer"), v.MaxTokens)
	if v.Needed > 0 {
		text += fmt.Sprintf("; use --max-tokens %d", v.Needed)
	}
	fact(b, "cut short", "%s", text)
	failed := fmt.Sprint(v.Failed)
	for _, kind := range slices.Sorted(maps.Keys(v.Faults)) {
		failed += fmt.Sprintf(", %s %d", kind, v.Faults[kind])
	}
	fact(b, "failed", "%s; %d tried again, outside every latency", failed, v.Retries)
	for _, e := range v.Errors {
		fact(b, "", "%s", printable(e))
	}
	if v.NoUsage > 0 {
		fact(b, "no usage", "in %s: their tokens are not counted", count(int64(v.NoUsage), "answer"))
	}
	if v.Foreign != nil {
		fact(b, "others", "%s of the server's tokens were not ours", percentText(*v.Foreign))
	}
	if v.Restarted {
		fact(b, "restarted", "the server's counters went back")
	}
	fact(b, "loops", "%s of the answers repeat themselves", percentText(v.Loops))
	if v.Synthetic != "" {
		fact(b, "synthetic", "%s", v.Synthetic)
	}
	if v.OutputRatio > 0 {
		fact(b, "length", "%.2f times the baseline's tokens for the same prompts", v.OutputRatio)
	}
	for _, d := range v.Doubts {
		fact(b, "doubt", "%s", printable(d))
	}
}

func differencesText(b *strings.Builder, diffs []bench.Difference) {
	if len(diffs) == 0 {
		return
	}
	b.WriteString("\narguments that differ between the arms\n")
	for _, d := range diffs {
		text := fmt.Sprintf("%s: %s, baseline %s", d.Argument, orNone(d.Spec), orNone(d.Baseline))
		if d.Matters != "" {
			text += ": " + d.Matters
		}
		paragraph(b, 2, "%s", printable(text))
	}
}

func provenanceText(b *strings.Builder, r *bench.Report) {
	b.WriteString("\nmeasured\n")
	for _, a := range r.Arms {
		armText(b, a)
	}
	p := r.Plan
	fact(b, "prompts", "%d, %s, digest %s", p.NumPrompts, p.PromptSet, p.Digest)
	fact(b, "runs", "%d, after %d for warm-up", p.Runs, p.WarmUpRuns)
	if p.Command != "" {
		fact(b, "command", "%s", printable(p.Command))
	}
	fact(b, "when", "%s to %s by %s", r.Began.UTC().Format(time.DateTime), r.Ended.UTC().Format(time.DateTime+" MST"), orNone(p.Version))
	if r.Interrupted != "" {
		fact(b, "stopped", "%s", r.Interrupted)
	}
	for _, e := range r.Events {
		fact(b, "event", "%s", printable(e))
	}
}

// armText is what preflight learned of a server.
func armText(b *strings.Builder, a bench.ArmInfo) {
	i := a.Info
	engine := string(i.Engine)
	if i.Version != "" {
		engine += " " + i.Version
	}
	fact(b, a.Arm, "%s: %s on %s (%s)", i.URL, orNone(i.Model), engine, i.Why)
	fact(b, "", "%s", speculationText(i.Speculation))
	if i.Load.Known && i.Load.Running+i.Load.Waiting > 0 {
		fact(b, "", "busy: %.0f running, %.0f waiting", i.Load.Running, i.Load.Waiting)
	}
	if len(i.Sources) > 0 {
		s := i.Sources[0]
		fact(b, "", "accept length from %s (%s): %s", s.Name, trustText(s.Trust), s.Why)
	}
	if i.Thinks {
		fact(b, "", "the model thinks before it answers: by %s", i.ThinksBy)
	}
	if i.Insecure {
		fact(b, "", "the server's certificate was not verified (--insecure)")
	}
	for _, n := range i.Notes {
		fact(b, "", "%s", printable(n))
	}
}

func speculationText(s server.Speculation) string {
	switch {
	case s.Synthetic != "":
		return "acceptance is faked by " + s.Synthetic
	case !s.Known:
		return "speculation: the server does not say"
	case !s.On:
		return "no speculation (" + s.Evidence + ")"
	}
	parts := []string{"speculation: " + orNone(s.Method)}
	if s.Steps > 0 {
		parts = append(parts, count(int64(s.Steps), "step"))
	}
	if s.AskedSteps > 0 && s.AskedSteps != s.Steps {
		parts = append(parts, fmt.Sprintf("%d asked for by %s", s.AskedSteps, s.AskedBy))
	}
	if s.TopK > 0 {
		parts = append(parts, fmt.Sprintf("top-k %d", s.TopK))
	}
	if s.DraftTokens > 0 {
		parts = append(parts, count(int64(s.DraftTokens), "draft token"))
	}
	if s.Draft != "" {
		parts = append(parts, "draft "+s.Draft)
	}
	return strings.Join(parts, ", ") + " (" + s.Evidence + ")"
}

func trustText(t server.Trust) string {
	return map[server.Trust]string{
		server.Exact: "exact", server.Idle: "exact if nobody else used the server",
		server.Approx: "approximate", server.Proxy: "a proxy", server.Low: "low trust",
	}[t]
}
