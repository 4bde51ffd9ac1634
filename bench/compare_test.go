package bench_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/server"
)

// TestSpeedupCovers simulates measurements of a known speedup: intervals hold it as
// often as they say.
func TestSpeedupCovers(t *testing.T) {
	t.Parallel()
	const trials, truth = 500, 1.2
	for name, launch := range map[string]string{"paired": "", "not paired": "serve"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(7, 0))
			held := 0
			for range trials {
				draw := func(mean float64) []float64 {
					rates := make([]float64, 5)
					for i := range rates {
						rates[i] = mean * math.Exp(0.03*rng.NormFloat64())
					}
					return rates
				}
				s, b := specArm(draw(90*truth), 0), baseArm(draw(90))
				s.arm.Launch = launch
				s.info.Speculation.Known = false
				// One request a run: the unit is the run.
				l := logOf(concurrency(1), s, b)
				for i := range l.Passes {
					p := &l.Passes[i]
					p.Requests = p.Requests[:1]
					p.Wall /= simulatedPrompts
				}
				c := bench.Analyse(l, bench.Judgement{}).Levels[0].Compared[0]
				if c.Paired == (launch != "") {
					t.Fatalf("got paired %v, want %v", c.Paired, launch == "")
				}
				if c.Speedup.Low <= truth && truth <= c.Speedup.High {
					held++
				}
			}
			got := float64(held) / trials
			if slack := 3 * math.Sqrt(0.05*0.95/trials); math.Abs(got-0.95) > slack {
				t.Errorf("the 95 %% interval holds the truth in %.3f of %d trials, want 0.95 ± %.3f", got, trials, slack)
			}
		})
	}
}

func TestByPrompt(t *testing.T) {
	t.Parallel()
	// Speculation is 1.5 times as fast, but slower than the baseline on four prompts.
	s, b := specArm([]float64{135, 135, 135}, 1.6), baseArm([]float64{90, 90, 90})
	slow := []string{"p02", "p05", "p11", "p17"}
	s.request = func(r *bench.Request) {
		if slices.Contains(slow, r.Prompt) {
			r.Done = r.Done * 8 / 5
		}
	}
	c := bench.Analyse(logOf(concurrency(1), s, b), bench.Judgement{}).Levels[0].Compared[0]
	want := 1.5 * math.Pow(5.0/8, 4.0/simulatedPrompts)
	if math.Abs(c.ByPrompt.Value-want) > 1e-6 || c.Slower != len(slow) || c.Prompts != simulatedPrompts {
		t.Errorf("got %v, %d of %d prompts slower, want %.3f, %d of %d", c.ByPrompt, c.Slower, c.Prompts, want, len(slow), simulatedPrompts)
	}
	if !(c.ByPrompt.Low < want && want < c.ByPrompt.High) {
		t.Errorf("got interval %v, want one around %.3f", c.ByPrompt, want)
	}
	if !(c.Wilcoxon > 0 && c.Wilcoxon < 0.05) {
		t.Errorf("got Wilcoxon p %g, want one that tells 16 of 20 prompts from a coin", c.Wilcoxon)
	}
}

// TestFailedPromptIsLeftOut drops a prompt that has no good run in one arm from both, and
// goes by the good runs of another.
func TestFailedPromptIsLeftOut(t *testing.T) {
	t.Parallel()
	l := pair(118, func(s, b *simulated) {
		s.request = func(r *bench.Request) {
			if r.Prompt == "p03" || r.Prompt == "p04" && r.Run == 2 {
				r.Fault, r.Error = server.FaultCut, "cut"
			}
		}
	})
	c := bench.Analyse(l, bench.Judgement{MaxFailed: 0.1}).Levels[0].Compared[0]
	if c.Prompts != simulatedPrompts-1 {
		t.Errorf("got %d prompts compared, want %d", c.Prompts, simulatedPrompts-1)
	}
	want := "1 prompt without a good run in one of the arms: left out of the comparison by prompt"
	if !slices.Contains(c.Notes, want) {
		t.Errorf("got notes %q, want %q", c.Notes, want)
	}
}

// TestTurnsMakeOneConversation pools the turns of a prompt.
func TestTurnsMakeOneConversation(t *testing.T) {
	t.Parallel()
	l := pair(118, nil)
	for i := range l.Passes {
		p := &l.Passes[i]
		for _, r := range slices.Clone(p.Requests) {
			r.Turn = 1
			p.Requests = append(p.Requests, r)
		}
	}
	c := bench.Analyse(l, bench.Judgement{}).Levels[0].Compared[0]
	if c.Prompts != simulatedPrompts || c.ByPrompt.N != simulatedPrompts {
		t.Errorf("got %d prompts, %d units, want %d of each", c.Prompts, c.ByPrompt.N, simulatedPrompts)
	}
}

func TestEqualText(t *testing.T) {
	t.Parallel()
	differ := func(s, b *simulated) {
		s.request = func(r *bench.Request) {
			if r.Prompt <= "p04" {
				r.TextDigest = "other"
			}
		}
	}
	c := bench.Analyse(pair(118, differ), bench.Judgement{}).Levels[0].Compared[0]
	want := "speculation must not change greedy text; 5 of 20 answers differ (batch non-invariance, sampling, or a wrong verify)"
	if c.EqualText == nil || *c.EqualText != 0.75 || !slices.Contains(c.Notes, want) {
		t.Errorf("got %v, notes %q, want 0.75 and %q", c.EqualText, c.Notes, want)
	}
	sampled := pair(118, differ)
	sampled.Plan.Params.Temperature = 1
	if c := bench.Analyse(sampled, bench.Judgement{}).Levels[0].Compared[0]; c.EqualText != nil {
		t.Errorf("got equal text %v at temperature 1, want none", *c.EqualText)
	}
}

// TestPairsByRun matches runs by their number when one arm lacks some.
func TestPairsByRun(t *testing.T) {
	t.Parallel()
	l := pair(118, nil)
	l.Passes = slices.DeleteFunc(l.Passes, func(p bench.Pass) bool {
		return p.Arm == "speculation" && p.Run == 2 || p.Arm == "baseline" && p.Run == 5
	})
	c := bench.Analyse(l, bench.Judgement{}).Levels[0].Compared[0]
	if c.Speedup.N != 3 || c.Outcome != bench.Pays {
		t.Errorf("got %s over %d pairs, want pays over 3", c.Outcome, c.Speedup.N)
	}
}

// TestOpenLoop compares latencies: the throughput of both arms is that of the arrivals.
func TestOpenLoop(t *testing.T) {
	t.Parallel()
	level := bench.Level{Rate: 2}
	l := logOf([]bench.Level{level}, specArm(spread5(118, 0.01, false), 1.6), baseArm(spread5(90, 0.01, true)))
	for i := range l.Passes {
		l.Passes[i].Wall = 10 * time.Second
	}
	r := bench.Analyse(l, bench.Judgement{})
	c := r.Levels[0].Compared[0]
	if got := fmt.Sprintf("%.2f", c.Speedup.Value); got != "1.31" || c.Outcome != bench.Pays {
		t.Errorf("got %s, %s, want 1.31, pays", got, c.Outcome)
	}
	if !strings.HasSuffix(r.Verdict.Sentence, "at rate 2/s") {
		t.Errorf("got %q, want the rate at its end", r.Verdict.Sentence)
	}
}
