package faultproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hsx/internal/faultproxy"
)

// ask sends a request and returns what came of it.
func ask(t *testing.T, method, url, body string) (status int, got string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := (&http.Transport{}).RoundTrip(req) // no connection is used twice, and no request repeated
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

func TestFaults(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = io.WriteString(w, "twenty bytes of body") // the client may have gone
		}
	}))
	defer server.Close()
	for name, tt := range map[string]struct {
		fault       faultproxy.Fault
		method      string
		status      int
		body        string
		err         bool
		asked       int
		sent, heard int64
	}{
		"none":           {faultproxy.Fault{}, http.MethodGet, 200, "twenty bytes of body", false, 1, 0, 20},
		"busy":           {faultproxy.Fault{Busy: true}, http.MethodPut, 503, "SlowDown", false, 0, 0, 0},
		"lost":           {faultproxy.Fault{Lost: true}, http.MethodPut, 0, "", true, 1, 4, 0},
		"answer cut":     {faultproxy.Fault{Cut: true, After: 6}, http.MethodGet, 200, "twenty", true, 1, 0, 6},
		"request cut":    {faultproxy.Fault{Cut: true, After: 2}, http.MethodPut, 0, "", true, 1, 2, 0},
		"cut after ends": {faultproxy.Fault{Cut: true, After: 21}, http.MethodGet, 200, "twenty bytes of body", false, 1, 0, 20},
		"delay":          {faultproxy.Fault{Delay: time.Millisecond}, http.MethodGet, 200, "twenty bytes of body", false, 1, 0, 20},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := faultproxy.New(server.URL, func(*http.Request, int) faultproxy.Fault { return tt.fault })
			if err != nil {
				t.Fatal(err)
			}
			proxy := httptest.NewServer(p)
			defer proxy.Close()
			sent := ""
			if tt.method == http.MethodPut {
				sent = "four"
			}
			asked.Store(0)
			status, body, err := ask(t, tt.method, proxy.URL+"/x", sent)
			if status != tt.status || !strings.Contains(body, tt.body) || (err != nil) != tt.err {
				t.Errorf("status %d, body %q, error %v, want %d, %q, an error: %v", status, body, err, tt.status, tt.body, tt.err)
			}
			c := p.Counts()[tt.method]
			if c.Requests != 1 || c.Sent != tt.sent || c.Received != tt.heard {
				t.Errorf("counted %+v, want %d bytes sent and %d received", c, tt.sent, tt.heard)
			}
			if name != "request cut" && int(asked.Load()) != tt.asked {
				t.Errorf("server was asked %d times, want %d", asked.Load(), tt.asked)
			}
		})
	}
}

// TestRandom: the same requests meet the same faults, whatever comes between them, and
// none forever.
func TestRandom(t *testing.T) {
	t.Parallel()
	one, two := faultproxy.Random(1, 0.2, 0.2, 0.2, 0), faultproxy.Random(1, 0.2, 0.2, 0.2, 0)
	faults := 0
	for i := range 1000 {
		r := httptest.NewRequest(http.MethodPut, fmt.Sprintf("/bucket/key?partNumber=%d&uploadId=%d", i, i), nil)
		again := httptest.NewRequest(http.MethodPut, fmt.Sprintf("/bucket/key?partNumber=%d&uploadId=other", i), nil)
		if one(r, 0) != two(again, 0) {
			t.Fatalf("request %d has other faults the second time", i)
		}
		if one(r, 0) != (faultproxy.Fault{}) {
			faults++
		}
		if one(r, 3) != (faultproxy.Fault{}) {
			t.Fatalf("request %d fails a fourth time", i)
		}
	}
	if faults < 500 || faults > 700 {
		t.Errorf("%d of 1000 requests have faults, want about 600", faults)
	}
}
