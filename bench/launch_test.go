package bench_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"hsx/bench"
	"hsx/bench/server"
)

// launchSweep is a plan of servers that a command starts. Each of their processes holds
// a pipe open, as long as it lives.
type launchSweep struct {
	plan    bench.Plan
	journal string
	alive   *os.File
}

func newLaunchSweep(t *testing.T, commands ...string) *launchSweep {
	t.Helper()
	dir := t.TempDir()
	s := &launchSweep{plan: runPlan(), journal: filepath.Join(dir, "bench.jsonl")}
	s.plan.Runs, s.plan.WarmUpRuns = 1, 0
	pipe := filepath.Join(dir, "alive")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.alive, err = os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.alive.Close() }) // only read
	for i, command := range commands {
		steps := i + 1
		command = fmt.Sprintf("exec 3>'%s'; echo started %d >&3; %s", pipe, steps, command)
		s.plan.Arms = append(s.plan.Arms, bench.Arm{Name: fmt.Sprintf("steps=%d", steps), Role: bench.Spec, URL: "http://x", Steps: steps, Launch: command})
	}
	return s
}

// run measures, and reports what was started as the pipe tells it. It fails when a
// process is left.
func (s *launchSweep) run(ctx context.Context, t *testing.T, o bench.Options) (log *bench.Log, started string, err error) {
	t.Helper()
	j, err := bench.CreateJournal(s.journal)
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("panic: %v", v)
			}
		}()
		err = bench.Run(ctx, s.plan, j, o)
	}()
	if err := errors.Join(j.Close(), s.alive.SetReadDeadline(time.Now().Add(5*time.Second))); err != nil {
		t.Fatal(err)
	}
	text, readErr := io.ReadAll(s.alive)
	if readErr != nil {
		t.Errorf("pipe: got error %v after %q, want its end: a process of the server is left", readErr, text)
	}
	f, openErr := os.Open(s.journal)
	if openErr != nil {
		t.Fatal(openErr)
	}
	defer func() { _ = f.Close() }() // only read
	if log, openErr = bench.ReadLog(f); openErr != nil {
		t.Fatal(openErr)
	}
	return log, string(text), err
}

// launchProbe answers as a server that is not there before it is started, and is ready
// at the n-th look after that.
func launchProbe(n int) func(arm string) (*server.Info, error) {
	looks := map[string]int{}
	return func(arm string) (*server.Info, error) {
		if looks[arm]++; looks[arm] <= n {
			return nil, errors.New("connection refused")
		}
		return runInfo(arm), nil
	}
}

const (
	launchStays  = "echo listening; sleep 60 & wait" // with a process of its own
	launchClings = "trap '' TERM; sh -c \"trap '' TERM; sleep 60\" & wait; sleep 60"
)

