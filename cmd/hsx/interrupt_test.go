package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// longDataset takes a while to read: one large sample, put over and over.
func longDataset(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.Options{ShardBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := hsxtest.Sample(hsxtest.Spec{Hidden: 256, Layers: []format.Layer{2, 30, 58}, DType: format.BFloat16}, 0, 2048)
	for i := range 32 { // of 3 MiB
		s.ID, s.Input.Path = fmt.Sprintf("sample-%d", i), fmt.Sprintf("data_%d.ckpt", i)
		s.Tokens[0] = int32(i)
		if err := w.Put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestInterruptAudit sends the signal of ^C while audit reads: it stops soon, prints no
// report, says that it was interrupted, and leaves the dataset as it is.
func TestInterruptAudit(t *testing.T) {
	t.Parallel()
	ds := longDataset(t)
	for name, args := range map[string][]string{
		"audit":     {"audit", ds},
		"json":      {"audit", "--json", ds},
		"html":      {"audit", "--html", filepath.Join(t.TempDir(), "report.html"), ds},
		"partition": {"audit", "--partition", "1/2", ds},
		"validate":  {"validate", "--all", ds},
	} {
		t.Run(name, func(t *testing.T) {
			var out, talk bytes.Buffer
			for range 10 { // it may have been faster than the signal
				out.Reset()
				talk.Reset()
				if code := interrupted(t, &out, &talk, args); code == exitInterrupted {
					break
				} else if code != exitDone && code != exitBadData {
					t.Fatalf("exit %d, want %d\n%.1000s%s", code, exitInterrupted, &out, &talk)
				}
				if args[1] == "--html" {
					if err := os.Remove(args[2]); err != nil {
						t.Fatal(err)
					}
				}
			}
			if out.Len() > 0 || talk.String() != "hsx: interrupted\n" {
				t.Errorf("got stdout %.1000q and stderr %q, want nothing but that it was interrupted", &out, &talk)
			}
			if args[1] == "--html" {
				if _, err := os.Stat(args[2]); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("report of an interrupted audit: got error %v, want none written", err)
				}
			}
		})
	}
	if code, out, talk := hsx("verify", ds); code != exitDone {
		t.Errorf("verify: exit %d\n%s%s", code, out, talk)
	}
}

// interrupted is the exit code of a command that gets the signal of ^C when it has
// mapped a shard.
func interrupted(t *testing.T, out, talk *bytes.Buffer, args []string) int {
	t.Helper()
	cmd := process(t, args...)
	cmd.Stdout, cmd.Stderr = out, talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	maps := fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		data, err := os.ReadFile(maps)
		if errors.Is(err, os.ErrNotExist) { // a system that does not show them
			time.Sleep(50 * time.Millisecond)
		}
		if err != nil || bytes.Contains(data, []byte(".arrow")) {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code tells
	return cmd.ProcessState.ExitCode()
}
