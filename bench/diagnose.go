package bench

import (
	"fmt"
	"slices"
	"strings"

	"hsx/bench/server"
)

// diagnose says why a report is as it is and what to do about it, the most telling first:
// what is wrong with what is served goes before what it costs, and that before what makes
// the figures doubtful. It is called when the rest of the report is done. The names of
// its rules are stable.
func diagnose(r *Report, l *Log, j Judgement) []Finding {
	d := newDiagnosis(r, l)
	for _, m := range j.Mismatch {
		d.add("resolver-mismatch", "", "%s", m)
	}
	d.synthetic()
	d.baselineSpeculates()
	d.nothingAccepted()
	d.fewerSteps()
	d.promise()
	d.lengths()
	d.stepCost()
	d.underLoad()
	d.truncated()
	d.repetition()
	d.template()
	d.otherClients()
	d.noSource()
	d.arguments()
	return d.found
}

// diagnosis is a report seen from the arm that the verdict is on.
type diagnosis struct {
	*Report
	arms    map[string]*ArmInfo
	arm     string         // the best of a sweep, or else the first that speculates
	accept  *AcceptReport  // of arm over all loads, nil without one
	compare []*Comparison  // of arm with the baseline, one for each load; none between two that speculate
	levels  []*LevelReport // that compare is of
	base    string
	found   []Finding
}

func newDiagnosis(r *Report, l *Log) *diagnosis {
	d := &diagnosis{Report: r, arms: map[string]*ArmInfo{}}
	for i := range r.Arms {
		d.arms[r.Arms[i].Arm] = &r.Arms[i]
	}
	best := r.Sweep != nil && r.Sweep.Best > 0
	for _, arm := range l.Plan.Arms {
		if arm.Role == Spec && (d.arm == "" || best && arm.Steps == r.Sweep.Best) {
			d.arm = arm.Name
		}
	}
	d.accept = d.acceptOf(d.arm)
	for i := range r.Levels {
		c := r.Levels[i].compared(d.arm)
		// Of two measurements held against each other both may speculate.
		if c != nil && d.acceptOf(c.Baseline) == nil {
			d.compare, d.levels, d.base = append(d.compare, c), append(d.levels, &r.Levels[i]), c.Baseline
		}
	}
	return d
}

func (d *diagnosis) add(rule, do, format string, args ...any) {
	d.found = append(d.found, Finding{Rule: rule, Message: fmt.Sprintf(format, args...), Do: do})
}

// acceptOf is the accept length of an arm over all loads.
func (d *diagnosis) acceptOf(arm string) *AcceptReport {
	i := slices.IndexFunc(d.Accept, func(a AcceptReport) bool { return a.Arm == arm && a.Level == "" })
	if i < 0 {
		return nil
	}
	return &d.Accept[i]
}

func (d *diagnosis) synthetic() {
	for _, v := range d.Validity {
		if v.Synthetic != "" {
			d.add("synthetic-acceptance", "start the server without it: no figure here is the draft's own", "%s: %s", v.Arm, v.Synthetic)
		}
	}
}

func (d *diagnosis) baselineSpeculates() {
	if info := d.arms[d.base]; info != nil && info.Info.Speculation.On {
		d.add("baseline-speculates", "start the baseline without speculation", "the baseline speculates itself, by %s", orUnknown(info.Info.Speculation.Method))
	}
}

func (d *diagnosis) nothingAccepted() {
	if a := d.accept; a != nil && a.Accepted == 0 && a.Drafted > 0 {
		d.add("nothing-accepted", "check that the server drafts with this draft, and the draft with 'hsx validate --draft DRAFT DATA'; a server that only extracts hidden states counts drafts too",
			"not one of %.0f draft tokens was accepted", a.Drafted)
	}
}

func (d *diagnosis) fewerSteps() {
	for i := range d.Accept {
		a := &d.Accept[i]
		info := d.arms[a.Arm]
		if info == nil || a.Level != "" {
			continue
		}
		sp := info.Info.Speculation
		asked, runs := stepsAsked(sp, a), stepsRun(sp, a)
		if runs == 0 || asked <= runs {
			continue
		}
		by := ""
		if sp.AskedBy != "" {
			by = " by " + sp.AskedBy
		}
		d.add("fewer-steps-than-asked", "see which argument or default overrides it, and give all of the steps, top-k and draft tokens",
			"%s was asked for %s%s and runs %d: an accept length above %d is out of its reach", a.Arm, counted(asked, "step"), by, runs, runs+1)
	}
}

