package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Summary describes values, in their unit. Everything is 0 or nil where N is 0.
type Summary struct {
	N       int      `json:"n"`
	Dropped int      `json:"dropped"` // values left out because they are unusable
	Mean    float64  `json:"mean"`
	Median  float64  `json:"median"`
	SD      float64  `json:"sd"` // of the sample; 0 for fewer than two values
	CV      float64  `json:"cv"` // SD/|Mean|; 0 when the mean is 0
	Min     float64  `json:"min"`
	Max     float64  `json:"max"`
	P50     *float64 `json:"p50"` // Median, in the form of its neighbours
	P90     *float64 `json:"p90"` // nil for fewer than 10 values
	P99     *float64 `json:"p99"` // nil for fewer than 100 values
}

// Summarise describes xs, which it does not change.
func Summarise(xs []float64) Summary {
	xs, dropped := collect(len(xs), func(i int) (float64, bool) { return xs[i], usable(xs[i]) })
	s := Summary{N: len(xs), Dropped: dropped}
	if s.N == 0 {
		return s
	}
	slices.Sort(xs)
	percentile := func(p float64, atLeast int) *float64 {
		if s.N < atLeast {
			return nil
		}
		return new(Quantile(xs, p))
	}
	s.Mean, s.Min, s.Max = stat.Mean(xs, nil), xs[0], xs[s.N-1]
	s.P50, s.P90, s.P99 = percentile(0.5, 1), percentile(0.9, 10), percentile(0.99, 100)
	s.Median = *s.P50
	if s.N > 1 {
		s.SD = stat.StdDev(xs, nil)
	}
	if s.Mean != 0 {
		s.CV = clamp(s.SD / math.Abs(s.Mean))
	}
	return s
}

// Quantile is the p-quantile of ascending values, interpolated linearly between the
// closest two (type 7, as R and NumPy do). It is 0 for no values; p is cut to [0, 1], and
// a p that is NaN is 0.
func Quantile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	at := min(max(clamp(p), 0), 1) * float64(len(sorted)-1)
	i := int(at)
	low, part := sorted[i], at-float64(i)
	if part == 0 {
		return clamp(low)
	}
	return clamp(low + part*(sorted[i+1]-low))
}
