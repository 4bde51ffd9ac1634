package bench_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/server"
)

// pair is a measurement with speculation at spec tok/s against 90, a spread of 1 %.
func pair(spec float64, change func(s, b *simulated)) *bench.Log {
	s, b := specArm(spread5(spec, 0.01, false), 1.6), baseArm(spread5(90, 0.01, true))
	if change != nil {
		change(&s, &b)
	}
	return logOf(concurrency(1), s, b)
}

// every changes each nth request.
func every(n int, change func(r *bench.Request)) func(r *bench.Request) {
	i := 0
	return func(r *bench.Request) {
		if i++; i%n == 0 {
			change(r)
		}
	}
}

func counters(generated float64) server.Snapshot {
	return server.Snapshot{Source: "test", Generated: &generated}
}

func TestVerdictSentence(t *testing.T) {
	t.Parallel()
	loaded := pair(118, nil)
	l := bench.Level{Concurrency: 32}
	s, b := specArm(spread5(870, 0.01, false), 1.6), baseArm(spread5(900, 0.01, true))
	more := logOf([]bench.Level{l}, s, b)
	loaded.Plan.Levels = append(loaded.Plan.Levels, l)
	loaded.Passes = append(loaded.Passes, more.Passes...)
	killed := pair(118, nil)
	killed.Passes, killed.End = killed.Passes[:2], nil
	half := pair(118, nil)
	half.Passes = slices.DeleteFunc(half.Passes, func(p bench.Pass) bool { return p.Arm == "baseline" })
	none := pair(118, nil)
	none.Passes = nil
	tests := map[string]struct {
		log     *bench.Log
		j       bench.Judgement
		outcome bench.Outcome
		want    string
	}{
		"pays, and not under load": {loaded, bench.Judgement{}, bench.Pays,
			"Speculation pays: 1.31× (95 % CI 1.29–1.33) at concurrency 1; does not pay at concurrency 32: 0.97× (0.95–0.98)"},
		"other confidence": {pair(118, nil), bench.Judgement{Confidence: 0.9}, bench.Pays,
			"Speculation pays: 1.31× (90 % CI 1.29–1.33) at concurrency 1"},
		"less than the margin": {pair(118, nil), bench.Judgement{Margin: 0.4}, bench.Inconclusive,
			"Speculation: inconclusive, 1.31× (95 % CI 1.29–1.33) at concurrency 1, faster, but by less than the margin of 40 %"},
		"perhaps less than the margin": {pair(118, nil), bench.Judgement{Margin: 0.3}, bench.Inconclusive,
			"Speculation: inconclusive, 1.31× (95 % CI 1.29–1.33) at concurrency 1, faster, but perhaps by less than the margin of 30 %: about 24 runs of each arm would settle it"},
		"out of reach": {pair(90.5, nil), bench.Judgement{}, bench.Inconclusive,
			"Speculation: inconclusive, 1.01× (95 % CI 0.99–1.02) at concurrency 1, within the noise, and 200 runs would not settle it"},
		"one run": {killed, bench.Judgement{}, bench.Inconclusive,
			"Speculation: inconclusive, 1.32× at concurrency 1, one run has no spread: an interval needs 2 of each arm"},
		"no run of the baseline": {half, bench.Judgement{}, bench.Inconclusive,
			"Speculation: inconclusive, not measured at concurrency 1, an arm has no complete run"},
		"no run":         {none, bench.Judgement{}, bench.Void, "No verdict: no run was completed: nothing is measured"},
		"nothing at all": {&bench.Log{}, bench.Judgement{}, bench.Void, "No verdict: no run was completed: nothing is measured"},
		"without a baseline": {logOf(concurrency(1, 8), specArm(spread5(56.8, 0.01, false), 1.6)), bench.Judgement{}, bench.Measured,
			"Measured speculation: 56.8 (56.1–57.5) tok/s at concurrency 1, 56.8 (56.1–57.5) tok/s at concurrency 8; accept length 1.60 (1.56–1.64); without a baseline nothing says whether it pays"},
		"a baseline alone": {logOf(concurrency(1), baseArm(spread5(90, 0.01, false))), bench.Judgement{}, bench.Measured,
			"Measured baseline: 90.0 (88.9–91.1) tok/s at concurrency 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := bench.Analyse(tt.log, tt.j).Verdict
			if v.Outcome != tt.outcome || v.Sentence != tt.want {
				t.Errorf("got %s: %s\nwant %s: %s", v.Outcome, v.Sentence, tt.outcome, tt.want)
			}
		})
	}
}

