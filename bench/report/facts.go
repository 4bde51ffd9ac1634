package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"hsx/bench"
)

// fact is a name and a text.
type fact [2]string

// title names what was measured.
func title(r *bench.Report) string {
	for _, a := range r.Arms {
		if a.Info.Model != "" {
			return "Speculation on " + a.Info.Model
		}
	}
	return "Speculation"
}

// unsaid are the reasons of a void verdict that its sentence leaves out.
func unsaid(v bench.Verdict) []string {
	return slices.DeleteFunc(slices.Clone(v.Void), func(why string) bool { return strings.Contains(v.Sentence, why) })
}

// notes are what has to be known of the servers, a simulated one above all.
func notes(r *bench.Report) []string {
	var out []string
	for _, a := range r.Arms {
		for _, n := range a.Info.Notes {
			out = append(out, a.Arm+": "+n)
		}
		if a.Info.Insecure {
			out = append(out, a.Arm+": the server's certificate was not verified")
		}
	}
	return out
}

// planFacts are how it was measured; those not known are left out.
func planFacts(r *bench.Report) []fact {
	p := &r.Plan
	var out []fact
	if p.NumPrompts > 0 {
		set := plural(p.NumPrompts, "prompt")
		if p.PromptSet != "" {
			set += ", " + p.PromptSet
		}
		if p.Digest != "" {
			set += ", digest " + p.Digest
		}
		out = append(out, fact{"Prompts", set})
	}
	var loads []string
	for _, l := range p.Levels {
		loads = append(loads, l.String())
	}
	if len(loads) > 0 {
		out = append(out, fact{"Loads", strings.Join(loads, ", ")})
	}
	if p.Runs > 0 {
		out = append(out, fact{"Runs", fmt.Sprintf("%d of each arm under each load, after %d for warm-up", p.Runs, p.WarmUpRuns)})
	}
	out = append(out, fact{"Answers", sampling(p.Params)}, fact{"Seed", fmt.Sprint(p.Seed)})
	if p.Version != "" {
		out = append(out, fact{"Version", p.Version})
	}
	if !r.Began.IsZero() {
		out = append(out, fact{"When", when(r.Began) + " to " + when(r.Ended)})
	}
	for _, a := range p.Arms {
		if a.Launch != "" {
			out = append(out, fact{"Start of " + a.Name, a.Launch})
		}
	}
	return out
}

// serverFacts are what preflight learned of a server.
func serverFacts(a bench.ArmInfo) []fact {
	i := a.Info
	by := func(text, why string) string {
		if why == "" {
			return text
		}
		return text + " (" + why + ")"
	}
	out := []fact{
		{"URL", orNone(i.URL)}, {"Model", orNone(i.Model)}, {"Engine", by(engine(i), i.Why)}, {"Route", orNone(i.API)},
		{"Speculation", by(speculation(i.Speculation), i.Speculation.Evidence)},
	}
	for n, s := range i.Sources {
		name := "Accept length from"
		if n > 0 {
			name = "or from"
		}
		out = append(out, fact{name, by(s.Name+", trust: "+trust(s.Trust), s.Why)})
	}
	if i.MaxContext > 0 {
		out = append(out, fact{"Context", total(float64(i.MaxContext)) + " tokens"})
	}
	if i.Thinks {
		out = append(out, fact{"Thinks", by("before it answers", i.ThinksBy)})
	}
	if i.Load.Known {
		out = append(out, fact{"Load", fmt.Sprintf("%s running and %s waiting, before the first request", setting(i.Load.Running), setting(i.Load.Waiting))})
	}
	if !a.At.IsZero() {
		out = append(out, fact{"Asked", when(a.At)})
	}
	return out
}

// acceptNotes are what is to be said of an accept length, with its other sources where it
// is over all loads.
func acceptNotes(a bench.AcceptReport) []string {
	var out []string
	for _, n := range a.Notes {
		out = append(out, fmt.Sprintf("%s, %s: %s", a.Arm, orAll(a.Level), n))
	}
	if a.Level != "" {
		return out
	}
	for _, o := range a.Others {
		out = append(out, fmt.Sprintf("%s: also %s by %s (trust: %s)", a.Arm, number(o.Value), o.Source, trust(o.Trust)))
	}
	return out
}

// cut is the share of answers that ended at the limit, and the limit.
func cut(v bench.ValidityReport) string {
	if v.MaxTokens == 0 {
		return percent(v.Truncated)
	}
	return fmt.Sprintf("%s at %s tokens", percent(v.Truncated), total(float64(v.MaxTokens)))
}

// problems are what went wrong with an arm's requests, in sentences.
func problems(v bench.ValidityReport) []string {
	var out []string
	add := func(format string, args ...any) {
		out = append(out, v.Arm+": "+fmt.Sprintf(format, args...))
	}
	if v.Synthetic != "" {
		add("acceptance is synthetic, by %s", v.Synthetic)
	}
	if v.Needed > 0 {
		add("too many answers were cut short: use --max-tokens %d", v.Needed)
	}
	if v.Restarted {
		add("the server restarted in the middle")
	}
	if v.WasBusy {
		add("the server was busy before the first request")
	}
	for _, kind := range slices.Sorted(maps.Keys(v.Faults)) {
		add("%s failed: %s", plural(v.Faults[kind], "request"), kind)
	}
	for _, e := range v.Errors {
		add("%s", e)
	}
	for _, d := range v.Doubts {
		add("%s", d)
	}
	return out
}
