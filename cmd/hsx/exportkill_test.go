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
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

const exportSamples = 300 // several batches of files

// exportDataset holds many small samples.
func exportDataset(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.Options{ShardBytes: 20_000})
	if err != nil {
		t.Fatal(err)
	}
	spec := hsxtest.Spec{Hidden: 16, Layers: []format.Layer{2, 30, 58}, DType: format.BFloat16, Final: true, Norm: format.NormPost}
	for i := range exportSamples {
		s := hsxtest.Sample(spec, i, 4)
		s.ID = fmt.Sprintf("%03d", i)
		if err := w.Put(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

func exportMany(ds, out string) []string {
	return []string{"export", "--to", "specforge", "--shuffle", "--split", "train=0.8,val=0.2", "--out", out, ds}
}

// exported is what an export made, but for its journal, whose lines come in no fixed order.
func exported(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := files(t, dir)
	delete(all, "hsx-export.jsonl")
	return all
}

// undisturbedExport is the files of a run that nobody disturbed.
func undisturbedExport(t *testing.T, ds string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	if code, out, talk := hsx(exportMany(ds, dir)...); code != exitDone {
		t.Fatalf("export: exit %d\n%s%s", code, out, talk)
	}
	want := exported(t, dir)
	if len(want) != exportSamples+1 {
		t.Fatalf("export has %d files, want %d samples and the mapping", len(want), exportSamples)
	}
	return want
}

// checkPart wants each file of an export that was stopped to be complete.
func checkPart(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		return // before the first step
	}
	for name, data := range exported(t, dir) {
		if !strings.HasSuffix(name, ".tmp") && want[name] != data {
			t.Errorf("%s is there and not complete", name)
		}
	}
}

// TestExportKill ends export without warning at any instant: what is there is complete,
// and the same command makes what it would have made undisturbed.
func TestExportKill(t *testing.T) {
	t.Parallel()
	const kills = 15
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	ds := exportDataset(t)
	want := undisturbedExport(t, ds)
	killed, partial := 0, 0
	for killed < kills {
		dir := filepath.Join(t.TempDir(), "out")
		for range 1 + rng.IntN(3) {
			if !killExport(t, rng, ds, dir) {
				break // it is complete
			}
			killed++
			checkPart(t, dir, want)
			if data, err := os.ReadFile(filepath.Join(dir, "hsx-export.jsonl")); err == nil && bytes.Count(data, []byte("\n")) > 1 {
				partial++
			}
		}
		if code, out, talk := hsx(exportMany(ds, dir)...); code != exitDone {
			t.Fatalf("export after kills: exit %d\n%s%s", code, out, talk)
		}
		if diff := gocmp.Diff(want, exported(t, dir)); diff != "" {
			t.Fatalf("export after kills differs from an undisturbed one (-want +got):\n%.2000s", diff)
		}
	}
	t.Logf("%d kills, %d of them between the first batch of files and the last", killed, partial)
}

// killExport starts export and kills it at a random instant after a random file. It reports
// whether the kill came before the end.
func killExport(t *testing.T, rng *rand.Rand, ds, dir string) bool {
	t.Helper()
	enough := rng.IntN(exportSamples)
	return killAfter(t, rng, process(t, exportMany(ds, dir)...), func() bool {
		n := 0
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { // names come and go
			if err == nil && !d.IsDir() {
				n++
			}
			return nil
		})
		return n >= enough
	})
}

// TestExportInterrupt sends the signal of ^C while export writes: it finishes the files it
// is at, says so, and the same command completes the export.
func TestExportInterrupt(t *testing.T) {
	t.Parallel()
	ds := exportDataset(t)
	want := undisturbedExport(t, ds)
	for try := 0; ; try++ {
		dir := filepath.Join(t.TempDir(), "out")
		var out, talk bytes.Buffer
		cmd := process(t, exportMany(ds, dir)...)
		cmd.Stdout, cmd.Stderr = &out, &talk
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if entries, _ := os.ReadDir(filepath.Join(dir, "train/rows_0-2000")); len(entries) > 0 { // no directory is no entries
				break
			}
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
		_ = cmd.Wait() // the code tells
		if code := cmd.ProcessState.ExitCode(); code == exitDone && try < 10 {
			continue // it was faster than the signal
		} else if code != exitInterrupted {
			t.Fatalf("exit %d, want %d\n%s%s", code, exitInterrupted, &out, &talk)
		}
		if !strings.HasPrefix(out.String(), "interrupted: ") || !strings.Contains(out.String(), "are complete; run the same command to continue\n") || talk.String() != "hsx: interrupted\n" {
			t.Errorf("got stdout %q and stderr %q, want that it was interrupted and can go on", &out, &talk)
		}
		checkPart(t, dir, want)
		part := exported(t, dir)
		for name := range part {
			if strings.HasSuffix(name, ".tmp") {
				t.Errorf("%s is left", name)
			}
		}
		if len(part) == 0 || len(part) >= len(want) {
			t.Errorf("export has %d files, want some of %d", len(part), len(want))
		}
		code, stdout, stderr := hsx(exportMany(ds, dir)...)
		if code != exitDone || !strings.Contains(stdout, count(int64(len(part)), "file")+" there already\n") {
			t.Errorf("export: exit %d, want that %d files were there\n%s%s", code, len(part), stdout, stderr)
		}
		if diff := gocmp.Diff(want, exported(t, dir)); diff != "" {
			t.Errorf("export differs from an undisturbed one (-want +got):\n%.2000s", diff)
		}
		return
	}
}

// TestExportNoSpace exports where files may not grow: one sentence says so, what is there is
// complete, and the same command completes the export elsewhere.
func TestExportNoSpace(t *testing.T) {
	t.Parallel()
	ds := exportDataset(t)
	want := undisturbedExport(t, ds)
	dir := filepath.Join(t.TempDir(), "out")
	// 16 KiB in the shell's units of 512 bytes: a sample fits, and the journal grows past it.
	script := `ulimit -f 32; exec "$0" "$@"`
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, hsxLink(t)}, exportMany(ds, dir)...)...)
	cmd.Env = append(os.Environ(), "GORACE="+noSleep)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	err := cmd.Run()
	if cmd.ProcessState.ExitCode() != exitFailed {
		t.Fatalf("export with a limit on files: %v, want exit %d\n%s", err, exitFailed, &talk)
	}
	lines := strings.Split(strings.TrimSpace(talk.String()), "\n")
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "hsx: export ") || !strings.Contains(lines[0], "file too large") || !strings.HasPrefix(lines[1], "hint: ") {
		t.Errorf("stderr is not one clear sentence and a hint:\n%s", &talk)
	}
	checkPart(t, dir, want)
	if code, out, talk := hsx(exportMany(ds, dir)...); code != exitDone {
		t.Fatalf("export: exit %d\n%s%s", code, out, talk)
	}
	if diff := gocmp.Diff(want, exported(t, dir)); diff != "" {
		t.Errorf("export differs from an undisturbed one (-want +got):\n%.2000s", diff)
	}
}
