package stats_test

import (
	"fmt"
	"math"
	"testing"

	"hsx/bench/stats"
)

func TestDetectable(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cv            float64
		n3, n5, n10   float64 // per cent, as printed with one decimal
		paired5, runs float64 // pairs of SD cv; runs per arm that find 5 %
	}{
		{0.01, 3.0, 2.0, 1.3, 1.7, 3},
		{0.02, 6.1, 4.0, 2.7, 3.3, 4},
		{0.03, 9.1, 6.1, 4.0, 5.0, 7},
		{0.05, 15.2, 10.1, 6.6, 8.3, 17},
		{0.10, 30.4, 20.2, 13.3, 16.6, 64},
	}
	for _, tc := range tests {
		t.Run(fmt.Sprintf("CV %v", tc.cv), func(t *testing.T) {
			t.Parallel()
			for _, c := range []struct {
				of        string
				got, want float64
			}{
				{"3 runs", stats.DetectableDifference(tc.cv, 3), tc.n3},
				{"5 runs", stats.DetectableDifference(tc.cv, 5), tc.n5},
				{"10 runs", stats.DetectableDifference(tc.cv, 10), tc.n10},
				{"5 pairs", stats.DetectablePaired(tc.cv, 5), tc.paired5},
			} {
				if got, want := fmt.Sprintf("%.1f", 100*c.got), fmt.Sprintf("%.1f", c.want); got != want {
					t.Errorf("%s: got %s %%, want %s %%", c.of, got, want)
				}
			}
			if n, ok := stats.RunsToSettle(tc.cv, -0.05, false, 1000); !ok || n != int(tc.runs) {
				t.Errorf("runs to find 5 %%: got %d, %v, want %v", n, ok, tc.runs)
			}
		})
	}
}

func TestDetectableEdges(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ got, want float64 }{
		"one run":         {stats.DetectableDifference(0.02, 1), inf()},
		"negative runs":   {stats.DetectableDifference(0.02, math.MinInt), inf()},
		"one pair":        {stats.DetectablePaired(0.02, 1), inf()},
		"no spread":       {stats.DetectableDifference(0, 2), 0},
		"negative spread": {stats.DetectableDifference(-0.02, 5), inf()},
		"unknown spread":  {stats.DetectablePaired(math.NaN(), 5), inf()},
		"endless spread":  {stats.DetectablePaired(inf(), 5), inf()},
		// z quantiles 1.95996 and 0.84162, √2 and √1e12.
		"many runs": {math.Round(1e9*stats.DetectableDifference(1, 1e12)) / 1e9, 3.962e-6},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.got != tc.want {
				t.Errorf("got %v, want %v", tc.got, tc.want)
			}
		})
	}
}

func TestRunsToSettle(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sd, effect float64
		paired     bool
		limit      int
		want       int
		ok         bool
	}{
		"94 over 90 at 3 %":      {0.03, 4. / 90, false, 100, 9, true},
		"in pairs of SD 3 %":     {0.03, 4. / 90, true, 100, 6, true},
		"limit just enough":      {0.03, 4. / 90, false, 9, 9, true},
		"limit not enough":       {0.03, 4. / 90, false, 8, 0, false},
		"large effect":           {0.03, 1, false, 100, 2, true},
		"no spread":              {0, 0.01, true, 100, 2, true},
		"no effect":              {0, 0, false, 100, 0, false},
		"unknown effect":         {0.03, math.NaN(), false, 100, 0, false},
		"endless effect":         {0.03, inf(), false, 100, 0, false},
		"unknown spread":         {math.NaN(), 0.01, false, 100, 0, false},
		"limit 1":                {0.03, 1, false, 1, 0, false},
		"limit below 0":          {0.03, 1, false, math.MinInt, 0, false},
		"tiny effect, any limit": {0.03, 1e-5, true, math.MaxInt, 70639918, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, ok := stats.RunsToSettle(tc.sd, tc.effect, tc.paired, tc.limit)
			if n != tc.want || ok != tc.ok {
				t.Errorf("got %d, %v, want %d, %v", n, ok, tc.want, tc.ok)
			}
		})
	}
}
