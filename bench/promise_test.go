package bench_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hsx/bench"
	"hsx/bench/server"
)

// chained is a draft of so many steps whose positions have this conditional acceptance.
func chained(conditional ...float64) *server.Accept {
	a := &server.Accept{Steps: 1000, Drafted: 1000 * float64(len(conditional)), Source: "x"}
	p := a.Steps
	for _, c := range conditional {
		p *= c
		a.Positions = append(a.Positions, p)
		a.Accepted += p
	}
	return a
}

// ofLength is a draft of so many steps whose accept length is τ, without positions.
func ofLength(steps int, tau float64) *server.Accept {
	return &server.Accept{Steps: 1000, Drafted: 1000 * float64(steps), Accepted: 1000 * (tau - 1), Source: "x"}
}

// promised is the report on a promise where every answer carries a; spread makes prompts
// differ by it.
func promised(p *bench.Promise, sp server.Speculation, a *server.Accept, spread float64) *bench.Report {
	arm := specArm([]float64{100, 101, 99}, 0)
	arm.info.Speculation = sp
	arm.request = func(r *bench.Request) {
		if a == nil {
			return
		}
		b := *a
		b.Accepted += b.Steps * spread * float64(1-2*int(r.Prompt[2]%2))
		r.Accept = &b
	}
	return bench.Analyse(logOf(concurrency(1), arm), bench.Judgement{Promise: p})
}

func number(given float64) *bench.Promise {
	return &bench.Promise{Given: given, Source: "--promised", Form: "number"}
}

func positions(c ...float64) *bench.Promise {
	return &bench.Promise{Given: 1, Positions: c, ExcludesBonus: new(true), Source: "log", Form: "specforge"}
}

func TestPromise(t *testing.T) {
	t.Parallel()
	with, without := number(2.95), number(2.95)
	with.ExcludesBonus, without.ExcludesBonus = new(false), new(true)
	logged := &bench.Promise{Given: 2.95, ExcludesBonus: new(true), Source: "log", Form: "torchspec", Note: "line 7"}
	tests := map[string]struct {
		promise   *bench.Promise
		sp        server.Speculation
		accept    *server.Accept
		spread    float64
		steps     int
		includes  bool
		tau       float64 // promised
		other     float64
		cut       bool
		estimated bool
		outcome   string
		why       string // a part of it
		meaning   string // likewise
	}{
		"one step served, and 2.95 promised": {
			promise: number(2.95), sp: chain(1), accept: ofLength(1, 1.65), spread: 0.05,
			steps: 1, includes: true, tau: 1.66, other: 1.75, cut: true, estimated: true, outcome: "kept",
			why: "not said: read as servers and the EAGLE papers count, with the bonus token; 2.95 cannot be reached with 1 step, at most 2.00: estimated with one acceptance, 0.66, at each position",
		},
		"one step served, without the bonus token": {
			promise: without, sp: chain(1), accept: ofLength(1, 1.7),
			steps: 1, tau: 1.75, cut: true, estimated: true, outcome: "kept",
			why: "--promised-excludes-bonus says so; 3.95 cannot be reached with 1 step",
		},
		"one step served, and too few accepted": {
			promise: number(2.95), sp: chain(1), accept: ofLength(1, 1.3),
			steps: 1, includes: true, tau: 1.66, other: 1.75, cut: true, estimated: true, outcome: "broken",
			meaning: "the first position is where inputs show",
		},
		"three steps, broken however it is read": {
			promise: number(2.95), sp: chain(3), accept: ofLength(3, 1.6),
			steps: 3, includes: true, tau: 2.39, other: 2.72, cut: true, estimated: true, outcome: "broken",
		},
		"three steps, broken or kept as it is read": {
			promise: number(2.95), sp: chain(3), accept: ofLength(3, 2.5),
			steps: 3, includes: true, tau: 2.39, other: 2.72, cut: true, estimated: true, outcome: "not comparable",
			why: "if it was promised for 3 steps it stays 2.95", meaning: "the training log, or --promised-excludes-bonus, would settle it",
		},
		"three steps, kept however it is read": {
			promise: with, sp: chain(3), accept: ofLength(3, 2.9),
			steps: 3, includes: true, tau: 2.39, cut: true, estimated: true, outcome: "kept",
		},
		"exceeded": {
			promise: with, sp: chain(3), accept: ofLength(3, 3.5),
			steps: 3, includes: true, tau: 2.39, cut: true, estimated: true, outcome: "exceeded",
		},
		"steps not known": {
			promise: number(2.95), accept: &server.Accept{Steps: 100, Accepted: 190, Source: "x"},
			includes: true, tau: 2.95, other: 3.95, outcome: "not comparable",
		},
		"below 1": {
			promise: number(0.9), sp: chain(1), accept: ofLength(1, 1.45),
			steps: 1, tau: 1.47, cut: true, estimated: true, outcome: "not comparable", why: "below 1, which no accept length with the bonus token is",
		},
		"a log's sum": {
			promise: logged, sp: chain(1), accept: ofLength(1, 1.7),
			steps: 1, tau: 1.75, cut: true, estimated: true, outcome: "kept", why: "torchspec logs it without the bonus token",
		},
		"a log's positions, cut": {
			promise: positions(0.747, 0.7, 0.66, 0.6), sp: chain(2), accept: chained(0.74, 0.7),
			steps: 2, tau: 1 + 0.747 + 0.747*0.7, cut: true, outcome: "kept", why: "from the acceptance of each position, and the bonus token",
		},
		"a log's positions, fewer than served": {
			promise: positions(0.75, 0.7), sp: chain(3), accept: chained(0.75, 0.7, 0.6),
			steps: 3, tau: 1 + 0.75 + 0.525, cut: true, outcome: "exceeded", why: "training looked at 2 positions only",
		},
		"a log's positions, steps not known": {
			promise: positions(0.75, 0.7), accept: &server.Accept{Steps: 100, Accepted: 60, Source: "x"},
			tau: 1 + 0.75 + 0.525, outcome: "broken", meaning: "not known by position",
		},
		"first position": {
			promise: positions(0.75, 0.7, 0.65), sp: chain(3), accept: chained(0.4, 0.68, 0.64),
			steps: 3, tau: 1 + 0.75 + 0.525 + 0.34125, cut: true, outcome: "broken", meaning: "wrong layers or their order",
		},
		"later position": {
			promise: positions(0.75, 0.7, 0.65), sp: chain(3), accept: chained(0.74, 0.4, 0.3),
			steps: 3, tau: 1 + 0.75 + 0.525 + 0.34125, cut: true, outcome: "broken", meaning: "training-time test",
		},
		"fewer steps run than the server says": {
			promise: positions(0.75, 0.7, 0.65), sp: chain(16), accept: ofLength(1, 1.74),
			steps: 1, tau: 1.75, cut: true, outcome: "kept",
		},
		"a tree": {
			promise: positions(0.75, 0.7, 0.65, 0.6), sp: server.Speculation{On: true, Steps: 3, TopK: 4, DraftTokens: 16}, accept: ofLength(15, 3),
			steps: 3, tau: 1 + 0.75 + 0.525 + 0.34125, cut: true, outcome: "exceeded",
		},
		"nothing measured": {
			promise: positions(0.75), sp: chain(1),
			steps: 1, tau: 1.75, cut: true, outcome: "not comparable", meaning: "no accept length was measured",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := promised(tt.promise, tt.sp, tt.accept, tt.spread).Promise
			source := tt.promise.Source
			if tt.promise == logged {
				source = "log: line 7"
			}
			want := &bench.PromiseReport{
				Given: tt.promise.Given, Source: source, Includes: tt.includes, Steps: tt.steps,
				Promised: tt.tau, Cut: tt.cut, Estimated: tt.estimated, Alternative: tt.other, Outcome: tt.outcome,
			}
			ignore := cmpopts.IgnoreFields(bench.PromiseReport{}, "Why", "Meaning", "Measured", "Gap", "Positions", "Parts")
			if diff := cmp.Diff(want, r, ignore, cmpopts.EquateApprox(0, 0.005)); diff != "" {
				t.Errorf("promise (-want +got):\n%s", diff)
			}
			if tt.accept != nil && math.Abs(r.Gap-(r.Measured.Value-r.Promised)) > 1e-9 || tt.accept == nil && r.Gap != 0 {
				t.Errorf("got gap %.3f of %.3f and %.3f", r.Gap, r.Measured.Value, r.Promised)
			}
			if !strings.Contains(r.Why, tt.why) || r.Why == "" || !strings.Contains(r.Meaning, tt.meaning) {
				t.Errorf("got why %q and meaning %q, want %q and %q in them", r.Why, r.Meaning, tt.why, tt.meaning)
			}
		})
	}
}

