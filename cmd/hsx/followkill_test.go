package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/safetensors"
	"hsx/shard"
)

// digests are those of a dataset's samples by their ids, each of which is there once.
func digests(t *testing.T, ds string) map[string]shard.Digest {
	t.Helper()
	data, err := shard.Open(ds)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]shard.Digest{}
	for i := range data.Manifest().Shards {
		sh, err := data.Shard(i)
		if err != nil {
			t.Fatal(err)
		}
		for row := range sh.Rows() {
			h, err := sh.Head(row)
			if err != nil {
				t.Fatal(err)
			}
			if _, twice := got[h.ID]; twice {
				t.Errorf("sample %s is in the dataset twice", h.ID)
			}
			got[h.ID] = h.Digest
		}
		if err := sh.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

// spool is a directory that a writer fills.
type spool struct {
	dir     string
	written atomic.Int64
}

func newSpool(t *testing.T) *spool {
	t.Helper()
	return &spool{dir: t.TempDir()}
}

func (s *spool) name(i int) string { return fmt.Sprintf("s%d.safetensors", i) }

// dump is the i-th sample, as vLLM writes it.
func (s *spool) dump(i int) ([]byte, error) {
	const tokens, layers, hidden = 4, 3, 64
	ids := make([]byte, 0, 8*tokens)
	for k := range tokens {
		ids = binary.LittleEndian.AppendUint64(ids, uint64(i+k))
	}
	states := make([]byte, 0, 2*tokens*layers*hidden)
	for k := range tokens * layers * hidden {
		states = binary.LittleEndian.AppendUint16(states, uint16(0x3f00+(i+k)%128))
	}
	var buf bytes.Buffer
	err := safetensors.Encode(&buf, []*format.Tensor{
		{Name: "token_ids", DType: format.Int64, Shape: []int64{tokens}, Data: ids},
		{Name: "hidden_states", DType: format.BFloat16, Shape: []int64{tokens, layers, hidden}, Data: states},
	}, nil)
	return buf.Bytes(), err
}

// fill renames n dumps into place, one after the other.
func (s *spool) fill(n int, pause time.Duration) error {
	for i := range n {
		temp := filepath.Join(s.dir, s.name(i)+".tmp")
		data, err := s.dump(i)
		if err != nil {
			return err
		}
		if err := os.WriteFile(temp, data, 0o600); err != nil {
			return err
		}
		if err := os.Rename(temp, filepath.Join(s.dir, s.name(i))); err != nil {
			return err
		}
		s.written.Add(1)
		time.Sleep(pause)
	}
	return nil
}

// awaitShards returns when a dataset has some more shards, or everything of n dumps is
// in it, however fast the machine is.
func (s *spool) awaitShards(t *testing.T, ds string, more, n int) {
	t.Helper()
	count := func(dir string) int {
		entries, _ := os.ReadDir(dir) // no directory has none
		return len(entries)
	}
	shards := filepath.Join(ds, "shards")
	want := count(shards) + more
	for end := time.Now().Add(20 * time.Second); count(shards) < want && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s.written.Load() == int64(n) && count(s.dir) == 0 {
			return
		}
	}
}

