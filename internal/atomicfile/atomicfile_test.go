package atomicfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"hsx/internal/atomicfile"
	"hsx/internal/hsxtest"
)

// setup is a directory that holds a file "old" and a directory "sub".
func setup(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(
		os.WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600),
		os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// files is what dir holds: content by name, "/" for a directory.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	got := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if info.IsDir() {
			got[name] = "/"
			return err
		}
		data, readErr := os.ReadFile(path)
		got[name] = string(data)
		return errors.Join(err, readErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// deed is one use of the package, what it does in which order, and what it leaves.
type deed struct {
	do   func(fs atomicfile.FS, dir string) error
	ops  []string          // "kind name", in their order
	want map[string]string // that setup does not have, "-" for what is gone
}

func deeds() map[string]deed {
	return map[string]deed{
		"Write, new": {
			func(fs atomicfile.FS, dir string) error {
				return atomicfile.Write(fs, filepath.Join(dir, "new"), []byte("data"))
			},
			[]string{"open new.tmp", "write new.tmp", "sync new.tmp", "close new.tmp", "rename new", "syncdir ."},
			map[string]string{"new": "data"},
		},
		"Write, over an old one": {
			func(fs atomicfile.FS, dir string) error {
				return atomicfile.Write(fs, filepath.Join(dir, "old"), []byte("data"))
			},
			[]string{"open old.tmp", "write old.tmp", "sync old.tmp", "close old.tmp", "rename old", "syncdir ."},
			map[string]string{"old": "data"},
		},
		"Write, empty, in a directory": {
			func(fs atomicfile.FS, dir string) error {
				return atomicfile.Write(fs, filepath.Join(dir, "sub", "new"), nil)
			},
			[]string{"open sub/new.tmp", "write sub/new.tmp", "sync sub/new.tmp", "close sub/new.tmp", "rename sub/new", "syncdir sub"},
			map[string]string{"sub/new": ""},
		},
		"Create, Commit": {
			func(fs atomicfile.FS, dir string) error {
				p, err := atomicfile.Create(fs, filepath.Join(dir, "old"))
				if err != nil {
					return err
				}
				for _, s := range []string{"a", "b"} {
					if _, err := p.Write([]byte(s)); err != nil {
						return errors.Join(err, p.Discard())
					}
				}
				return p.Commit()
			},
			[]string{"open old.tmp", "write old.tmp", "write old.tmp", "sync old.tmp", "close old.tmp", "rename old", "syncdir ."},
			map[string]string{"old": "ab"},
		},
		"Create, Discard": {
			func(fs atomicfile.FS, dir string) error {
				p, err := atomicfile.Create(fs, filepath.Join(dir, "old"))
				if err != nil {
					return err
				}
				_, err = p.Write([]byte("a"))
				return errors.Join(err, p.Discard())
			},
			[]string{"open old.tmp", "write old.tmp", "close old.tmp", "remove old.tmp"},
			nil,
		},
		"Append, new": {
			func(fs atomicfile.FS, dir string) error {
				return atomicfile.Append(fs, filepath.Join(dir, "new"), []byte("data"))
			},
			[]string{"open new", "write new", "sync new", "close new", "syncdir ."},
			map[string]string{"new": "data"},
		},
		"Append, to an old one": {
			func(fs atomicfile.FS, dir string) error {
				return atomicfile.Append(fs, filepath.Join(dir, "old"), []byte("data"))
			},
			[]string{"open old", "write old", "sync old", "close old"},
			map[string]string{"old": "olddata"},
		},
		"MkdirAll, deep": {
			func(fs atomicfile.FS, dir string) error {
				return atomicfile.MkdirAll(fs, filepath.Join(dir, "sub", "a", "b"))
			},
			// The directory that exists may have been created by a process that was killed.
			[]string{"syncdir .", "mkdir sub/a", "syncdir sub", "mkdir sub/a/b", "syncdir sub/a"},
			map[string]string{"sub/a": "/", "sub/a/b": "/"},
		},
		"MkdirAll, one that exists": {
			func(fs atomicfile.FS, dir string) error {
				return atomicfile.MkdirAll(fs, filepath.Join(dir, "sub"))
			},
			[]string{"syncdir ."},
			nil,
		},
	}
}

// recorder notes the operations and fails that of number fail, from 1.
func recorder(dir string, ops *[]string, fail int) *hsxtest.HookFS {
	return &hsxtest.HookFS{FS: atomicfile.OS{}, Before: func(op hsxtest.Op) error {
		name, err := filepath.Rel(dir, op.Path)
		*ops = append(*ops, op.Kind+" "+name)
		if len(*ops) == fail {
			return unix.EIO
		}
		return err
	}}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	for name, d := range deeds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := setup(t)
			var ops []string
			if err := d.do(recorder(dir, &ops, 0), dir); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d.ops, ops); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
			want := map[string]string{"old": "old", "sub": "/"}
			for name, data := range d.want {
				want[name] = data
			}
			if diff := cmp.Diff(want, files(t, dir)); diff != "" {
				t.Errorf("files (-want +got):\n%s", diff)
			}
		})
	}
}

