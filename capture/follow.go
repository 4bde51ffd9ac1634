package capture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"hsx/format"
)

// Store is a sink whose samples become durable with a commit. Commit makes all of them
// so that were put before; a store may do that by itself in between.
type Store interface {
	Sink
	Commit(ctx context.Context) error
}

// FollowOptions are the choices of Follow. The zero value follows until its context
// ends, and removes nothing.
type FollowOptions struct {
	Settle      time.Duration // how long an input must be unchanged to be complete, 2 s when 0
	Poll        time.Duration // the longest time between two looks at the directories, 2 s when 0
	CommitEvery time.Duration // the longest time that a taken sample waits for a commit, 30 s when 0
	UntilIdle   time.Duration // end after this long without a new complete input; 0 is never

	// DeleteSource removes the files of an input after the commit that holds all of its
	// samples. What was refused, even in part, stays. Of a file that was reached by a
	// symbolic link the link is removed.
	DeleteSource bool
	// MinFree is how many bytes must stay free in the file system of FreeDir; 0 is
	// none; what the store holds in memory is not counted. When an input would take more,
	// what is pending is committed; if that does not remove sources enough, Follow ends
	// with ErrNoRoom.
	MinFree int64
	FreeDir string

	// Committed, if not nil, says how many of the samples that were put are durable, for
	// a store that commits by itself. It is called from Follow's goroutine.
	Committed func() int
	// OnProgress, if not nil, gets every change of what Follow has done and has to do.
	OnProgress func(s FollowStats)

	// Set by tests: the free space of a directory, the kind of its file system, and how
	// long a removal may need to show as free space.
	free    func(dir string) (int64, error)
	network func(dir string) string
	grace   time.Duration
}

// FollowStats is what Follow did, and what it had to do when it last looked.
type FollowStats struct {
	Stats
	Removed      int           // inputs whose files were removed
	RemovedBytes int64         // of these inputs
	Vanished     int           // inputs that somebody else removed before they were read
	Lag, MaxLag  time.Duration // from when an input was seen to be complete to its commit: of the last commit's oldest, and of any
	Backlog      int           // inputs that are complete and not taken
	BacklogBytes int64
	Waiting      int    // inputs and temporary files that are not complete
	Polled       string // why the directories are looked at every Poll only: a file system without events; empty with events
}

// ErrNoRoom means that an input was not taken because less than FollowOptions.MinFree
// would have been left.
var ErrNoRoom = errors.New("not enough free space")

// follower is the state of one Follow.
type follower struct {
	FollowOptions
	run   *run
	store Store
	dirs  []string
	stats FollowStats
	watch *watcher

	plan     *Plan // of the last look
	ready    []unit
	known    map[string]*sighting // by the path of the input
	told     map[string]bool      // places and locks that were refused already
	looks    int
	looked   time.Time     // when the last look ended
	cost     time.Duration // of the last look
	deadline time.Time     // when something may have become complete

	pending []pending // in the order of their samples
	durable int       // samples of this run that are committed
	dirty   time.Time // when the oldest of what is not committed was taken or refused
	news    time.Time // when an input was last found complete, or taken
	removed time.Time // when a source was last removed
}

// Follow takes every input under dirs once it is complete, until ctx ends, an error, or
// FollowOptions.UntilIdle. An input is complete when it has no temporary name (.tmp,
// .partial, a leading dot) and has not changed for a while, or when the lock beside it
// is free. One that is still being written is left for the next look, and one that was
// refused is looked at again when it changes. What was taken is committed before Follow
// returns, also when ctx ends it.
func Follow(ctx context.Context, dirs []string, opt Options, fo FollowOptions, store Store) (FollowStats, error) {
	f := &follower{
		FollowOptions: fo, run: &run{opt: opt, sink: store}, store: store, dirs: make([]string, len(dirs)),
		known: map[string]*sighting{}, told: map[string]bool{}, news: time.Now(),
	}
	for i, dir := range dirs {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return f.stats, err
		}
		f.dirs[i] = abs
	}
	f.Settle = cmp.Or(f.Settle, 2*time.Second)
	f.Poll = cmp.Or(f.Poll, 2*time.Second)
	f.CommitEvery = cmp.Or(f.CommitEvery, 30*time.Second)
	f.grace = cmp.Or(f.grace, 10*time.Second)
	if f.free == nil {
		f.free = freeSpace
	}
	if f.network == nil {
		f.network = networkFS
	}
	f.watch = f.newWatcher()
	defer f.watch.close()
	err := f.loop(ctx)
	// What was taken is committed whatever ended the work; a store that failed says so again.
	f.dirty = time.Now()
	if cerr := f.commit(context.WithoutCancel(ctx)); err == nil {
		err = cerr
	}
	f.tell()
	return f.stats, err
}

