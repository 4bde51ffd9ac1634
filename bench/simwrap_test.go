package bench_test

import (
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"hsx/internal/simserver"
)

// What stands before a simulated server, and does what real ones and their routers do.

// simWraps puts several before it, the last one outermost.
func simWraps(wraps ...func(http.Handler) http.Handler) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		for _, wrap := range wraps {
			h = wrap(h)
		}
		return h
	}
}

// simBalance gives each request for an answer to another server, and asks the first for
// everything else.
func simBalance(servers []*simserver.Server) http.Handler {
	var n atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s := servers[0]
		if r.Method == http.MethodPost {
			s = servers[n.Add(1)%int64(len(servers))]
		}
		s.ServeHTTP(w, r)
	})
}

// simEdit changes what is answered on a path: every write, of a whole document or of the
// events of a moment.
func simEdit(path string, change func(string) string) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				w = &simWriter{w, change}
			}
			h.ServeHTTP(w, r)
		})
	}
}

type simWriter struct {
	http.ResponseWriter
	change func(string) string
}

func (w *simWriter) Write(b []byte) (int, error) {
	_, err := io.WriteString(w.ResponseWriter, w.change(string(b)))
	return len(b), err
}

func (w *simWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// simEvery answers each n-th request for an answer itself, after a time.
func simEvery(n int64, after time.Duration, answer http.HandlerFunc) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		var asked atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && asked.Add(1)%n == 0 {
				time.Sleep(after) // simulated
				answer(w, r)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// simAsk changes what a request for an answer asks for.
func simAsk(change func(string) string) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return // the client left
				}
				r.Body = io.NopCloser(strings.NewReader(change(string(body))))
			}
			h.ServeHTTP(w, r)
		})
	}
}

// simReplace is an edit by a regular expression.
func simReplace(pattern, with string) func(string) string {
	re := regexp.MustCompile(pattern)
	return func(s string) string { return re.ReplaceAllString(s, with) }
}

// simStatus answers with a status, and the wish to be asked again after so many seconds.
func simStatus(status, retryAfter int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", strconv.Itoa(retryAfter))
		w.WriteHeader(status)
	}
}

// simGiveUp answers the first n requests for an answer, and the others as busy.
func simGiveUp(n int64) func(http.Handler) http.Handler {
	return func(h http.Handler) http.Handler {
		var asked atomic.Int64
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && asked.Add(1) > n {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(w, r)
		})
	}
}

// simRedirect sends requests for an answer on to another path of the same server.
func simRedirect(h http.Handler) http.Handler {
	const inner = "/inner"
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.Handle(inner+"/", http.StripPrefix(inner, h))
	mux.HandleFunc("POST /v1/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inner+r.URL.Path, http.StatusTemporaryRedirect)
	})
	return mux
}
