package report_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/report"
	"hsx/bench/server"
	"hsx/bench/stats"
)

func estimate(value, low, high float64, n int, method string) stats.Estimate {
	return stats.Estimate{Value: value, Low: low, High: high, Bounded: true, Level: 0.95, N: n, Method: method}
}

// summary is one of n values around a median.
func summary(median float64, n int) stats.Summary {
	values := make([]float64, n)
	for i := range values {
		values[i] = median * math.Exp(0.8*(float64(i)+0.5-float64(n)/2)/float64(n))
	}
	return stats.Summarise(values)
}

func arm(name string, rate float64) bench.ArmReport {
	a := bench.ArmReport{
		Arm: name, Runs: 5, Requests: 535, Failed: 2, Tokens: 1_234_567,
		Throughput: estimate(rate, 0.97*rate, 1.03*rate, 5, "Student t over 5 runs"),
		CV:         0.024, Spread: "excellent", Warm: "run 1 was 6.1 % slower than the median of the others: more warm-up is needed",
		Request: summary(rate, 533), Decode: summary(1.02*rate, 533), TTFT: summary(0.21, 533), TTFOT: summary(4.2, 533),
		ITL: summary(1/rate, 533), ICL: summary(1.6/rate, 9000), E2E: summary(700/rate, 533), Delay: summary(0.00034, 533),
	}
	for run := range 5 {
		a.ByRun = append(a.ByRun, rate*(0.96+0.02*float64(run)))
		a.ByRunTimes = append(a.ByRunTimes, time.Date(2026, 8, 1, 9, 10*run, 0, 0, time.UTC))
	}
	return a
}

