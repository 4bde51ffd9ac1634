package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hsx/bench/server"
)

// TestBadServers are servers that are slow to the point of failure, or fail.
func TestBadServers(t *testing.T) {
	t.Parallel()
	hang := func(r *http.Request) { <-r.Context().Done() }
	for name, tc := range map[string]struct {
		serve    func(w http.ResponseWriter, r *http.Request, n int) // n counts requests from 1
		opt      server.Options
		fault    server.Fault
		err      string
		attempts int
		status   int
		least    time.Duration // until Do returned
		most     time.Duration
		waited   time.Duration // least; the most is half as much again
		text     string
		doubts   []string
	}{
		"busy, then not": {
			serve: func(w http.ResponseWriter, r *http.Request, n int) {
				if n < 3 {
					http.Error(w, `{"error":{"message":"slow down"}}`, http.StatusTooManyRequests)
					return
				}
				events(hello, finished, counted, done)(w, r)
			},
			attempts: 3, status: 200, least: 1500 * time.Millisecond, most: 3 * time.Second, text: "Hello",
		},
		"busy, with the time to wait": {
			serve: func(w http.ResponseWriter, r *http.Request, n int) {
				if n == 1 {
					w.Header().Set("Retry-After", "20")
					w.WriteHeader(http.StatusTooManyRequests)
					return
				}
				events(hello, finished, counted, done)(w, r)
			},
			attempts: 2, status: 200, least: 20 * time.Second, most: 20 * time.Second, text: "Hello",
		},
		"busy, with too long a time": {
			serve: func(w http.ResponseWriter, r *http.Request, n int) {
				if n == 1 {
					w.Header().Set("Retry-After", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				events(hello, finished, counted, done)(w, r)
			},
			attempts: 2, status: 200, least: time.Minute, most: time.Minute, text: "Hello",
		},
		"503 to the end": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) {
				http.Error(w, "no\x1b[31m worker", http.StatusServiceUnavailable)
			},
			fault: server.FaultBusy, err: "server answered 503 Service Unavailable: no [31m worker",
			attempts: 4, status: 503, least: 3500 * time.Millisecond, most: 7 * time.Second,
		},
		"no retries": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusBadGateway) },
			opt:   server.Options{Retries: -1},
			fault: server.FaultBusy, err: "server answered 502 Bad Gateway: ", attempts: 1, status: 502,
		},
		"refused": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) {
				http.Error(w, strings.Repeat("no ", 1000), http.StatusForbidden)
			},
			fault: server.FaultRefused, err: "server answered 403 Forbidden: " + strings.Repeat("no ", 166) + "no…", attempts: 1, status: 403,
		},
		"headers never come": {
			serve: func(_ http.ResponseWriter, r *http.Request, _ int) { hang(r) },
			fault: server.FaultStalled, err: "nothing came for 2m0s, waiting for an answer", attempts: 1, least: 2 * time.Minute, most: 2 * time.Minute,
		},
		"silent after some text": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				time.Sleep(time.Minute)
				emit(w, "data: %s\n\n", hello)
				hang(r)
			},
			fault: server.FaultStalled, err: "nothing came for 2m0s, after 1 events", attempts: 1, status: 200, least: 3 * time.Minute, most: 3 * time.Minute, text: "Hello",
		},
		"alive by comments, then speaks": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) {
				for range 9 {
					emit(w, ": ping\n\n")
					time.Sleep(time.Minute)
				}
				emit(w, "data: %s\n\ndata: %s\n\ndata: %s\n\ndata: [DONE]\n\n", hello, finished, counted)
			},
			attempts: 1, status: 200, least: 9 * time.Minute, most: 9 * time.Minute, text: "Hello",
		},
		"nothing but comments": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				for r.Context().Err() == nil {
					emit(w, ": ping\n\n")
					time.Sleep(time.Minute)
				}
			},
			fault: server.FaultStalled, err: "nothing came for 2m0s, after 0 events", attempts: 1, status: 200, least: 10 * time.Minute, most: 10 * time.Minute,
		},
		"comments after some text": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				emit(w, "data: %s\n\n", hello)
				for r.Context().Err() == nil {
					emit(w, ": ping\n\n")
					time.Sleep(time.Minute)
				}
			},
			fault: server.FaultStalled, err: "nothing came for 2m0s, after 1 events", attempts: 1, status: 200, least: 2 * time.Minute, most: 2 * time.Minute, text: "Hello",
		},
		"for ever": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				for r.Context().Err() == nil {
					emit(w, "data: %s\n\n", hello)
					time.Sleep(time.Minute)
				}
			},
			opt:   server.Options{Timeout: 90 * time.Second},
			fault: server.FaultTimeout, err: "took longer than 1m30s, after 2 events", attempts: 1, status: 200, least: 90 * time.Second, most: 90 * time.Second, text: "HelloHello",
		},
		"busy for longer than the timeout": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.Header().Set("Retry-After", "60")
				w.WriteHeader(http.StatusTooManyRequests)
			},
			opt:   server.Options{Timeout: 90 * time.Second},
			fault: server.FaultTimeout, err: "took longer than 1m30s, waiting to try again after: server answered 429 Too Many Requests: ", attempts: 2, status: 429, least: 90 * time.Second, most: 90 * time.Second,
		},
		"cut in the middle of an event": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) {
				emit(w, "data: %s\n\ndata: {\"choi", hello)
				panic(http.ErrAbortHandler)
			},
			fault: server.FaultCut, err: "stream was cut after 1 events: unexpected EOF", attempts: 1, status: 200, text: "Hello",
		},
		"ended in the middle of an event": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) { emit(w, "data: %s\n\ndata: {\"choi", hello) },
			fault: server.FaultCut, err: "stream was cut after 2 events: unexpected EOF", attempts: 1, status: 200, text: "Hello",
		},
		"ended between events": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) { events(hello, world)(w, r) },
			fault: server.FaultCut, err: "stream ended after 2 events, without a finish reason or [DONE]", attempts: 1, status: 200, text: "Hello world",
		},
		"cut after the answer": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				events(hello, finished, counted)(w, r)
				panic(http.ErrAbortHandler)
			},
			attempts: 1, status: 200, text: "Hello", doubts: []string{"connection broke after the answer: unexpected EOF"},
		},
		"nothing at all": {
			serve: func(http.ResponseWriter, *http.Request, int) {},
			fault: server.FaultCut, err: "stream ended after 0 events, without a finish reason or [DONE]", attempts: 1, status: 200,
		},
		"only choices []": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) { events(`{"choices":[]}`, counted, done)(w, r) },
			fault: server.FaultProtocol, err: "stream of 3 events has no choices", attempts: 1, status: 200,
		},
		"error event": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				events(role, hello, `{"error":{"message":"EngineCore encountered an issue.","type":"InternalServerError","code":500}}`, done)(w, r)
			},
			fault: server.FaultProtocol, err: "server gave up: EngineCore encountered an issue.", attempts: 1, status: 200, text: "Hello",
		},
		"error event without a cover": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				events(`{"object":"error","message":"out of memory","code":500}`)(w, r)
			},
			fault: server.FaultProtocol, err: "server gave up: out of memory", attempts: 1, status: 200,
		},
		"error field": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) {
				emit(w, "error: {\"code\":500,\"message\":\"slot is gone\",\"type\":\"server_error\"}\n\n")
			},
			fault: server.FaultProtocol, err: "server gave up: slot is gone", attempts: 1, status: 200,
		},
		"aborted": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				events(hello, `{"choices":[{"delta":{},"finish_reason":"abort"}]}`, done)(w, r)
			},
			fault: server.FaultProtocol, err: `server gave up: finish reason "abort" `, attempts: 1, status: 200, text: "Hello",
		},
		"aborted, by sglang": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				events(`{"text":"Hello","meta_info":{"finish_reason":{"type":"abort","message":"too long"}}}`, done)(w, r)
			},
			opt:   server.Options{API: server.APISGLang},
			fault: server.FaultProtocol, err: `server gave up: finish reason "abort" too long`, attempts: 1, status: 200,
		},
		"error of sglang": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				events(`{"error":{"message":"The input is too long"}}`, done)(w, r)
			},
			opt:   server.Options{API: server.APISGLang},
			fault: server.FaultProtocol, err: "server gave up: The input is too long", attempts: 1, status: 200,
		},
		"no JSON": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) { events(hello, "{choices}", done)(w, r) },
			fault: server.FaultProtocol, err: "event 2 is no JSON: invalid character 'c' looking for beginning of object key string: {choices}", attempts: 1, status: 200, text: "Hello",
		},
		"a page": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = io.WriteString(w, "<html>Sign in</html>") },
			fault: server.FaultProtocol, err: "event 1 is no JSON: invalid character '<' looking for beginning of value: <html>Sign in</html>", attempts: 1, status: 200,
			doubts: []string{"the server did not stream: no times of tokens"},
		},
		"an error with status 200": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) {
				_, _ = io.WriteString(w, `{"error":{"message":"no such model"}}`)
			},
			fault: server.FaultProtocol, err: "server gave up: no such model", attempts: 1, status: 200,
			doubts: []string{"the server did not stream: no times of tokens"},
		},
		"a limit that is not about the name": {
			serve: func(w http.ResponseWriter, _ *http.Request, n int) {
				http.Error(w, fmt.Sprintf("request %d: 'max_tokens' or 'max_completion_tokens' is too large: 48", n), http.StatusBadRequest)
			},
			fault: server.FaultRefused, err: "server answered 400 Bad Request: request 1: 'max_tokens' or 'max_completion_tokens' is too large: 48", attempts: 1, status: 400,
		},
		"no content": {
			serve: func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(http.StatusNoContent) },
			fault: server.FaultProtocol, err: "server answered 204 No Content: ", attempts: 1, status: 204,
		},
		"a line of a MiB": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				events(hello, fmt.Sprintf(`{"choices":[{"delta":{"content":""},"logprobs":"%s"}]}`, strings.Repeat("x", 1<<20)), finished, counted, done)(w, r)
			},
			attempts: 1, status: 200, text: "Hello",
		},
		"open after [DONE]": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				events(hello, finished, counted, done)(w, r)
				hang(r)
			},
			attempts: 1, status: 200, least: 100 * time.Millisecond, most: 100 * time.Millisecond, text: "Hello",
		},
		"wants the other name": {
			serve: func(w http.ResponseWriter, r *http.Request, _ int) {
				body, _ := io.ReadAll(r.Body) // compared below
				if !strings.Contains(string(body), `"max_completion_tokens":48`) {
					http.Error(w, `{"error":{"message":"Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}}`, http.StatusBadRequest)
					return
				}
				events(hello, finished, counted, done)(w, r)
			},
			attempts: 1, status: 200, text: "Hello",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int32
				c, stop := pipeServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					tc.serve(w, r, int(n.Add(1)))
				}), tc.opt)
				defer stop()
				began := time.Now()
				got := c.Do(t.Context(), ask(48))
				took := time.Since(began)
				if got.Fault != tc.fault || got.Error != tc.err || got.Status != tc.status || got.Attempts != tc.attempts || got.Text != tc.text {
					t.Errorf("got fault %q, %q, status %d, %d attempts, text %q;\nwant      %q, %q, status %d, %d attempts, text %q",
						got.Fault, got.Error, got.Status, got.Attempts, got.Text, tc.fault, tc.err, tc.status, tc.attempts, tc.text)
				}
				if took < tc.least || took > tc.most {
					t.Errorf("took %v, want %v to %v", took, tc.least, tc.most)
				}
				if len(got.Retried) != tc.attempts-1 && got.Fault != server.FaultTimeout {
					t.Errorf("got %q for %d attempts", got.Retried, tc.attempts)
				}
				if !slices.Equal(got.Doubts, tc.doubts) {
					t.Errorf("got doubts %q, want %q", got.Doubts, tc.doubts)
				}
				if got.Fault == "" && got.Waited+got.Done > took+1 || got.Sent.Sub(began) != got.Waited {
					t.Errorf("waited %v and took %v of %v; sent after %v", got.Waited, got.Done, took, got.Sent.Sub(began))
				}
			})
		})
	}
}

