package shard_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// within fails the test when fn hangs.
func within(t testing.TB, d time.Duration, fn func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(d):
		t.Fatalf("no answer after %s", d)
		return nil
	}
}

// record is the operations of an undisturbed run below dir.
func record(t *testing.T, dir string, opt shard.Options, steps []step) []hsxtest.Op {
	t.Helper()
	var ops []hsxtest.Op
	fs := &hsxtest.HookFS{FS: hasty(), Before: func(op hsxtest.Op) error { ops = append(ops, op); return nil }}
	if _, err := play(dir, shard.WithFS(opt, fs), steps); err != nil {
		t.Fatal(err)
	}
	return ops
}

// unfinished are the files that nobody will complete.
func unfinished(dir string) []string {
	a, _ := filepath.Glob(filepath.Join(dir, "*.tmp")) // the pattern is good
	b, _ := filepath.Glob(filepath.Join(dir, "shards", "*.tmp"))
	return append(a, b...)
}

func TestDiskFaults(t *testing.T) {
	t.Parallel()
	steps := story()
	fails := []string{hsxtest.OpOpen, hsxtest.OpWrite, hsxtest.OpSync, hsxtest.OpSyncDir, hsxtest.OpRename, hsxtest.OpMkdir}
	for name, tc := range map[string]struct {
		errno    error
		once     bool // the disk is well again after one fault
		compress bool
	}{
		"full disk":             {unix.ENOSPC, false, false},
		"one i/o error":         {unix.EIO, true, false},
		"full disk, compressed": {unix.ENOSPC, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := small()
			opt.Compress = tc.compress
			want := undisturbed(t, ingests(opt, steps), steps)
			recorded := filepath.Join(t.TempDir(), "ds")
			ops := record(t, recorded, opt, steps)
			for n, op := range ops {
				if !slices.Contains(fails, op.Kind) || tc.once && op.Kind == hsxtest.OpWrite && n%5 > 0 {
					continue
				}
				dir := filepath.Join(t.TempDir(), "ds")
				seen := 0
				fs := &hsxtest.HookFS{FS: hasty(), Half: n%2 == 0, Before: func(op hsxtest.Op) error {
					seen++
					if seen == n+1 || seen > n && !tc.once && slices.Contains(fails, op.Kind) {
						return tc.errno
					}
					return nil
				}}
				rel, err := filepath.Rel(recorded, op.Path)
				if err != nil {
					t.Fatal(err)
				}
				name := filepath.Base(filepath.Join(dir, rel))
				acked, err := disturbed(t, dir, shard.WithFS(opt, fs), steps)
				what := fmt.Sprintf("%v at operation %d (%s %s)", tc.errno, n, op.Kind, name)
				if !errors.Is(err, tc.errno) || !strings.Contains(err.Error(), name) {
					t.Errorf("%s: got error %v, want one that wraps it and names the file", what, err)
				}
				if left := unfinished(dir); len(left) > 0 {
					t.Errorf("%s: %q are left", what, left)
				}
				if err := survives(dir, ingests(opt, steps), steps, acked, want, hasty()); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}

// disturbed is play on a disk with a fault. After it the writer must refuse
// everything, however well the disk is.
func disturbed(t *testing.T, dir string, opt shard.Options, steps []step) (acked int64, err error) {
	t.Helper()
	opt.Committed = func(rows int64) { acked = rows }
	err = within(t, time.Minute, func() error {
		w, err := shard.OpenWriter(dir, opt)
		if err != nil {
			return err
		}
		err = perform(w, steps)
		for what, again := range map[string]error{
			"Put":    w.Put(context.Background(), hsxtest.Sample(hsxtest.Spec{}, 99, 1)),
			"Commit": w.Commit(context.Background()),
			"Reject": w.Reject(format.Rejection{}),
		} {
			if err != nil && again == nil {
				t.Errorf("%s after %v: got no error", what, err)
			}
		}
		return errors.Join(err, w.Close())
	})
	return acked, err
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	for _, errno := range []error{unix.EROFS, unix.EACCES} {
		fs := &hsxtest.HookFS{FS: hasty(), Before: func(op hsxtest.Op) error {
			if op.Kind == hsxtest.OpSyncDir || op.Kind == hsxtest.OpClose {
				return nil
			}
			return errno
		}}
		dir := filepath.Join(t.TempDir(), "ds")
		if _, err := shard.OpenWriter(dir, shard.WithFS(small(), fs)); !errors.Is(err, errno) || !strings.Contains(err.Error(), dir) {
			t.Errorf("OpenWriter of a new dataset: got error %v, want %v and %s", err, errno, dir)
		}
		steps := story()
		if _, err := play(dir, shard.WithFS(small(), hasty()), steps[:2]); err != nil { // not committed
			t.Fatal(err)
		}
		if _, err := play(dir, shard.WithFS(small(), hasty()), append(steps[:2:2], step{commit: true})); err != nil {
			t.Fatal(err)
		}
		before, err := tree(dir)
		if err != nil {
			t.Fatal(err)
		}
		acked, err := disturbed(t, dir, shard.WithFS(small(), fs), steps)
		if acked != 0 || !errors.Is(err, errno) || !strings.Contains(err.Error(), dir) {
			t.Errorf("ingest: got %d rows and error %v, want %v and a file's name", acked, err, errno)
		}
		if d := differ(dir, before); d != "" {
			t.Errorf("after %v: %s", errno, d)
		}
	}
}

// The second writer must not take the first one's unfinished files for rubbish.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	steps := story()
	want := undisturbed(t, ingests(small(), steps), steps)
	dir := filepath.Join(t.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.WithFS(small(), hasty()))
	if err != nil {
		t.Fatal(err)
	}
	if err := perform(w, steps[:4]); err != nil {
		t.Fatal(err)
	}
	if len(unfinished(dir)) == 0 {
		t.Fatal("the first writer has no unfinished file")
	}
	if _, err := play(dir, small(), steps); !errors.Is(err, shard.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Errorf("second writer: got error %v, want %v", err, shard.ErrLocked)
	}
	other := filepath.Join(t.TempDir(), "other")
	write(t, other, small(), samplesOf(steps)...)
	if _, err := mergeDirs(dir, []string{other}, shard.MergeOptions{}); !errors.Is(err, shard.ErrLocked) {
		t.Errorf("Merge into the writer's directory: got error %v, want %v", err, shard.ErrLocked)
	}
	if err := errors.Join(perform(w, steps[4:]), w.Close()); err != nil {
		t.Fatal(err)
	}
	if d := differ(dir, want); d != "" {
		t.Error(d)
	}
}

// Canceling a Put loses nothing that was put before.
func TestPutCanceled(t *testing.T) {
	t.Parallel()
	steps := story()
	dir := filepath.Join(t.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.WithFS(small(), hasty()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	put := 0
	for _, s := range samplesOf(steps) {
		if put == 4 {
			cancel()
		}
		if err := w.Put(ctx, s); err == nil {
			put++
		} else if !errors.Is(err, context.Canceled) {
			t.Fatalf("Put(%s): got error %v", s.ID, err)
		}
	}
	cancel()
	if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
		t.Fatal(err)
	}
	ds := open(t, dir)
	if found := verify(t, ds); len(found) > 0 || ds.Manifest().Rows != int64(put) {
		t.Errorf("dataset has %d rows and damage %q, want %d rows", ds.Manifest().Rows, found, put)
	}
}
