package server_test

import (
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hsx/bench/server"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	notPEM := filepath.Join(t.TempDir(), "ca.txt")
	keyPEM := filepath.Join(t.TempDir(), "key.pem")
	for name, text := range map[string]string{notPEM: "nothing", keyPEM: string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("x")}))} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		opt  server.Options
		want string
	}{
		"nothing":        {server.Options{}, `url "": want http:// or https://`},
		"no scheme":      {server.Options{URL: "localhost:8000"}, `url "localhost:8000": want http:// or https://`},
		"address":        {server.Options{URL: "127.0.0.1:8000"}, `url "127.0.0.1:8000": want http:// or https://`},
		"route":          {server.Options{URL: "http://host/v1/chat/completions"}, `url "http://host/v1/chat/completions": ends in the route /completions, want the root of a server`},
		"SGLang's route": {server.Options{URL: "http://user:hunter2@host/proxy/generate/"}, `url "http://host/proxy/generate/": ends in the route /generate, want the root of a server`},
		"other scheme":   {server.Options{URL: "ftp://host"}, `url "ftp://host": want http:// or https://`},
		"no host":        {server.Options{URL: "http://:80"}, `url "http://:80": has no host`},
		"query":          {server.Options{URL: "http://host/?key=hunter2"}, `url "http://host/": has a query or a fragment, want the root of a server`},
		"bad port":       {server.Options{URL: "http://host:a"}, `url "http://host:a": invalid port ":a" after host`},
		"bad password":   {server.Options{URL: "http://user:hunter2/@host"}, "url: does not parse; is a special character of the password not percent-encoded?"},
		"metrics URL":    {server.Options{URL: "http://host", MetricsURLs: []string{"host:9090"}}, `url "host:9090": want http:// or https://`},
		"api":            {server.Options{URL: "http://host", API: "chta"}, `api "chta" is unknown, want auto, chat, completions or sglang`},
		"no CA file":     {server.Options{URL: "http://host", CACert: "/nowhere/ca.pem"}, "read certificates: open /nowhere/ca.pem: no such file or directory"},
		"CA file of ...": {server.Options{URL: "http://host", CACert: notPEM}, fmt.Sprintf("read certificates %q: has no PEM block, want at least one CERTIFICATE", notPEM)},
		"CA file a key":  {server.Options{URL: "http://host", CACert: keyPEM}, fmt.Sprintf(`read certificates %q: has a PEM block "EC PRIVATE KEY", want at least one CERTIFICATE`, keyPEM)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := server.New(tc.opt); err == nil || err.Error() != tc.want {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	for suffix, want := range map[string]string{
		"": "/v1/chat/completions", "/": "/v1/chat/completions", "/v1": "/v1/chat/completions", "/v1/": "/v1/chat/completions", "/proxy/v1": "/proxy/v1/chat/completions",
	} {
		t.Run(suffix, func(t *testing.T) {
			t.Parallel()
			var got string
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r.URL.Path
				events(hello, finished, done)(w, r)
			}))
			defer srv.Close()
			c := dial(t, nil, server.Options{URL: srv.URL + suffix})
			if c.Do(t.Context(), ask(4)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// TestSecrets has a server that repeats whatever it is told.
func TestSecrets(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		user string
		opt  server.Options
		want string // Authorization
	}{
		"key":              {"", server.Options{Key: "sk-hunter2"}, "Bearer sk-hunter2"},
		"user":             {"user:sk-hunter2@", server.Options{}, "Basic dXNlcjpzay1odW50ZXIy"},
		"header":           {"", server.Options{Header: http.Header{"Authorization": {"Bearer sk-hunter2"}}}, "Bearer sk-hunter2"},
		"key before these": {"user:other@", server.Options{Key: "sk-hunter2", Header: http.Header{"authorization": {"Bearer x"}}}, "Bearer sk-hunter2"},
		"another header":   {"", server.Options{Header: http.Header{"X-Api-Key": {"sk-hunter2"}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got string
			handler := func(status int) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) {
					got = r.Header.Get("Authorization")
					w.WriteHeader(status)
					emit(w, "data: {\"error\":{\"message\":\"bad key sk-hunter2\"}}\n\n")
				}
			}
			for _, status := range []int{200, 401, 503} {
				srv := httptest.NewServer(handler(status))
				defer srv.Close()
				opt := tc.opt
				opt.URL, opt.Retries = strings.Replace(srv.URL, "http://", "http://"+tc.user, 1), -1
				c := dial(t, nil, opt)
				out := c.Do(t.Context(), ask(4))
				if got != tc.want {
					t.Errorf("status %d: got Authorization %q, want %q", status, got, tc.want)
				}
				_, _, err := c.Get(t.Context(), opt.URL+"/metrics", 3)
				said := fmt.Sprintf("%v %+v %v %s", out, out, err, c)
				if strings.Contains(said, "hunter2") || !strings.Contains(said, "bad key ***") || err == nil {
					t.Errorf("status %d: got %s, want the key as ***", status, said)
				}
			}
		})
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	var elsewhere atomic.Int32 // requests that came to another host
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	t.Cleanup(other.Close)
	otherHost := strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
	secure := httptest.NewTLSServer(events(hello, finished, counted, done))
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		status int
		to     string
		err    string // of Do, after the URL; $ is the server
		end    string // Outcome.Redirect
	}{
		"307, same host":   {307, "/there", "", "$/there"},
		"308, same host":   {308, "/there", "", "$/there"},
		"302, same host":   {302, "/there", "redirected with status 302, which makes a GET of the POST; use URL $/there", ""},
		"303, same host":   {303, "/there", "redirected with status 303, which makes a GET of the POST; use URL $/there", ""},
		"301, same host":   {301, "/there", "redirected with status 301, which makes a GET of the POST; use URL $/there", ""},
		"307, other host":  {307, otherHost + "/x?token=hunter2", "redirected to another server, which gets no key and no prompt; if it is yours, use URL " + otherHost + "/x", ""},
		"302, other host":  {302, otherHost, "redirected to another server, which gets no key and no prompt; if it is yours, use URL " + otherHost, ""},
		"307, other port":  {307, other.URL, "redirected to another server, which gets no key and no prompt; if it is yours, use URL " + other.URL, ""},
		"307, to https":    {307, secure.URL + "/v1/chat/completions", "", secure.URL + "/v1/chat/completions"},
		"307, round about": {307, "/v1/chat/completions", "redirected more than 5 times, last to $/v1/chat/completions", ""},
		"304":              {304, "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/there" {
					if r.Header.Get("Authorization") != "Bearer hunter2" {
						t.Errorf("got Authorization %q on the same host, want the key", r.Header.Get("Authorization"))
					}
					events(hello, finished, counted, done)(w, r)
					return
				}
				w.Header().Set("Location", tc.to)
				w.WriteHeader(tc.status)
			}))
			defer srv.Close()
			c := dial(t, nil, server.Options{URL: srv.URL, Key: "hunter2", CACert: ca})
			got := c.Do(t.Context(), ask(48))
			want, end := strings.ReplaceAll(tc.err, "$", srv.URL), strings.ReplaceAll(tc.end, "$", srv.URL)
			switch {
			case tc.status == 304:
				if got.Fault != server.FaultProtocol {
					t.Errorf("got %q %q, want %q", got.Fault, got.Error, server.FaultProtocol)
				}
			case want == "":
				if got.Error != "" || got.Redirect != end || got.Text != "Hello" {
					t.Errorf("got %q, redirect %q, text %q, want redirect %q and Hello", got.Error, got.Redirect, got.Text, end)
				}
			default:
				want = "POST " + srv.URL + "/v1/chat/completions: " + want
				if got.Fault != server.FaultRefused || got.Error != want || got.Status != tc.status || got.Attempts != 1 {
					t.Errorf("got %q %q, status %d after %d, want %q, status %d after 1", got.Fault, got.Error, got.Status, got.Attempts, want, tc.status)
				}
			}
			if strings.HasSuffix(name, "other host") {
				if _, status, err := c.Get(t.Context(), srv.URL+"/metrics", 100); err == nil || status != tc.status {
					t.Errorf("Get: got status %d, error %v, want %d and an error", status, err, tc.status)
				}
			}
			if elsewhere.Load() != 0 {
				t.Error("another server got a request")
			}
		})
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(events(hello, finished, counted, done))
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		opt  server.Options
		want string
	}{
		"unknown authority": {server.Options{}, "POST " + srv.URL + "/v1/chat/completions: tls: failed to verify certificate: x509: certificate signed by unknown authority"},
		"given authority":   {server.Options{CACert: ca}, ""},
		"not verified":      {server.Options{Insecure: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.opt.URL = srv.URL
			got := dial(t, nil, tc.opt).Do(t.Context(), ask(48))
			if got.Error != tc.want || got.Attempts != 1 || (got.Fault == server.FaultTransport) != (tc.want != "") {
				t.Errorf("got %q %q after %d attempts, want %q", got.Fault, got.Error, got.Attempts, tc.want)
			}
		})
	}
}

