package receive_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hsx/capture/receive"
	"hsx/format"
)

// dial begins a request by hand.
func (s *server) dial(t *testing.T, head string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	return c
}

func head(length int) string {
	return fmt.Sprintf("POST /v1/samples/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", length)
}

// code is the status of the answer on a connection.
func code(t *testing.T, c net.Conn) int {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	_ = res.Body.Close() // only the code counts
	return res.StatusCode
}

// until waits for what other goroutines do.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited 20 s for %s", what)
		}
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("spool has %v (error %v), want nothing", left, err)
	}
}

func TestSlow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir, receive.Options{BodyTimeout: 100 * time.Millisecond, MinRate: 1000})
	t.Run("stalled", func(t *testing.T) {
		if got := code(t, s.dial(t, head(1000)+"half")); got != 408 {
			t.Errorf("got %d, want 408", got)
		}
	})
	t.Run("trickle", func(t *testing.T) {
		c := s.dial(t, head(100000))
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
					_, _ = c.Write([]byte{0}) // the receiver ends it
				}
			}
		}()
		if got := code(t, c); got != 408 {
			t.Errorf("got %d, want 408", got)
		}
	})
	until(t, "the quota", func() bool { return s.r.Status().SpoolBytes == 0 })
	empty(t, filepath.Join(dir, "spool"))
	if got, text := s.post(t, "x", bytes.NewReader(small(t, "x", 1))); got != 201 {
		t.Errorf("after slow ones: got %d %s, want 201", got, text)
	}
}

// TestTruncated breaks connections within bodies: nothing of them stays.
func TestTruncated(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, dir, receive.Options{})
	body := small(t, "x", 1)
	for cut := 0; cut < len(body); cut += 97 {
		c := s.dial(t, head(len(body))+string(body[:cut]))
		_ = c.Close() // the point of it
	}
	until(t, "the last body", func() bool { st := s.r.Status(); return st.Receiving == 0 && st.SpoolBytes == 0 })
	empty(t, filepath.Join(dir, "spool"))
	if got, text := s.post(t, "x", bytes.NewReader(body)); got != 201 {
		t.Errorf("got %d %s, want 201", got, text)
	}
}

func TestQuota(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), receive.Options{SpoolBytes: 4 << 20, MaxBody: 3 << 20})
	first := s.dial(t, head(3<<20)+"begin")
	until(t, "the first body", func() bool { return s.r.Status().SpoolBytes == 3<<20 })
	for name, body := range map[string]io.Reader{
		"length":  bytes.NewReader(make([]byte, 2<<20)),
		"chunked": io.MultiReader(bytes.NewReader(make([]byte, 2<<20))),
	} {
		res, err := http.Post(s.url+"/v1/samples/y", "", body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_ = res.Body.Close() // only the head counts
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
			t.Errorf("%s: got %d with Retry-After %q, want 429 with one", name, res.StatusCode, res.Header.Get("Retry-After"))
		}
	}
	if got, _ := s.post(t, "y", io.MultiReader(bytes.NewReader(make([]byte, 3<<20+1)))); got != 413 && got != 429 {
		t.Errorf("chunked and too big: got %d, want 413 or 429", got)
	}
	_ = first.Close() // gives its part back
	until(t, "the quota", func() bool { return s.r.Status().SpoolBytes == 0 })
	if got, _ := s.post(t, "y", io.MultiReader(bytes.NewReader(make([]byte, 3<<20+1)))); got != 413 {
		t.Errorf("chunked and too big: got %d, want 413", got)
	}
	if got, text := s.post(t, "x", bytes.NewReader(small(t, "x", 1))); got != 201 {
		t.Errorf("got %d %s, want 201", got, text)
	}
}

// TestConnections has more clients than connections: the others wait.
func TestConnections(t *testing.T) {
	t.Parallel()
	s := start(t, t.TempDir(), receive.Options{MaxConns: 1})
	first := s.dial(t, head(1000))
	until(t, "the first", func() bool { return s.r.Status().Receiving == 1 })
	second := s.dial(t, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
	if err := second.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := second.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("second connection read %d bytes, error %v, want a wait", n, err)
	}
	_ = first.Close() // makes room
	if got := code(t, second); got != 200 {
		t.Errorf("got %d, want 200", got)
	}
}