// TestFollowKill kills hsx again and again while a writer renames dumps into place and
// they are removed behind it: at any instant each is in the dataset or where it was
// written, and in the end each is in the dataset, once.
func TestFollowKill(t *testing.T) {
	t.Parallel()
	const n, kills = 200, 25
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := newSpool(t)
	ds := filepath.Join(t.TempDir(), "ds")
	args := []string{"ingest", "--follow", "--delete-source", "--out", ds, "--shard-size", "6kB", "--on-bad", "fail",
		"--settle", "10ms", "--poll", "10ms", "--commit-every", "20ms", s.dir}
	done := make(chan error, 1)
	go func() { done <- s.fill(n, 15*time.Millisecond) }()
	removed := 0
	for range kills {
		var talk bytes.Buffer
		cmd := process(t, args...)
		cmd.Stderr = &talk
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s.awaitShards(t, ds, rng.IntN(4), n)
		time.Sleep(time.Duration(rng.IntN(30_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed
		if talk.Len() > 0 {
			t.Fatalf("hsx complains:\n%s", &talk)
		}
		written := int(s.written.Load())
		var held map[string]shard.Digest
		if _, err := os.Stat(filepath.Join(ds, "manifest.json")); err == nil {
			held = digests(t, ds)
		}
		for i := range written {
			_, err := os.Stat(filepath.Join(s.dir, s.name(i)))
			if err == nil {
				continue
			}
			removed++
			if _, ok := held[s.name(i)]; !ok {
				t.Fatalf("%s was written, and is neither there nor in the dataset", s.name(i))
			}
		}
	}
	t.Logf("%d dumps written when the kills ended", s.written.Load())
	if removed == 0 {
		t.Error("nothing was removed before the last kill: the kills prove little")
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if code, out, talk := hsx(append(args, "--until-idle", "500ms")...); code != exitDone {
		t.Fatalf("ingest --follow after kills: exit %d\n%s%s", code, out, talk)
	}
	if rest := files(t, s.dir); len(rest) > 0 {
		t.Errorf("%d files are left where they were written", len(rest))
	}
	if code, out, talk := hsx("verify", ds); code != exitDone {
		t.Errorf("verify: exit %d\n%s%s", code, out, talk)
	}
	if err := s.fill(n, 0); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(digests(t, onceThrough(t, s.dir)), digests(t, ds)); diff != "" {
		t.Errorf("samples (-of one ingest +followed):\n%.2000s", diff)
	}
}

// onceThrough ingests a directory without following it.
func onceThrough(t *testing.T, dir string) (ds string) {
	t.Helper()
	ds = filepath.Join(t.TempDir(), "ds")
	if code, out, talk := hsx("ingest", "--out", ds, dir); code != exitDone {
		t.Fatalf("ingest: exit %d\n%s%s", code, out, talk)
	}
	return ds
}

// TestFollowInterrupt sends the signal of ^C: what was taken is committed and removed,
// and the same command goes on.
func TestFollowInterrupt(t *testing.T) {
	t.Parallel()
	const n = 50
	s := newSpool(t)
	ds := filepath.Join(t.TempDir(), "ds")
	args := []string{"ingest", "--follow", "--delete-source", "--out", ds, "--settle", "10ms", s.dir}
	if err := s.fill(n, 0); err != nil {
		t.Fatal(err)
	}
	var out, talk bytes.Buffer
	cmd := process(t, append(args, "--shard-size", "6kB")...)
	cmd.Stdout, cmd.Stderr = &out, &talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(ds, "manifest.json")); err == nil {
			break
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Fatalf("interrupted: %v, want exit %d\n%s%s", err, exitInterrupted, &out, &talk)
	}
	if !strings.Contains(out.String(), "interrupted: all of the above is committed; run the same command to continue\n") {
		t.Errorf("stdout does not say that the work is committed:\n%s", &out)
	}
	held := len(digests(t, ds))
	if left := len(files(t, s.dir)); held == 0 || held+left != n {
		t.Errorf("%d samples are in the dataset and %d files left, want %d together", held, left, n)
	}
	if code, out, talk := hsx(append(args, "--until-idle", "200ms")...); code != exitDone {
		t.Fatalf("ingest --follow: exit %d\n%s%s", code, out, talk)
	}
	if held, left := len(digests(t, ds)), len(files(t, s.dir)); held != n || left != 0 {
		t.Errorf("%d samples are in the dataset and %d files left, want %d and none", held, left, n)
	}
}

// TestFollowNoSpace follows where files may not grow: nothing is removed that no commit
// holds.
func TestFollowNoSpace(t *testing.T) {
	t.Parallel()
	const n = 60
	s := newSpool(t)
	if err := s.fill(n, 0); err != nil {
		t.Fatal(err)
	}
	ds := filepath.Join(t.TempDir(), "ds")
	args := []string{"ingest", "--follow", "--delete-source", "--out", ds, "--settle", "10ms",
		"--until-idle", "500ms", "--shard-size", "6kB", s.dir}
	script := `ulimit -f 20; exec "$0" "$@"` // in units of 512 bytes: the list of inputs grows past it
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", script, hsxLink(t)}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE="+noSleep)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(talk.String(), "file too large") {
		t.Fatalf("ingest with a limit on files: %v, want exit %d\n%s", err, exitFailed, &talk)
	}
	held, left := digests(t, ds), files(t, s.dir)
	for i := range n {
		if _, ok := held[s.name(i)]; !ok && left[s.name(i)] == "" {
			t.Errorf("%s is neither there nor in the dataset", s.name(i))
		}
	}
	if len(held) == 0 || len(left) == 0 {
		t.Errorf("%d samples are in the dataset and %d files left, want some of each", len(held), len(left))
	}
	if code, out, talk := hsx(args...); code != exitDone {
		t.Fatalf("ingest --follow: exit %d\n%s%s", code, out, talk)
	}
	if held, left := len(digests(t, ds)), len(files(t, s.dir)); held != n || left != 0 {
		t.Errorf("%d samples are in the dataset and %d files left, want %d and none", held, left, n)
	}
}

// TestFollowSource refuses to go on when what it follows is gone, with all committed.
func TestFollowSource(t *testing.T) {
	t.Parallel()
	s := newSpool(t)
	if err := s.fill(1, 0); err != nil {
		t.Fatal(err)
	}
	ds := filepath.Join(t.TempDir(), "ds")
	cmd := process(t, "ingest", "--follow", "--out", ds, "--settle", "10ms", "--poll", "10ms", "--commit-every", "10ms", s.dir)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if data, err := shard.Open(ds); err == nil && data.Manifest().Rows == 1 {
			break
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	err := cmd.Wait()
	if cmd.ProcessState.ExitCode() != exitFailed || !strings.Contains(talk.String(), "no such file or directory") {
		t.Errorf("source is gone: %v, want exit %d\n%s", err, exitFailed, &talk)
	}
	if n := len(digests(t, ds)); n != 1 {
		t.Errorf("dataset has %d samples, want 1", n)
	}
}