func (d *diagnosis) promise() {
	p := d.Promise
	if p == nil {
		return
	}
	gap := fmt.Sprintf("accept length %.2f measured, %.2f promised at %s", p.Measured.Value, p.Promised, counted(p.Steps, "step"))
	if p.Steps == 0 {
		gap = fmt.Sprintf("accept length %.2f measured, %.2f promised", p.Measured.Value, p.Promised)
	}
	validate := "compare what the draft was trained on with what this server feeds it: hsx validate --layers IDS --draft DRAFT"
	if info := d.arms[d.arm]; info != nil && slices.Contains([]server.Engine{server.SGLang, server.VLLM}, info.Info.Engine) {
		validate += " --server " + string(info.Info.Engine)
	}
	validate += " DATA"
	switch {
	case p.Parts == 1:
		d.add("promise-broken-first-position", validate, "%s; position 1 is accepted in %s of the steps, promised %s: %s",
			gap, percent(p.Positions[0].Measured), percent(p.Positions[0].Promised), p.Meaning)
	case p.Parts > 1:
		at := p.Positions[p.Parts-1]
		d.add("promise-broken-later", "train with as many of the draft's own steps as are served, and compare the draft's positions and KV cache in the server with training",
			"%s; position %d is accepted in %s of the cases that reach it, promised %s: %s", gap, p.Parts, percent(at.Measured), percent(at.Promised), p.Meaning)
	case p.Outcome == promiseBroken && !d.falls():
		d.add("promise-broken", validate, "%s: %s", gap, p.Meaning)
	case p.Outcome == promiseOpen && p.Measured.N > 0:
		d.add("promise-unclear", "give the training log instead of a number, and a source of accept lengths that can be trusted", "%s: %s", gap, p.Meaning)
	}
}

// lengths tells where the accept length falls with the length of the answers.
func (d *diagnosis) lengths() {
	if d.falls() {
		b := d.accept.ByLength
		d.add("falls-with-length", "compare the draft's max_position_embeddings and training length with the answers",
			"the accept length falls from %.2f in short answers to %.2f in long ones: a limit of the draft's positions, or training on short texts", b[0].Accept, b[len(b)-1].Accept)
	}
}

func (d *diagnosis) falls() bool { return d.accept != nil && fallsWithLength(d.accept.ByLength) }

// stepCost tells a draft that is not good enough from a step that costs too much.
func (d *diagnosis) stepCost() {
	if len(d.compare) == 0 || d.compare[0].AcceptLength == 0 {
		return
	}
	c, p := d.compare[0], d.Promise
	say, promised := fmt.Sprintf("each step costs %.1f plain steps", c.BreakEven), ""
	if p != nil && c.AtPromise > 0 {
		promised = fmt.Sprintf("the promised %.2f would give %.2f×", p.Promised, c.AtPromise)
	}
	loses := c.Outcome == DoesNotPay || c.Outcome == Inconclusive
	switch {
	case loses && c.BreakEven > 0.97*c.AcceptLength: // at the break-even length both are equal
		say += fmt.Sprintf(", so speculation is faster above an accept length of %.2f, and has %.2f", c.BreakEven, c.AcceptLength)
		if promised != "" && c.AtPromise < 1.2 {
			promised = "even " + promised
		}
		if promised != "" {
			say += "; " + promised
		}
		rule := "step-cost"
		if p != nil && (p.Outcome == promiseKept || p.Outcome == promiseExceeded) {
			rule = "promise-kept-step-cost"
		}
		d.add(rule, "make a step cheaper: try fewer steps (--steps), and graphs and fast kernels for draft and verification", "%s", say)
	case promised != "" && p.Outcome == promiseBroken && c.Outcome != Void:
		d.add("accept-length-limits", "", "%s, so what is missing is accept length: %s", say, promised)
	}
}

