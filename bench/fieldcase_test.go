package bench_test

import (
	"fmt"
	"math"
	"testing"

	"hsx/bench"
)

// TestFieldCase holds the rates of the field case against its baseline of 90 tok/s, five
// runs of each, with a spread of 3 %.
func TestFieldCase(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rate      float64
		speedup   string
		breakEven string
		promised  string // speedup at 2.95
		outcome   bench.Outcome
		sentence  string
	}{
		"16 draft tokens": {56.8, "0.63", "2.54", "1.16", bench.DoesNotPay,
			"Speculation does not pay: 0.63× (95 % CI 0.60–0.67) at concurrency 1"},
		"clean server": {71.3, "0.79", "2.02", "1.46", bench.DoesNotPay,
			"Speculation does not pay: 0.79× (95 % CI 0.75–0.84) at concurrency 1"},
		"2 steps": {94, "1.04", "1.53", "1.93", bench.Inconclusive,
			"Speculation: inconclusive, 1.04× (95 % CI 0.99–1.10) at concurrency 1, within the noise: about 75 runs of each arm would settle it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := logOf(concurrency(1), specArm(spread5(tt.rate, 0.03, false), 1.6), baseArm(spread5(90, 0.03, true)))
			// 0.8 at each of three positions: 1 + 0.8 + 0.64 + 0.512 = 2.95.
			promise := &bench.Promise{Given: 1.95, Positions: []float64{0.8, 0.8, 0.8}, ExcludesBonus: new(true)}
			r := bench.Analyse(log, bench.Judgement{Promise: promise})
			c := r.Levels[0].Compared[0]
			for what, pair := range map[string][2]string{
				"speedup":            {two(c.Speedup.Value), tt.speedup},
				"break-even":         {two(c.BreakEven), tt.breakEven},
				"speedup at promise": {two(c.AtPromise), tt.promised},
				"sentence":           {r.Verdict.Sentence, tt.sentence},
				"outcome":            {string(r.Verdict.Outcome), string(tt.outcome)},
			} {
				if pair[0] != pair[1] {
					t.Errorf("%s: got %s, want %s", what, pair[0], pair[1])
				}
			}
			if !c.Paired || c.Speedup.N != 5 {
				t.Errorf("got paired %v over %d pairs, want 5 pairs", c.Paired, c.Speedup.N)
			}
			if len(r.Verdict.Warnings) != 0 {
				t.Errorf("got warnings %q, want none", r.Verdict.Warnings)
			}
			if cv := r.Levels[0].Arms[0].CV; math.Abs(cv-0.03) > 0.0005 || r.Levels[0].Arms[0].Spread != "excellent" {
				t.Errorf("got spread %.4f (%s), want 0.03, excellent", cv, r.Levels[0].Arms[0].Spread)
			}
		})
	}
}

func two(x float64) string { return fmt.Sprintf("%.2f", x) }
