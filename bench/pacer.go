package bench

import (
	"context"
	"math/rand/v2"
	"time"
)

// arrivals is when n conversations of an open loop start, counted from the start of
// the pass: a Poisson process of rate a second. One seed and run give one result, so
// that the arms of a run meet the same load.
func arrivals(rate float64, n int, seed uint64, run int) []time.Duration {
	random := rand.New(rand.NewPCG(seed, uint64(run)))
	starts := make([]time.Duration, n)
	var at float64
	for i := range starts {
		at += random.ExpFloat64() / rate
		starts[i] = time.Duration(at * float64(time.Second))
	}
	return starts
}

// await waits for a time and reports whether it came before ctx ended.
func await(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