func (d *diagnosis) underLoad() {
	if len(d.compare) < 2 || d.compare[0].Outcome != Pays {
		return
	}
	for i, c := range d.compare[1:] {
		if c.Outcome == DoesNotPay {
			d.add("concurrency-loses", "serve fewer draft tokens under load, or turn speculation off above some concurrency",
				"it pays at %s (%.2f×) and not at %s (%.2f×): under load the positions of a verify step compete with other requests", d.levels[0].Level, d.compare[0].Speedup.Value, d.levels[i+1].Level, c.Speedup.Value)
			return
		}
	}
}

func (d *diagnosis) truncated() {
	var cut []string
	needed := 0
	for _, v := range d.Validity {
		if v.Truncated > warnTruncated && v.Needed > 0 {
			cut = append(cut, fmt.Sprintf("%s of %s's answers at %d tokens", percent(v.Truncated), v.Arm, v.MaxTokens))
			needed = max(needed, v.Needed)
		}
	}
	if needed > 0 {
		d.add("truncated", fmt.Sprintf("measure again with --max-tokens %d", needed),
			"cut short were %s: their rates and accept lengths are those of beginnings", strings.Join(cut, ", "))
	}
}

func (d *diagnosis) repetition() {
	for _, v := range d.Validity {
		if v.Loops > warnLoops {
			d.add("repetition", "look at the answers (--keep-text); measure with the chat template and without --ignore-eos",
				"%s of %s's answers repeat themselves, which any draft predicts best of all", percent(v.Loops), v.Arm)
		}
	}
}

// template finds what makes a draft see other text than in training.
func (d *diagnosis) template() {
	if info := d.arms[d.arm]; info != nil && (info.Info.API == server.APICompletions || info.Info.API == server.APISGLang) {
		d.add("no-chat-template", "measure with --api chat", "prompts go to %s's %s route without a chat template: a draft that was trained on chats accepts less there", d.arm, info.Info.API)
	}
	var thinks, not []string
	for _, v := range d.Validity {
		switch {
		case v.Requests == 0:
		case v.Thinking:
			thinks = append(thinks, v.Arm)
		default:
			not = append(not, v.Arm)
		}
	}
	if len(thinks) > 0 && len(not) > 0 {
		d.add("thinking-differs", "give --thinking on or off, and both servers the same chat template and reasoning parser",
			"%s thinks before it answers and %s does not: not the same work", strings.Join(thinks, ", "), strings.Join(not, ", "))
	}
}

func (d *diagnosis) otherClients() {
	for _, v := range d.Validity {
		if v.Foreign != nil && *v.Foreign > warnForeign {
			d.add("other-clients", "measure on servers that nobody else uses", "%s of the tokens that %s made were for other clients", percent(*v.Foreign), v.Arm)
		}
	}
}

func (d *diagnosis) noSource() {
	if a := d.accept; a == nil || a.Source != "none" {
		return
	}
	do := "give the server's counters with --metrics-url"
	if info := d.arms[d.arm]; info != nil {
		if sp := info.Info.Speculation; sp.Known && !sp.On {
			return
		}
		switch info.Info.Engine {
		case server.SGLang:
			do = "start SGLang with --enable-metrics, or give --server-log"
		case server.VLLM:
			do = "start vLLM with --per-request-spec-decode-metrics detailed, or give --metrics-url"
		case server.LlamaCpp:
			do = "start llama-server with --metrics"
		case server.TRTLLM:
			do = "start trtllm-serve with enable_iter_perf_stats: true"
		}
	}
	d.add("no-accept-length", do, "%s does not tell its accept length, so nothing can be said of the draft", d.arm)
}

// arguments names the differences that may explain the speed.
func (d *diagnosis) arguments() {
	var say []string
	for _, x := range d.Differences {
		if x.Matters != "" {
			say = append(say, fmt.Sprintf("%s is %s, baseline %s (%s)", x.Argument, x.Spec, x.Baseline, x.Matters))
		}
	}
	if len(say) == 0 {
		return
	}
	more := ""
	if n := len(say) - 3; n > 0 {
		say, more = say[:3], fmt.Sprintf("; and %d more", n)
	}
	d.add("arguments-differ", "start both servers with the same arguments, but for speculation's own", "the servers differ in more than speculation: %s%s", strings.Join(say, "; "), more)
}

func orUnknown(s string) string {
	if s == "" {
		return "a method that it does not name"
	}
	return s
}