func TestVoid(t *testing.T) {
	t.Parallel()
	fail := func(r *bench.Request) { r.Fault, r.Error = server.FaultCut, "stream ended" }
	tests := map[string]struct {
		log  *bench.Log
		j    bench.Judgement
		want string
	}{
		"synthetic acceptance": {pair(118, func(s, b *simulated) { s.info.Speculation.Synthetic = "SGLANG_SIMULATE_ACC_LEN" }), bench.Judgement{},
			"speculation: acceptance is synthetic: "},
		"loops": {pair(118, func(s, b *simulated) { s.request = every(8, func(r *bench.Request) { r.Distinct4 = 0.1 }) }), bench.Judgement{},
			"speculation: 12 % of the answers are repetition loops, which speculation drafts best of all"},
		"loops in one arm": {pair(118, func(s, b *simulated) { s.request = every(20, func(r *bench.Request) { r.Distinct4 = 0.1 }) }), bench.Judgement{},
			"answers loop more than twice as often in one arm: 5 % of speculation's, 0 % of baseline's"},
		"truncated": {pair(118, func(s, b *simulated) { b.request = every(4, func(r *bench.Request) { r.FinishReason = "length" }) }), bench.Judgement{},
			"baseline: 25 % of the answers were cut at 2048 tokens, above the limit of 20 %: use --max-tokens 4096"},
		"truncated, and called stop": {pair(118, func(s, b *simulated) {
			s.info.Thinks = true
			s.pass = func(p *bench.Pass) { p.MaxTokens = 100 }
		}), bench.Judgement{}, "speculation: 100 % of the answers were cut at 100 tokens, above the limit of 20 %: use --max-tokens 8192"},
		"truncated below its own limit": {pair(118, func(s, b *simulated) { s.request = every(10, func(r *bench.Request) { r.FinishReason = "length" }) }),
			bench.Judgement{MaxTruncated: 0.08}, "speculation: 10 % of the answers were cut at 2048 tokens, above the limit of 8 %"},
		"failed": {pair(118, func(s, b *simulated) { s.request = every(10, fail) }), bench.Judgement{},
			"speculation: 10 % of the requests failed (10 cut), above the limit of 5 %"},
		"no usage": {pair(118, func(s, b *simulated) { b.request = func(r *bench.Request) { r.Usage, r.Tokens = false, 0 } }), bench.Judgement{},
			"baseline: 100 % of the answers came without usage: no token counts, nothing to divide"},
		"restarted": {pair(118, func(s, b *simulated) {
			s.pass = func(p *bench.Pass) { p.Before, p.After = counters(5000), counters(200) }
		}), bench.Judgement{}, "speculation: the server restarted in the middle"},
		"foreign": {pair(118, func(s, b *simulated) {
			s.pass = func(p *bench.Pass) { p.Before, p.After = counters(5000), counters(5000+2000/0.75) }
		}), bench.Judgement{}, "speculation: 25 % of the tokens that the server made are of other clients"},
		"the baseline says that it speculates": {pair(118, func(s, b *simulated) {
			b.info.Speculation = server.Speculation{Known: true, On: true, Method: "eagle3", Evidence: "speculative_algorithm in /server_info"}
		}), bench.Judgement{}, "baseline speculates: says speculative_algorithm in /server_info (eagle3)"},
		"the baseline's counters of drafts move": {pair(118, func(s, b *simulated) {
			b.pass = func(p *bench.Pass) {
				p.Before, p.After = counters(0), counters(2000)
				p.Before.Steps, p.After.Steps = new(10.), new(20.)
				p.Before.Accepted, p.After.Accepted = new(3.), new(5.)
				p.Before.Drafted, p.After.Drafted = new(30.), new(60.)
			}
		}), bench.Judgement{}, "baseline speculates: its counter of draft tokens rose by 150"},
		"the baseline's answers tell of drafts": {pair(118, func(s, b *simulated) { b.tau = 1.5 }), bench.Judgement{},
			"baseline speculates: 100 of its answers report draft tokens"},
		"no speculation in the arm for it": {pair(118, func(s, b *simulated) { s.tau, s.info.Speculation.On = 0, false }), bench.Judgement{},
			"speculation does not speculate: the server says so"},
		"one server": {pair(118, func(s, b *simulated) { s.arm.URL, b.arm.URL = "http://h:1/v1", "http://h:1/" }), bench.Judgement{},
			"speculation and baseline are one server, http://h:1/v1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bench.Analyse(tt.log, tt.j)
			if r.Verdict.Outcome != bench.Void || r.Levels[0].Compared[0].Outcome != bench.Void {
				t.Errorf("got %s, %s under the load, want both void: %s", r.Verdict.Outcome, r.Levels[0].Compared[0].Outcome, r.Verdict.Sentence)
			}
			if !slices.ContainsFunc(r.Verdict.Void, func(s string) bool { return strings.Contains(s, tt.want) }) {
				t.Errorf("got reasons %q, want one with %q", r.Verdict.Void, tt.want)
			}
		})
	}
}

