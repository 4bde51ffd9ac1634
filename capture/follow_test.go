package capture_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
)

// store is a sink that commits. Until then the files of its samples must be there.
type store struct {
	record
	root      string // of the sources
	dir       string // what is followed, the root when empty
	committed int    // samples
	commits   int
	cut       int // commits by itself when so many samples are not
	lost      []string

	before func() error // asked at the beginning of a commit
}

func (s *store) Put(ctx context.Context, sample *format.Sample) error {
	if s.cut > 0 && len(s.taken)-s.committed >= s.cut { // before the one that has no room, as a shard is
		s.check()
		s.committed = len(s.taken)
	}
	return s.record.Put(ctx, sample)
}

func (s *store) Commit(context.Context) error {
	s.check()
	s.commits++
	if s.before != nil {
		if err := s.before(); err != nil {
			return err
		}
	}
	s.committed = len(s.taken)
	return nil
}

// check notes sources that are gone before their samples are durable.
func (s *store) check() {
	for _, t := range s.taken[s.committed:] {
		if _, err := os.Stat(filepath.Join(s.root, t.Path)); err != nil {
			s.lost = append(s.lost, t.Path)
		}
	}
}

func newStore(root string) *store { return &store{root: root} }

// follow runs Follow over the store's directory, quicker than its defaults, and checks
// what always holds.
func (s *store) follow(ctx context.Context, tb testing.TB, opt capture.Options, fo capture.FollowOptions) (capture.FollowStats, error) {
	tb.Helper()
	fo.Settle = cmp.Or(fo.Settle, 30*time.Millisecond)
	fo.Poll = cmp.Or(fo.Poll, 20*time.Millisecond)
	fo.UntilIdle = cmp.Or(fo.UntilIdle, 300*time.Millisecond)
	stats, err := capture.Follow(ctx, []string{cmp.Or(s.dir, s.root)}, s.watch(opt), fo, s)
	if len(s.lost) > 0 {
		tb.Errorf("sources removed before a commit: %q", s.lost)
	}
	if err == nil && s.committed != len(s.taken) {
		tb.Errorf("committed %d samples of %d", s.committed, len(s.taken))
	}
	return stats, err
}

// atOnce has files taken at the first look, in their order.
func atOnce() capture.FollowOptions { return capture.FollowOptions{Settle: time.Nanosecond} }

// left are the files in a directory.
func left(tb testing.TB, dir string) string {
	tb.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, path) // path begins with dir
			names = append(names, rel)
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return strings.Join(names, " ")
}

// TestFollowRename has a writer rename files into place, some into new directories,
// while they are taken: each comes once, and what keeps its temporary name does not.
func TestFollowRename(t *testing.T) {
	t.Parallel()
	for name, fo := range map[string]capture.FollowOptions{
		"events":     {Poll: time.Hour, UntilIdle: 2 * time.Second},
		"polled":     capture.FollowWith(capture.FollowOptions{UntilIdle: 2 * time.Second}, nil, func(string) string { return "nfs" }),
		"everything": {DeleteSource: true, CommitEvery: 10 * time.Millisecond, UntilIdle: 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 40
			dir := t.TempDir()
			data := dump(t, 3)
			done := make(chan error, 1)
			go func() {
				done <- func() error {
					if err := os.WriteFile(filepath.Join(dir, "never.safetensors.tmp"), data, 0o600); err != nil {
						return err
					}
					for i := range n {
						to := filepath.Join(dir, fmt.Sprintf("s%d.safetensors", i))
						if i%4 == 3 {
							to = filepath.Join(dir, fmt.Sprintf("d%d", i), "deep", "s.safetensors")
							if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
								return err
							}
						}
						temp := filepath.Join(filepath.Dir(to), "."+filepath.Base(to))
						if err := errors.Join(os.WriteFile(temp, data, 0o600), os.Rename(temp, to)); err != nil {
							return err
						}
						time.Sleep(2 * time.Millisecond) // the pace of a writer
					}
					return nil
				}()
			}()
			s := newStore(dir)
			stats, err := s.follow(t.Context(), t, capture.Options{}, fo)
			if werr := <-done; err != nil || werr != nil {
				t.Fatalf("Follow: got error %v, writer's %v", err, werr)
			}
			if len(s.taken) != n || len(s.rejected) > 0 || stats.Waiting != 1 || stats.Samples != n {
				t.Errorf("took %d of %d, waiting for %d, want 1; rejected %q", len(s.taken), n, stats.Waiting, s.reasons())
			}
			if got := stats.Polled != ""; got != (name == "polled") {
				t.Errorf("polled: %q", stats.Polled)
			}
			if got, want := left(t, dir), "never.safetensors.tmp"; fo.DeleteSource && (got != want || stats.Removed != n) {
				t.Errorf("removed %d, left %q, want %q", stats.Removed, got, want)
			}
			if stats.MaxLag <= 0 || stats.MaxLag > 20*time.Second {
				t.Errorf("lag %s", stats.MaxLag)
			}
		})
	}
}

