package stats_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"testing"

	"hsx/bench/stats"
)

// FuzzFinite gives every function any floats at all: none may panic, give NaN, or an
// estimate that is not JSON or whose limits are out of order.
func FuzzFinite(f *testing.F) {
	seed := func(n int, xs ...float64) {
		var data []byte
		for i := range n {
			data = binary.LittleEndian.AppendUint64(data, math.Float64bits(xs[i%len(xs)]))
		}
		f.Add(data, 0.95, uint64(1), n)
	}
	seed(0, 0)
	seed(5, 56.8, 71.3, 94)
	seed(50, math.NaN(), inf(), -inf(), 0, -1, 1)
	seed(48, 1e60, 1e-60)
	seed(7, math.MaxFloat64, -math.MaxFloat64)
	seed(90, 5e-324, 1e-59, 3)
	seed(120, 2, 2, 2, 2.0000000001)
	f.Fuzz(func(t *testing.T, data []byte, level float64, seed uint64, k int) {
		xs := make([]float64, min(len(data)/8, 200))
		ks, first := make([]int, len(xs)), make([]bool, len(xs))
		for i := range xs {
			bits := binary.LittleEndian.Uint64(data[8*i:])
			xs[i], ks[i], first[i] = math.Float64frombits(bits), int(bits), bits&1 == 0
		}
		a, b := xs[:len(xs)/2], xs[len(xs)/2:]
		for name, e := range map[string]stats.Estimate{
			"Mean": stats.Mean(xs, level), "GeoMean": stats.GeoMean(xs, level),
			"PairedRatio": stats.PairedRatio(a, b, level), "Ratio": stats.Ratio(a, b, level),
			"ClusterRatio":   stats.ClusterRatio(a, b, level, seed),
			"ClusterGeoMean": stats.ClusterGeoMean(xs, level, seed),
		} {
			if _, err := json.Marshal(e); err != nil {
				t.Errorf("%s of %v: %v", name, xs, err)
			}
			if !(e.Low <= e.High) || e.N < 0 || e.Dropped < 0 || !(e.Level > 0 && e.Level < 1) {
				t.Errorf("%s of %v: got %+v, want limits in order and a level in (0, 1)", name, xs, e)
			}
			if !e.Bounded && (e.Low != e.Value || e.High != e.Value) {
				t.Errorf("%s of %v: got %+v, want the value as limits where there is no interval", name, xs, e)
			}
		}
		if _, err := json.Marshal(stats.Summarise(xs)); err != nil {
			t.Errorf("summary of %v: %v", xs, err)
		}
		slower, z, _ := stats.FirstRun(xs)
		slope, pTrend := stats.Trend(xs)
		effect, pOrder := stats.OrderEffect(xs, first)
		verify, draft, _ := stats.FitStepCost(ks, xs)
		at := func(i int) float64 {
			if i < len(xs) {
				return xs[i]
			}
			return 0
		}
		finite := map[string]float64{
			"quantile": stats.Quantile(xs, level), "slower": slower, "robust z": z, "slope": slope, "order": effect,
			"verify": verify, "draft": draft, "accept length": stats.AcceptLength(xs, k),
			"break-even": stats.BreakEven(at(0), at(1), at(2)), "speed": stats.PredictSpeed(xs, at(0), at(1), k),
		}
		for name, v := range finite {
			if math.IsNaN(v) || math.IsInf(v, 0) {
				t.Errorf("%s of %v: got %v, want a number", name, xs, v)
			}
		}
		shares := map[string]float64{"Wilcoxon": stats.Wilcoxon(xs), "trend": pTrend, "order": pOrder}
		for name, p := range shares {
			if !(p >= 0 && p <= 1) {
				t.Errorf("p of %s of %v: got %v, want 0 to 1", name, xs, p)
			}
		}
		for _, c := range stats.JointToConditional(xs) {
			if !(c >= 0 && c <= 1) {
				t.Errorf("conditional share of %v: got %v, want 0 to 1", xs, c)
			}
		}
		for _, paired := range []bool{true, false} {
			n, ok := stats.RunsToSettle(at(0), at(1), paired, k)
			if ok && (n < 2 || n > k) || !ok && n != 0 {
				t.Errorf("runs to settle %v: got %d, %v, want 2 to %d", xs, n, ok, k)
			}
		}
		if stats.DetectableDifference(at(0), k) < 0 || math.IsNaN(stats.DetectablePaired(at(0), k)) {
			t.Errorf("detectable with spread %v and %d runs: got less than 0 or NaN", at(0), k)
		}
	})
}
