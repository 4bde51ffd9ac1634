package shard_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hsx/internal/atomicfile"
	"hsx/internal/hsxtest"
)

// machine is one simulated machine and the dataset on it, some directories deep.
type machine struct {
	*hsxtest.CrashFS
	root string
}

func boot(t testing.TB) *machine {
	t.Helper()
	root := t.TempDir()
	fs, err := hsxtest.NewCrashFS(root)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{CrashFS: fs, root: root}
}

func dataset(root string) string { return filepath.Join(root, "runs", "today", "ds") }

// after is the dataset's directory on a disk after a crash. It is "" if seen holds
// the same outcome of as many acknowledged rows already.
func (m *machine) after(t testing.TB, keep hsxtest.Keep, acked int64, seen map[string]bool) string {
	t.Helper()
	left, err := m.After(keep)
	if err != nil {
		t.Fatal(err)
	}
	key := fmt.Sprint(acked)
	for _, name := range slices.Sorted(maps.Keys(left)) {
		data := left[name].Data
		if strings.HasSuffix(name, atomicfile.TempSuffix) {
			data = data[:min(1, len(data))] // nobody reads it
		}
		key += fmt.Sprintf("\n%s %q", name, data)
	}
	if seen[key] {
		return ""
	}
	seen[key] = true
	dst := t.TempDir()
	if err := os.CopyFS(dst, left); err != nil {
		t.Fatal(err)
	}
	return dataset(dst)
}

// losses are the ways in which a crash can end.
func losses(seed int) map[string]hsxtest.Keep {
	return map[string]hsxtest.Keep{
		"entries lost":    hsxtest.KeepNothing,
		"entries kept":    hsxtest.KeepEntries,
		"some kept":       hsxtest.KeepSome(uint64(seed)),
		"some other kept": hsxtest.KeepSome(uint64(seed) + 1<<32),
		"killed":          hsxtest.KeepAll,
	}
}

// crashes plays a story on a machine that stops before every operation in turn, or
// in the middle of every other write, and returns the violations that it finds. mutate, if
// not nil, spoils the file system: one violation is enough then, and writes, which
// are many, are not stopped.
func crashes(t *testing.T, play run, steps []step, mutate func(atomicfile.FS) atomicfile.FS) (violations []string) {
	t.Helper()
	mutant := mutate != nil
	if !mutant {
		mutate = func(fs atomicfile.FS) atomicfile.FS { return fs }
	}
	want := undisturbed(t, play, steps)
	whole := boot(t)
	if _, err := play(dataset(whole.root), mutate(whole)); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for n, op := range whole.Ops() {
		write := op.Kind == hsxtest.OpWrite
		if mutant && (write || len(violations) > 0) {
			continue
		}
		half := write && n%2 == 0
		m := boot(t)
		m.StopAt(n, half)
		acked, err := play(dataset(m.root), mutate(m))
		if !errors.Is(err, hsxtest.ErrCrash) {
			violations = append(violations, fmt.Sprintf("crash before operation %d (%s): got error %v, want %v", n, op, err, hsxtest.ErrCrash))
		}
		for name, keep := range losses(n) {
			dir := m.after(t, keep, acked, seen)
			if dir == "" {
				continue
			}
			if err := survives(dir, play, steps, acked, want, hasty()); err != nil {
				violations = append(violations, fmt.Sprintf("crash before operation %d (%s, half %t), %s: %v", n, op, half, name, err))
			}
		}
	}
	t.Logf("%d operations, %d outcomes", len(whole.Ops()), len(seen))
	return violations
}

func TestPowerLoss(t *testing.T) {
	t.Parallel()
	compressed := small()
	compressed.Compress = true
	for name, c := range map[string]struct {
		play  run
		steps []step
	}{
		"ingest":          {ingests(small(), story()), story()},
		"ingest compress": {ingests(compressed, story()), story()},
		"compact":         {ingests(small(), trickle()), trickle()},
		"recompress":      {recompresses(small(), story()), story()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, v := range crashes(t, c.play, c.steps, nil) {
				t.Error(v)
			}
		})
	}
}

// A writer that is killed leaves things that were not synced. When the next one
// builds on them, a power loss must not take them from under it.
func TestKillThenPowerLoss(t *testing.T) {
	t.Parallel()
	steps := story()
	play := ingests(small(), steps)
	want := undisturbed(t, play, steps)
	whole := boot(t)
	if _, err := play(dataset(whole.root), whole); err != nil {
		t.Fatal(err)
	}
	ops := whole.Ops()
	rng := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	for n, op := range ops {
		if op.Kind == hsxtest.OpWrite && rng.IntN(20) > 0 { // they are many, and alike
			continue
		}
		m := boot(t)
		dir := dataset(m.root)
		m.StopAt(n, true)
		before, _ := play(dir, m) // it is killed
		m.Restart()
		if n%2 == 1 {
			m.StopAt(rng.IntN(len(ops)), true)
		}
		acked, err := play(dir, m)
		if err != nil && !m.Stopped() {
			t.Fatalf("kill before operation %d (%s), next run: %v", n, op, err)
		}
		for name, keep := range losses(n) {
			acked := max(before, acked)
			dir := m.after(t, keep, acked, seen)
			if dir == "" {
				continue
			}
			if err := survives(dir, play, steps, acked, want, hasty()); err != nil {
				t.Errorf("kill before operation %d (%s), then power loss (%t), %s: %v", n, op, m.Stopped(), name, err)
			}
		}
	}
}

// inPlace is a file system on which nothing is written apart first.
type inPlace struct{ atomicfile.FS }

func (f inPlace) OpenFile(name string, flag int, perm os.FileMode) (atomicfile.File, error) {
	return f.FS.OpenFile(strings.TrimSuffix(name, atomicfile.TempSuffix), flag, perm)
}

func (f inPlace) Rename(string, string) error { return nil }

// manifestFirst is a file system on which shards get their names only after the
// manifest that lists them.
type manifestFirst struct {
	atomicfile.FS
	late *[]func() error
}

func (f manifestFirst) Rename(oldname, newname string) error {
	if strings.HasSuffix(newname, ".arrow") {
		*f.late = append(*f.late, func() error {
			return errors.Join(f.FS.Rename(oldname, newname), f.SyncDir(filepath.Dir(newname)))
		})
		return nil
	}
	err := errors.Join(f.FS.Rename(oldname, newname), f.SyncDir(filepath.Dir(newname)))
	for _, late := range *f.late {
		err = errors.Join(err, late())
	}
	*f.late = nil
	return err
}

// The test above is worth something only if it finds what is wrong.
func TestPowerLossFindsMutants(t *testing.T) {
	t.Parallel()
	for name, mutate := range map[string]func(atomicfile.FS) atomicfile.FS{
		"no file sync":          func(fs atomicfile.FS) atomicfile.FS { return forgetful{FS: fs, files: true} },
		"no directory sync":     func(fs atomicfile.FS) atomicfile.FS { return forgetful{FS: fs, dirs: true} },
		"in place":              func(fs atomicfile.FS) atomicfile.FS { return inPlace{fs} },
		"manifest before shard": func(fs atomicfile.FS) atomicfile.FS { return manifestFirst{FS: fs, late: new([]func() error)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			violations := crashes(t, ingests(small(), story()), story(), mutate)
			if len(violations) == 0 {
				t.Fatal("no crash shows a violation")
			}
			t.Log(violations[0])
		})
	}
}
