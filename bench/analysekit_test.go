package bench_test

import (
	"fmt"
	"math"
	"time"

	"hsx/bench"
	"hsx/bench/server"
)

// simulated is an arm whose figures are known: what Analyse has to find again.
type simulated struct {
	arm     bench.Arm
	rates   []float64 // tokens per second of each run, at every level
	tau     float64   // accept length; 0 for an arm that does not speculate
	tokens  int       // of each answer, 0 is 100
	info    server.Info
	pass    func(p *bench.Pass)    // changes a pass after it is built
	request func(r *bench.Request) // changes every request
}

// simulatedPrompts are enough for a bootstrap.
const simulatedPrompts = 20

func began() time.Time { return time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC) }

func specArm(rates []float64, tau float64) simulated {
	return simulated{
		arm: bench.Arm{Name: "speculation", Role: bench.Spec, URL: "http://spec:1"}, rates: rates, tau: tau,
		info: server.Info{Engine: server.SGLang, Model: "m", Speculation: server.Speculation{Known: true, On: true, Steps: 3, TopK: 1}},
	}
}

func baseArm(rates []float64) simulated {
	return simulated{
		arm: bench.Arm{Name: "baseline", Role: bench.Baseline, URL: "http://base:1"}, rates: rates,
		info: server.Info{Engine: server.SGLang, Model: "m", Speculation: server.Speculation{Known: true}},
	}
}

// spread5 gives five runs of a mean rate and a coefficient of variation. Two orders are
// not correlated, so that pairing runs of one with runs of the other gains nothing.
func spread5(mean, cv float64, other bool) []float64 {
	z := []float64{1, -2, 0, 2, -1}
	if other {
		z = []float64{0, 2, -1, 1, -2}
	}
	for i := range z {
		z[i] = mean * math.Exp(cv*z[i]/math.Sqrt(2.5))
	}
	return z
}

// logOf is a whole measurement at temperature 0 of 20 prompts in a closed loop, the arms
// in turns. Every answer has as many tokens as another, and its latency is such that the
// run has its rate.
func logOf(levels []bench.Level, arms ...simulated) *bench.Log {
	l := &bench.Log{
		Plan:  bench.Plan{Levels: levels, Digest: "d", NumPrompts: simulatedPrompts, WarmUpRuns: 2, Seed: 42},
		Began: began(), End: &bench.End{At: began().Add(time.Hour)},
	}
	for i := range arms {
		l.Plan.Arms = append(l.Plan.Arms, arms[i].arm)
		l.Plan.Runs = max(l.Plan.Runs, len(arms[i].rates))
		l.Arms = append(l.Arms, bench.ArmInfo{Arm: arms[i].arm.Name, Info: arms[i].info})
	}
	for _, level := range levels {
		for run := range l.Plan.Runs {
			for i := range arms {
				if run%2 == 1 {
					i = len(arms) - 1 - i
				}
				if run < len(arms[i].rates) {
					l.Passes = append(l.Passes, arms[i].measure(level, run, began().Add(time.Duration(len(l.Passes))*time.Minute)))
				}
			}
		}
	}
	return l
}

func (s *simulated) measure(level bench.Level, run int, at time.Time) bench.Pass {
	p := bench.Pass{
		Key:   bench.Key{Arm: s.arm.Name, Level: level, Run: run + 1},
		Began: at, MaxTokens: 2048, Complete: true,
	}
	tokens := s.tokens
	if tokens == 0 {
		tokens = 100
	}
	at1 := float64(max(level.Concurrency, 1))
	for i := range simulatedPrompts {
		// Prompts differ, and their latencies have the mean that the rate asks for.
		weight := 1 + 0.2*(float64(i)-(simulatedPrompts-1)/2.)/simulatedPrompts
		latency := time.Duration(weight * at1 * float64(tokens) / s.rates[run] * 1e9)
		r := bench.Request{Key: p.Key, Prompt: fmt.Sprintf("p%02d", i)}
		r.Attempts, r.Usage, r.Tokens, r.Status, r.Distinct4 = 1, true, tokens, 200, 1
		r.FinishReason, r.TextDigest = "stop", r.Prompt
		r.FirstChunk, r.FirstToken, r.FirstAnswer = latency/10, latency/10, latency/10
		r.LastToken, r.Done = latency, latency
		if s.tau > 0 {
			// A tenth more or less, as real prompts are not all alike.
			more := 0.1 * float64(1-2*(i%2))
			r.Accept = &server.Accept{Steps: 60, Accepted: 60 * ((s.tau - 1) + more), Drafted: 180, Source: "test"}
		}
		if s.request != nil {
			s.request(&r)
		}
		p.Wall += time.Duration(float64(latency) / at1)
		p.Requests = append(p.Requests, r)
	}
	if s.pass != nil {
		s.pass(&p)
	}
	return p
}

func concurrency(n ...int) []bench.Level {
	var levels []bench.Level
	for _, c := range n {
		levels = append(levels, bench.Level{Concurrency: c})
	}
	return levels
}
