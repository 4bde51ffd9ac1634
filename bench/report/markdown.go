package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"

	"hsx/bench"
	"hsx/bench/stats"
	"hsx/internal/chart"
)

// Markdown writes a report in GitHub's form, for pasting into an issue: the verdict, the
// arms under each load, accept lengths, break-even, diagnosis, validity, the plan, and
// how to measure it again. What servers and users wrote is text in it: it makes no markup
// and mentions nobody. The error is that of w.
func Markdown(w io.Writer, r *bench.Report) error {
	d := &document{}
	d.verdict(r)
	d.loads(r)
	d.accept(r)
	d.promise(r.Promise)
	d.breakEven(r)
	d.sweep(r.Sweep)
	d.diagnosis(r.Diagnosis)
	d.validity(r.Validity)
	d.plan(r)
	_, err := io.WriteString(w, d.String())
	return err
}

// document is Markdown under construction.
type document struct{ strings.Builder }

// line writes a line of our own; what is not goes through [plain] before.
func (d *document) line(format string, args ...any) {
	fmt.Fprintf(&d.Builder, format+"\n", args...)
}

func (d *document) items(texts []string) {
	for _, t := range texts {
		d.line("- %s", plain(t))
	}
	if len(texts) > 0 {
		d.line("")
	}
}

// table writes rows of cells that are escaped here; the first columns are text and the
// others, from figures on, numbers. Without rows there is no table.
func (d *document) table(head []string, figures int, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	rule := make([]string, len(head))
	for i := range head {
		rule[i] = "---"
		if i >= figures {
			rule[i] = "--:"
		}
	}
	d.line("| %s |\n| %s |", strings.Join(head, " | "), strings.Join(rule, " | "))
	for _, cells := range rows {
		for i := range cells {
			cells[i] = plain(cells[i])
		}
		d.line("| %s |", strings.Join(cells, " | "))
	}
	d.line("")
}

func (d *document) verdict(r *bench.Report) {
	d.line("## %s\n", plain(title(r)))
	void := ""
	if r.Verdict.Outcome == bench.Void {
		void = "Void. "
	}
	d.line("**%s%s**\n", void, plain(orNone(r.Verdict.Sentence)))
	d.items(unsaid(r.Verdict))
	if g := r.Gate; g != nil {
		d.line("Gate: %s. %s\n", plain(g.Outcome), plain(strings.Join(g.Reasons, "; ")))
	}
	if len(r.Verdict.Warnings) > 0 {
		d.line("To be read with it:\n")
		d.items(r.Verdict.Warnings)
	}
	if r.Interrupted != "" {
		d.line("Not everything was measured: %s.\n", plain(r.Interrupted))
	}
	d.items(notes(r))
}

// loads is the table of arms by load.
func (d *document) loads(r *bench.Report) {
	var rows [][]string
	for i := range r.Levels {
		l := &r.Levels[i]
		for j := range l.Arms {
			a := &l.Arms[j]
			speedup, outcome := none, none
			for _, c := range l.Compared {
				if c.Arm == a.Arm {
					speedup, outcome = times(c.Speedup), string(c.Outcome)
				}
			}
			rows = append(rows, []string{
				l.Level.String(), a.Arm, outcome, interval(a.Throughput), speedup, fmt.Sprint(a.Runs),
				quantiles(a.TTFT), quantiles(a.ITL), quantiles(a.E2E), fmt.Sprintf("%d of %d", a.Failed, a.Requests),
			})
		}
	}
	d.table([]string{"load", "arm", "outcome", "tok/s", "speedup", "runs", "TTFT p50, p90, p99", "ITL p50, p90, p99", "E2E p50, p90, p99", "failed"}, 3, rows)
}

// quantiles are p50, p90 and p99 of times, as far as there are requests enough.
func quantiles(s stats.Summary) string {
	var out []string
	for _, q := range []*float64{s.P50, s.P90, s.P99} {
		if q != nil {
			out = append(out, seconds(*q))
		}
	}
	return orNone(strings.Join(out, ", "))
}

func (d *document) accept(r *bench.Report) {
	var rows, places [][]string
	var notes []string
	for i := range r.Accept {
		a := &r.Accept[i]
		rate := none
		if a.Drafted > 0 {
			rate = percent(a.Rate)
		}
		rows = append(rows, []string{a.Arm, orAll(a.Level), a.Source, trust(a.Trust), interval(a.Pooled), interval(a.Macro), rate, positive(a.PerStep)})
		notes = append(notes, acceptNotes(*a)...)
		if a.Level != "" {
			continue
		}
		for _, p := range positions(a, promiseOf(r, i)) {
			places = append(places, []string{a.Arm, fmt.Sprint(p.Position), percent(p.Conditional), percent(p.Joint), percent(p.PromisedCondition), percent(p.PromisedJoint)})
		}
	}
	if len(rows) == 0 {
		return
	}
	d.line("### Accept length\n\nτ = 1 + accepted drafts / verify steps, the bonus token included.\n")
	d.table([]string{"arm", "load", "source", "trust", "accept length", "mean over prompts", "drafts accepted", "drafted in a step"}, 4, rows)
	d.items(notes)
	head := []string{"arm", "position", "accepted if the one before was", "accepted with all before it", "promised, if the one before was", "promised, with all before it"}
	if r.Promise == nil || len(r.Promise.Positions) == 0 {
		head = head[:4]
		for i := range places {
			places[i] = places[i][:4]
		}
	}
	d.table(head, 1, places)
}

