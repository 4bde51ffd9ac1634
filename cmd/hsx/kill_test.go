package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// manyDumps is a directory of manySamples dumps of one sample each.
func manyDumps(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/kit/dumps/specforge_eagle3/rows_0-2000/data_3.ckpt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for i := range manySamples {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("data_%d.ckpt", i)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// process is hsx as a process of its own: this test's binary under its name.
func process(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Args = append([]string{"hsx"}, args...)
	cmd.Env = append(os.Environ(), "GORACE="+noSleep)
	return cmd
}

// ingestMany is a command line that commits every other of many dumps.
func ingestMany(ds, dumps string) []string {
	return []string{"ingest", "--out", ds, "--layers", "0,2,3", "--shard-size", "20kB", "--on-bad", "fail", dumps}
}

// files is the content of every file under a directory, by its path there.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path) // path begins with dir
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// differences names the files that two directories do not have alike.
func differences(t *testing.T, got, want string) string {
	t.Helper()
	a, b := files(t, got), files(t, want)
	for name, text := range a {
		if b[name] == text && text != "" {
			delete(a, name)
			delete(b, name)
		}
	}
	return cmp.Diff(b, a)
}

// undisturbed ingests many dumps without a disturbance.
func undisturbed(t *testing.T, dumps string) (ds string) {
	t.Helper()
	ds = filepath.Join(t.TempDir(), "ds")
	if out, err := process(t, ingestMany(ds, dumps)...).CombinedOutput(); err != nil {
		t.Fatalf("ingest: %v\n%s", err, out)
	}
	if n := len(samples(t, ds)); n != manySamples {
		t.Fatalf("dataset has %d samples, want %d", n, manySamples)
	}
	if n := len(files(t, filepath.Join(ds, "shards"))); n < manySamples/3 {
		t.Fatalf("dataset has %d shards, want many, so that a kill meets every step of a commit", n)
	}
	return ds
}

const manySamples = 60

// TestKill ends ingest without warning at any instant, several times over on one
// dataset: the same command then makes what it would have made undisturbed.
func TestKill(t *testing.T) {
	t.Parallel()
	const kills = 25
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dumps := manyDumps(t)
	want := undisturbed(t, dumps)
	killed, partial := 0, 0
	for killed < kills {
		ds := filepath.Join(t.TempDir(), "ds")
		for range 1 + rng.IntN(3) {
			if !killAt(t, rng, ds, dumps) {
				break // it is complete
			}
			killed++
			if _, err := os.Stat(filepath.Join(ds, "manifest.json")); err != nil {
				continue // before the first commit
			}
			if code, out, talk := hsx("verify", ds); code != exitDone {
				t.Fatalf("verify after a kill: exit %d\n%s%s", code, out, talk)
			}
			if n := len(samples(t, ds)); n < manySamples {
				partial++
			}
		}
		if code, out, talk := hsx(ingestMany(ds, dumps)...); code != exitDone {
			t.Fatalf("ingest after kills: exit %d\n%s%s", code, out, talk)
		}
		if diff := differences(t, ds, want); diff != "" {
			t.Fatalf("dataset after kills differs from an undisturbed one (-want +got):\n%.2000s", diff)
		}
	}
	t.Logf("%d kills, %d of them between the first commit and the last", killed, partial)
}

// killAt starts ingest and kills it at a random instant after a random shard, however
// fast the machine is. It reports whether the kill came before the end.
func killAt(t *testing.T, rng *rand.Rand, ds, dumps string) bool {
	t.Helper()
	shards := rng.IntN(manySamples / 2)
	return killAfter(t, rng, process(t, ingestMany(ds, dumps)...), func() bool {
		entries, _ := os.ReadDir(filepath.Join(ds, "shards")) // no directory is no shards
		return len(entries) >= shards
	})
}

// killAfter starts a process and kills it at a random instant after reached says so. It
// reports whether the kill came before the end, which must be a good one: bad dumps are no
// fault of the process.
func killAfter(t *testing.T, rng *rand.Rand, cmd *exec.Cmd, reached func() bool) bool {
	t.Helper()
	extra := time.Duration(rng.IntN(3000)) * time.Microsecond
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case err := <-done:
			if err != nil && cmd.ProcessState.ExitCode() != exitBadData {
				t.Fatalf("%s: %v", cmd.Args[1], err)
			}
			return false
		case <-time.After(200 * time.Microsecond):
		}
		if reached() {
			break
		}
	}
	time.Sleep(extra)
	if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatal(err)
	}
	return <-done != nil && cmd.ProcessState.ExitCode() < 0 // else it ended by itself
}