// TestStop ends a receiver while a body is on its way: it comes in and is kept.
func TestStop(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"in time": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := start(t, dir, receive.Options{StopTimeout: map[bool]time.Duration{false: 20 * time.Second, true: 50 * time.Millisecond}[late]})
			body := small(t, "x", 1)
			c := s.dial(t, head(len(body))+string(body[:100]))
			until(t, "the body", func() bool { return s.r.Status().Receiving == 1 })
			stopped := make(chan error, 1)
			go func() { stopped <- s.stop() }()
			want := 0
			if !late {
				until(t, "the end of accepting", func() bool {
					c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
					if err == nil {
						_ = c.Close() // it was too early
					}
					return err != nil
				})
				if _, err := c.Write(body[100:]); err != nil {
					t.Fatal(err)
				}
				if got := code(t, c); got != 201 {
					t.Errorf("got %d, want 201", got)
				}
				want = 1
			}
			if err := <-stopped; err != nil {
				t.Fatal(err)
			}
			if late {
				return // there is no dataset to open: nothing was put
			}
			if got := s.rows(t)["x"]; got != want {
				t.Errorf("sample is there %d times, want %d", got, want)
			}
		})
	}
}

// TestLeftovers finds what a killed receiver left, and what another one holds.
func TestLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sp := filepath.Join(dir, "spool")
	if err := os.Mkdir(sp, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"body-123.tmp", "mine.txt"} {
		if err := os.WriteFile(filepath.Join(sp, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := start(t, dir, receive.Options{})
	left, err := os.ReadDir(sp)
	if err != nil || len(left) != 1 || left[0].Name() != "mine.txt" {
		t.Errorf("spool has %v (error %v), want mine.txt", left, err)
	}
	if _, err := receive.New(nil, receive.Options{Spool: sp}); err == nil || !strings.Contains(err.Error(), "another receiver has it") {
		t.Errorf("second receiver: got error %v, want one about the lock", err)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(sp, "mine.txt")); err != nil {
		t.Error(err)
	}
}

// failing is a store whose disk is full after some samples.
type failing struct {
	mu                sync.Mutex
	put, durable      int
	failPut, failOnce int // the number of the Put, and of the Commit, that fails
	commits           int
}

type fullError struct{}

func (fullError) Error() string { return "no space left" }

func (f *failing) Put(context.Context, *format.Sample) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.put++; f.put == f.failPut {
		return fullError{}
	}
	return nil
}

func (f *failing) Compare(context.Context, *format.Sample) (known, same bool, err error) {
	return false, false, nil
}

func (f *failing) Reject(format.Rejection) error { return nil }

func (f *failing) Compact(context.Context) error { return nil }

func (f *failing) Commit(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.commits++; f.commits == f.failOnce {
		return fullError{}
	}
	f.durable = f.put
	return nil
}

// TestStoreFails acknowledges nothing that is not durable, answers all, and ends.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	for what, store := range map[string]*failing{"put": {failPut: 5}, "commit": {failOnce: 2}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := startStore(t, t.TempDir(), store, receive.Options{}, func() error { return nil })
			var wg sync.WaitGroup
			var mu sync.Mutex
			codes := map[int]int{}
			for i := range 8 {
				body := small(t, name(i), i)
				wg.Go(func() {
					for k := range 4 {
						code, _, err := s.try(name(i), bytes.NewReader(body))
						mu.Lock()
						if codes[code]++; err != nil && code != 0 {
							t.Errorf("try %d: %v", k, err)
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			if err := s.stop(); !errors.Is(err, fullError{}) {
				t.Errorf("Serve: got error %v, want %v", err, fullError{})
			}
			if codes[201] > store.durable || codes[503]+codes[0] == 0 {
				t.Errorf("codes are %v with %d durable, want no more 201 than those, and failures", codes, store.durable)
			}
		})
	}
}
