package capture_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
)

// TestFollowLock holds vLLM's lock beside a file that is whole: it is taken at once
// when the lock is free, whatever the time to settle, and not before.
func TestFollowLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := dump(t, 3)
	write(t, dir, "a.safetensors", data)
	lock, err := os.Create(filepath.Join(dir, "a.safetensors.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "b.safetensors.lock", nil)
	write(t, dir, "b.safetensors", data)
	write(t, dir, "unsettled.safetensors", data)
	s := newStore(dir)
	s.put = func(sample *format.Sample) error {
		switch sample.ID {
		case "b.safetensors": // a look has passed the lock that is held
			return lock.Close()
		case "a.safetensors":
			if len(s.taken) == 0 {
				t.Error("file was taken while its lock was held")
			}
		}
		return nil
	}
	stats, err := s.follow(t.Context(), t, capture.Options{}, capture.FollowOptions{Settle: time.Hour, DeleteSource: true, UntilIdle: time.Second})
	if err != nil || s.ids() != "b.safetensors a.safetensors" || stats.Waiting != 1 {
		t.Errorf("took %q, waiting for %d, error %v", s.ids(), stats.Waiting, err)
	}
	if got := left(t, dir); got != "unsettled.safetensors" {
		t.Errorf("left %q, want the locks removed with their files", got)
	}
}

// TestFollowLockAlone has a lock that guards nothing: that is told once, and the file
// is taken if it comes after all.
func TestFollowLockAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.safetensors.lock", nil)
	held, err := os.Create(filepath.Join(dir, "held.safetensors.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(held.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Close() }()
	s := newStore(dir)
	opt := capture.Options{Reject: func(r format.Rejection) error {
		s.rejected = append(s.rejected, r)
		write(t, dir, "a.safetensors", dump(t, 3))
		return nil
	}}
	_, err = s.follow(t.Context(), t, opt, capture.FollowOptions{})
	if got, want := s.reasons(), "a.safetensors.lock: lock is free and the file that it guards is not there: the writer failed"; got != want || err != nil {
		t.Errorf("rejected %q, want %q, error %v", got, want, err)
	}
	if s.ids() != "a.safetensors" {
		t.Errorf("took %q", s.ids())
	}
}

// TestFollowCutFile refuses a file that settled before it was whole, leaves it where it
// is, and takes it when the rest comes.
func TestFollowCutFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := dump(t, 64)
	path := write(t, dir, "a.safetensors", data[:len(data)-9])
	write(t, dir, "bad.safetensors", data[:40])
	s := newStore(dir)
	opt := capture.Options{Reject: func(r format.Rejection) error {
		s.rejected = append(s.rejected, r)
		if r.Path == "a.safetensors" {
			write(t, dir, filepath.Base(path), data)
		}
		return nil
	}}
	stats, err := s.follow(t.Context(), t, opt, capture.FollowOptions{DeleteSource: true})
	if err != nil || s.ids() != "a.safetensors" || stats.Rejected != 2 {
		t.Errorf("took %q, rejected %q, error %v", s.ids(), s.reasons(), err)
	}
	if got := left(t, dir); got != "bad.safetensors" {
		t.Errorf("left %q, want what was refused", got)
	}
}

// TestFollowVanish removes inputs that are listed and not opened yet.
func TestFollowVanish(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 8 {
		write(t, dir, fmt.Sprintf("s%d.safetensors", i), dump(t, 3))
	}
	s := newStore(dir)
	s.put = func(*format.Sample) error {
		if len(s.taken) > 0 {
			return nil
		}
		return os.Remove(filepath.Join(dir, "s7.safetensors"))
	}
	stats, err := s.follow(t.Context(), t, capture.Options{}, atOnce())
	if err != nil || len(s.taken) != 7 || stats.Vanished != 1 || len(s.rejected) > 0 {
		t.Errorf("took %q, %+v, rejected %q, error %v", s.ids(), stats, s.reasons(), err)
	}
}

// TestFollowArrays writes the arrays of a sample one by one.
func TestFollowArrays(t *testing.T) {
	t.Parallel()
	from := copyGolden(t, "npy")
	entries, err := os.ReadDir(filepath.Join(from, "s03"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			if err := os.Mkdir(filepath.Join(dir, "s03"), 0o700); err != nil {
				return err
			}
			for _, e := range entries { // each as old as a copy that keeps times
				if err := os.Chtimes(filepath.Join(from, "s03", e.Name()), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
					return err
				}
				if err := os.Rename(filepath.Join(from, "s03", e.Name()), filepath.Join(dir, "s03", e.Name())); err != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond)
			}
			return nil
		}()
	}()
	s := newStore(dir)
	_, err = s.follow(t.Context(), t, capture.Options{}, capture.FollowOptions{Settle: time.Second, UntilIdle: 3 * time.Second, DeleteSource: true})
	if werr := <-done; err != nil || werr != nil || s.ids() != "s03" || len(s.rejected) > 0 || left(t, dir) != "" {
		t.Errorf("took %q, rejected %q, left %q, error %v, writer's %v", s.ids(), s.reasons(), left(t, dir), err, werr)
	}
}

// TestFollowAnswer has the request come after the answer: the answer is looked at
// again, and both are removed.
func TestFollowAnswer(t *testing.T) {
	t.Parallel()
	dir := copyGolden(t, "sglang")
	request, held := filepath.Join(dir, "request_0.json"), filepath.Join(t.TempDir(), "request")
	if err := os.Rename(request, held); err != nil {
		t.Fatal(err)
	}
	s := newStore(dir)
	opt := capture.Options{Facts: producer.Facts{Final: producer.FinalPost}, Reject: func(r format.Rejection) error {
		s.rejected = append(s.rejected, r)
		return os.Rename(held, request)
	}}
	stats, err := s.follow(t.Context(), t, opt, capture.FollowOptions{DeleteSource: true})
	if err != nil || s.ids() != "response_0.json" || len(s.rejected) != 1 || stats.Removed != 1 || left(t, dir) != "" {
		t.Errorf("took %q, rejected %q, %+v, left %q, error %v", s.ids(), s.reasons(), stats, left(t, dir), err)
	}
}

// TestFollowHiddenDirectory follows a directory whose own name looks temporary.
func TestFollowHiddenDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), ".spool.tmp")
	write(t, dir, "a.safetensors", dump(t, 3))
	write(t, dir, ".b/b.safetensors", dump(t, 3))
	write(t, dir, "c.partial", dump(t, 3))
	s := newStore(filepath.Dir(dir))
	s.dir = dir
	stats, err := s.follow(t.Context(), t, capture.Options{Root: s.root}, capture.FollowOptions{})
	if err != nil || s.ids() != ".spool.tmp/a.safetensors" || stats.Waiting != 2 {
		t.Errorf("took %q, waiting for %d, error %v", s.ids(), stats.Waiting, err)
	}
}

func TestFollowLostEvents(t *testing.T) {
	t.Parallel()
	if !capture.WatchErrors(errors.New("queue or buffer overflow")) {
		t.Error("lost events are no reason to look")
	}
}
