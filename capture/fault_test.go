package capture_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hsx/capture"
	"hsx/format"
)

// large is a dump of several pages, so that a cut takes some of them away.
func large(tb testing.TB) []byte {
	tb.Helper()
	return encode(tb, tensor("token_ids", format.Int64, 1024), tensor("hidden_states", format.BFloat16, 1024, 2, 32))
}

// TestFilesChangeWhileRunning changes the file that comes after the sample being
// put, which is mapped already, or not yet listed as open.
func TestFilesChangeWhileRunning(t *testing.T) {
	t.Parallel()
	const page = 4096
	tests := map[string]struct {
		after   string // when this sample is put
		change  func(dir string) error
		samples string
		reason  string
	}{
		"shrinks before it is put": {
			after:   "data_1",
			change:  func(dir string) error { return os.Truncate(filepath.Join(dir, "data_2"), page) },
			samples: "data_0 data_1 data_3", reason: "data_2: ", // shrank while mapped, or was read short
		},
		"shrinks while it is put": {
			after:   "data_2",
			change:  func(dir string) error { return os.Truncate(filepath.Join(dir, "data_2"), page) },
			samples: "data_0 data_1 data_3", reason: "data_2: file changed or could not be read while it was mapped",
		},
		"vanishes": {
			after:   "data_0",
			change:  func(dir string) error { return os.Remove(filepath.Join(dir, "data_3")) },
			samples: "data_0 data_1 data_2", reason: "data_3: open ",
		},
		"vanishes while it is mapped": {
			after:   "data_1",
			change:  func(dir string) error { return os.Remove(filepath.Join(dir, "data_1")) },
			samples: "data_0 data_1 data_2 data_3",
		},
		"becomes a directory": {
			after: "data_0",
			change: func(dir string) error {
				path := filepath.Join(dir, "data_3")
				return errors.Join(os.Remove(path), os.Mkdir(path, 0o700))
			},
			samples: "data_0 data_1 data_2", reason: "data_3: map ",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for i := range 4 {
				write(t, dir, fmt.Sprintf("data_%d", i), large(t))
			}
			r := &record{}
			r.put = func(s *format.Sample) error {
				if s.ID == tc.after {
					return tc.change(dir)
				}
				return nil
			}
			ingest(t, r, capture.Options{Workers: 2}, dir)
			if r.err != nil || r.ids() != tc.samples {
				t.Errorf("Run: got samples %s, error %v, want %s", r.ids(), r.err, tc.samples)
			}
			if got := r.reasons(); (got == "") != (tc.reason == "") || !strings.HasPrefix(got, tc.reason) {
				t.Errorf("rejections: got %q, want %q", got, tc.reason)
			}
			if n := mappings(t, dir); n != 0 {
				t.Errorf("%d files are still mapped, want 0", n)
			}
		})
	}
}

// TestFilesChangeBeforeRun changes files between the listing and the reading of them.
func TestFilesChangeBeforeRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	gone, grown, replaced := write(t, dir, "a_gone", large(t)), write(t, dir, "b_grown", dump(t, 2)), write(t, dir, "c_replaced", dump(t, 2))
	write(t, dir, "d", dump(t, 2))
	write(t, dir, "npy/input_ids.npy", array(t, tensor("", format.Int64, 4)))
	half := write(t, dir, "npy/layer_2.npy", array(t, tensor("", format.Float16, 4, 8)))

	r := &record{}
	p := plan(t, r.watch(capture.Options{}), dir)
	if err := errors.Join(os.Remove(gone), os.Remove(half), os.WriteFile(replaced, []byte("# not a dump"), 0o600)); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "b_grown", dump(t, 5))
	var last capture.Progress
	p.OnProgress(func(pr capture.Progress) { last = pr })
	stats, err := p.Run(t.Context(), r)
	if err != nil || r.ids() != "b_grown d" {
		t.Errorf("Run: got samples %s, error %v, want b_grown d", r.ids(), err)
	}
	if info, err := os.Stat(grown); err != nil || stats.Bytes != info.Size()+int64(len(dump(t, 2))) || r.taken[0].Tokens != 5 {
		t.Errorf("a file that grew: got %d bytes in all, %d tokens, want those that were read (%v)", stats.Bytes, r.taken[0].Tokens, err)
	}
	if last.Bytes != last.TotalBytes || last.Inputs != last.TotalInputs {
		t.Errorf("progress: got %+v, want it to end at its totals", last)
	}
	contains(t, "rejections", r.reasons(), "a_gone: open "+gone+": no such file", "npy: open "+half+": no such file")
	contains(t, "warnings", strings.Join(r.warnings, "\n"), "c_replaced: ignored: content of no known kind")
}