// TestVoidUnderLoad keeps the verdict at a load that was measured well.
func TestVoidUnderLoad(t *testing.T) {
	t.Parallel()
	s, b := specArm(spread5(118, 0.01, false), 1.6), baseArm(spread5(90, 0.01, true))
	s.request = func(r *bench.Request) {
		if r.Level.Concurrency == 32 {
			r.Fault, r.Error = server.FaultBusy, "503"
		}
	}
	v := bench.Analyse(logOf(concurrency(1, 32), s, b), bench.Judgement{}).Verdict
	want := "Speculation pays: 1.31× (95 % CI 1.29–1.33) at concurrency 1; no verdict at concurrency 32"
	if v.Outcome != bench.Pays || v.Sentence != want {
		t.Errorf("got %s: %s\nwant %s: %s", v.Outcome, v.Sentence, bench.Pays, want)
	}
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(s, b *simulated)
		plan   func(l *bench.Log)
		want   string
	}{
		"truncated": {func(s, b *simulated) { s.request = every(14, func(r *bench.Request) { r.FinishReason = "length" }) }, nil,
			"speculation: 7 % of the answers were cut at 2048 tokens: their speed is that of their beginning; use --max-tokens 4096"},
		"failed": {func(s, b *simulated) {
			s.request = every(50, func(r *bench.Request) { r.Fault, r.Error = server.FaultStalled, "stalled" })
		}, nil, "speculation: 2 of 100 requests failed (2 stalled) and are in no figure"},
		"no usage": {func(s, b *simulated) { s.request = every(50, func(r *bench.Request) { r.Usage, r.Tokens = false, 0 }) }, nil,
			"speculation: 2 answers came without usage and are in no figure of tokens"},
		"foreign": {func(s, b *simulated) {
			s.pass = func(p *bench.Pass) { p.Before, p.After = counters(0), counters(2000/0.9) }
		}, nil, "speculation: 10 % of the tokens that the server made are of other clients"},
		"loops in both": {func(s, b *simulated) {
			s.request = every(20, func(r *bench.Request) { r.Distinct4 = 0.1 })
			b.request = every(20, func(r *bench.Request) { r.Distinct4 = 0.1 })
		}, nil, "baseline: 5 % of the answers are repetition loops"},
		"busy": {func(s, b *simulated) { s.info.Load = server.Load{Known: true, Running: 1} }, nil,
			"speculation: the server was busy before the first request"},
		"insecure": {func(s, b *simulated) { s.info.Insecure = true }, nil,
			"speculation: the server's certificate was not verified"},
		"other lengths": {func(s, b *simulated) { b.tokens = 80 }, nil,
			"speculation's answers have 1.25 times the tokens of the baseline's at temperature 0: not the same work"},
		"on these prompts only": {func(s, b *simulated) {
			s.rates = spread5(93, 0.001, false)
			b.rates = spread5(89, 0.001, true)
			s.request = func(r *bench.Request) {
				if r.Prompt < "p07" {
					r.Done = r.Done * 6 / 5
				}
			}
		}, nil, "sure for these prompts only: over prompts like these it is 0.98× (0.94–1.02) at concurrency 1, 7 of 20 slower"},
		"no room": {func(s, b *simulated) {
			s.info.MaxContext = 2048
			s.request = every(14, func(r *bench.Request) { r.FinishReason = "length" })
		}, nil, "their speed is that of their beginning; the server's context has no room for more"},
		"no end of sequence": {nil, func(l *bench.Log) { l.Plan.Params.IgnoreEOS = true }, "answers go on after their end (ignore_eos)"},
		"few prompts":        {nil, func(l *bench.Log) { l.Plan.NumPrompts = 8 }, "few prompts (8) say little of others: intervals over prompts need 20"},
		"in sequence": {func(s, b *simulated) { s.arm.Launch = "serve" }, nil,
			"the arms were measured one after the other, not in turns: a drift of the machine is in the ratio"},
		"other models": {func(s, b *simulated) { b.info.Model = "n" }, nil, `the arms serve different models: "m" and "n"`},
		"other limits": {func(s, b *simulated) { b.pass = func(p *bench.Pass) { p.MaxTokens = 4096 } }, nil,
			"answers end at 2048 tokens in speculation and at 4096 in baseline"},
		"cold": {func(s, b *simulated) { s.rates = []float64{100, 118, 119, 117, 118} }, nil,
			"speculation: run 1 was 15 % slower than the median of the others: more warm-up is needed at concurrency 1"},
		"trend": {func(s, b *simulated) { s.rates = []float64{120, 118, 116.1, 114, 112} }, nil,
			"speculation: throughput falls by 1.7 % from run to run"},
		"spread": {func(s, b *simulated) { s.rates = spread5(118, 0.12, false) }, nil,
			"speculation: the spread of runs is fair at concurrency 1: coefficient of variation 12 %"},
		"restarted in between": {func(s, b *simulated) {
			s.pass = func(p *bench.Pass) { p.Before, p.After = counters(0), counters(2000) }
		}, nil, "speculation: the server restarted between two passes"},
		"interrupted": {nil, func(l *bench.Log) { l.End.Interrupted = true }, "not everything was measured: interrupted by the user"},
		"ended":       {nil, func(l *bench.Log) { l.End.Reason = "baseline died" }, "not everything was measured: baseline died"},
		"killed":      {nil, func(l *bench.Log) { l.End = nil }, "not everything was measured: the measurement was killed: its journal has no end"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := pair(118, tt.change)
			if tt.plan != nil {
				tt.plan(l)
			}
			v := bench.Analyse(l, bench.Judgement{}).Verdict
			if v.Outcome == bench.Void {
				t.Fatalf("got void %q, want a verdict with a warning", v.Void)
			}
			if !slices.ContainsFunc(v.Warnings, func(s string) bool { return strings.Contains(s, tt.want) }) {
				t.Errorf("got warnings %q, want one with %q", v.Warnings, tt.want)
			}
		})
	}
}

