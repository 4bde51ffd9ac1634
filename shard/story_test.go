package shard_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// step is one call of a writer: a sample, a rejection, a commit or a compaction.
type step struct {
	sample  *format.Sample
	reject  *format.Rejection
	commit  bool
	compact bool

	recompress bool
}

// story is a run that has gathered batches, streamed samples, two explicit commits
// and shards that are cut between them, a rejection, and an input of two samples
// that a commit separates.
func story() []step {
	spec := hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}, DType: format.BFloat16, Concat: true, Skewed: true}
	var steps []step
	for i, n := range []int{5, 6, 20, 4, 7, 15, 8, 30, 9} { // 16 bytes a token
		spec.NoMask = i == 3
		s := hsxtest.Sample(spec, i, n)
		if i == 4 || i == 5 {
			s.Input, s.Last = format.Input{Path: "two.ckpt", Bytes: 99, ModTime: 7}, i == 5
		}
		steps = append(steps, step{sample: s})
		switch i {
		case 1:
			steps = append(steps, step{reject: &format.Rejection{Input: format.Input{Path: "bad.ckpt"}, Reason: "cut", Offset: -1}})
		case 4:
			steps = append(steps, step{commit: true})
		}
	}
	return append(steps, step{commit: true})
}

// run plays a story, also one that was begun, on the dataset of a directory. It returns
// how many rows were acknowledged, and the first error.
type run func(dir string, fs atomicfile.FS) (acked int64, err error)

func ingests(opt shard.Options, steps []step) run {
	return func(dir string, fs atomicfile.FS) (int64, error) { return play(dir, shard.WithFS(opt, fs), steps) }
}

// recompresses is a run that compresses what another one wrote.
func recompresses(opt shard.Options, steps []step) run {
	return func(dir string, fs atomicfile.FS) (int64, error) {
		acked, err := play(dir, shard.WithFS(opt, fs), steps)
		if err == nil {
			opt.Compress = true
			_, err = play(dir, shard.WithFS(opt, fs), []step{{recompress: true}})
		}
		return acked, err
	}
}

// trickle is a run whose commits leave small shards, and which ends in joining them:
// all but the large one in their middle.
func trickle() []step {
	spec := hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}, DType: format.BFloat16, Concat: true, Skewed: true}
	var steps []step
	for i, n := range []int{7, 120, 5, 60, 9, 50, 70} { // 16 bytes a token; half a shard is 94 tokens
		steps = append(steps, step{sample: hsxtest.Sample(spec, i, n)}, step{commit: true})
	}
	return append(steps, step{compact: true})
}

func small() shard.Options {
	return shard.Options{BatchBytes: 400, ShardBytes: 3000, SmallShards: 2, WrittenBy: "test"}
}

func samplesOf(steps []step) []*format.Sample {
	var out []*format.Sample
	for _, s := range steps {
		if s.sample != nil {
			out = append(out, s.sample)
		}
	}
	return out
}

// play takes the steps as an ingest does, which skips the inputs that the dataset
// has. It returns how many rows were acknowledged, and the first error.
func play(dir string, opt shard.Options, steps []step) (acked int64, err error) {
	opt.Committed = func(rows int64) { acked = rows }
	w, err := shard.OpenWriter(dir, opt)
	if err != nil {
		return 0, err
	}
	err = perform(w, steps)
	return acked, errors.Join(err, w.Close())
}

func perform(w *shard.Writer, steps []step) error {
	for _, s := range steps {
		var err error
		switch {
		case s.reject != nil:
			err = w.Reject(*s.reject)
		case s.commit:
			err = w.Commit(context.Background())
		case s.recompress:
			err = w.Recompress(context.Background(), nil)
		case s.compact:
			err = w.Compact(context.Background())
		default:
			var has bool
			if has, err = w.Has(s.sample.Input); err == nil && !has {
				err = w.Put(context.Background(), s.sample)
			}
		}
		if err != nil && !errors.Is(err, format.ErrKnown) {
			return err
		}
	}
	return nil
}

