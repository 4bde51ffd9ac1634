package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hsx/bench/server"
)

// transcript is one recorded exchange.
type transcript struct {
	request     string
	status      int
	contentType string
	body        []byte
}

func readTranscript(t *testing.T, name string) transcript {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "streams", name))
	if err != nil {
		t.Fatal(err)
	}
	sent, answer, ok := bytes.Cut(text, []byte("\n---\n"))
	if !ok {
		t.Fatalf("%s: no --- line", name)
	}
	head, body, _ := bytes.Cut(bytes.ReplaceAll(answer, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	lines := strings.Split(string(head), "\n")
	tr := transcript{body: body}
	_, tr.request, _ = strings.Cut(string(sent), "\n")
	if tr.status, err = strconv.Atoi(strings.Fields(lines[0])[1]); err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		if name, value, _ := strings.Cut(line, ": "); strings.EqualFold(name, "content-type") {
			tr.contentType = value
		}
	}
	return tr
}

// ServeHTTP gives the recorded answer to whatever is asked.
func (tr transcript) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", tr.contentType)
	w.WriteHeader(tr.status)
	_, _ = w.Write(tr.body) // the client may have left
}

// dial returns a client of a handler on the loopback.
func dial(t *testing.T, h http.Handler, opt server.Options) *server.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	if opt.URL == "" {
		opt.URL = srv.URL
	}
	c, err := server.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// pipeServer serves a handler over pipes in memory, for tests in a bubble of synctest.
// The caller calls stop within the bubble.
func pipeServer(t *testing.T, h http.Handler, opt server.Options) (c *server.Client, stop func()) {
	t.Helper()
	opt.URL = "http://pipe"
	c, err := server.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	l := pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	c.DialWith(func() (net.Conn, error) {
		ours, theirs := net.Pipe()
		l.conns <- theirs
		return ours, nil
	})
	var handlers atomic.Int64
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Add(-1)
		body, err := io.ReadAll(r.Body) // only then a server sees that a client leaves
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	})}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(l) // always an error: the listener was closed
	}()
	return c, func() {
		c.Close()
		_ = srv.Close() // the listener cannot fail to close
		<-ended
		for handlers.Load() > 0 { // the bubble's clock runs only while its test does
			time.Sleep(time.Second)
		}
	}
}

type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (l pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l pipeListener) Close() error   { close(l.closed); return nil }
func (l pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// emit writes lines to a stream and flushes them.
func emit(w http.ResponseWriter, format string, args ...any) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, format, args...) // the client may have left
	w.(http.Flusher).Flush()
}

// events answers with a stream of events, each the data of one.
func events(data ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // what is asked does not matter
		for _, d := range data {
			emit(w, "data: %s\n\n", d)
		}
	}
}

// A few events of an OpenAI chat stream.
const (
	role     = `{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}`
	hello    = `{"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}`
	world    = `{"choices":[{"index":0,"delta":{"content":" world"},"finish_reason":null}]}`
	finished = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	counted  = `{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}`
	done     = "[DONE]"
)

// ask is a request for at most so many tokens.
func ask(maxTokens int) server.Request {
	return server.Request{
		Messages: []server.Message{{Role: "user", Content: "Once upon a time"}},
		Params:   server.Params{MaxTokens: maxTokens},
	}
}
