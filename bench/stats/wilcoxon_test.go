package stats_test

import (
	"math"
	"testing"

	"hsx/bench/stats"
)

func TestWilcoxon(t *testing.T) {
	t.Parallel()
	var sixty, tied []float64 // a third of them negative
	for i := 1; i <= 60; i++ {
		sign := 1.0
		if i%3 == 0 {
			sign = -1
		}
		sixty = append(sixty, sign*float64(i))
		tied = append(tied, sign*math.Ceil(float64(i)/4))
	}
	// signed gives ranks 1 to n a sign each, so that the negative ones sum as wanted.
	signed := func(n int, negative ...int) []float64 {
		d := make([]float64, n)
		for i := range d {
			d[i] = float64(i + 1)
		}
		for _, r := range negative {
			d[r-1] = -d[r-1]
		}
		return d
	}
	tests := map[string]struct {
		d    []float64
		want float64
		tol  float64
	}{
		"nothing":              {nil, 1, 0},
		"zeros":                {[]float64{0, 0}, 1, 0},
		"unusable":             {[]float64{math.NaN(), inf()}, 1, 0},
		"one":                  {[]float64{3}, 1, 0},
		"five alike":           {signed(5), 2. / 32, 1e-15},
		"six alike":            {signed(6), 2. / 64, 1e-15},
		"six, sum 1":           {signed(6, 1), 4. / 64, 1e-15},
		"eight, sum 3":         {signed(8, 3), 10. / 256, 1e-15}, // the table's limit at 5 %
		"eight, sum 4":         {signed(8, 4), 14. / 256, 1e-15},
		"ten, sum 8":           {signed(10, 8), 50. / 1024, 1e-15}, // likewise
		"zeros leave no trace": {append(signed(8, 3), 0, 0), 10. / 256, 1e-15},
		// Signs of |d| 1, 1, 2, 2 with ranks 1.5, 1.5, 3.5, 3.5: two of 16 have sum ≤ 1.5
		// below, with the empty one three; twice that.
		"ties":                  {[]float64{1, -1, 2, 2}, 6. / 16, 1e-15},
		"all tied":              {[]float64{1, 1, 1, -1}, 10. / 16, 1e-15},
		"balanced":              {[]float64{1, -1}, 1, 0},
		"Darwin's maize":        {[]float64{6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75}, 0.041259765625, 1e-15},
		"Hamilton depression":   {[]float64{-0.952, 0.147, -1.022, -0.43, -0.62, -0.59, -0.49, 0.08, -0.01}, 0.0390625, 1e-15},
		"sixty, normal":         {sixty, 0.0362264941788, 1e-12},
		"sixty, normal, ties":   {tied, 0.0361318136733, 1e-12},
		"sixty balanced at all": {append(sixty[:30:30], negated(sixty[:30])...), 1, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := stats.Wilcoxon(tc.d); math.Abs(got-tc.want) > tc.tol {
				t.Errorf("p of %v: got %v, want %v", tc.d, got, tc.want)
			}
		})
	}
}

func negated(xs []float64) []float64 {
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = -x
	}
	return out
}
