package bench_test

import (
	"math"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/stats"
	"hsx/internal/simserver"
)

// simSeeds is how many measurements a rate is taken from, each with a seed of its own.
const simSeeds = 200

// covered counts intervals that hold the truth.
type covered struct{ n, of int }

func (c *covered) add(e stats.Estimate, truth float64) {
	c.of++
	if e.Bounded && e.Low <= truth && truth <= e.High {
		c.n++
	}
}

// want holds the share against that at which such intervals cover, within three standard
// deviations of the binomial distribution.
func (c *covered) want(t *testing.T, what string, share float64) {
	t.Helper()
	got, error3 := float64(c.n)/float64(c.of), 3*math.Sqrt(share*(1-share)/float64(c.of))
	if math.Abs(got-share) > error3 {
		t.Errorf("%s: %d of %d intervals hold the truth, %.3f of them; want %.3f ± %.3f", what, c.n, c.of, got, share, error3)
	}
}

// TestSimSpeedupCovers repeats a whole measurement of noisy servers: the interval of the
// speedup holds the speedup that they would have without noise, and where speculation
// gains nothing, it seldom seems to pay.
func TestSimSpeedupCovers(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		accept []float64
		seeds  int
	}{"speculation gains": {[]float64{0.8, 0.6, 0.4}, 60}, "speculation gains nothing": {nil, simSeeds}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var coverage covered
			pays, paysByMargin := 0, 0
			for seed := range uint64(tt.seeds) {
				noisy := func(a *simArm) {
					a.Seed, a.Spread, a.Phase, a.MinTokens, a.MaxTokens, a.Step = seed, 0.05, 1, 4, 16, 10*time.Millisecond
					a.Accept = tt.accept
				}
				run := simulate(t, simRun{
					spec: speculating(simserver.OpenAI).with(noisy), base: plain(simserver.OpenAI).with(noisy),
					plan: func(p *bench.Plan) { p.Prompts, p.Runs, p.WarmUpRuns = simPrompts(3), 5, 0 },
				})
				if run.err != nil {
					t.Fatalf("Run: got error %v, want none", run.err)
				}
				r := bench.Analyse(run.log, bench.Judgement{Margin: 1e-9})
				spec, base := run.truth["spec"], run.truth["base"]
				coverage.add(r.Levels[0].Compared[0].Speedup, float64(base.Tokens-base.Requests)/float64(spec.Steps))
				if r.Verdict.Outcome == bench.Pays {
					pays++
				}
				if run.report().Verdict.Outcome == bench.Pays {
					paysByMargin++
				}
			}
			coverage.want(t, "speedup over runs", 0.95)
			if tt.accept != nil {
				if paysByMargin < tt.seeds {
					t.Errorf("pays: got %d of %d, want all", paysByMargin, tt.seeds)
				}
				return
			}
			most := int(0.025*simSeeds + 3*math.Sqrt(0.025*0.975*simSeeds)) // three standard deviations above 2.5 %
			if pays > most || paysByMargin > pays {
				t.Errorf("pays: got %d of %d, %d by the margin; want at most %v", pays, simSeeds, paysByMargin, most)
			}
		})
	}
}

// TestSimPromptsCover measures other prompts again and again. The draft accepts nothing
// beyond some length, so that prompts differ and long answers weigh more. The truth is
// that of all prompts of all measurements.
func TestSimPromptsCover(t *testing.T) {
	t.Parallel()
	var accepts, ratios []stats.Estimate
	var all simserver.Truth
	for seed := range uint64(simSeeds) {
		change := func(a *simArm) {
			a.Seed, a.MinTokens, a.MaxTokens, a.PerRequest, a.Reach = seed, 4, 16, true, 8
		}
		run := simulate(t, simRun{
			spec: speculating(simserver.VLLM).with(change), base: plain(simserver.OpenAI).with(change),
			plan: func(p *bench.Plan) { p.Prompts, p.Runs, p.WarmUpRuns = simPrompts(20), 1, 0 },
		})
		if run.err != nil {
			t.Fatalf("Run: got error %v, want none", run.err)
		}
		r := run.report()
		accepts, ratios = append(accepts, r.Accept[0].Pooled), append(ratios, r.Levels[0].Compared[0].ByPrompt)
		all = simAdd(all, run.truth["spec"], 1)
	}
	var mean float64
	for _, e := range ratios {
		mean += math.Log(e.Value) / simSeeds
	}
	var tau, ratio covered
	for i := range accepts {
		tau.add(accepts[i], simTau(all))
		ratio.add(ratios[i], math.Exp(mean))
	}
	// A percentile bootstrap over 20 covers 0.918, as package stats has it.
	tau.want(t, "accept length over prompts", 0.918)
	ratio.want(t, "speedup over prompts", 0.918)
}