// fieldCase is a whole report: 56.8 tok/s with speculation, 90 without, an accept length
// of 1.6 where 2.95 was promised. Texts from servers and users hold text.
func fieldCase(text string) *bench.Report {
	share := func(v float64) *float64 { return &v }
	accept := bench.AcceptReport{
		Arm: "speculation", Pooled: estimate(1.6, 1.55, 1.66, 80, "bootstrap over 80 prompts"), Macro: estimate(1.62, 1.56, 1.68, 80, "bootstrap over 80 prompts"),
		Rate: 0.2, Steps: 770_000, Drafted: 2_310_000, Accepted: 462_000, PerStep: 3,
		Joint: []float64{0.47, 0.1, 0.03}, Conditional: []float64{0.47, 0.2128, 0.3},
		Source: "sglang meta_info", Trust: server.Exact, Others: []bench.OtherSource{{Source: "sglang:spec_accept_length", Trust: server.Low, Value: 1.7}},
		ByLength:   []bench.LengthBucket{{From: 0, To: 128, N: 20, Accept: 1.7}, {From: 8192, N: 9, Accept: 1.31}},
		ByCategory: []bench.CategoryAccept{{Category: text + " coding", N: 10, Accept: 1.9}},
		Notes:      []string{text},
	}
	under := accept
	under.Level, under.Joint, under.Conditional = "concurrency 1", nil, nil
	compared := bench.Comparison{
		Arm: "speculation", Baseline: "baseline", Outcome: bench.DoesNotPay, Paired: true,
		Speedup: estimate(0.6311, 0.612, 0.651, 5, "Student t over 5 pairs"), ByPrompt: estimate(0.642, 0.63, 0.655, 80, "bootstrap over 80 prompts"),
		Slower: 79, Prompts: 80, Wilcoxon: 1e-9, Detectable: 0.033, RunsToSettle: 12,
		AcceptLength: 1.6, BreakEven: 2.5352, AtPromise: 1.1636, EqualText: share(0.9875), Notes: []string{text},
	}
	speedup := compared.Speedup
	return &bench.Report{
		Version: bench.ReportVersion,
		Verdict: bench.Verdict{
			Outcome: bench.DoesNotPay, Sentence: "Speculation does not pay: 0.63× (95 % CI 0.61–0.65) at concurrency 1",
			Warnings: []string{text},
		},
		Gate: &bench.GateResult{Gate: bench.Gate{MinSpeedup: 1.2}, Outcome: "not met", Reasons: []string{"speedup 0.63, wanted at least 1.2"}},
		Levels: []bench.LevelReport{
			{Level: bench.Level{Concurrency: 1}, Arms: []bench.ArmReport{arm("speculation", 56.8), arm("baseline", 90)}, Compared: []bench.Comparison{compared}},
			{Level: bench.Level{Rate: 2.5}, Arms: []bench.ArmReport{arm("speculation", 310), arm("baseline", 290)}},
		},
		Accept: []bench.AcceptReport{accept, under},
		Promise: &bench.PromiseReport{
			Given: 2.95, Source: "--promised 2.95", Includes: true, Why: text, Steps: 3, Promised: 2.95, Cut: true, Estimated: true, Alternative: 3.95,
			Measured: accept.Pooled, Gap: -1.35, Outcome: "broken", Parts: 1, Meaning: "wrong layers, or another chat template",
			Positions: []bench.PositionGap{{Position: 1, Promised: 0.8, Measured: 0.47}, {Position: 2, Promised: 0.8, Measured: 0.2128}, {Position: 3, Promised: 0.8, Measured: 0.3}},
		},
		Diagnosis: []bench.Finding{{Rule: "resolver-mismatch", Message: text, Do: text}, {Rule: "step-cost", Message: "each step costs 2.5 plain steps"}},
		Validity: []bench.ValidityReport{
			{Arm: "speculation", Requests: 535, Truncated: 0.124, MaxTokens: 2048, Needed: 8192, Failed: 2, Faults: map[string]int{"cut": 1, "stalled": 1},
				Errors: []string{text}, Retries: 3, NoUsage: 1, Foreign: share(0.013), Loops: 0.0374, OutputRatio: 1.02, Synthetic: text, Thinking: true, Doubts: []string{text}},
			{Arm: "baseline", Requests: 535, Truncated: 0.12, MaxTokens: 2048, Needed: 8192, Thinking: true},
		},
		Sweep: &bench.SweepReport{
			Best: 2, Certain: false, Sentence: "2 steps are best, not distinguishable from 1 step", StepSeconds: []float64{0.0211, 0.0009},
			Points: []bench.SweepPoint{
				{Steps: 1, Throughput: estimate(91, 88, 94, 5, "Student t over 5 runs"), Speedup: &speedup, Accept: 1.45, Outcome: bench.Inconclusive},
				{Steps: 2, Throughput: estimate(94, 91, 97, 5, "Student t over 5 runs"), Accept: 1.6, Outcome: bench.Inconclusive},
				{Steps: 3, Predicted: true, Throughput: stats.Estimate{Value: 88.5, Low: 88.5, High: 88.5, N: 1}, Accept: 1.66},
				{Steps: 4, Throughput: estimate(80, 78, 82, 5, "Student t over 5 runs"), Accept: 1.7, Outcome: bench.DoesNotPay},
			},
		},
		Differences: []bench.Difference{{Argument: "cuda_graph_max_bs", Spec: text, Matters: "how a step is launched"}, {Argument: text, Baseline: "8"}},
		Arms: []bench.ArmInfo{
			{Arm: "speculation", At: time.Date(2026, 8, 1, 8, 50, 0, 0, time.UTC), Info: server.Info{
				URL: "http://127.0.0.1:30000", Engine: server.SGLang, Why: "/server_info", Version: "0.5.4", Model: text + "Kimi-K2.5", API: server.APISGLang, MaxContext: 262_144,
				Speculation: server.Speculation{Known: true, On: true, Method: "EAGLE3", Draft: text, Steps: 1, TopK: 1, DraftTokens: 2, AskedSteps: 16, AskedBy: "speculative_num_steps", Evidence: "/server_info"},
				Arguments:   map[string]string{"tp_size": "8", "dtype": text}, Load: server.Load{Known: true, Running: 1},
				Sources: []server.Source{{Name: "sglang meta_info", Trust: server.Exact, Why: "per request"}, {Name: "log", Trust: server.Low}},
				Thinks:  true, ThinksBy: "template", Insecure: true, Notes: []string{"simulated server: its speed is made up", text},
			}},
			{Arm: "baseline", Info: server.Info{URL: "http://127.0.0.1:30001", Engine: server.SGLang, Speculation: server.Speculation{Known: true}}},
		},
		Plan: bench.Plan{
			Arms:   []bench.Arm{{Name: "speculation", Role: bench.Spec, Launch: text}, {Name: "baseline", Role: bench.Baseline}},
			Levels: []bench.Level{{Concurrency: 1}, {Rate: 2.5}}, PromptSet: text, Digest: "0123abcd", NumPrompts: 80, Runs: 5, WarmUpRuns: 2, Seed: 42,
			Params:  server.Params{Temperature: 0, Thinking: "on", TopP: 0.95, Seed: new(int64), IgnoreEOS: true, Extra: map[string]any{"x": text}},
			Command: "hsx bench --url http://127.0.0.1:30000 " + text, Version: "hsx v0.5.0",
		},
		Began: time.Date(2026, 8, 1, 9, 0, 0, 0, time.UTC), Ended: time.Date(2026, 8, 1, 9, 55, 0, 0, time.UTC),
		Interrupted: text, Events: []string{text},
		Definitions: map[string]string{"accept_length": "1 + accepted drafts / verify steps", "speedup": "tokens per second over those of the baseline"},
	}
}