func (d *document) promise(p *bench.PromiseReport) {
	if p == nil {
		return
	}
	at, bonus := "", "in"
	if p.Cut {
		at = " at " + plural(p.Steps, "step")
	}
	if p.Estimated {
		at += " (estimated)"
	}
	if !p.Includes {
		bonus = "not in"
	}
	d.line("### Promise: %s\n", plain(p.Outcome))
	d.line("- given %s by %s; the bonus token is %s the number: %s", number(p.Given), plain(p.Source), bonus, plain(p.Why))
	d.line("- promised %s%s, measured %s", positive(p.Promised), at, interval(p.Measured))
	if p.Alternative != 0 {
		d.line("- %s if the number was meant the other way", number(p.Alternative))
	}
	if p.Parts > 0 {
		d.line("- they part at position %d", p.Parts)
	}
	if p.Meaning != "" {
		d.line("- %s", plain(p.Meaning))
	}
	d.line("")
}

func (d *document) breakEven(r *bench.Report) {
	var rows [][]string
	var notes []string
	for _, l := range r.Levels {
		for _, c := range l.Compared {
			for _, n := range c.Notes {
				notes = append(notes, fmt.Sprintf("%s, %s: %s", l.Level, c.Arm, n))
			}
			promised := none
			if c.AtPromise != 0 {
				promised = number(c.AtPromise) + "×"
			}
			slower := none
			if c.Prompts > 0 {
				slower = fmt.Sprintf("%d of %d", c.Slower, c.Prompts)
			}
			rows = append(rows, []string{l.Level.String(), c.Arm, positive(c.AcceptLength), positive(c.BreakEven), promised, times(c.ByPrompt), slower, percent(c.EqualText)})
		}
	}
	if len(rows) == 0 {
		return
	}
	d.line("### Break-even\n\nA verify step costs as many plain steps as the break-even accept length; above it speculation is faster.\n")
	d.table([]string{"load", "arm", "accept length", "break-even", "speedup at the promised one", "speedup on prompts like these", "slower prompts", "same text"}, 2, rows)
	d.items(notes)
}

func (d *document) sweep(s *bench.SweepReport) {
	if s == nil {
		return
	}
	d.line("### Sweep over steps\n\n%s.\n", plain(s.Sentence))
	var rows [][]string
	for _, p := range s.Points {
		speedup, measured := none, "yes"
		if p.Speedup != nil {
			speedup = times(*p.Speedup)
		}
		if p.Predicted {
			measured = "predicted"
		} else if p.Steps == s.Best {
			measured = "yes, best"
		}
		rows = append(rows, []string{fmt.Sprint(p.Steps), measured, orNone(p.Outcome), interval(p.Throughput), speedup, positive(p.Accept)})
	}
	d.table([]string{"steps", "measured", "outcome", "tok/s", "speedup", "accept length"}, 3, rows)
}

func (d *document) diagnosis(found []bench.Finding) {
	if len(found) == 0 {
		return
	}
	d.line("### Diagnosis\n")
	for _, f := range found {
		d.line("- **%s**: %s", plain(f.Rule), plain(f.Message))
		if f.Do != "" {
			d.line("  - what to do: %s", plain(f.Do))
		}
	}
	d.line("")
}

func (d *document) validity(arms []bench.ValidityReport) {
	if len(arms) == 0 {
		return
	}
	var rows [][]string
	var wrong []string
	for _, v := range arms {
		rows = append(rows, []string{
			v.Arm, fmt.Sprint(v.Requests), cut(v), fmt.Sprint(v.Failed), fmt.Sprint(v.Retries), fmt.Sprint(v.NoUsage),
			percent(v.Foreign), percent(v.Loops), positive(v.OutputRatio), yes(v.Thinking),
		})
		wrong = append(wrong, problems(v)...)
	}
	d.line("### Validity\n")
	d.table([]string{"arm", "requests", "cut at the limit", "failed", "retries", "without usage", "others' tokens", "repetition", "tokens / baseline's", "thinks"}, 1, rows)
	d.items(wrong)
}

func (d *document) plan(r *bench.Report) {
	d.line("### What was measured\n")
	d.facts(planFacts(r))
	for _, a := range r.Arms {
		d.line("%s:\n", plain(a.Arm))
		d.facts(serverFacts(a))
	}
	if len(r.Differences) > 0 {
		d.line("Arguments that differ:\n")
		var rows [][]string
		for _, x := range r.Differences {
			rows = append(rows, []string{x.Argument, orNone(x.Spec), orNone(x.Baseline), orNone(x.Matters)})
		}
		d.table([]string{"argument", "speculation", "baseline", "why it may matter"}, 4, rows)
	}
	if len(r.Events) > 0 {
		d.line("Events:\n")
		d.items(r.Events)
	}
	if r.Plan.Command != "" {
		d.line("### To measure it again\n")
		d.code(r.Plan.Command)
	}
}

func (d *document) facts(facts []fact) {
	for _, f := range facts {
		d.line("- %s: %s", plain(f[0]), plain(f[1]))
	}
	d.line("")
}

// code writes a block with a fence that the text cannot close.
func (d *document) code(text string) {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	d.line("%s\n%s\n%s", fence, strings.Map(visible, text), fence)
}

// visible leaves out what is neither seen nor a line's end.
func visible(r rune) rune {
	if r != '\n' && !unicode.IsPrint(r) {
		return -1
	}
	return r
}

// plain escapes a text so that it is read as it is, in one line, and mentions nobody.
func plain(s string) string {
	var b strings.Builder
	for _, r := range strings.Join(strings.Fields(chart.Clip(s)), " ") {
		switch {
		case !unicode.IsPrint(r):
			b.WriteRune('�')
		case strings.ContainsRune("\\`*_[]<>|~&$", r):
			b.WriteRune('\\')
			b.WriteRune(r)
		case r == '@' || r == '#': // a mention and a link are made of plain text too
			b.WriteRune(r)
			b.WriteString("<!-- -->")
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