// TestPromiseOfLowTrust gives no verdict on what a gauge says.
func TestPromiseOfLowTrust(t *testing.T) {
	t.Parallel()
	arm := specArm([]float64{100, 101}, 0)
	arm.pass = func(p *bench.Pass) { p.After.Window = new(1.2) }
	r := bench.Analyse(logOf(concurrency(1), arm), bench.Judgement{Promise: positions(0.75, 0.7, 0.65)}).Promise
	if want := "the source, gauge, is not to be trusted with a verdict"; r.Outcome != "not comparable" || r.Meaning != want {
		t.Errorf("got %s: %q, want not comparable: %q", r.Outcome, r.Meaning, want)
	}
}

// TestPromiseParts finds the position at which a draft falls behind what was promised by
// more than chance.
func TestPromiseParts(t *testing.T) {
	t.Parallel()
	trained := positions(0.75, 0.7, 0.65)
	tests := map[string]struct {
		accept *server.Accept
		parts  int
	}{
		"all as promised":      {chained(0.75, 0.7, 0.65), 0},
		"a little less":        {chained(0.71, 0.66, 0.61), 0},
		"the first":            {chained(0.69, 0.7, 0.65), 1},
		"the second":           {chained(0.74, 0.5, 0.65), 2},
		"the last":             {chained(0.75, 0.7, 0.5), 3},
		"few steps, by chance": {&server.Accept{Steps: 1, Drafted: 3, Accepted: 1.3, Positions: []float64{0.65, 0.4, 0.25}, Source: "x"}, 0},
		"fewer served":         {chained(0.75, 0.5), 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := promised(trained, chain(len(tt.accept.Positions)), tt.accept, 0).Promise
			if r.Parts != tt.parts || len(r.Positions) != len(tt.accept.Positions) {
				t.Errorf("got position %d of %+v, want %d of %d", r.Parts, r.Positions, tt.parts, len(tt.accept.Positions))
			}
		})
	}
}
