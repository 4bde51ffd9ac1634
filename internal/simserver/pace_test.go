package simserver_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hsx/internal/simserver"
)

// serve answers a chat without a network, so that time can be simulated, and returns
// what came back and how long it took.
func serve(ctx context.Context, s *simserver.Server, prompt string, more ...string) (reply, time.Duration) {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody(prompt, more...)))
	began := time.Now()
	s.ServeHTTP(w, r)
	return reply{status: w.Code, header: w.Header(), body: w.Body.Bytes()}, time.Since(began)
}

func TestSpeedIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opt  simserver.Options
		more string
	}{
		"plain":        {simserver.Options{Step: 11 * time.Millisecond}, `"max_tokens":400`},
		"speculation":  {simserver.Options{Steps: 3, Accept: []float64{0.8}, Step: 12 * time.Millisecond, Draft: time.Millisecond}, `"max_tokens":400`},
		"short steps":  {simserver.Options{Steps: 1, Accept: []float64{0.5}, Step: 200 * time.Microsecond}, `"max_tokens":400`},
		"crowd of one": {simserver.Options{Step: time.Millisecond, Crowd: time.Second}, `"max_tokens":400`},
		"one token":    {simserver.Options{Step: time.Second}, `"max_tokens":1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.opt.MinTokens, test.opt.Prefill = 500, 50*time.Millisecond
				s := simserver.New(test.opt)
				_, took := serve(t.Context(), s, "x", test.more)
				truth := s.Truth()
				steps := truth.Steps
				if test.opt.Steps == 0 {
					steps = truth.Tokens - 1
				}
				want := test.opt.Prefill + time.Duration(steps)*(test.opt.Step+time.Duration(test.opt.Steps)*test.opt.Draft)
				if took != want {
					t.Errorf("time of %d steps: got %v, want %v", steps, took, want)
				}
			})
		})
	}
}

// slow takes a while to write.
type slow struct{ *httptest.ResponseRecorder }

func (w slow) Write(b []byte) (int, error) {
	time.Sleep(150 * time.Microsecond)
	return w.ResponseRecorder.Write(b)
}

// What a step loses after it came does not add up: the next comes that much sooner.
func TestStepsDoNotDrift(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := simserver.New(simserver.Options{MinTokens: 1001, Step: 200 * time.Microsecond})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(chatBody("x", `"n":1`)))
		began := time.Now()
		s.ServeHTTP(slow{httptest.NewRecorder()}, r)
		if got, want := time.Since(began), 200*time.Millisecond+2*150*time.Microsecond; got != want {
			t.Errorf("time of 1000 steps of 200 µs: got %v, want %v", got, want)
		}
	})
}

// atOnce answers n prompts at the same time and returns how long all of them took.
func atOnce(ctx context.Context, s *simserver.Server, n int) time.Duration {
	began := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { serve(ctx, s, fmt.Sprint(i)) })
	}
	wg.Wait()
	return time.Since(began)
}

func TestSlotsQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := simserver.New(simserver.Options{MinTokens: 11, Step: time.Second, Slots: 2})
		if got, want := atOnce(t.Context(), s, 6), 30*time.Second; got != want {
			t.Errorf("6 answers of 10 s in 2 slots: got %v, want %v", got, want)
		}
	})
}

// Under load a step pays for the tokens of the others: with speculation for more.
func TestCrowdSlowsSpeculationMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		speedup := func(n int) float64 {
			opt := simserver.Options{MinTokens: 201, Step: 10 * time.Millisecond, Crowd: time.Millisecond}
			plain := atOnce(t.Context(), simserver.New(opt), n)
			opt.Steps, opt.Accept, opt.Draft = 3, []float64{0.6}, time.Millisecond
			return float64(plain) / float64(atOnce(t.Context(), simserver.New(opt), n))
		}
		if alone, loaded := speedup(1), speedup(32); alone < 1.3 || loaded > 1 {
			t.Errorf("speedup alone, among 32: got %.2f, %.2f, want above 1.3, below 1", alone, loaded)
		}
	})
}

func TestSpreadIsLognormal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		logs := func(seed uint64, phase int) []float64 {
			s := simserver.New(simserver.Options{MinTokens: 1, Prefill: time.Second, Spread: 0.05, Phase: phase, Seed: seed})
			out := make([]float64, 400)
			for i := range out {
				_, took := serve(t.Context(), s, "x")
				out[i] = math.Log(took.Seconds())
			}
			return out
		}
		deviation := func(x []float64) float64 {
			var sum, squares float64
			for _, v := range x {
				sum += v
				squares += v * v
			}
			n := float64(len(x))
			return math.Sqrt((squares - sum*sum/n) / (n - 1))
		}
		within, both := deviation(logs(1, 400)), deviation(logs(1, 1))
		if math.Abs(within-0.05) > 0.01 || math.Abs(both-0.05*math.Sqrt2) > 0.015 {
			t.Errorf("deviation within a phase, over phases: got %.3f, %.3f, want 0.05, 0.07", within, both)
		}
		if a, b := logs(1, 32), logs(1, 32); a[17] != b[17] || a[17] == logs(2, 32)[17] {
			t.Error("noise: want the same for the same seed, another for another")
		}
	})
}

// A client that leaves frees its slot at once, and its tokens so far are counted.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := simserver.New(simserver.Options{MinTokens: 100, Step: time.Second, Slots: 1})
		ctx, cancel := context.WithTimeout(t.Context(), 9500*time.Millisecond)
		defer cancel()
		_, took := serve(ctx, s, "x")
		if truth := s.Truth(); took != 9500*time.Millisecond || truth.Tokens != 10 || truth.Requests != 0 {
			t.Errorf("left after %v: got %+v, want 10 tokens and no request", took, truth)
		}
		if _, took := serve(t.Context(), s, "y", `"max_tokens":3`); took != 2*time.Second {
			t.Errorf("the next answer: took %v, want 2 s", took)
		}
	})
}