// loop looks and takes until there is a reason to end.
func (f *follower) loop(ctx context.Context) error {
	defer func() {
		if f.plan != nil {
			f.plan.closeDatasets()
		}
	}()
	for {
		if err := f.look(ctx); err != nil {
			return err
		}
		f.tell()
		for len(f.ready) > 0 && time.Since(f.looked) < max(time.Second, f.rest()) {
			if err := f.takeSome(ctx); err != nil {
				return err
			}
			f.news = time.Now()
		}
		if err := f.commitDue(ctx); err != nil {
			return err
		}
		if len(f.ready) > 0 {
			continue
		}
		if f.UntilIdle > 0 && time.Since(f.news) >= f.UntilIdle {
			return nil
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
}

// rest is the least time between two looks: looking must not become the work.
func (f *follower) rest() time.Duration { return max(10*time.Millisecond, 4*f.cost) }

// wait returns when it is time for another look or a commit.
func (f *follower) wait(ctx context.Context) error {
	next := f.looked.Add(f.Poll)
	sooner := func(t time.Time) {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	sooner(f.deadline)
	if !f.dirty.IsZero() {
		sooner(f.dirty.Add(f.CommitEvery))
	}
	if f.UntilIdle > 0 {
		sooner(f.news.Add(f.UntilIdle))
	}
	least := f.looked.Add(f.rest())
	if next.Before(least) {
		next = least
	}
	for events := f.watch.events; ; {
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-events:
			timer.Stop()
			next, events = least, nil
		case <-timer.C:
			return nil
		}
	}
}

// The most that is taken before the next look may be due.
const (
	someInputs = 64
	someBytes  = 256 << 20
)

// takeSome takes the first of what is ready.
func (f *follower) takeSome(ctx context.Context) error {
	var todo []unit
	var bytes int64
	for len(f.ready) > 0 && len(todo) < someInputs && bytes < someBytes {
		u := f.ready[0]
		f.ready = f.ready[1:]
		f.stats.Backlog--
		f.stats.BacklogBytes -= u.input.Bytes
		before := f.run.stats
		missing, err := f.run.missing([]unit{u}, func(format.Input) {})
		if err != nil {
			return err
		}
		if len(missing) > 0 {
			todo = append(todo, u)
			bytes += u.input.Bytes
			continue
		}
		f.took(u, u.input, before, f.run.stats.Skipped > before.Skipped)
	}
	ctx, cancel := context.WithCancel(ctx)
	opened := f.plan.open(ctx, todo)
	defer func() {
		cancel()
		for ch := range opened { // close what was opened ahead
			(<-ch).close()
		}
	}()
	for ch := range opened {
		l := <-ch
		err := f.take(ctx, todo[0], l)
		l.close()
		if err == nil {
			err = f.commitDue(ctx)
		}
		if err != nil {
			return err
		}
		todo = todo[1:]
		f.tell()
	}
	return ctx.Err()
}

// take deals with one opened input. One that is gone, or is being written after all,
// is no bad input.
func (f *follower) take(ctx context.Context, u unit, l *loaded) error {
	if l.err != nil {
		bytes, modTime, err := stateOf(u.files)
		if errors.Is(err, os.ErrNotExist) {
			f.stats.Vanished++
			return nil // the next look forgets it
		}
		if errors.Is(l.err, errLocked) || bytes != u.input.Bytes || modTime != u.input.ModTime {
			delete(f.known, u.input.Path)
			return nil
		}
	}
	if l.match != nil {
		if err := f.room(ctx, l.input); err != nil {
			return fmt.Errorf("take %s: %w", u.input.Path, err)
		}
	}
	before := f.run.stats
	if err := f.run.take(ctx, l); err != nil {
		return err
	}
	f.took(u, l.input, before, l.match != nil)
	return nil
}

// stateOf is the size and time of an input's files as they are now.
func stateOf(files []string) (bytes, modTime int64, err error) {
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return 0, 0, err
		}
		bytes += info.Size()
		modTime = max(modTime, info.ModTime().UnixNano())
	}
	return bytes, modTime, nil
}
