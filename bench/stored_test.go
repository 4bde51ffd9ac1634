package bench_test

import (
	"slices"
	"strings"
	"testing"

	"hsx/bench"
)

func alone(s simulated) *bench.Log { return logOf(concurrency(1), s) }

func TestStoredBaseline(t *testing.T) {
	t.Parallel()
	spec := func() *bench.Log { return alone(specArm(spread5(118, 0.01, false), 1.6)) }
	stored := func() *bench.Log {
		l := alone(baseArm(spread5(90, 0.01, true)))
		l.Began = l.Began.AddDate(0, 0, -3)
		return l
	}
	changed := func(l *bench.Log, change func(l *bench.Log)) *bench.Log {
		change(l)
		return l
	}
	tests := map[string]struct {
		log, stored *bench.Log
		outcome     bench.Outcome
		say         string // in the sentence, the reasons or the warnings
	}{
		"stands in": {spec(), stored(), bench.Pays, "stored baseline was measured on 2026-11-27 12:00, not in turns with speculation"},
		"an arm of an old name": {spec(), changed(stored(), func(l *bench.Log) {
			l.Plan.Arms[0].Role, l.Plan.Arms[0].Name, l.Arms[0].Arm = bench.Spec, "speculation", "speculation"
			for i := range l.Passes {
				l.Passes[i].Arm = "speculation"
			}
		}), bench.Pays, "Speculation pays"},
		"the same URL, at another time": {changed(spec(), func(l *bench.Log) { l.Plan.Arms[0].URL = "http://base:1" }), stored(), bench.Pays, "Speculation pays"},
		"other prompts": {spec(), changed(stored(), func(l *bench.Log) { l.Plan.Digest, l.Plan.PromptSet = "e", "gsm8k.jsonl" }),
			bench.Void, "the prompts are not the same: 20 of an unnamed set (d) and 20 of gsm8k.jsonl (e)"},
		"other temperature": {spec(), changed(stored(), func(l *bench.Log) { l.Plan.Params.Temperature = 0.7 }),
			bench.Void, "answers were not asked for in the same way: temperature 0 and 0.7"},
		"other thinking": {spec(), changed(stored(), func(l *bench.Log) { l.Plan.Params.Thinking = "off" }),
			bench.Void, "thinking default and off"},
		"other body": {spec(), changed(stored(), func(l *bench.Log) { l.Plan.Params.Extra = map[string]any{"min_p": 0.1} }),
			bench.Void, "extra map[] and map[min_p:0.1]"},
		"other load": {spec(), changed(stored(), func(l *bench.Log) {
			l.Plan.Levels = concurrency(8)
			for i := range l.Passes {
				l.Passes[i].Level.Concurrency = 8
			}
		}), bench.Inconclusive, "stored baseline was not measured at concurrency 1"},
		"no baseline in it": {spec(), changed(stored(), func(l *bench.Log) {
			l.Plan.Arms = []bench.Arm{{Name: "steps=1", Role: bench.Spec}, {Name: "steps=2", Role: bench.Spec}}
		}), bench.Void, "the stored measurement has no baseline arm"},
		"not needed": {pair(118, nil), stored(), bench.Pays, "the stored baseline is left aside"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := bench.Analyse(tt.log, bench.Judgement{Baseline: tt.stored}).Verdict
			said := append(append([]string{v.Sentence}, v.Void...), v.Warnings...)
			if v.Outcome != tt.outcome || !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, tt.say) }) {
				t.Errorf("got %s, %q\nwant %s with %q", v.Outcome, said, tt.outcome, tt.say)
			}
		})
	}
	r := bench.Analyse(spec(), bench.Judgement{Baseline: stored()})
	if c := r.Levels[0].Compared[0]; c.Paired || c.Baseline != "stored baseline" || c.Speedup.N != 10 {
		t.Errorf("got %+v, want 10 runs that are not paired, against the stored baseline", c)
	}
	if len(r.Arms) != 2 || len(r.Validity) != 2 || len(r.Levels[0].Arms) != 2 {
		t.Errorf("got %d arms, %d validities, %d arms at the load, want 2 of each", len(r.Arms), len(r.Validity), len(r.Levels[0].Arms))
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	a, b := pair(118, nil), pair(94, func(s, _ *simulated) { s.tau = 1.4 })
	b.Began = b.Began.AddDate(0, 0, -1)
	r := bench.Compare(a, b, bench.Judgement{})
	if want := "A is faster than B: 1.26× (95 % CI 1.24–1.27) at concurrency 1"; r.Verdict.Outcome != bench.Faster || r.Verdict.Sentence != want {
		t.Errorf("got %s: %s\nwant %s: %s", r.Verdict.Outcome, r.Verdict.Sentence, bench.Faster, want)
	}
	c := r.Levels[0].Compared[0]
	if c.Arm != "A" || c.Baseline != "B" || c.Paired {
		t.Errorf("got %+v, want A against B, not paired", c)
	}
	if len(r.Accept) != 2 || r.Accept[0].Arm != "A" || r.Accept[1].Arm != "B" || two(r.Accept[1].Pooled.Value) != "1.40" {
		t.Errorf("got accept lengths %+v, want those of A and of B, 1.40", r.Accept)
	}
	r = bench.Compare(b, a, bench.Judgement{})
	if want := "A is slower than B: 0.80×"; r.Verdict.Outcome != bench.Slower || !strings.HasPrefix(r.Verdict.Sentence, want) {
		t.Errorf("got %s: %s, want %s", r.Verdict.Outcome, r.Verdict.Sentence, want)
	}
	b.Plan.Digest = "other"
	if r := bench.Compare(a, b, bench.Judgement{}); r.Verdict.Outcome != bench.Void {
		t.Errorf("got %s with other prompts, want void", r.Verdict.Outcome)
	}
	r = bench.Compare(&bench.Log{}, &bench.Log{}, bench.Judgement{})
	if r.Verdict.Outcome != bench.Void {
		t.Errorf("got %s of two empty logs, want void", r.Verdict.Outcome)
	}
}

// TestCompareBaselines compares two measurements that have no speculation.
func TestCompareBaselines(t *testing.T) {
	t.Parallel()
	r := bench.Compare(alone(baseArm(spread5(99, 0.01, false))), alone(baseArm(spread5(90, 0.01, true))), bench.Judgement{})
	if want := "A is faster than B: 1.10×"; !strings.HasPrefix(r.Verdict.Sentence, want) {
		t.Errorf("got %s, want %s", r.Verdict.Sentence, want)
	}
	if !slices.Contains(r.Verdict.Warnings, "both are of one measurement") {
		t.Errorf("got warnings %q, want that both began at the same time", r.Verdict.Warnings)
	}
}

// TestLogIsLeftAlone proves that a report changes nothing in the logs that it reads.
func TestLogIsLeftAlone(t *testing.T) {
	t.Parallel()
	a, b := pair(118, nil), pair(94, nil)
	bench.Compare(a, b, bench.Judgement{})
	bench.Analyse(alone(specArm(spread5(118, 0.01, false), 1.6)), bench.Judgement{Baseline: b})
	for _, l := range []*bench.Log{a, b} {
		if l.Plan.Arms[0].Name != "speculation" || l.Passes[0].Requests[0].Arm != "speculation" || l.Arms[0].Arm != "speculation" {
			t.Errorf("got names %q, %q, %q, want them unchanged", l.Plan.Arms[0].Name, l.Passes[0].Requests[0].Arm, l.Arms[0].Arm)
		}
	}
}
