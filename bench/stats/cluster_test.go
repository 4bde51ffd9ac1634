package stats_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/stats"
)

func TestClusters(t *testing.T) {
	t.Parallel()
	num, den := []float64{30, 20, 50, 12, 44}, []float64{10, 9, 21, 6, 15}
	tests := map[string]struct{ got, want stats.Estimate }{
		"five prompts": { // residuals num-R·den, worked out with NumPy
			stats.ClusterRatio(num, den, 0.95, 1),
			stats.Estimate{Value: 156. / 61, Low: 2.08710362016, High: 3.0276504782, Bounded: true, Level: 0.95, N: 5, Method: "Student t over 5 prompts"},
		},
		"broken prompts": {
			stats.ClusterRatio(append(num, 1, 1, -1, math.NaN(), 7), append(den, 0, inf(), 1, 1), 0.95, 1),
			stats.Estimate{Value: 156. / 61, Low: 2.08710362016, High: 3.0276504782, Bounded: true, Level: 0.95, N: 5, Dropped: 5, Method: "Student t over 5 prompts"},
		},
		"cut at 0": { // 1/2 ± 12.7·1/2
			stats.ClusterRatio([]float64{0, 1}, []float64{1, 1}, 0.95, 1),
			stats.Estimate{Value: 0.5, High: 6.8531023681, Bounded: true, Level: 0.95, N: 2, Method: "Student t over 2 prompts"},
		},
		"nothing accepted": {
			stats.ClusterRatio(make([]float64, 20), floats(20, 3), 0.95, 1),
			stats.Estimate{Bounded: true, Level: 0.95, N: 20, Method: "bootstrap over 20 prompts"},
		},
		"one prompt": {
			stats.ClusterRatio([]float64{3}, []float64{2}, 0.95, 1),
			stats.Estimate{Value: 1.5, Low: 1.5, High: 1.5, Level: 0.95, N: 1, Method: "no interval: fewer than 2 prompts"},
		},
		"no prompt": {
			stats.ClusterRatio(nil, nil, 0.95, 1),
			stats.Estimate{Level: 0.95, Method: "no interval: fewer than 2 prompts"},
		},
		"few speedups": {
			stats.ClusterGeoMean(append(runs(), 0), 0.95, 1),
			stats.Estimate{Value: 56.7385177262, Low: 53.1814993478, High: 60.533445526, Bounded: true, Level: 0.95, N: 5, Dropped: 1, Method: "Student t over 5 prompts"},
		},
		"no speedup": {
			stats.ClusterGeoMean([]float64{-1}, 0.95, 1),
			stats.Estimate{Level: 0.95, Dropped: 1, Method: "no interval: fewer than 2 prompts"},
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

// TestBootstrap holds the bootstrap of many prompts against the interval that the central
// limit gives, of which it is a few per cent.
func TestBootstrap(t *testing.T) {
	t.Parallel()
	const n, sd = 400, 0.2
	rng := rand.New(rand.NewPCG(7, 0))
	speedups := make([]float64, n)
	for i := range speedups {
		speedups[i] = 1.3 * math.Exp(sd*rng.NormFloat64())
	}
	got := stats.ClusterGeoMean(speedups, 0.95, 3)
	if want := "bootstrap over 400 prompts"; got.Method != want || !got.Bounded {
		t.Errorf("method: got %q, bounded %v, want %q", got.Method, got.Bounded, want)
	}
	want := stats.GeoMean(speedups, 0.95)
	if math.Abs(got.Value-want.Value) > 1e-12 {
		t.Errorf("value: got %v, want %v", got.Value, want.Value)
	}
	width, limit := got.High-got.Low, want.High-want.Low
	if math.Abs(width/limit-1) > 0.1 || math.Abs(got.Low-want.Low) > limit/20 {
		t.Errorf("interval: got %v, want about %v", got, want)
	}
	if again := stats.ClusterGeoMean(speedups, 0.95, 3); again != got {
		t.Errorf("same seed: got %v, want %v again", again, got)
	}
	if other := stats.ClusterGeoMean(speedups, 0.95, 4); other.Low == got.Low {
		t.Errorf("other seed: got the same %v, want other resamples", other.Low)
	}
	if narrow := stats.ClusterGeoMean(speedups, 0.5, 3); narrow.High-narrow.Low > width/2 {
		t.Errorf("at 50 %%: got %v, want less than half of %v", narrow, got)
	}
}

// TestClusterRatioCoverage draws prompts of unequal length from a server with a known
// accept length, on both sides of the change from t to bootstrap.
func TestClusterRatioCoverage(t *testing.T) {
	t.Parallel()
	const trials, truth = 400, 1.9
	tests := map[string]struct {
		prompts int
		method  string
		atLeast float64 // what coverage of means is at that n, less three binomial errors
	}{
		"8 prompts":  {8, "Student t", 0.90},
		"20 prompts": {20, "bootstrap", 0.87},
		"40 prompts": {40, "bootstrap", 0.89},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(11, uint64(tc.prompts)))
			held := 0.0
			for seed := range uint64(trials) {
				num, den := make([]float64, tc.prompts), make([]float64, tc.prompts)
				for i := range num {
					den[i] = math.Round(200 * math.Exp(0.5*rng.NormFloat64()))
					num[i] = den[i] * (truth + 0.3*rng.NormFloat64())
				}
				e := stats.ClusterRatio(num, den, 0.95, seed)
				if !strings.HasPrefix(e.Method, tc.method) {
					t.Fatalf("method: got %q, want %s", e.Method, tc.method)
				}
				if e.Low <= truth && truth <= e.High {
					held++
				}
			}
			if got := held / trials; got < tc.atLeast || got > 0.98 {
				t.Errorf("coverage: got %.3f, want %.2f to 0.98", got, tc.atLeast)
			}
		})
	}
}

func BenchmarkClusterRatio(b *testing.B) {
	num, den := make([]float64, 80), make([]float64, 80)
	for i := range num {
		num[i], den[i] = float64(150+i), float64(100+i%7)
	}
	b.ReportAllocs()
	for b.Loop() {
		if e := stats.ClusterRatio(num, den, 0.95, 1); !e.Bounded {
			b.Fatalf("got %v, want an interval", e)
		}
	}
}

// floats is n times v.
func floats(n int, v float64) []float64 {
	xs := make([]float64, n)
	for i := range xs {
		xs[i] = v
	}
	return xs
}
