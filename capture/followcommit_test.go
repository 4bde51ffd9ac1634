package capture_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"hsx/capture"
	"hsx/format"
)

// TestFollowHeld removes what an earlier run committed without reading it again, and
// leaves what changed since.
func TestFollowHeld(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a", "changed", "new"} {
		write(t, dir, name+".safetensors", dump(t, 3))
	}
	s := newStore(dir)
	opt := capture.Options{Has: func(in format.Input) (bool, error) {
		if in.Path == "changed.safetensors" {
			return false, errors.New("source changed since it was taken")
		}
		return in.Path == "a.safetensors", nil
	}}
	stats, err := s.follow(t.Context(), t, opt, capture.FollowOptions{DeleteSource: true})
	if err != nil || s.ids() != "new.safetensors" || stats.Skipped != 1 || stats.Removed != 2 || len(s.rejected) != 1 {
		t.Errorf("took %q, %+v, rejected %q, error %v", s.ids(), stats, s.reasons(), err)
	}
	if got := left(t, dir); got != "changed.safetensors" {
		t.Errorf("left %q", got)
	}
}

// TestFollowPartlyRefused keeps a source of which one sample was refused.
func TestFollowPartlyRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "some.safetensors", several(t, 3, 4, 1))
	s := newStore(dir)
	stats, err := s.follow(t.Context(), t, capture.Options{Facts: twoLayers()}, capture.FollowOptions{DeleteSource: true})
	if err != nil || len(s.taken) != 2 || stats.Rejected != 1 || stats.Removed != 0 || left(t, dir) != "some.safetensors" {
		t.Errorf("took %q, %+v, left %q, error %v", s.ids(), stats, left(t, dir), err)
	}
}

// TestFollowChanged writes to a source between its reading and its commit: it stays.
func TestFollowChanged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := write(t, dir, "a.safetensors", dump(t, 3))
	s := newStore(dir)
	s.before = func() error {
		s.before = nil
		return os.WriteFile(path, dump(t, 5), 0o600)
	}
	opt := capture.Options{Has: func(in format.Input) (bool, error) {
		if len(s.taken) > 0 {
			return false, errors.New("source changed since it was taken")
		}
		return false, nil
	}}
	stats, err := s.follow(t.Context(), t, opt, capture.FollowOptions{DeleteSource: true, CommitEvery: time.Millisecond})
	if err != nil || stats.Removed != 0 || stats.Warnings != 1 || left(t, dir) != "a.safetensors" {
		t.Errorf("%+v, left %q, error %v", stats, left(t, dir), err)
	}
	contains(t, "warnings", strings.Join(s.warnings, "\n"), "a.safetensors: is in the dataset and was not removed: it changed since it was read")
	contains(t, "rejections", s.reasons(), "a.safetensors: source changed since it was taken")
}

// TestFollowStoreCommits removes what the store commits by itself.
func TestFollowStoreCommits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 10 {
		write(t, dir, fmt.Sprintf("s%d.safetensors", i), dump(t, 3))
	}
	s := newStore(dir)
	s.cut = 3
	var most int
	stats, err := s.follow(t.Context(), t, capture.Options{}, capture.FollowOptions{
		DeleteSource: true, CommitEvery: time.Hour,
		Committed:  func() int { return s.committed },
		OnProgress: func(st capture.FollowStats) { most = max(most, st.Samples-st.Removed) },
	})
	if err != nil || stats.Removed != 10 || s.commits != 1 || most > 4 {
		t.Errorf("removed %d in %d commits of Follow, %d samples had their sources at most, want 10, 1, 4; error %v", stats.Removed, s.commits, most, err)
	}
}

// TestFollowStoreFails removes nothing that a commit did not hold.
func TestFollowStoreFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.safetensors", dump(t, 3))
	broken := errors.New("disk is gone")
	s := newStore(dir)
	s.before = func() error { return broken }
	if _, err := s.follow(t.Context(), t, capture.Options{}, capture.FollowOptions{DeleteSource: true, CommitEvery: time.Millisecond}); !errors.Is(err, broken) {
		t.Errorf("Follow: got error %v, want %v", err, broken)
	}
	if got := left(t, dir); got != "a.safetensors" {
		t.Errorf("left %q", got)
	}
}

// TestFollowRoom keeps space free: by removing sources where that is wanted, else it
// stops with all committed that was taken.
func TestFollowRoom(t *testing.T) {
	t.Parallel()
	const n = 8
	data := dump(t, 3)
	size := int64(len(data))
	for name, tc := range map[string]struct {
		remove bool
		grows  bool // the space, when a source is removed
		late   int  // it shows when it was asked for so often in vain
		want   error
		taken  int
	}{
		"removes":          {true, true, 0, nil, n},
		"shows late":       {true, true, 2, nil, n},
		"nothing to gain":  {true, false, 0, capture.ErrNoRoom, 3},
		"sources are kept": {false, false, 0, capture.ErrNoRoom, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for i := range n {
				write(t, dir, fmt.Sprintf("s%d.safetensors", i), data)
			}
			s := newStore(dir)
			late, shown := tc.late, 0
			free := func(of string) (int64, error) {
				if of != "the dataset" {
					t.Errorf("free space of %q was asked", of)
				}
				used := len(s.taken)
				if removed := n - len(strings.Fields(left(t, dir))); tc.grows && removed > shown {
					if late--; late < 0 {
						late, shown = tc.late, removed
					}
				}
				used -= shown
				return 1000 + size*int64(3-used), nil
			}
			fo := capture.FollowWith(capture.FollowOptions{Settle: atOnce().Settle, DeleteSource: tc.remove, MinFree: 1000, FreeDir: "the dataset"}, free, nil)
			stats, err := s.follow(t.Context(), t, capture.Options{}, fo)
			if !errors.Is(err, tc.want) || len(s.taken) != tc.taken || s.committed != tc.taken {
				t.Errorf("took %d, committed %d, %+v, error %v, want %d, %v", len(s.taken), s.committed, stats, err, tc.taken, tc.want)
			}
			if tc.want != nil {
				contains(t, "error", err.Error(), "take s3.safetensors: it has ", "the dataset has 1000 free, of which 1000 must stay")
			}
		})
	}
}
