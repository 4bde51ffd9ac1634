package stats_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hsx/bench/stats"
)

// runs and base are rates of five runs in each of two arms, in tok/s.
func runs() []float64 { return []float64{52.8, 55.1, 57.3, 58.4, 60.4} }
func base() []float64 { return []float64{88.1, 91.2, 89.5, 92.0, 89.2} }

func inf() float64 { return math.Inf(1) }

// approx takes reference values of ten digits.
func approx() cmp.Option { return cmpopts.EquateApprox(1e-9, 1e-12) }

// Limits are those of SciPy 1.17: t.ppf, and ttest_ind with equal_var=False.
func TestEstimates(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ got, want stats.Estimate }{
		"mean": {
			stats.Mean(runs(), 0.95),
			stats.Estimate{Value: 56.8, Low: 53.1449916577, High: 60.4550083423, Bounded: true, Level: 0.95, N: 5, Method: "Student t over 5 runs"},
		},
		"mean at 90 %": {
			stats.Mean(runs(), 0.9),
			stats.Estimate{Value: 56.8, Low: 53.993563174, High: 59.606436826, Bounded: true, Level: 0.9, N: 5, Method: "Student t over 5 runs"},
		},
		"no level": {stats.Mean(runs(), 0), stats.Mean(runs(), 0.95)},
		"level 1":  {stats.Mean(runs(), 1), stats.Mean(runs(), 0.95)},
		"two runs": { // 1.5 ± 12.7062·0.5
			stats.Mean([]float64{1, 2}, 0.95),
			stats.Estimate{Value: 1.5, Low: -4.8531023681, High: 7.8531023681, Bounded: true, Level: 0.95, N: 2, Method: "Student t over 2 runs"},
		},
		"equal runs": {
			stats.Mean([]float64{3, 3}, 0.95),
			stats.Estimate{Value: 3, Low: 3, High: 3, Bounded: true, Level: 0.95, N: 2, Method: "Student t over 2 runs"},
		},
		"one run": {
			stats.Mean([]float64{3, math.NaN(), inf(), -inf(), 1e61}, 0.95),
			stats.Estimate{Value: 3, Low: 3, High: 3, Level: 0.95, N: 1, Dropped: 4, Method: "no interval: fewer than 2 runs"},
		},
		"no run": {
			stats.Mean(nil, 0.95),
			stats.Estimate{Level: 0.95, Method: "no interval: fewer than 2 runs"},
		},
		"geometric mean": {
			stats.GeoMean(append(runs(), 0, -1, math.NaN()), 0.95),
			stats.Estimate{Value: 56.7385177262, Low: 53.1814993478, High: 60.533445526, Bounded: true, Level: 0.95, N: 5, Dropped: 3, Method: "Student t over 5 runs"},
		},
		"geometric mean of nothing": {
			stats.GeoMean([]float64{0}, 0.95),
			stats.Estimate{Level: 0.95, Dropped: 1, Method: "no interval: fewer than 2 runs"},
		},
		"pairs": {
			stats.PairedRatio(runs(), base(), 0.95),
			stats.Estimate{Value: 0.630505229554, Low: 0.59298961289, High: 0.670394279856, Bounded: true, Level: 0.95, N: 5, Method: "Student t over 5 pairs"},
		},
		"pairs of which two are broken": {
			stats.PairedRatio([]float64{2, 0, 8, 7}, []float64{1, 1, 2}, 0.95), // logarithms ln 2 and 2·ln 2
			stats.Estimate{
				Value: math.Pow(2, 1.5), Low: math.Exp(math.Ln2 * (1.5 - 6.3531023681)), High: math.Exp(math.Ln2 * (1.5 + 6.3531023681)),
				Bounded: true, Level: 0.95, N: 2, Dropped: 2, Method: "Student t over 2 pairs",
			},
		},
		"arms": {
			stats.Ratio(runs(), base()[:4], 0.95),
			stats.Estimate{Value: 0.629118684165, Low: 0.590201971146, High: 0.670601485787, Bounded: true, Level: 0.95, N: 9, Method: "Welch t over 5 and 4 runs"},
		},
		"arms without spread": {
			stats.Ratio([]float64{1, 1}, []float64{4, 4}, 0.95),
			stats.Estimate{Value: 0.25, Low: 0.25, High: 0.25, Bounded: true, Level: 0.95, N: 4, Method: "Welch t over 2 and 2 runs"},
		},
		"arm of one run": {
			stats.Ratio([]float64{2, 2, 0}, []float64{4}, 0.95),
			stats.Estimate{Value: 0.5, Low: 0.5, High: 0.5, Level: 0.95, N: 3, Dropped: 1, Method: "no interval: fewer than 2 runs in each arm"},
		},
		"arm of none": {
			stats.Ratio([]float64{2}, []float64{0}, 0.95),
			stats.Estimate{Level: 0.95, Dropped: 1, Method: "no interval: fewer than 2 runs in each arm"},
		},
		"interval beyond numbers": {
			stats.GeoMean([]float64{1e-60, 1e60}, 0.95),
			stats.Estimate{Value: 1, High: math.MaxFloat64, Bounded: true, Level: 0.95, N: 2, Method: "Student t over 2 runs"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, tc.got, approx()); diff != "" {
				t.Errorf("estimate (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEstimateString(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		in   stats.Estimate
		want string
	}{
		"ratio":       {stats.Estimate{Value: 1.311, Low: 1.268, High: 1.352, Bounded: true, N: 5}, "1.31 (1.27–1.35)"},
		"rate":        {stats.Estimate{Value: 56.8, Low: 53.14, High: 60.46, Bounded: true, N: 5}, "56.8 (53.1–60.5)"},
		"large":       {stats.Estimate{Value: 1234.5, Low: 1200, High: 1270, Bounded: true, N: 5}, "1234 (1200–1270)"},
		"small":       {stats.Estimate{Value: 0.01234, Low: 0.0121, High: 0.0126, Bounded: true, N: 5}, "0.0123 (0.0121–0.0126)"},
		"zero":        {stats.Estimate{Low: -1, High: 1, Bounded: true, N: 2}, "0.00 (-1.00–1.00)"},
		"no interval": {stats.Estimate{Value: 0.79, Low: 0.79, High: 0.79, N: 1}, "0.79"},
		"no value":    {stats.Estimate{}, "n/a"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.in.String(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestStudentTable holds the interval against printed quantiles of Student's t: the values 0 and
// 2 repeated have mean 1 and a known standard error.
func TestStudentTable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		n           int
		level, want float64 // t of n-1 degrees of freedom
	}{
		"1 degree, 95 %":   {2, 0.95, 12.706},
		"3 degrees, 95 %":  {4, 0.95, 3.182},
		"9 degrees, 95 %":  {10, 0.95, 2.262},
		"9 degrees, 90 %":  {10, 0.9, 1.833},
		"9 degrees, 99 %":  {10, 0.99, 3.250},
		"29 degrees, 95 %": {30, 0.95, 2.045},
		"normal, 95 %":     {20002, 0.95, 1.960},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			xs := make([]float64, tc.n)
			for i := range xs {
				xs[i] = float64(2 * (i % 2))
			}
			e := stats.Mean(xs, tc.level)
			if got := (e.High - e.Value) * math.Sqrt(float64(tc.n-1)); math.Abs(got-tc.want) > 0.0006 {
				t.Errorf("quantile: got %.4f, want %.3f", got, tc.want)
			}
		})
	}
}