// TestInterrupted ends a request in each of its phases, at once, with what is known.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		serve http.HandlerFunc
		err   string
		text  string
	}{
		"before an answer": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "interrupted, waiting for an answer", ""},
		"in the answer": {func(w http.ResponseWriter, r *http.Request) {
			emit(w, "data: %s\n\n", hello)
			<-r.Context().Done()
		}, "interrupted, after 1 events", "Hello"},
		"between attempts": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		}, "interrupted, waiting to try again after: server answered 429 Too Many Requests: ", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, stop := pipeServer(t, tc.serve, server.Options{})
				defer stop()
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(5*time.Second, cancel)
				began := time.Now()
				got := c.Do(ctx, ask(48))
				if took := time.Since(began); took != 5*time.Second {
					t.Errorf("took %v, want 5s", took)
				}
				if got.Fault != server.FaultStopped || got.Error != tc.err || got.Text != tc.text {
					t.Errorf("got %q %q %q, want %q %q %q", got.Fault, got.Error, got.Text, server.FaultStopped, tc.err, tc.text)
				}
			})
		})
	}
}

// TestDisconnected has a real network, whose errors pipes do not have.
func TestDisconnected(t *testing.T) {
	t.Parallel()
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(http.NotFoundHandler())
		srv.Close()
		c, err := server.New(server.Options{URL: srv.URL, Retries: 1})
		if err != nil {
			t.Fatal(err)
		}
		got := c.Do(t.Context(), ask(48))
		if got.Fault != server.FaultTransport || got.Attempts != 2 || !strings.HasSuffix(got.Error, "connection refused") || got.Waited < 500*time.Millisecond {
			t.Errorf("got %q %q after %d attempts and %v, want %q after 2", got.Fault, got.Error, got.Attempts, got.Waited, server.FaultTransport)
		}
	})
	t.Run("closed without an answer", func(t *testing.T) {
		t.Parallel()
		var n atomic.Int32
		c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) > 1 {
				events(hello, finished, counted, done)(w, r)
				return
			}
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				err = conn.Close()
			}
			if err != nil {
				t.Error(err)
			}
		}), server.Options{})
		got := c.Do(t.Context(), ask(48))
		if got.Fault != "" || got.Attempts != 2 || len(got.Retried) != 1 || got.Tokens != 3 {
			t.Errorf("got %q %q after %d attempts, %q, want success after 2", got.Fault, got.Error, got.Attempts, got.Retried)
		}
	})
	t.Run("unknown host", func(t *testing.T) {
		t.Parallel()
		c, err := server.New(server.Options{URL: "http://user:hunter2@no.such.host.invalid"})
		if err != nil {
			t.Fatal(err)
		}
		got := c.Do(t.Context(), ask(48))
		if got.Fault != server.FaultTransport || got.Attempts != 1 || strings.Contains(got.Error, "hunter2") {
			t.Errorf("got %q %q after %d attempts, want %q after 1", got.Fault, got.Error, got.Attempts, server.FaultTransport)
		}
	})
}