// TestFollowEvents never looks by itself: the file system tells of a file in a new
// directory, and of another one there.
func TestFollowEvents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	s := newStore(dir)
	looks := 0
	fo := capture.FollowOptions{Poll: time.Hour, UntilIdle: time.Hour, OnProgress: func(st capture.FollowStats) {
		switch looks++; {
		case looks == 2: // the first is followed by another, for what came meanwhile
			write(t, dir, "new/a.safetensors", dump(t, 3))
		case st.Samples == 1 && looks < 100:
			looks = 100
			write(t, dir, "new/b.safetensors", dump(t, 3))
		case st.Samples == 2:
			cancel()
		}
	}}
	fo = capture.FollowWith(fo, nil, func(string) string { return "" })
	if _, err := s.follow(ctx, t, capture.Options{}, fo); !errors.Is(err, context.Canceled) || s.ids() != "new/a.safetensors new/b.safetensors" {
		t.Errorf("took %q, error %v, want both files and %v", s.ids(), err, context.Canceled)
	}
}

// TestFollowSlowWriter has a writer take its time in place.
func TestFollowSlowWriter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := dump(t, 64)
	f, err := os.Create(filepath.Join(dir, "slow.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for chunk := range slices.Chunk(data, len(data)/10+1) {
			if _, err := f.Write(chunk); err != nil {
				done <- err
				return
			}
			time.Sleep(30 * time.Millisecond)
		}
		done <- f.Close()
	}()
	s := newStore(dir)
	_, err = s.follow(t.Context(), t, capture.Options{}, capture.FollowOptions{Settle: time.Second, UntilIdle: 4 * time.Second})
	if werr := <-done; err != nil || werr != nil || s.ids() != "slow.safetensors" || len(s.rejected) > 0 {
		t.Errorf("took %q, rejected %q, error %v, writer's %v", s.ids(), s.reasons(), err, werr)
	}
}

// TestFollowInterrupt ends the context: what was taken is committed.
func TestFollowInterrupt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 20 {
		write(t, dir, fmt.Sprintf("s%d.safetensors", i), dump(t, 3))
	}
	ctx, cancel := context.WithCancel(t.Context())
	s := newStore(dir)
	s.put = func(*format.Sample) error {
		if len(s.taken) == 5 {
			cancel()
		}
		return nil
	}
	stats, err := s.follow(ctx, t, capture.Options{}, capture.FollowOptions{DeleteSource: true})
	if n := len(s.taken); !errors.Is(err, context.Canceled) || n < 6 || n == 20 || s.committed != n || stats.Removed != n {
		t.Errorf("took %d, committed %d, removed %d, error %v", n, s.committed, stats.Removed, err)
	}
	if m := mappings(t, dir); m != 0 {
		t.Errorf("%d files are still mapped", m)
	}
}

// TestFollowAsPlan takes from what the real producers wrote what a plan takes, in the
// same order when it is all there.
func TestFollowAsPlan(t *testing.T) {
	t.Parallel()
	post := producer.Facts{Final: producer.FinalPost}
	for name, facts := range map[string]producer.Facts{
		"specforge": {}, "gz": {}, "vllm": {}, "speculators": {}, "v1": {}, "trtllm": {}, "npy": {}, "npz": {},
		"sglang": post, "sglang_batch": post,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := capture.Options{Facts: facts}
			dir := copyGolden(t, name)
			want := ingest(t, &record{}, opt, dir)
			want.stats.Warnings = 0 // rows whose file has yet to come are no news here
			s := newStore(dir)
			stats, err := s.follow(t.Context(), t, opt, atOnce())
			if diff := gocmp.Diff(want.taken, s.taken); diff != "" || err != nil {
				t.Errorf("samples (-plan +follow), error %v:\n%s", err, diff)
			}
			if diff := gocmp.Diff(want.stats, stats.Stats); diff != "" {
				t.Errorf("stats (-plan +follow):\n%s", diff)
			}
		})
	}
}

func TestFollowMissing(t *testing.T) {
	t.Parallel()
	s := newStore(filepath.Join(t.TempDir(), "none"))
	if _, err := s.follow(t.Context(), t, capture.Options{}, capture.FollowOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Follow of a directory that is not there: got error %v, want %v", err, os.ErrNotExist)
	}
}
