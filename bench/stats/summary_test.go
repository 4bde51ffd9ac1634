package stats_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/stats"
)

func TestSummarise(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100) // 100 down to 1
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	tests := map[string]struct {
		in   []float64
		want stats.Summary
	}{
		"nothing":  {nil, stats.Summary{}},
		"unusable": {[]float64{math.NaN(), inf()}, stats.Summary{Dropped: 2}},
		"one":      {[]float64{-4}, stats.Summary{N: 1, Mean: -4, Median: -4, Min: -4, Max: -4, P50: new(-4.)}},
		"mean 0":   {[]float64{1, -1}, stats.Summary{N: 2, SD: math.Sqrt2, Min: -1, Max: 1, P50: new(0.)}},
		"nine": {
			[]float64{9, 1, 8, 2, 7, 3, 6, 4, 5},
			stats.Summary{N: 9, Mean: 5, Median: 5, SD: math.Sqrt(7.5), CV: math.Sqrt(7.5) / 5, Min: 1, Max: 9, P50: new(5.)},
		},
		"ten": {
			[]float64{10, 9, 1, 8, 2, 7, 3, 6, 4, 5},
			stats.Summary{N: 10, Mean: 5.5, Median: 5.5, SD: math.Sqrt(82.5 / 9), CV: math.Sqrt(82.5/9) / 5.5, Min: 1, Max: 10, P50: new(5.5), P90: new(9.1)},
		},
		"hundred": {
			hundred,
			stats.Summary{
				N: 100, Mean: 50.5, Median: 50.5, SD: math.Sqrt(83325. / 99), CV: math.Sqrt(83325./99) / 50.5,
				Min: 1, Max: 100, P50: new(50.5), P90: new(90.1), P99: new(99.01),
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, stats.Summarise(tc.in), approx()); diff != "" {
				t.Errorf("summary (-want +got):\n%s", diff)
			}
		})
	}
	if hundred[0] != 100 {
		t.Errorf("input: got %v first, want 100: it is to stay as it was", hundred[0])
	}
}

// Wants are those of numpy.quantile.
func TestQuantile(t *testing.T) {
	t.Parallel()
	powers := []float64{1, 2, 4, 8, 16, 32}
	tests := map[string]struct {
		sorted  []float64
		p, want float64
	}{
		"least":      {powers, 0, 1},
		"tenth":      {powers, 0.1, 1.5},
		"quarter":    {powers, 0.25, 2.5},
		"median":     {powers, 0.5, 6},
		"nine tenth": {powers, 0.9, 24},
		"most":       {powers, 1, 32},
		"below 0":    {powers, -3, 1},
		"above 1":    {powers, inf(), 32},
		"no p":       {powers, math.NaN(), 1},
		"no values":  {nil, 0.5, 0},
		"one value":  {[]float64{3}, 0.7, 3},
		"infinite":   {[]float64{-inf(), inf()}, 0.5, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := stats.Quantile(tc.sorted, tc.p); math.Abs(got-tc.want) > 1e-12 {
				t.Errorf("quantile %v of %v: got %v, want %v", tc.p, tc.sorted, got, tc.want)
			}
		})
	}
}