// TestTruncations cuts a dump of each container at many places: it is refused, or
// at least never taken for good.
func TestTruncations(t *testing.T) {
	t.Parallel()
	for name, data := range containers(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			step := max(1, len(data)/40)
			for n := 0; n < len(data); n += step {
				write(t, dir, fmt.Sprintf("cut_%d.pt", n), data[:n])
			}
			r := ingest(t, &record{}, capture.Options{Facts: facts()}, dir)
			if len(r.taken) != 0 || r.stats.Side+r.stats.Ignored != 0 || r.err != nil {
				t.Errorf("Run: got samples %s, %+v, error %v, want everything rejected", r.ids(), r.stats, r.err)
			}
		})
	}
}

func TestLocks(t *testing.T) {
	t.Parallel()
	hold := func(t *testing.T, path string) (release func()) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		return func() { _ = f.Close() } // which drops the lock
	}
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, dir, "a.safetensors", dump(t, 2))
		write(t, dir, "b.safetensors", dump(t, 2))
		defer hold(t, filepath.Join(dir, "a.safetensors.lock"))()
		r := ingest(t, &record{}, capture.Options{LockTimeout: 30 * time.Millisecond}, dir)
		contains(t, "rejection", r.reasons(), "a.safetensors: locked by its writer: ", "a.safetensors.lock was held for 30ms, so it is still being written")
		if r.ids() != "b.safetensors" || r.err != nil {
			t.Errorf("Run: got samples %s, error %v, want b.safetensors", r.ids(), r.err)
		}
	})
	t.Run("released in time", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		whole := dump(t, 3)
		path := write(t, dir, "a.safetensors", whole[:len(whole)/2])
		release := hold(t, path+".lock")
		done := make(chan error, 1)
		go func() {
			time.Sleep(80 * time.Millisecond)
			done <- os.WriteFile(path, whole, 0o600)
			release()
		}()
		r := ingest(t, &record{}, capture.Options{LockTimeout: time.Minute}, dir)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if r.ids() != "a.safetensors" || r.taken[0].Tokens != 3 || r.stats.Bytes != int64(len(whole)) {
			t.Errorf("Run: got %v, %+v, rejections %q, want the whole file", r.taken, r.stats, r.reasons())
		}
	})
	t.Run("free", func(t *testing.T) {
		t.Parallel()
		for name, mode := range map[string]os.FileMode{"writable": 0o600, "read-only": 0o400} {
			path := write(t, t.TempDir(), name, nil)
			if err := os.WriteFile(path+".lock", nil, mode); err != nil {
				t.Fatal(err)
			}
			if err := capture.WaitUnlocked(t.Context(), path, 0); err != nil {
				t.Errorf("%s: got error %v", name, err)
			}
		}
		if err := capture.WaitUnlocked(t.Context(), filepath.Join(t.TempDir(), "none"), 0); err != nil {
			t.Errorf("without a lock: got error %v", err)
		}
	})
	t.Run("another reader", func(t *testing.T) {
		t.Parallel()
		path := write(t, t.TempDir(), "a", nil)
		f, err := os.Create(path + ".lock")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }() // which drops the lock
		if err := unix.Flock(int(f.Fd()), unix.LOCK_SH); err != nil {
			t.Fatal(err)
		}
		if err := capture.WaitUnlocked(t.Context(), path, 0); err != nil {
			t.Errorf("WaitUnlocked: got error %v, want readers not to wait for each other", err)
		}
	})
	t.Run("a directory", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write(t, dir, "a", dump(t, 2))
		if err := os.Mkdir(filepath.Join(dir, "a.lock"), 0o700); err != nil {
			t.Fatal(err)
		}
		if r := ingest(t, &record{}, capture.Options{}, dir); r.ids() != "a" {
			t.Errorf("samples: got %q, rejections %q, want a", r.ids(), r.reasons())
		}
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		path := write(t, t.TempDir(), "a", nil)
		defer hold(t, path+".lock")()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := capture.WaitUnlocked(ctx, path, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitUnlocked: got error %v, want %v", err, context.DeadlineExceeded)
		}
	})
	t.Run("file never comes", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		path := write(t, dir, "a", bytes.Repeat([]byte{1}, 8))
		write(t, dir, "a.lock", nil)
		r := &record{}
		p := plan(t, r.watch(capture.Options{}), dir)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Run(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		contains(t, "rejection", r.reasons(), "a: open "+path+": no such file")
	})
}
