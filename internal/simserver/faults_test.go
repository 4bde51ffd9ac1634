package simserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hsx/internal/simserver"
)

func TestFaultsOnTheWire(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		faults simserver.Faults
		check  func(t *testing.T, r reply) // of the third request
	}{
		"none": {simserver.Faults{}, func(t *testing.T, r reply) {
			if _, answer, finish := r.text(); !r.done || r.err != nil || answer == "" || finish != "stop" {
				t.Errorf("got %q, %q, done %v, %v", answer, finish, r.done, r.err)
			}
		}},
		"busy": {simserver.Faults{Busy: 3}, func(t *testing.T, r reply) {
			if r.status != http.StatusTooManyRequests || r.header.Get("Retry-After") != "0" {
				t.Errorf("got status %d, Retry-After %q", r.status, r.header.Get("Retry-After"))
			}
		}},
		"busy no more": {simserver.Faults{Busy: 1, Fail503: 1}, wantStatus(http.StatusOK)},
		"then 503":     {simserver.Faults{Busy: 1, Fail503: 2}, wantStatus(http.StatusServiceUnavailable)},
		"503 for ever": {simserver.Faults{Fail503: -1}, wantStatus(http.StatusServiceUnavailable)},
		"redirect": {simserver.Faults{RedirectTo: "http://other"}, func(t *testing.T, r reply) {
			wantStatus(http.StatusTemporaryRedirect)(t, r)
			if got, want := r.header.Get("Location"), "http://other/v1/chat/completions"; got != want {
				t.Errorf("location: got %q, want %q", got, want)
			}
		}},
		"redirect 302": {simserver.Faults{RedirectTo: "http://other", RedirectStatus: 302}, wantStatus(http.StatusFound)},
		"cut": {simserver.Faults{CutEvery: 3}, func(t *testing.T, r reply) {
			if r.err == nil || r.done {
				t.Errorf("got error %v, done %v, want a broken stream", r.err, r.done)
			}
		}},
		"error event": {simserver.Faults{ErrorEvery: 3}, func(t *testing.T, r reply) {
			if r.status != http.StatusOK || r.done || at(r.last(), "error", "message") == nil {
				t.Errorf("got status %d, done %v, last event %v", r.status, r.done, r.last())
			}
		}},
		"no stream": {simserver.Faults{NoStream: true}, func(t *testing.T, r reply) {
			if at(r.document(t), "choices", 0, "message", "content") == nil {
				t.Errorf("got %q", r.body)
			}
		}},
		"no done": {simserver.Faults{NoDone: true}, func(t *testing.T, r reply) {
			if r.done || r.err != nil || count(r.last(), "usage", "completion_tokens") == 0 {
				t.Errorf("got done %v, error %v, last event %v", r.done, r.err, r.last())
			}
		}},
		"keep alive": {simserver.Faults{KeepAlive: true}, func(t *testing.T, r reply) {
			if r.comments < len(r.events) || !r.done {
				t.Errorf("got %d comments among %d events", r.comments, len(r.events))
			}
		}},
		"empty choices": {simserver.Faults{EmptyChoices: true}, func(t *testing.T, r reply) {
			empty := 0
			for _, e := range r.events {
				if l, ok := at(e, "choices").([]any); ok && len(l) == 0 && at(e, "usage") == nil {
					empty++
				}
			}
			if empty < 5 {
				t.Errorf("got %d events without choices and usage", empty)
			}
		}},
		"big line": {simserver.Faults{BigLine: 1 << 20}, func(t *testing.T, r reply) {
			if r.longest < 1<<20 || !r.done {
				t.Errorf("longest line: got %d", r.longest)
			}
		}},
		"no usage": {simserver.Faults{NoUsage: true}, func(t *testing.T, r reply) {
			if strings.Contains(string(r.body), "usage") {
				t.Errorf("got %q", r.body)
			}
		}},
		"wrong usage": {simserver.Faults{WrongUsage: true}, func(t *testing.T, r reply) {
			u := at(r.last(), "usage")
			if count(u, "completion_tokens_details", "reasoning_tokens") <= count(u, "completion_tokens") {
				t.Errorf("got %v", u)
			}
		}},
		"loop": {simserver.Faults{Loop: true}, func(t *testing.T, r reply) {
			if _, answer, _ := r.text(); !strings.Contains(answer, " round again round again round") {
				t.Errorf("got %q", answer)
			}
		}},
		"echo": {simserver.Faults{Echo: true}, func(t *testing.T, r reply) {
			if _, answer, _ := r.text(); !strings.HasPrefix(answer, " prompt 2 prompt 2") {
				t.Errorf("got %q", answer)
			}
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, url := start(t, simserver.Options{MinTokens: 60, Context: 200, Faults: test.faults})
			for i := range 2 {
				chat(t, url, fmt.Sprint("prompt ", i))
			}
			test.check(t, chat(t, url, "prompt 2"))
		})
	}
}

func wantStatus(want int) func(*testing.T, reply) {
	return func(t *testing.T, r reply) {
		if r.status != want {
			t.Errorf("status: got %d, want %d", r.status, want)
		}
	}
}

func TestTruncation(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		for want, faults := range map[string]simserver.Faults{"length": {}, "stop": {TruncateSilently: true}} {
			_, url := start(t, simserver.Options{Engine: engine, MinTokens: 60, Faults: faults})
			r := chat(t, url, "x", `"max_tokens":12`)
			if _, _, got := r.text(); got != want || count(r.last(), "usage", "completion_tokens") != 12 {
				t.Errorf("%s: got %q, %v, want %q", engine, got, r.last(), want)
			}
		}
	}
}

