package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestCoverage simulates how often a nominal 95 % interval holds the true mean. The wants
// were simulated apart from this code, with as many trials and resamples; both are
// uncertain by the binomial error, and a difference of three of its sizes fails.
func TestCoverage(t *testing.T) {
	t.Parallel()
	const trials, resamples = 1500, 600
	studentT := func(xs []float64, _ uint64) (low, high float64) {
		e := Mean(xs, 0.95)
		return e.Low, e.High
	}
	percentile := func(xs []float64, seed uint64) (low, high float64) {
		ones := make([]float64, len(xs))
		for i := range ones {
			ones[i] = 1
		}
		return bootstrap(xs, ones, 0.95, resamples, seed)
	}
	tests := []struct {
		name              string
		interval          func(xs []float64, seed uint64) (low, high float64)
		n                 int
		normal, lognormal float64
	}{
		{"t", studentT, 3, 0.951, 0.921},
		{"t", studentT, 5, 0.952, 0.914},
		{"t", studentT, 10, 0.949, 0.926},
		{"percentile", percentile, 5, 0.845, 0.799}, // what forbids it for runs
		{"percentile", percentile, 20, 0.918, 0.915},
		{"percentile", percentile, 40, 0.939, 0.925},
		{"percentile", percentile, 80, 0.939, 0.929},
	}
	for _, tc := range tests {
		t.Run(fmt.Sprintf("%s of %d", tc.name, tc.n), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, uint64(tc.n)))
			var normal, lognormal float64
			xs, logs := make([]float64, tc.n), make([]float64, tc.n)
			for trial := range uint64(trials) {
				for i := range xs {
					xs[i] = rng.NormFloat64()
					logs[i] = math.Exp(xs[i] / 2)
				}
				if low, high := tc.interval(xs, trial); low <= 0 && 0 <= high {
					normal++
				}
				if low, high := tc.interval(logs, trial); low <= math.Exp(0.125) && math.Exp(0.125) <= high {
					lognormal++
				}
			}
			for _, c := range []struct {
				of        string
				got, want float64
			}{{"normal", normal / trials, tc.normal}, {"lognormal", lognormal / trials, tc.lognormal}} {
				allowed := 3 * math.Sqrt(2*c.want*(1-c.want)/trials)
				if math.Abs(c.got-c.want) > allowed {
					t.Errorf("coverage over %s values: got %.3f, want %.3f ± %.3f", c.of, c.got, c.want, allowed)
				}
			}
		})
	}
}
