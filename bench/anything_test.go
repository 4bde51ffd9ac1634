package bench_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/server"
)

// anyLog is a log in which anything can be missing, zero or absurd.
func anyLog(seed uint64) *bench.Log {
	rng := rand.New(rand.NewPCG(seed, 1))
	chance := func(p float64) bool { return rng.Float64() < p }
	number := func() *float64 {
		if chance(0.3) {
			return nil
		}
		return new([]float64{0, 1, -5, 1e300, -1e300, 1e-300, 1000 * rng.Float64()}[rng.IntN(7)])
	}
	duration := func() time.Duration {
		return []time.Duration{0, 1, -time.Second, 1 << 62, time.Duration(rng.Int64N(int64(time.Minute)))}[min(rng.IntN(12), 4)]
	}
	snapshot := func() server.Snapshot {
		s := server.Snapshot{Steps: number(), Accepted: number(), Drafted: number(), Generated: number(), Finished: number(), Window: number(), Lifetime: number()}
		if chance(0.7) {
			s.Source = "test"
		}
		for range rng.IntN(4) {
			s.Positions = append(s.Positions, 100*rng.Float64())
		}
		return s
	}
	levels := []bench.Level{{}, {Concurrency: 1}, {Concurrency: 8}, {Rate: 2}}[:rng.IntN(5)]
	names := []string{"speculation", "baseline", "steps=1", "steps=3", "steps=3"}[:rng.IntN(6)]
	l := &bench.Log{Plan: bench.Plan{Levels: levels, NumPrompts: rng.IntN(30), Runs: rng.IntN(6), Seed: seed}, Began: began()}
	if chance(0.3) {
		l.Plan.Params.Temperature = 1
	}
	if chance(0.6) {
		l.End = &bench.End{At: began(), Interrupted: chance(0.3)}
	}
	for _, name := range names {
		arm := bench.Arm{Name: name, Role: []bench.Role{bench.Spec, bench.Baseline, ""}[rng.IntN(3)], Steps: rng.IntN(5)}
		l.Plan.Arms = append(l.Plan.Arms, arm)
		if chance(0.7) {
			l.Arms = append(l.Arms, bench.ArmInfo{Arm: name, Info: server.Info{Speculation: server.Speculation{Known: chance(0.5), On: chance(0.5), Steps: rng.IntN(4), TopK: rng.IntN(3)}}})
		}
		for _, level := range append(levels, bench.Level{Concurrency: 99}) {
			for run := range rng.IntN(7) {
				p := bench.Pass{Key: bench.Key{Arm: name, Level: level, Run: run, WarmUp: chance(0.1)}, Wall: duration(), MaxTokens: rng.IntN(200), Complete: chance(0.9), Before: snapshot(), After: snapshot()}
				for i := range rng.IntN(12) {
					r := bench.Request{Key: p.Key, Prompt: string(rune('a' + i%9)), Turn: rng.IntN(2), Due: duration(), Sent: duration()}
					r.FirstToken, r.FirstAnswer, r.LastToken, r.Done = duration(), duration(), duration(), duration()
					r.Usage, r.Tokens, r.Distinct4 = chance(0.9), rng.IntN(200)-10, rng.Float64()
					if chance(0.05) {
						r.Fault, r.Error = server.FaultCut, "cut"
					}
					if chance(0.5) {
						r.ChunkTokens, r.GapsUS = []int{rng.IntN(9), rng.IntN(9)}, []int{rng.IntN(1000)}
					}
					if n := number(); chance(0.5) && n != nil {
						r.Accept = &server.Accept{Steps: *n, Accepted: 50 * rng.Float64(), Drafted: 100 * rng.Float64(), Source: "test"}
					}
					p.Requests = append(p.Requests, r)
				}
				l.Passes = append(l.Passes, p)
			}
		}
	}
	return l
}

// TestAnythingGivesAReport proves that no log panics, that JSON takes every report (it
// holds no NaN and no infinity), and that the same log gives the same.
func TestAnythingGivesAReport(t *testing.T) {
	t.Parallel()
	for seed := range uint64(250) {
		l, other := anyLog(seed), anyLog(seed+1e6)
		j := bench.Judgement{Gate: &bench.Gate{MinAcceptLength: float64(seed % 2)}}
		if seed%3 == 0 {
			j.Promise = &bench.Promise{Given: 2.95}
		}
		if seed%4 == 0 {
			j.Baseline = other
		}
		once, err := json.Marshal([]*bench.Report{bench.Analyse(l, j), bench.Compare(l, other, j)})
		if err != nil {
			t.Fatalf("seed %d: marshal report: %v", seed, err)
		}
		if seed%50 != 0 {
			continue
		}
		again, err := json.Marshal([]*bench.Report{bench.Analyse(l, j), bench.Compare(l, other, j)})
		if err != nil {
			t.Fatalf("seed %d: marshal report again: %v", seed, err)
		}
		if !bytes.Equal(once, again) {
			t.Fatalf("seed %d: the same log gave two reports:\n%s\n%s", seed, once, again)
		}
	}
}

// TestDefinitions proves that what is defined is in the document, under that name.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	var walk func(t reflect.Type)
	walk = func(t reflect.Type) {
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			names[strings.Split(f.Tag.Get("json"), ",")[0]] = true
			walk(f.Type)
		}
	}
	walk(reflect.TypeFor[bench.Report]())
	for name, text := range bench.Analyse(&bench.Log{}, bench.Judgement{}).Definitions {
		if !names[name] {
			t.Errorf("%q is defined (%s), and no member of the document has that name", name, text)
		}
	}
}
