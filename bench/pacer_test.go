package bench

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestArrivals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rate float64
		n    int
	}{
		"slow":    {0.5, 4000},
		"fast":    {250, 4000},
		"fastest": {1e5, 4000},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			starts := arrivals(tt.rate, tt.n, 42, 1)
			if len(starts) != tt.n || !slices.IsSorted(starts) || starts[0] < 0 {
				t.Fatalf("arrivals: got %d starts from %v, want %d in order from 0 on", len(starts), starts[0], tt.n)
			}
			// The gaps of a Poisson process have the same mean and spread, 1/rate.
			var sum, squares float64
			last := time.Duration(0)
			for _, at := range starts {
				gap := (at - last).Seconds() * tt.rate
				sum, squares, last = sum+gap, squares+gap*gap, at
			}
			n := float64(tt.n)
			mean := sum / n
			spread := math.Sqrt(squares/n - mean*mean)
			if math.Abs(mean-1) > 0.06 || math.Abs(spread-1) > 0.1 { // four standard errors
				t.Errorf("gaps have mean %.3f and spread %.3f of 1/rate, want 1 and 1", mean, spread)
			}
		})
	}
}

func TestArrivalsAreSharedByArms(t *testing.T) {
	t.Parallel()
	first, again := arrivals(3, 50, 42, 2), arrivals(3, 50, 42, 2)
	if !slices.Equal(first, again) {
		t.Errorf("arrivals with the same seed and run: got %v and %v, want the same", first, again)
	}
	for name, other := range map[string][]time.Duration{"run": arrivals(3, 50, 42, 3), "seed": arrivals(3, 50, 43, 2)} {
		if slices.Equal(first, other) {
			t.Errorf("arrivals with another %s: got the same, want others", name)
		}
	}
}
