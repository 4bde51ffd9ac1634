package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

// TestBenchKillServer ends a measurement while its server is being started. The server
// ends with all that it started itself, also where hsx has no time to see to it.
func TestBenchKillServer(t *testing.T) {
	t.Parallel()
	const (
		obeys   = "sleep 100 & echo started >&3; wait"
		waitsOn = "sleep 100 & trap 'trap - TERM; echo asked >&3' TERM; echo started >&3; wait; exec sleep 100"
	)
	tests := map[string]struct {
		server string
		signal os.Signal
		again  bool // once the server was asked to end
		code   int
	}{
		"interrupted":       {obeys, os.Interrupt, false, exitInterrupted},
		"interrupted twice": {waitsOn, os.Interrupt, true, exitInterrupted},
		"killed":            {obeys, os.Kill, false, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			fifo := filepath.Join(dir, "alive") // open as long as one of the server's processes lives
			if err := unix.Mkfifo(fifo, 0o600); err != nil {
				t.Fatal(err)
			}
			alive, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = alive.Close() }() // only read
			if err := alive.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			before, err := os.OpenFile(fifo, os.O_WRONLY, 0) // until the server has it open
			if err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(alive)
			line := func() {
				if _, err := said.ReadString('\n'); err != nil {
					t.Fatalf("the server says nothing: %v", err)
				}
			}
			cmd := process(t, "bench", "--url", "http://127.0.0.1:1", "--steps", "1", "--journal", filepath.Join(dir, "bench.jsonl"),
				"--relaunch", "exec 3>"+fifo+"; "+tt.server+" # {steps}")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line()
			if err := errors.Join(before.Close(), cmd.Process.Signal(tt.signal)); err != nil {
				t.Fatal(err)
			}
			if tt.again {
				line()
				if err := cmd.Process.Signal(tt.signal); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Wait() // the code tells
			if got := cmd.ProcessState.ExitCode(); got != tt.code {
				t.Errorf("exit %d, want %d", got, tt.code)
			}
			if text, err := said.ReadString(0); !errors.Is(err, io.EOF) {
				t.Errorf("got error %v after %q, want the end of all processes of the server", err, text)
			}
		})
	}
}