// reports are whole, partial, void and odd ones.
func reports() map[string]*bench.Report {
	all := map[string]*bench.Report{
		"whole": fieldCase("plain"),
		"empty": {},
		"killed at once": {
			Verdict:     bench.Verdict{Outcome: bench.Void, Sentence: "No verdict: no run was completed", Void: []string{"no run was completed"}},
			Levels:      []bench.LevelReport{{Level: bench.Level{Concurrency: 1}, Arms: []bench.ArmReport{{Arm: "speculation"}}}},
			Interrupted: "the measurement was killed", Definitions: map[string]string{"pooled": "over all"},
		},
		"empty parts": {
			Levels: []bench.LevelReport{{}}, Accept: []bench.AcceptReport{{}}, Promise: &bench.PromiseReport{}, Sweep: &bench.SweepReport{},
			Gate: &bench.GateResult{}, Diagnosis: []bench.Finding{{}}, Validity: []bench.ValidityReport{{}}, Differences: []bench.Difference{{}},
			Arms: []bench.ArmInfo{{}}, Events: []string{""},
		},
	}
	alone := fieldCase("plain")
	alone.Verdict = bench.Verdict{Outcome: bench.Measured, Sentence: "Measured speculation: 56.8 tok/s"}
	alone.Levels = alone.Levels[1:]
	alone.Levels[0].Arms = alone.Levels[0].Arms[:1]
	alone.Sweep, alone.Promise, alone.Accept, alone.Differences, alone.Gate = nil, nil, nil, nil, nil
	all["one arm"] = alone
	one := fieldCase("plain")
	a := &one.Levels[0].Arms[0]
	a.ByRun, a.TTFT = a.ByRun[:1], stats.Summarise([]float64{0})
	one.Accept[0].Joint, one.Accept[0].Conditional = []float64{0}, []float64{0}
	one.Sweep.Points = one.Sweep.Points[:1]
	all["one run"] = one
	for name, v := range map[string]float64{"zero": 0, "tiny": 1e-300, "huge": 1e300, "largest": math.MaxFloat64, "nan": math.NaN(), "inf": math.Inf(1), "negative": -1} {
		all[name] = odd(v)
	}
	far := fieldCase("plain")
	far.Sweep.Points[0].Steps, far.Sweep.Points[3].Steps = math.MinInt, math.MaxInt
	all["steps far apart"] = far
	return all
}

// odd is a report with a figure in many places that no sound measurement gives.
func odd(v float64) *bench.Report {
	r := fieldCase("plain")
	e := stats.Estimate{Value: v, Low: -v, High: 2 * v, Bounded: true, N: 3}
	s := stats.Summary{N: 100, Mean: v, Median: v, SD: v, CV: v, Min: -v, Max: v, P50: &v, P90: &v, P99: &v}
	for i := range r.Levels {
		for j := range r.Levels[i].Arms {
			a := &r.Levels[i].Arms[j]
			a.Throughput, a.ByRun, a.CV = e, []float64{v, 1, v}, v
			a.Request, a.TTFT, a.ITL, a.E2E, a.Delay = s, s, s, s, s
		}
	}
	c := &r.Levels[0].Compared[0]
	c.Speedup, c.ByPrompt, c.Wilcoxon, c.Detectable, c.AcceptLength, c.BreakEven, c.AtPromise, c.EqualText = e, e, v, v, v, v, v, &v
	a := &r.Accept[0]
	a.Pooled, a.Macro, a.Rate, a.Steps, a.PerStep, a.Joint, a.Conditional = e, e, v, v, v, []float64{v, 1, v}, []float64{v}
	a.Others[0].Value, a.ByLength[0].Accept, a.ByCategory[0].Accept = v, v, v
	p := r.Promise
	p.Given, p.Promised, p.Gap, p.Alternative, p.Measured, p.Positions[0].Promised = v, v, v, v, e, v
	r.Validity[0].Truncated, r.Validity[0].Loops, r.Validity[0].OutputRatio, r.Validity[0].Foreign = v, v, v, &v
	r.Sweep.StepSeconds, r.Sweep.Points[0].Throughput, r.Sweep.Points[2].Throughput, r.Sweep.Points[1].Accept = []float64{v, v}, e, e, v
	r.Plan.Params.TopP = v
	r.Arms[0].Info.Load.Running = v
	return r
}

// forms are all that a report can be written as.
func forms() map[string]func(io.Writer, *bench.Report) error {
	return map[string]func(io.Writer, *bench.Report) error{"html": report.HTML, "markdown": report.Markdown, "csv": report.CSV}
}

func write(t *testing.T, form string, r *bench.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := forms()[form](&b, r); err != nil {
		t.Fatalf("write %s: got error %v", form, err)
	}
	return b.String()
}

// hostile are texts that want to be more than text.
func hostile() []string {
	return []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style></title></svg></table><b>`, `'; } * { display: none } /*`,
		"{{.Plan}}", "<!--", "]]>", "\xff\x00\xfe", "a | b\n\n# c\n- [x](http://y) `z` **w** @somebody #12 $x$", "```\n# out\n````", "=1+1", "%s%d", fmt.Sprint(math.NaN()),
	}
}
