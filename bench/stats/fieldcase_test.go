package stats_test

import (
	"fmt"
	"math"
	"testing"

	"hsx/bench/stats"
)

// TestFieldCase is a draft that was slower than none, twice, and then a little faster:
// five runs of each arm that scatter by 3 %, the baseline at 90 tok/s, accept length 1.6.
func TestFieldCase(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rate             float64
		ratio, breakEven string
		verdict          string
	}{
		"first":     {56.8, "0.63", "2.54", "does not pay"},
		"corrected": {71.3, "0.79", "2.02", "does not pay"},
		"tuned":     {94, "1.04", "1.53", "inconclusive"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arm := func(rate float64, order ...float64) []float64 {
				var rates []float64
				for _, z := range order { // SD of these is 1
					rates = append(rates, rate*math.Exp(0.03*z/math.Sqrt(2.5)))
				}
				return rates
			}
			// The orders have no correlation: pairing neither helps nor harms.
			spec, plain := arm(tc.rate, -2, -1, 0, 1, 2), arm(90, -1, 2, 0, -2, 1)
			for _, e := range []stats.Estimate{stats.Ratio(spec, plain, 0.95), stats.PairedRatio(spec, plain, 0.95)} {
				if got := fmt.Sprintf("%.2f", e.Value); got != tc.ratio {
					t.Errorf("%s: ratio is %s, want %s", e.Method, got, tc.ratio)
				}
				verdict := "inconclusive"
				if e.High < 1 {
					verdict = "does not pay"
				} else if e.Low > 1 {
					verdict = "pays"
				}
				if verdict != tc.verdict {
					t.Errorf("%s: %v is %s, want %s", e.Method, e, verdict, tc.verdict)
				}
			}
			if got := fmt.Sprintf("%.2f", stats.BreakEven(1.6, 90, tc.rate)); got != tc.breakEven {
				t.Errorf("break-even accept length is %s, want %s", got, tc.breakEven)
			}
		})
	}
}
