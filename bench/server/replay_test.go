package server

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// recording is one recorded answer.
type recording struct {
	status int
	header http.Header
	body   string
}

// readRecording reads a file of testdata: request line, request body, ---, status line,
// headers, body; or a body alone.
func readRecording(name string) (recording, error) {
	r := recording{status: http.StatusOK, header: http.Header{}}
	raw, err := os.ReadFile(filepath.Join("testdata", "preflight", name))
	if os.IsNotExist(err) {
		raw, err = os.ReadFile(filepath.Join("testdata", "streams", name))
	}
	if err != nil {
		return r, err
	}
	_, answer, found := strings.Cut(string(raw), "\n---\n")
	if !found {
		r.body = string(raw)
		return r, nil
	}
	head, body, _ := strings.Cut(strings.ReplaceAll(answer, "\r\n", "\n"), "\n\n")
	r.body = body
	lines := strings.Split(head, "\n")
	if r.status, err = strconv.Atoi(strings.Fields(lines[0])[1]); err != nil {
		return r, err
	}
	for _, line := range lines[1:] {
		if key, value, _ := strings.Cut(line, ": "); strings.EqualFold(key, "content-type") || strings.EqualFold(key, "server") {
			r.header.Set(key, value)
		}
	}
	return r, nil
}

func preflightAnswer(t *testing.T, name string) recording {
	t.Helper()
	r, err := readRecording(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// replay serves what a server was recorded to answer: counters as before until the
// first request for text, as after from then on; 404 where it had no route.
func replay(t *testing.T, name, stream string) *httptest.Server {
	t.Helper()
	family, _, _ := strings.Cut(name, "-")
	answers := map[string]recording{
		"/metrics":             preflightAnswer(t, name+"-metrics-before.txt"),
		"/v1/chat/completions": preflightAnswer(t, name+stream),
	}
	for path, suffix := range map[string]string{
		"/health": "-health.txt", "/v1/models": "-models.json", "/version": "-version.json",
		"/props": "-props.json", "/slots": "-slots.json",
	} {
		if r, err := readRecording(name + suffix); err == nil {
			answers[path] = r
		}
	}
	after, none := preflightAnswer(t, name+"-metrics-after.txt"), preflightAnswer(t, family+"-base-err-404.json")
	var asked atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.URL.Path]
		if !ok {
			a = none
		}
		if r.URL.Path == "/metrics" && asked.Load() {
			a = after
		}
		if r.URL.Path == "/v1/chat/completions" {
			asked.Store(true)
		}
		for key, values := range a.header {
			w.Header()[key] = values
		}
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body)) // the client may have left
	}))
	t.Cleanup(s.Close)
	return s
}
