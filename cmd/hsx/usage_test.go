package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// usage is what one run of a command took.
type usage struct {
	wall, cpu time.Duration
	anon      int64 // bytes: the most that its own memory held, without mapped files
	stdout    []byte
}

// measure runs hsx as a process of its own, which must end well.
func measure(tb testing.TB, args ...string) usage {
	tb.Helper()
	return measureCommand(tb, process(tb, args...))
}

func measureCommand(tb testing.TB, cmd *exec.Cmd) usage {
	tb.Helper()
	var u usage
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	ctx, done := context.WithCancel(tb.Context())
	var watch sync.WaitGroup
	watch.Go(func() { u.anon = watchMemory(ctx, cmd.Process.Pid) })
	err := cmd.Wait()
	u.wall = time.Since(start)
	done()
	watch.Wait()
	if err != nil {
		tb.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	u.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	u.stdout = stdout.Bytes()
	return u
}

// watchMemory is the most that a process's anonymous memory held when it was looked at,
// 100 times a second; 0 where /proc does not tell.
func watchMemory(ctx context.Context, pid int) (most int64) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return most
		}
		if _, after, ok := bytes.Cut(status, []byte("RssAnon:")); ok {
			var kib int64
			if _, err := fmt.Sscan(string(after[:min(len(after), 32)]), &kib); err == nil {
				most = max(most, kib<<10)
			}
		}
		select {
		case <-ctx.Done():
			return most
		case <-tick.C:
		}
	}
}

// median of what runs have.
func median[T any](runs []T, of func(T) float64) float64 {
	all := make([]float64, len(runs))
	for i, r := range runs {
		all[i] = of(r)
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// reportUsage adds the medians of some runs to a benchmark.
func reportUsage(b *testing.B, runs []usage) {
	b.Helper()
	b.ReportMetric(median(runs, func(u usage) float64 { return u.cpu.Seconds() }), "cpu-s")
	b.ReportMetric(median(runs, func(u usage) float64 { return float64(u.anon) / (1 << 20) }), "own-MiB")
}
