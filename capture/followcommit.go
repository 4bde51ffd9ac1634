package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"hsx/format"
)

// pending is an input that is in the store and not known to be durable there.
type pending struct {
	files    []string
	input    format.Input // as it was read
	samples  int          // durable when so many samples of this run are
	complete time.Time
	taken    time.Time
	whole    bool // none of it was refused
}

// took notes what became of an input. dump says that it is one, as far as it was not
// refused.
func (f *follower) took(u unit, in format.Input, before Stats, dump bool) {
	now, s := time.Now(), f.known[u.input.Path]
	s.done = true
	put, refused := f.run.stats.Samples > before.Samples, f.run.stats.Rejected > before.Rejected
	if f.dirty.IsZero() && (put || refused) {
		f.dirty = now
	}
	if dump && (put || !refused) {
		f.pending = append(f.pending, pending{u.files, in, f.run.stats.Samples, s.complete, now, !refused})
	}
}

// commitDue commits what has waited long enough.
func (f *follower) commitDue(ctx context.Context) error {
	if !f.dirty.IsZero() && time.Since(f.dirty) >= f.CommitEvery {
		return f.commit(ctx)
	}
	f.release()
	return nil
}

// commit makes all that was taken durable.
func (f *follower) commit(ctx context.Context) error {
	if !f.dirty.IsZero() {
		if err := f.store.Commit(ctx); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
		f.durable, f.dirty = f.run.stats.Samples, time.Time{}
	}
	f.release()
	return nil
}

// release lets go of the inputs that are durable. Samples become so in the order in
// which they were put.
func (f *follower) release() {
	if f.Committed != nil {
		f.durable = max(f.durable, f.Committed())
	}
	n := 0
	for ; n < len(f.pending) && f.pending[n].samples <= f.durable; n++ {
		p := &f.pending[n]
		lag := time.Since(p.complete)
		if n == 0 {
			f.stats.Lag = lag
		}
		f.stats.MaxLag = max(f.stats.MaxLag, lag)
		if f.DeleteSource && p.whole {
			if err := f.remove(p); err != nil {
				f.run.warn(p.input.Path, "is in the dataset and was not removed: "+err.Error())
			}
		}
	}
	f.pending = f.pending[n:]
	if n > 0 && len(f.pending) > 0 {
		f.dirty = f.pending[0].taken
	}
}

// remove removes the files of an input, and what its producer left beside them. The
// dump goes last: as long as it is there, the next run finds it in the store and
// removes the rest. Arrays of which a kill leaves some are refused as changed, and stay.
func (f *follower) remove(p *pending) error {
	bytes, modTime, err := stateOf(p.files)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil // somebody was faster, or took a part: what is left is another input
	case err != nil:
		return err
	case bytes != p.input.Bytes || modTime != p.input.ModTime:
		return errors.New("it changed since it was read")
	}
	var paths []string
	for _, path := range p.files {
		paths = append(paths, path+lockSuffix)
		if name, _, err := request(system{}, path); err == nil { // of a server's answer
			paths = append(paths, filepath.Join(filepath.Dir(path), name))
		}
	}
	for _, path := range append(paths, p.files...) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	f.removed = time.Now()
	f.stats.Removed++
	f.stats.RemovedBytes += p.input.Bytes
	return nil
}

// room returns when there is room for an input. What is pending is committed to make
// some.
func (f *follower) room(ctx context.Context, in format.Input) error {
	for f.MinFree > 0 {
		free, err := f.free(f.FreeDir)
		if err != nil {
			return fmt.Errorf("free space of %s: %w", f.FreeDir, err)
		}
		if free-in.Bytes >= f.MinFree {
			break
		}
		before := f.stats.Removed
		if f.DeleteSource {
			if err := f.commit(ctx); err != nil {
				return err
			}
		}
		switch {
		case f.stats.Removed > before:
			continue
		case time.Since(f.removed) > f.grace:
			return fmt.Errorf("it has %d bytes, %s has %d free, of which %d must stay: %w", in.Bytes, f.FreeDir, free, f.MinFree, ErrNoRoom)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockPoll):
		}
	}
	return nil
}

// freeSpace is what this user may still write to the file system of dir.
func freeSpace(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail * uint64(s.Bsize)), nil
}