func TestGetIsBounded(t *testing.T) {
	t.Parallel()
	c := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		emit(w, "%s", strings.Repeat("x", 10))
	}), server.Options{})
	for limit, want := range map[int64]string{10: "", 9: "GET " + c.String() + ": answer is longer than 9 bytes"} {
		body, status, err := c.Get(t.Context(), c.String(), limit)
		said := ""
		if err != nil {
			said = err.Error()
		}
		if said != want || status != http.StatusTeapot || (len(body) == 10) != (want == "") {
			t.Errorf("limit %d: got %q, status %d, error %q, want %q", limit, body, status, said, want)
		}
	}
}

// TestConnectionsAreKept has one client used at once, whose connections outlive a stream.
func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	var opened atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "front.example" {
			t.Errorf("got host %q, want that of the header", r.Host)
		}
		events(hello, finished, counted, done)(w, r)
	}))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	srv.Start()
	defer srv.Close()
	const atOnce, rounds = 8, 10
	c := dial(t, nil, server.Options{URL: srv.URL, Connections: atOnce, Header: http.Header{"Host": {"front.example"}}})
	var wg sync.WaitGroup
	for range atOnce {
		wg.Go(func() {
			for range rounds {
				if got := c.Do(t.Context(), ask(48)); got.Error != "" || got.Text != "Hello" || got.Tokens != 3 {
					t.Errorf("got %q, %q of %d tokens, want Hello of 3", got.Error, got.Text, got.Tokens)
				}
			}
		})
	}
	wg.Wait()
	if n := opened.Load(); n > atOnce*rounds/2 {
		t.Errorf("%d requests, %d at once, opened %d connections", atOnce*rounds, atOnce, n)
	}
}

// TestNoGoroutineIsLeaked cannot be parallel: it counts all of them.
func TestNoGoroutineIsLeaked(t *testing.T) {
	before := runtime.NumGoroutine()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		events(hello)(w, r)
		<-r.Context().Done()
	}))
	c, err := server.New(server.Options{URL: srv.URL, Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	stalling, err := server.New(server.Options{URL: srv.URL, IdleTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if got := c.Do(t.Context(), ask(4)).Fault; got != server.FaultTimeout {
			t.Errorf("got %q, want %q", got, server.FaultTimeout)
		}
		if got := stalling.Do(t.Context(), ask(4)).Fault; got != server.FaultStalled {
			t.Errorf("got %q, want %q", got, server.FaultStalled)
		}
	}
	c.Close()
	stalling.Close()
	srv.Close()
	for deadline := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines are left, had %d", runtime.NumGoroutine(), before)
		}
	}
}