// forgetful is a file system that does not sync files, or directories. Over the real
// one it saves the tests the wait for a disk whose loss they do not simulate.
type forgetful struct {
	atomicfile.FS
	files, dirs bool
}

func hasty() atomicfile.FS { return forgetful{FS: atomicfile.OS{}, files: true, dirs: true} }

func (f forgetful) SyncDir(name string) error {
	if f.dirs {
		return nil
	}
	return f.FS.SyncDir(name)
}

func (f forgetful) OpenFile(name string, flag int, perm os.FileMode) (atomicfile.File, error) {
	out, err := f.FS.OpenFile(name, flag, perm)
	if err != nil || !f.files {
		return out, err
	}
	return forgetfulFile{out}, nil
}

type forgetfulFile struct{ atomicfile.File }

func (forgetfulFile) Sync() error { return nil }

// tree is the content of every file of a dataset but its lock.
func tree(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "lock" {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path) // it lies below
		files[name] = string(data)
		return err
	})
	return files, err
}

// differ says in which file a dataset is not as it should be, "" if in none.
func differ(dir string, want map[string]string) string {
	got, err := tree(dir)
	if err != nil {
		return err.Error()
	}
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		return fmt.Sprintf("files are %q, want %q", g, w)
	}
	for name, w := range want {
		if got[name] != w {
			return fmt.Sprintf("%s differs from that of an undisturbed run (%d bytes, want %d)", name, len(got[name]), len(w))
		}
	}
	return ""
}

// story's outcome when nothing disturbs it.
func undisturbed(t *testing.T, play run, steps []step) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ds")
	if _, err := play(dir, hasty()); err != nil {
		t.Fatal(err)
	}
	ds := open(t, dir)
	compare(t, ds, samplesOf(steps))
	if found := verify(t, ds); len(found) > 0 {
		t.Fatalf("Verify reports %q", found)
	}
	files, err := tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// intact says what is wrong with a dataset that was being written when it crashed:
// it must be whole, and hold the first samples of the run, at least those
// acknowledged.
func intact(dir string, all []*format.Sample, acked int64) error {
	ds, err := shard.Open(dir)
	if errors.Is(err, shard.ErrNotDataset) || errors.Is(err, os.ErrNotExist) {
		if acked > 0 {
			return fmt.Errorf("%d acknowledged rows are gone: %w", acked, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	return holdsFirst(ds, all, acked)
}

// holdsFirst says what is wrong with a dataset that must hold the first of all samples,
// at least those acknowledged.
func holdsFirst(ds *shard.Dataset, all []*format.Sample, acked int64) error {
	var damage error
	report := func(c *shard.CorruptError) { damage = errors.Join(damage, c) }
	if err := errors.Join(ds.Verify(context.Background(), report, nil), damage); err != nil {
		return err
	}
	rows := 0
	for s, err := range ds.Samples(context.Background()) {
		if err != nil {
			return err
		}
		if rows >= len(all) {
			return fmt.Errorf("dataset holds more than the %d samples put", len(all))
		}
		if d := hsxtest.Equal(s, all[rows]); d != "" {
			return fmt.Errorf("row %d: %s", rows, d)
		}
		rows++
	}
	if int64(rows) < acked || int64(rows) != ds.Manifest().Rows {
		return fmt.Errorf("%d rows are left of %d acknowledged, the manifest says %d", rows, acked, ds.Manifest().Rows)
	}
	return nil
}

// survives is intact, and that the next run completes the dataset as if nothing had
// happened.
func survives(dir string, play run, steps []step, acked int64, want map[string]string, fs atomicfile.FS) error {
	if err := intact(dir, samplesOf(steps), acked); err != nil {
		return err
	}
	if _, err := play(dir, fs); err != nil {
		return fmt.Errorf("next run: %w", err)
	}
	if d := differ(dir, want); d != "" {
		return fmt.Errorf("after the next run: %s", d)
	}
	return nil
}
