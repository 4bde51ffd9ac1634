package receive

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"hsx/format"
)

// answer is what a client gets; as an error it is why a body was not taken.
type answer struct {
	code   int
	reason string // "" for 200 and 201
	cause  error  // of a refusal, for its place in the body
}

// Error is the reason.
func (a *answer) Error() string { return a.reason }

const (
	samplesPath = "/v1/samples/"
	maxID       = 4096 // bytes
	retryAfter  = "1"  // seconds
	answerTime  = 30 * time.Second
)

// ServeHTTP answers one request. Paths are taken as they are sent: an id may hold
// slashes (as %2F) and may be "..".
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	path := req.URL.EscapedPath()
	id, isSample := strings.CutPrefix(path, samplesPath)
	method := http.MethodGet
	if isSample {
		method = http.MethodPost
	}
	switch {
	case path == "/healthz":
		r.health(w)
	case !r.Authorised(req):
		w.Header().Set("WWW-Authenticate", "Bearer")
		send(w, &answer{code: http.StatusUnauthorized, reason: "bearer token is missing or wrong"})
	case !isSample && path != "/v1/status" && path != "/metrics":
		send(w, &answer{code: http.StatusNotFound, reason: "no such path, want POST /v1/samples/{id}, GET /v1/status, /healthz or /metrics"})
	case req.Method != method:
		w.Header().Set("Allow", method)
		send(w, &answer{code: http.StatusMethodNotAllowed, reason: "method is " + req.Method + ", want " + method})
	case isSample:
		a := r.post(w, req, id)
		// A client that reads nothing must not hold the handler.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime)) // a recorder has none
		send(w, a)
	case path == "/v1/status":
		sendJSON(w, http.StatusOK, r.Status())
	default:
		r.metrics.ServeHTTP(w, req)
	}
}

// Authorised reports whether a request bears the token, if there is one. It compares
// digests, which takes as long whatever was sent.
func (r *Receiver) Authorised(req *http.Request) bool {
	if r.opt.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(req.Header.Get("Authorization"), " ")
	got, want := sha256.Sum256([]byte(strings.TrimSpace(token))), sha256.Sum256([]byte(r.opt.Token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

func (r *Receiver) health(w http.ResponseWriter) {
	select {
	case <-r.dead:
		send(w, r.failed())
	default:
		sendJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	}
}

// failed is the answer once the store failed.
func (r *Receiver) failed() *answer {
	return &answer{code: http.StatusServiceUnavailable, reason: "dataset cannot be written; what was acknowledged is safe"}
}

// post takes one sample. The answer comes after the commit that holds it.
func (r *Receiver) post(w http.ResponseWriter, req *http.Request, escaped string) *answer {
	id, err := url.PathUnescape(escaped)
	if err != nil || id == "" || len(id) > maxID || !utf8.ValidString(id) || strings.Contains(escaped, "/") {
		return &answer{code: http.StatusBadRequest, reason: fmt.Sprintf("id is not one path segment of valid UTF-8 of 1 to %d bytes (a slash is %%2F)", maxID)}
	}
	select {
	case <-r.dead:
		return r.failed()
	default:
	}
	b := r.NewBody()
	defer b.Close()
	in := format.Input{Path: "http:" + id, ModTime: time.Now().UnixNano()}
	rc := http.NewResponseController(w)
	err = b.Receive(req.Body, req.ContentLength, func(t time.Time) error {
		if err := rc.SetReadDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil
	})
	if err != nil {
		a, ok := errors.AsType[*answer](err)
		if !ok {
			a = &answer{code: http.StatusBadRequest, reason: err.Error()}
		}
		w.Header().Set("Connection", "close") // the rest of the body is not read
		if a.code == http.StatusRequestEntityTooLarge {
			in.Bytes = max(req.ContentLength, b.n)
			r.refuse(rejection(in, a))
		}
		return a
	}
	in.Bytes = b.n
	done := r.take(b, func() (*format.Sample, format.Input, error) {
		s, err := decode(b.Bytes(), id, r.opt.Facts, r.opt.AllowNonFinite)
		return s, in, err
	})
	b.Close()
	return <-done
}

func noRoomAnswer(err error) *answer {
	return &answer{code: http.StatusInsufficientStorage, reason: fmt.Sprintf("read spooled body: %v", err)}
}

func send(w http.ResponseWriter, a *answer) {
	switch a.code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		w.Header().Set("Retry-After", retryAfter)
	}
	if a.reason == "" {
		sendJSON(w, a.code, map[string]bool{"durable": true})
		return
	}
	sendJSON(w, a.code, map[string]string{"error": strings.ToValidUTF8(a.reason, "\uFFFD")})
}

func sendJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that is gone asks again
}
