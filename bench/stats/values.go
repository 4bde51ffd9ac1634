package stats

import "math"

// largest bounds the values used: powers and sums of such cannot overflow, and no
// measurement is beyond.
const largest = 1e60

func usable(x float64) bool { return math.Abs(x) <= largest }

func positive(x float64) bool { return x >= 1/largest && x <= largest }

// collect gathers the usable among n values and counts the others.
func collect(n int, at func(int) (x float64, ok bool)) (kept []float64, dropped int) {
	kept = make([]float64, 0, n)
	for i := range n {
		if x, ok := at(i); ok {
			kept = append(kept, x)
		}
	}
	return kept, n - len(kept)
}

func logarithms(xs []float64) (logs []float64, dropped int) {
	return collect(len(xs), func(i int) (float64, bool) { return math.Log(xs[i]), positive(xs[i]) })
}

// clamp makes a result finite: 0 for NaN, the largest number for infinity.
func clamp(x float64) float64 {
	if math.IsNaN(x) {
		return 0
	}
	return min(max(x, -math.MaxFloat64), math.MaxFloat64)
}
