package stats_test

import (
	"math"
	"testing"

	"hsx/bench/stats"
)

func TestFirstRun(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rates     []float64
		slower, z float64
		outlier   bool
	}{
		"steady":             {[]float64{100, 101, 99, 100, 102, 98}, 0, 0, false},
		"cold":               {[]float64{80, 101, 99, 100, 102, 98}, 0.2, -20 / 1.4826, true},
		"cold, no spread":    {[]float64{90, 100, 100, 100, 100}, 0.1, -10, true},
		"hair, no spread":    {[]float64{99, 100, 100, 100, 100}, 0.01, -1, false},
		"slow within spread": {[]float64{96, 110, 100, 90, 80, 120}, 0.04, -4 / 14.826, false},
		"fast":               {[]float64{104, 101, 99, 100, 102, 98}, -0.04, 4 / 1.4826, false},
		"too fast":           {[]float64{106, 101, 99, 100, 102, 98}, -0.06, 6 / 1.4826, true},
		"three runs":         {[]float64{96, 100, 100}, 0.04, 0, false},
		"three runs, cold":   {[]float64{94, 100, 100}, 0.06, 0, true},
		"even count":         {[]float64{100, 90, 110}, 0, 0, false},
		"dead":               {[]float64{0, 100, 100}, 1, 0, true},
		"later dead":         {[]float64{100, 0, -1, math.NaN(), 100}, 0, 0, false},
		"one":                {[]float64{100}, 0, 0, false},
		"none":               {nil, 0, 0, false},
		"unusable":           {[]float64{math.NaN(), 100}, 0, 0, false},
		"endless":            {[]float64{inf(), 100}, 0, 0, false},
		"negative":           {[]float64{-100, 100}, 0, 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slower, z, outlier := stats.FirstRun(tc.rates)
			if math.Abs(slower-tc.slower) > 1e-12 || math.Abs(z-tc.z) > 1e-9 || outlier != tc.outlier {
				t.Errorf("got slower %v, z %v, outlier %v, want %v, %v, %v", slower, z, outlier, tc.slower, tc.z, tc.outlier)
			}
		})
	}
}

// p-values are those of scipy.stats.linregress and ttest_ind.
func TestTrend(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		xs       []float64
		slope, p float64
	}{
		"throttling":     {[]float64{100, 98, 99, 95, 94}, -0.0154320987654, 0.0287156084068},
		"straight":       {[]float64{1, 2, 3}, 0.5, 0},
		"place is kept":  {[]float64{1, math.NaN(), 3, -1, 5}, 1. / 3, 0},
		"symmetric":      {[]float64{1, 2, 1}, 0, 1},
		"constant":       {[]float64{0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, 0, 1},
		"two":            {[]float64{1, 2}, 0, 1},
		"none":           {nil, 0, 1},
		"none is usable": {[]float64{0, -1, inf(), math.NaN()}, 0, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			slope, p := stats.Trend(tc.xs)
			if math.Abs(slope-tc.slope) > 1e-12 || math.Abs(p-tc.p) > 1e-10 {
				t.Errorf("got slope %v, p %v, want %v, %v", slope, p, tc.slope, tc.p)
			}
		})
	}
}

func TestOrderEffect(t *testing.T) {
	t.Parallel()
	abba := []bool{true, false, false, true, true}
	tests := map[string]struct {
		ratios    []float64
		firstIsA  []bool
		effect, p float64
	}{
		"first gains":    {[]float64{1.10, 1.05, 1.04, 1.12, 1.11}, abba, 0.0306232957704, 0.00417495803469},
		"roles swapped":  {[]float64{1 / 1.10, 1 / 1.05, 1 / 1.04, 1 / 1.12, 1 / 1.11}, []bool{false, true, true, false, false}, 0.0306232957704, 0.00417495803469},
		"second gains":   {[]float64{0.9, 1, 1, 0.9}, abba[:4], math.Sqrt(0.9) - 1, 0},
		"none":           {floats(5, 1.1), abba, 0, 1},
		"always A first": {[]float64{1, 2, 3}, []bool{true, true, true}, 0, 1},
		"two pairs":      {[]float64{1, 2}, abba, 0, 1},
		"unusable":       {[]float64{0, math.NaN(), inf(), -1, 1}, abba, 0, 1},
		"empty":          {nil, nil, 0, 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			effect, p := stats.OrderEffect(tc.ratios, tc.firstIsA)
			if math.Abs(effect-tc.effect) > 1e-10 || math.Abs(p-tc.p) > 1e-10 {
				t.Errorf("got effect %v, p %v, want %v, %v", effect, p, tc.effect, tc.p)
			}
		})
	}
}