// TestInterrupt sends the signal of ^C: what was taken is committed, and the same
// command completes the dataset.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	dumps := manyDumps(t)
	ds := filepath.Join(t.TempDir(), "ds")
	// A lock that is never dropped keeps the run from its end until the signal comes.
	held := filepath.Join(dumps, "data_30.ckpt.lock")
	lock, err := os.Create(held)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var out, talk bytes.Buffer
	cmd := process(t, append(ingestMany(ds, dumps), "--lock-timeout", "1m")...)
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(ds, "manifest.json")); err == nil || time.Now().After(end) {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err = cmd.Wait()
	if cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Fatalf("interrupted ingest: %v, want exit %d\n%s%s", err, exitInterrupted, &out, &talk)
	}
	if !strings.Contains(out.String(), "interrupted: all of the above is committed; run the same command to continue\n") {
		t.Errorf("stdout does not say that the work is committed:\n%s", &out)
	}
	if !strings.HasSuffix(talk.String(), "hsx: interrupted\n") {
		t.Errorf("stderr does not end in %q:\n%s", "hsx: interrupted", &talk)
	}
	if code, out, talk := hsx("verify", ds); code != exitDone {
		t.Errorf("verify: exit %d\n%s%s", code, out, talk)
	}
	if n := len(samples(t, ds)); n == 0 || n > 30 {
		t.Errorf("dataset has %d samples, want some of the 30 before the lock", n)
	}
	if err := errors.Join(lock.Close(), os.Remove(held)); err != nil {
		t.Fatal(err)
	}
	if code, out, talk := hsx(ingestMany(ds, dumps)...); code != exitDone {
		t.Fatalf("ingest: exit %d\n%s%s", code, out, talk)
	}
	if n := len(samples(t, ds)); n != manySamples {
		t.Errorf("dataset has %d samples, want %d", n, manySamples)
	}
}

// TestNoSpace ingests where files may not grow: one sentence says so, what was
// committed stays, and the same command completes the dataset elsewhere.
func TestNoSpace(t *testing.T) {
	t.Parallel()
	dumps := manyDumps(t)
	want := undisturbed(t, dumps)
	ds := filepath.Join(t.TempDir(), "ds")
	// 24 KiB in the shell's units of 512 bytes: a shard fits, and the manifest grows
	// past it after some commits.
	script := `ulimit -f 48; exec "$0" "$@"`
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, hsxLink(t)}, ingestMany(ds, dumps)...)...)
	cmd.Env = append(os.Environ(), "GORACE="+noSleep)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != exitFailed {
		t.Fatalf("ingest with a limit on files: %v, want exit %d\n%s", err, exitFailed, &talk)
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(talk.String()), "\n"), func(l string) bool {
		return strings.HasPrefix(l, "layers: ") || strings.HasPrefix(l, "hint: ")
	})
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "hsx: ") || !strings.Contains(lines[0], "file too large") {
		t.Errorf("stderr is not one clear sentence:\n%s", &talk)
	}
	if code, out, talk := hsx("verify", ds); code != exitDone {
		t.Errorf("verify: exit %d\n%s%s", code, out, talk)
	}
	if n := len(samples(t, ds)); n == 0 || n == manySamples {
		t.Errorf("dataset has %d samples, want some of %d", n, manySamples)
	}
	if code, out, talk := hsx(ingestMany(ds, dumps)...); code != exitDone {
		t.Fatalf("ingest: exit %d\n%s%s", code, out, talk)
	}
	if diff := differences(t, ds, want); diff != "" {
		t.Errorf("dataset differs from an undisturbed one (-want +got):\n%.2000s", diff)
	}
}

// hsxLink is a path of hsx for a shell: this test's binary does what its name says.
func hsxLink(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "hsx")
	if err := os.Symlink(exe, link); err != nil {
		t.Fatal(err)
	}
	return link
}