// After one operation that fails, each name holds the old or, where the last step
// failed, the new content, and nothing unfinished is left.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, d := range deeds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for fail := 1; fail <= len(d.ops); fail++ {
				dir := setup(t)
				var ops []string
				err := d.do(recorder(dir, &ops, fail), dir)
				if !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), filepath.Base(filepath.Join(dir, strings.Fields(d.ops[fail-1])[1]))) {
					t.Errorf("%s fails: got error %v, want %v and its name", d.ops[fail-1], err, unix.EIO)
				}
				want := map[string]string{"old": "old", "sub": "/"}
				got := files(t, dir)
				for name, data := range got {
					switch appends := strings.HasPrefix(d.ops[0], "open "+name) && !strings.HasSuffix(d.ops[0], ".tmp"); {
					case appends: // any part may be there
					case strings.HasSuffix(name, atomicfile.TempSuffix):
						if last := ops[len(ops)-1]; !strings.HasPrefix(last, "remove") || fail != len(ops) {
							t.Errorf("%s fails: %s is left after %q", d.ops[fail-1], name, ops)
						}
					case data != want[name] && (data != d.want[name] || strings.HasPrefix(name, "old") && fail != len(d.ops)):
						t.Errorf("%s fails: %s holds %q", d.ops[fail-1], name, data)
					}
				}
			}
		})
	}
}

// An unfinished file that a crash left is written over.
func TestCreateOverUnfinished(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name+atomicfile.TempSuffix, []byte("a longer rest"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(atomicfile.OS{}, name, []byte("new")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"f": "new"}, files(t, filepath.Dir(name))); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestMkdirAllRefuses(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	for _, name := range []string{"old", "old/sub"} {
		if err := atomicfile.MkdirAll(atomicfile.OS{}, filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), "old") {
			t.Errorf("MkdirAll(%s): got error %v, want one that names the file", name, err)
		}
	}
}

// Below a directory that may be entered and not read, one that exists is enough.
func TestMkdirAllUnreadableParent(t *testing.T) {
	t.Parallel()
	dir := setup(t)
	for errno, want := range map[unix.Errno]error{unix.EACCES: nil, unix.EPERM: nil, unix.EIO: unix.EIO} {
		fs := &hsxtest.HookFS{FS: atomicfile.OS{}, Before: func(op hsxtest.Op) error {
			if op.Kind == hsxtest.OpSyncDir {
				return errno
			}
			return nil
		}}
		if err := atomicfile.MkdirAll(fs, filepath.Join(dir, "sub")); !errors.Is(err, want) {
			t.Errorf("MkdirAll where the parent's sync gives %v: got error %v, want %v", errno, err, want)
		}
	}
}

// What was durable before stays, and what was acknowledged is there, whatever a
// power loss takes.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	for name, d := range deeds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 0; n <= len(d.ops); n++ {
				dir := setup(t)
				fs, err := hsxtest.NewCrashFS(dir)
				if err != nil {
					t.Fatal(err)
				}
				fs.StopAt(n, n%2 == 0)
				err = d.do(fs, dir)
				if done := !fs.Stopped(); done != (err == nil) || !done && !errors.Is(err, hsxtest.ErrCrash) {
					t.Fatalf("crash before operation %d: got error %v", n, err)
				}
				for what, keep := range map[string]hsxtest.Keep{"lost": hsxtest.KeepNothing, "kept": hsxtest.KeepEntries, "some": hsxtest.KeepSome(uint64(n))} {
					left := filepath.Join(t.TempDir(), "disk")
					if err := fs.Materialise(left, keep); err != nil {
						t.Fatal(err)
					}
					got := files(t, left)
					olds := []string{"old", d.want["old"]}
					if err == nil && d.want["old"] != "" {
						olds = olds[1:]
					}
					appended := strings.HasPrefix(got["old"], "old") && strings.HasPrefix(d.want["old"], got["old"]) && err != nil
					if !slices.Contains(olds, got["old"]) && !appended {
						t.Errorf("crash before operation %d, entries %s: old holds %q, want one of %q", n, what, got["old"], olds)
					}
					for name, data := range d.want {
						if err == nil && got[name] != data {
							t.Errorf("power loss after it, entries %s: %s holds %q, want %q", what, name, got[name], data)
						}
					}
				}
			}
		})
	}
}
