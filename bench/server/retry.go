package server

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// backoff is how long to wait after the nth failure: from half a second, doubled each
// time, with as much again at random, so that many clients do not come back together.
func backoff(n int) time.Duration {
	d := min(500*time.Millisecond<<min(n-1, 10), 30*time.Second)
	return d + rand.N(d)
}

// retryAfter is a Retry-After header, in either of its forms, up to a minute.
func retryAfter(header string) time.Duration {
	d := time.Duration(0)
	if seconds, err := strconv.ParseFloat(header, 64); err == nil {
		d = time.Duration(min(seconds, 60) * float64(time.Second))
	} else if at, err := http.ParseTime(header); err == nil {
		d = time.Until(at)
	}
	return min(max(d, 0), time.Minute)
}

// pause reports whether the time passed before ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