// TestIgnoreEOS does not call answers cut that were asked to run to the limit.
func TestIgnoreEOS(t *testing.T) {
	t.Parallel()
	l := pair(118, func(s, b *simulated) {
		s.request = func(r *bench.Request) { r.FinishReason = "length" }
		b.request = s.request
	})
	l.Plan.Params.IgnoreEOS = true
	r := bench.Analyse(l, bench.Judgement{})
	if r.Verdict.Outcome != bench.Pays || r.Validity[0].Truncated != 1 || r.Validity[0].Needed != 0 {
		t.Errorf("got %s, %+v, want pays, all truncated and no other limit", r.Verdict.Outcome, r.Validity[0])
	}
}

// TestOrderMatters finds that the arm which goes first is slower for it.
func TestOrderMatters(t *testing.T) {
	t.Parallel()
	s := specArm([]float64{114, 118, 114.2, 118.1, 113.9}, 1.6)
	b := baseArm([]float64{93, 90, 93.1, 90, 93})
	c := bench.Analyse(logOf(concurrency(1), s, b), bench.Judgement{}).Levels[0].Compared[0]
	want := "the order matters: the arm that runs first is 3.3 % slower for it"
	if !slices.ContainsFunc(c.Notes, func(n string) bool { return strings.HasPrefix(n, want) }) {
		t.Errorf("got notes %q, want one that begins %q", c.Notes, want)
	}
}

func TestEnded(t *testing.T) {
	t.Parallel()
	l := pair(118, nil)
	l.End = nil
	last := l.Passes[len(l.Passes)-1]
	if got, want := bench.Analyse(l, bench.Judgement{}).Ended, last.Began.Add(last.Wall); !got.Equal(want) {
		t.Errorf("Ended of a killed measurement: got %s, want that of its last pass, %s", got, want.Format(time.RFC3339))
	}
}
