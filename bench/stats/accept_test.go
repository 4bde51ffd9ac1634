package stats_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/stats"
)

func TestJointToConditional(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ joint, want []float64 }{
		"nothing":       {nil, []float64{}},
		"chain":         {[]float64{0.8, 0.4, 0.1}, []float64{0.8, 0.5, 0.25}},
		"ends":          {[]float64{0.5, 0, 0}, []float64{0.5, 0, 0}},
		"rises":         {[]float64{0.5, 0.6, 2}, []float64{0.5, 1, 1}},
		"not a number":  {[]float64{math.NaN(), 0.5}, []float64{0, 0}},
		"out of bounds": {[]float64{inf(), -inf()}, []float64{1, 0}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, stats.JointToConditional(tc.joint), approx()); diff != "" {
				t.Errorf("conditional shares (-want +got):\n%s", diff)
			}
		})
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	p := []float64{0.8, 0.4, 0.1}
	tests := map[string]struct{ got, want float64 }{
		"no steps":            {stats.AcceptLength(p, 0), 1},
		"two steps":           {stats.AcceptLength(p, 2), 2.2},
		"more than given":     {stats.AcceptLength(p, 9), 2.3},
		"negative steps":      {stats.AcceptLength(p, math.MinInt), 1},
		"broken shares":       {stats.AcceptLength([]float64{math.NaN(), -1, 7, inf()}, 4), 3},
		"break-even":          {stats.BreakEven(2, 90, 60), 3},
		"break-even, no rate": {stats.BreakEven(2, 90, 0), 0},
		"break-even, no base": {stats.BreakEven(2, -1, 60), 0},
		"break-even, no τ":    {stats.BreakEven(math.NaN(), 90, 60), 0},
		"plain decoding":      {stats.PredictSpeed(p, 0.02, 0.001, 0), 50},
		"prediction":          {stats.PredictSpeed(p, 0.02, 0.001, 2), 100},
		"beyond measured":     {stats.PredictSpeed(p, 0.02, 0.001, 4), 0},
		"k below 0":           {stats.PredictSpeed(p, 0.02, 0.001, -1), 0},
		"no cost":             {stats.PredictSpeed(p, 0, 0, 2), 0},
		"unknown cost":        {stats.PredictSpeed(p, 0.02, math.NaN(), 2), 0},
		"negative cost":       {stats.PredictSpeed(p, -1, 1, 2), 0},
		"endless cost":        {stats.PredictSpeed(p, inf(), 1, 2), 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if math.Abs(tc.got-tc.want) > 1e-12 {
				t.Errorf("got %v, want %v", tc.got, tc.want)
			}
		})
	}
}

func TestFitStepCost(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		ks            []int
		seconds       []float64
		verify, draft float64
		ok            bool
	}{
		"two points":     {[]int{1, 3}, []float64{0.022, 0.026}, 0.020, 0.002, true},
		"least squares":  {[]int{1, 2, 3}, []float64{1, 3, 2}, 1, 0.5, true},
		"falling":        {[]int{1, 3}, []float64{3, 1}, 2, 0, true},
		"no verify left": {[]int{1, 2}, []float64{1, 4}, 0, 9. / 5, true},
		"one k":          {[]int{2, 2}, []float64{1, 2}, 0, 0, false},
		"one is usable":  {[]int{1, 2, -3, 4}, []float64{1, math.NaN(), 1, 0}, 0, 0, false},
		"uneven":         {[]int{1, 2}, []float64{1}, 0, 0, false},
		"nothing":        {nil, nil, 0, 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verify, draft, ok := stats.FitStepCost(tc.ks, tc.seconds)
			if math.Abs(verify-tc.verify) > 1e-12 || math.Abs(draft-tc.draft) > 1e-12 || ok != tc.ok {
				t.Errorf("got %v + k·%v, %v, want %v + k·%v, %v", verify, draft, ok, tc.verify, tc.draft, tc.ok)
			}
		})
	}
}