// A stalled answer waits for ever: here until the client leaves after a day, then
// until the server is closed.
func TestStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := simserver.New(simserver.Options{MinTokens: 20, Slots: 1, Faults: simserver.Faults{StallEvery: 1}})
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		if _, took := serve(ctx, s, "x"); took != 24*time.Hour {
			t.Errorf("stalled for %v, want 24h", took)
		}
		time.AfterFunc(time.Hour, s.Close)
		took := time.Now()
		if err := aborted(func() { serve(t.Context(), s, "x") }); err == nil {
			t.Error("closed: got a whole answer, want a broken connection")
		}
		if got := time.Since(took); got != time.Hour {
			t.Errorf("stalled for %v, want 1h", got)
		}
	})
}

// aborted returns the panic by which net/http is told to drop a connection.
func aborted(f func()) (err error) {
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

func TestDies(t *testing.T) {
	t.Parallel()
	died := make(chan struct{})
	s := simserver.New(simserver.Options{MinTokens: 20, Faults: simserver.Faults{DieAfter: 2, Die: func() { close(died) }}})
	for range 2 {
		if r, _ := serve(t.Context(), s, "x"); r.status != http.StatusOK {
			t.Errorf("before it dies: got status %d", r.status)
		}
	}
	<-died
	if err := aborted(func() { serve(t.Context(), s, "x") }); !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("after it died: got %v, want %v", err, http.ErrAbortHandler)
	}
}

func TestCounterFaults(t *testing.T) {
	t.Parallel()
	const steps, accepted, tokens = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_accepted_tokens_total", "vllm:generation_tokens_total"
	run := func(t *testing.T, f simserver.Faults) (simserver.Truth, string) {
		s, url := start(t, simserver.Options{Steps: 2, Accept: []float64{0.8}, MinTokens: 50, Faults: f})
		for i := range 4 {
			chat(t, url, fmt.Sprint(i))
		}
		return s.Truth(), url + "/metrics"
	}
	t.Run("foreign", func(t *testing.T) {
		t.Parallel()
		truth, url := run(t, simserver.Faults{Foreign: 0.5})
		got := scrape(t, url)
		if got[tokens] != 1.5*float64(truth.Tokens) || got[steps] <= float64(truth.Steps) || got[accepted] != float64(truth.Accepted) {
			t.Errorf("got %v tokens, %v steps, %v accepted, truth is %+v", got[tokens], got[steps], got[accepted], truth)
		}
	})
	t.Run("reset", func(t *testing.T) {
		t.Parallel()
		truth, url := run(t, simserver.Faults{ResetAfter: 3})
		if got := scrape(t, url)[tokens]; got != 50 || truth.Tokens != 200 {
			t.Errorf("tokens after the reset: got %v of %d, want 50 of 200", got, truth.Tokens)
		}
	})
	t.Run("broken lines", func(t *testing.T) {
		t.Parallel()
		_, url := run(t, simserver.Faults{Malformed: true, MetricsNaN: true})
		text := string(do(t, http.MethodGet, url, "").body)
		for _, want := range []string{"} NaN\n", "} +Inf\n", "oops\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("metrics: %q is missing", want)
			}
		}
	})
	t.Run("late", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := simserver.New(simserver.Options{MinTokens: 50, Faults: simserver.Faults{LateCounters: time.Second}})
			serve(t.Context(), s, "x")
			for _, want := range []float64{0, 50} {
				w := httptest.NewRecorder()
				s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
				if got := samples(t, w.Body.Bytes())[tokens]; got != want {
					t.Errorf("tokens: got %v, want %v", got, want)
				}
				time.Sleep(time.Second)
				synctest.Wait()
			}
		})
	})
}

// Every answer of a server with forced acceptance has the same accept length.
func TestSyntheticAcceptance(t *testing.T) {
	t.Parallel()
	_, url := start(t, simserver.Options{
		Steps: 3, Accept: []float64{0.5}, MinTokens: 400, PerRequest: true, Faults: simserver.Faults{Synthetic: true},
	})
	for i := range 5 {
		last := chat(t, url, fmt.Sprint(i)).last()
		mean, _ := at(last, "metrics", "speculative_decoding", "mean_acceptance_length").(float64)
		if mean < 1.87 || mean > 1.88 {
			t.Errorf("accept length: got %v, want 1.875", mean)
		}
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		faults simserver.Faults
		path   string
		header string
		want   int
	}{
		"no key":         {simserver.Faults{}, "/v1/models", "", 401},
		"wrong key":      {simserver.Faults{}, "/v1/models", "Bearer no", 401},
		"key":            {simserver.Faults{}, "/v1/models", "Bearer secret", 200},
		"health":         {simserver.Faults{}, "/health", "", 200},
		"metrics":        {simserver.Faults{}, "/metrics", "", 401},
		"metrics open":   {simserver.Faults{MetricsOpen: true}, "/metrics", "", 200},
		"metrics closed": {simserver.Faults{MetricsAuth: true}, "/metrics", "Bearer secret", 401},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, engine := range []string{simserver.VLLM, simserver.SGLang, simserver.LlamaCpp, simserver.TRTLLM} {
				_, url := start(t, simserver.Options{Engine: engine, Key: "secret", Faults: test.faults})
				if got := do(t, http.MethodGet, url+test.path, "", "Authorization", test.header).status; got != test.want {
					t.Errorf("%s: got %d, want %d", engine, got, test.want)
				}
			}
		})
	}
}