func TestLaunch(t *testing.T) {
	t.Parallel()
	stays := []string{"steps=1 1", "steps=2 1"}
	tests := map[string]struct {
		commands []string
		probe    func(arm string) (*server.Info, error)
		do       func(ctx context.Context, cancel func(), n int, r server.Request) server.Outcome
		passes   []string
		started  string
		err      []string // all in the error
	}{
		"one after the other":  {[]string{launchStays, launchStays}, launchProbe(2), nil, stays, "started 1\nstarted 2\n", nil},
		"does not want to end": {[]string{launchClings}, launchProbe(1), nil, []string{"steps=1 1"}, "started 1\n", nil},
		"cannot start": {
			[]string{"echo out of memory; exit 7", launchStays}, launchProbe(2), nil, []string{"steps=2 1"}, "started 1\nstarted 2\n",
			[]string{"start steps=1: the started command ended (exit status 7); it has to stay in the foreground. the end of ", "bench.steps=1.log:\nout of memory"},
		},
		"goes to the background": {
			[]string{"sleep 60 &"}, launchProbe(2), nil, nil, "started 1\n",
			[]string{"ended (exit status 0); it has to stay in the foreground. it printed nothing to "},
		},
		"never ready": {
			[]string{"echo loading; " + launchStays}, launchProbe(1 << 30), nil, nil, "started 1\n",
			[]string{"start steps=1: not ready after 1.5s: connection refused. the end of ", "loading\nlistening"},
		},
		"another answers": {[]string{launchStays}, launchProbe(0), nil, nil, "", []string{"start steps=1: a vllm server answers at its URL already, stop it first"}},
		"interrupted": {
			[]string{launchStays, launchStays}, launchProbe(2),
			func(ctx context.Context, cancel func(), _ int, r server.Request) server.Outcome {
				cancel()
				return runAnswer(ctx, time.Hour, r)
			},
			[]string{"steps=1 1!"}, "started 1\n", []string{"context canceled"},
		},
		"crash of hsx": {
			[]string{launchStays}, launchProbe(2),
			func(context.Context, func(), int, server.Request) server.Outcome { panic("bug") },
			[]string{"steps=1 1!"}, "started 1\n", []string{"panic: bug\n", "launch_test.go"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := newLaunchSweep(t, tt.commands...)
			servers := &runServers{probe: tt.probe}
			if tt.do != nil {
				servers.do = func(ctx context.Context, n int, r server.Request) server.Outcome { return tt.do(ctx, cancel, n, r) }
			}
			log, started, err := s.run(ctx, t, bench.Options{Dial: servers.link, ReadyTimeout: 1500 * time.Millisecond, StopTimeout: 300 * time.Millisecond})
			if (err != nil) != (tt.err != nil) {
				t.Errorf("Run: got error %v, want %q", err, tt.err)
			}
			for _, want := range tt.err {
				if !strings.Contains(fmt.Sprint(err), want) {
					t.Errorf("Run: got error %v, want %q in it", err, want)
				}
			}
			if diff := cmp.Diff(tt.passes, runKeys(log)); diff != "" {
				t.Errorf("passes (-want +got):\n%s", diff)
			}
			if started != tt.started {
				t.Errorf("started: got %q, want %q", started, tt.started)
			}
		})
	}
}

// A server that dies while it is measured is reported with its last words, and the next
// of a sweep is measured.
func TestLaunchDies(t *testing.T) {
	t.Parallel()
	s := newLaunchSweep(t, "echo segmentation fault; sleep 1.5; exit 9", launchStays)
	for i := range 4 {
		p := s.plan.Prompts[1]
		p.ID = fmt.Sprint("more", i)
		s.plan.Prompts = append(s.plan.Prompts, p)
	}
	ready := launchProbe(2)
	looks := 0
	servers := &runServers{probe: func(arm string) (*server.Info, error) {
		if looks++; arm == "steps=1" && looks > 3 {
			return nil, errors.New("connection refused")
		}
		return ready(arm)
	}}
	servers.do = func(ctx context.Context, n int, r server.Request) server.Outcome {
		if n > 5 {
			return runAnswer(ctx, 0, r)
		}
		_ = runAnswer(ctx, 500*time.Millisecond, r)
		return runFault(server.FaultTransport)
	}
	s.plan.Levels = []bench.Level{{Concurrency: 1}}
	waiting := map[string]bool{}
	log, _, err := s.run(t.Context(), t, bench.Options{Dial: servers.link, Progress: func(p bench.Progress) {
		if p.Starting {
			waiting[p.Waiting] = true
		}
	}})
	for _, want := range []string{"steps=1, concurrency 1, run 1: the server does not answer any more", "ended (exit status 9)", "segmentation fault"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("Run: got error %v, want %q in it", err, want)
		}
	}
	if diff := cmp.Diff([]string{"steps=1 1!", "steps=2 1"}, runKeys(log)); diff != "" {
		t.Errorf("passes (-want +got):\n%s", diff)
	}
	if log.End == nil || log.End.Reason != fmt.Sprint(err) {
		t.Errorf("end: got %+v, want the error as its reason", log.End)
	}
	if diff := cmp.Diff(map[string]bool{"connection refused": true}, waiting); diff != "" {
		t.Errorf("why servers were waited for (-want +got):\n%s", diff)
	}
}
