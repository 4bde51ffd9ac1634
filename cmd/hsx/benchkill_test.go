package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hsx/bench"
	"hsx/internal/simserver"
)

// signalled runs a bench of 4 runs of 8 requests against a simulated server, and sends
// it a signal when the server sees the 20th request: in the middle of run 3, since the
// first is the probe. That request is never answered.
func signalled(t *testing.T, signal os.Signal) (journal, out, talk string, state *os.ProcessState) {
	t.Helper()
	const at = 20
	var seen atomic.Int64
	now := make(chan struct{})
	s := simserver.New(simserver.Options{
		Steps: 2, Accept: []float64{0.6}, Faults: simserver.Faults{StallEvery: at},
		Seen: func(*http.Request, []byte) {
			if seen.Add(1) == at {
				close(now)
			}
		},
	})
	web := httptest.NewServer(s)
	t.Cleanup(func() { s.Close(); web.Close() })
	journal = filepath.Join(t.TempDir(), "bench.jsonl")
	cmd := process(t, "bench", "--url", web.URL, "--prompts", "6", "--runs", "4", "--warmup-runs", "0", "--journal", journal)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the state tells
		close(done)
	}()
	select {
	case <-now:
	case <-done:
		t.Fatalf("bench ended before its 20th request: %v\n%s%s", cmd.ProcessState, &stdout, &stderr)
	}
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	<-done
	return journal, stdout.String(), stderr.String(), cmd.ProcessState
}

// stored is the report of a journal.
func stored(t *testing.T, args ...string) bench.Report {
	t.Helper()
	code, out, talk := hsx(append([]string{"bench"}, args...)...)
	var r bench.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitDone {
		t.Fatalf("bench %v: exit %d: %v\n%s", args, code, err, talk)
	}
	return r
}

// TestBenchKill kills a measurement: the whole runs before it count, and the rest is
// measured when it is resumed.
func TestBenchKill(t *testing.T) {
	t.Parallel()
	journal, _, _, _ := signalled(t, os.Kill)
	r := stored(t, "report", "--json", journal)
	if got := r.Levels[0].Arms[0].Runs; got != 2 || r.Interrupted == "" {
		t.Errorf("report of a killed measurement: %d runs, interrupted %q; want 2 and why it ended", got, r.Interrupted)
	}
	r = stored(t, "--resume", journal, "--json")
	if got := r.Levels[0].Arms[0]; got.Runs != 4 || got.Requests != 32 || r.Interrupted != "" {
		t.Errorf("resumed: %d runs, %d requests, interrupted %q; want 4, 32 and not", got.Runs, got.Requests, r.Interrupted)
	}
}

// TestBenchInterrupt sends the signal of ^C: the request under way is dropped, and what
// is known is reported.
func TestBenchInterrupt(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]os.Signal{"int": os.Interrupt, "term": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journal, out, talk, state := signalled(t, signal)
			if got := state.ExitCode(); got != exitInterrupted {
				t.Errorf("exit %d, want %d", got, exitInterrupted)
			}
			for _, want := range []string{"Measured speculation: ", "  runs, requests       2, 16\n", "  stopped    "} {
				if !strings.Contains(out, want) {
					t.Errorf("stdout does not have %q:\n%s", want, out)
				}
			}
			want := "hsx: interrupted\nhint: what was measured is kept; go on with 'hsx bench --resume " + journal + "', and the same keys and headers\n"
			if !strings.HasSuffix(talk, want) {
				t.Errorf("stderr does not end in %q:\n%s", want, talk)
			}
			if got := stored(t, "--resume", journal, "--json").Levels[0].Arms[0].Runs; got != 4 {
				t.Errorf("resumed: %d runs, want 4", got)
			}
		})
	}
}

// TestBenchInterruptStart sends the signal of ^C while a server is being started: it is
// stopped with all that it started itself.
func TestBenchInterruptStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "pid")
	cmd := process(t, "bench", "--url", "http://127.0.0.1:1", "--steps", "1", "--journal", filepath.Join(dir, "bench.jsonl"),
		"--relaunch", "sleep 100 & echo $! >"+file+".new; mv "+file+".new "+file+"; wait # {steps}")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid []byte
	for end := time.Now().Add(20 * time.Second); pid == nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		pid, _ = os.ReadFile(file) // it is there when the server has started
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatalf("no server was started: %v", err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code tells
	if got := cmd.ProcessState.ExitCode(); got != exitInterrupted {
		t.Errorf("exit %d, want %d", got, exitInterrupted)
	}
	stat, _ := os.ReadFile("/proc/" + strconv.Itoa(n) + "/stat")
	if err := unix.Kill(n, 0); !errors.Is(err, unix.ESRCH) && !bytes.Contains(stat, []byte(") Z ")) {
		t.Errorf("process %d of the started server is left: %v, %s", n, err, stat)
	}
}
