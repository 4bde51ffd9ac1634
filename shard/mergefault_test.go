package shard_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hsx/internal/atomicfile"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// A writer may commit between Merge's first look at the directory and its lock.
func TestMergeRace(t *testing.T) {
	t.Parallel()
	dirs, samples := parts(t, 2)
	out := filepath.Join(t.TempDir(), "out")
	var before map[string]string
	fs := &hsxtest.HookFS{FS: hasty(), Before: func(op hsxtest.Op) error {
		if op.Kind == hsxtest.OpMkdir && op.Path == out {
			write(t, out, small(), samples[0]...)
			var err error
			before, err = tree(out)
			return err
		}
		return nil
	}}
	if _, err := mergeDirs(out, dirs[1:], shard.MergeWithFS(shard.MergeOptions{}, fs)); !errors.Is(err, os.ErrExist) {
		t.Errorf("Merge: got error %v, want %v", err, os.ErrExist)
	}
	if d := differ(out, before); d != "" || len(before) == 0 {
		t.Errorf("after the refusal: %s", d)
	}
}

func TestMergeOtherDevice(t *testing.T) {
	t.Parallel()
	dirs, _ := parts(t, 2)
	first := len(open(t, dirs[0]).Manifest().Shards)
	for _, errno := range []error{unix.EXDEV, unix.EPERM, unix.ENOTSUP} {
		n := 0
		fs := &hsxtest.HookFS{FS: hasty(), Before: func(op hsxtest.Op) error {
			if op.Kind != hsxtest.OpLink {
				return nil
			}
			if n++; n > first { // the links to the first part work
				return errno
			}
			return nil
		}}
		out := filepath.Join(t.TempDir(), "out")
		if _, err := mergeDirs(out, dirs, shard.MergeWithFS(shard.MergeOptions{}, fs)); !errors.Is(err, shard.ErrOtherDevice) || !errors.Is(err, errno) || !strings.Contains(err.Error(), dirs[1]) {
			t.Errorf("Merge with %v: got error %v, want %v and the shard's path", errno, err, shard.ErrOtherDevice)
		}
		if _, err := shard.Open(out); !errors.Is(err, shard.ErrNotDataset) {
			t.Errorf("Open after it: got error %v, want %v", err, shard.ErrNotDataset)
		}
		if _, err := mergeDirs(out, dirs, shard.MergeWithFS(shard.MergeOptions{Copy: true}, fs)); err != nil {
			t.Errorf("Merge with Copy after it: %v", err)
		}
		if found := verify(t, open(t, out)); len(found) > 0 {
			t.Errorf("Verify reports %q", found)
		}
	}
	// A copy is compared with what its manifest says.
	name := filepath.Join(dirs[1], "shards", "000000.arrow")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	fs := &hsxtest.HookFS{FS: hasty(), Before: func(op hsxtest.Op) error {
		if op.Kind == hsxtest.OpLink {
			return unix.EXDEV
		}
		return nil
	}}
	out := filepath.Join(t.TempDir(), "out")
	if _, err := mergeDirs(out, dirs, shard.MergeWithFS(shard.MergeOptions{Copy: true}, fs)); !shard.IsCorrupt(err) || !strings.Contains(err.Error(), name) {
		t.Errorf("Merge of a damaged shard: got error %v, want one that names it", err)
	}
	if left := unfinished(out); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

func TestMergePowerLoss(t *testing.T) {
	t.Parallel()
	dirs, samples := parts(t, 2)
	all := slices.Concat(samples...)
	for name, links := range map[string]bool{"links": true, "copies": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			merge := func(dir string, fs atomicfile.FS) error {
				inner := fs
				fs = &hsxtest.HookFS{FS: inner, Before: func(op hsxtest.Op) error {
					if !links && op.Kind == hsxtest.OpLink {
						return unix.EXDEV
					}
					return nil
				}}
				_, err := mergeDirs(dir, dirs, shard.MergeWithFS(shard.MergeOptions{Copy: true, WrittenBy: "test"}, fs))
				return err
			}
			// check says what is wrong after a crash, and after the merge that follows.
			var want map[string]string
			check := func(dir string, done bool) error {
				acked := int64(0)
				if done {
					acked = int64(len(all))
				}
				if err := intact(dir, all, acked); err != nil {
					return err
				}
				err := merge(dir, hasty())
				if _, openErr := os.Stat(filepath.Join(dir, "manifest.json")); err != nil && (!errors.Is(err, os.ErrExist) || openErr != nil) {
					return fmt.Errorf("next merge: %w", err)
				}
				if d := differ(dir, want); d != "" {
					return errors.New(d)
				}
				return nil
			}
			clean := filepath.Join(t.TempDir(), "out")
			if err := merge(clean, hasty()); err != nil {
				t.Fatal(err)
			}
			var err error
			if want, err = tree(clean); err != nil {
				t.Fatal(err)
			}
			whole := boot(t)
			if err := merge(dataset(whole.root), whole); err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for n, op := range whole.Ops() {
				m := boot(t)
				m.StopAt(n, true)
				if err := merge(dataset(m.root), m); !errors.Is(err, hsxtest.ErrCrash) {
					t.Errorf("crash before operation %d (%s): got error %v, want %v", n, op, err, hsxtest.ErrCrash)
				}
				for name, keep := range losses(n) {
					if dir := m.after(t, keep, 0, seen); dir != "" {
						if err := check(dir, false); err != nil {
							t.Errorf("crash before operation %d (%s), %s: %v", n, op, name, err)
						}
					}
				}
				m.Restart() // the process was killed, not the machine
				err := merge(dataset(m.root), m)
				if _, statErr := os.Stat(filepath.Join(dataset(m.root), "manifest.json")); err != nil && (!errors.Is(err, os.ErrExist) || statErr != nil) {
					t.Fatalf("kill before operation %d (%s), next merge: %v", n, op, err)
				}
				if err != nil { // the dataset was there, as its reader can tell, but nobody said so
					continue
				}
				for name, keep := range losses(n) {
					if dir := m.after(t, keep, 1, seen); dir != "" {
						if err := check(dir, true); err != nil {
							t.Errorf("kill before operation %d (%s), merge, power loss, %s: %v", n, op, name, err)
						}
					}
				}
			}
			t.Logf("%d operations, %d outcomes", len(whole.Ops()), len(seen))
		})
	}
}
