package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hsx/format"
)

// sighting is what is known of an input that was seen.
type sighting struct {
	state    inputState
	since    time.Time // of the last change
	complete time.Time // when it was found to be
	done     bool      // taken, refused or no dump: not looked at again unless it changes
	look     int       // the last that met it
}

// inputState tells whether an input, or the request beside an answer, changed.
type inputState struct {
	bytes, modTime int64
	files          int
}

// look lists the directories and finds out what is complete.
func (f *follower) look(ctx context.Context) error {
	start := time.Now()
	f.watch.drain()
	p, w, err := list(ctx, f.dirs, f.run.opt)
	if err != nil {
		return fmt.Errorf("look at the directories: %w", err)
	}
	fresh := f.watch.add(w.dirs)
	if f.plan != nil {
		f.plan.closeDatasets() // nothing is open between two looks
	}
	f.plan, f.run.plan, f.ready = p, p, nil
	f.stats.Waiting, f.stats.Backlog, f.stats.BacklogBytes = 0, 0, 0
	f.deadline = time.Time{}
	if fresh { // files may have come before their directory was watched
		f.deadline = start
	}
	f.looks++
	files := map[string]foundFile{}
	w.files = slices.DeleteFunc(w.files, func(file foundFile) bool {
		files[file.path] = file
		if f.temporary(file.path) {
			f.stats.Waiting++
			return true
		}
		return false
	})
	if err := f.refusePlaces(w.faults); err != nil {
		return err
	}
	p.group(w.files)
	p.shareByName()
	for _, u := range p.units {
		s := f.sight(u, files, start)
		if s.done {
			continue
		}
		if s.complete.IsZero() {
			if again := f.completeAt(ctx, u, s, files, start); again.After(start) {
				f.stats.Waiting++
				f.lookAt(again)
				continue
			}
			s.complete, f.news = start, start
		}
		f.ready = append(f.ready, u)
		f.stats.Backlog++
		f.stats.BacklogBytes += u.input.Bytes
	}
	slices.SortFunc(f.ready, func(a, b unit) int { return naturalCompare(a.input.Path, b.input.Path) })
	err = f.refuseLocks(ctx, files, start)
	for path, s := range f.known {
		if s.look != f.looks {
			delete(f.known, path)
		}
	}
	f.looked = time.Now()
	f.cost = f.looked.Sub(start)
	return err
}

// lookAt has the directories looked at again at a time, or sooner.
func (f *follower) lookAt(t time.Time) {
	if f.deadline.IsZero() || t.Before(f.deadline) {
		f.deadline = t
	}
}

// temporary reports whether a file is one that its writer has yet to rename, by its
// name or that of a directory below those that are followed.
func (f *follower) temporary(path string) bool {
	below := path
	for _, dir := range f.dirs {
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/"); ok && len(rest) < len(below) {
			below = rest
		}
	}
	for name := range strings.SplitSeq(below, "/") {
		if strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".tmp") || strings.HasSuffix(name, ".partial") {
			return true
		}
	}
	return false
}

// sight notes the state of an input. Where the clock is that of this machine, the
// change of a file is as old as its time says; of files that belong together any may
// have come with an old time.
func (f *follower) sight(u unit, files map[string]foundFile, now time.Time) *sighting {
	state := inputState{u.input.Bytes, u.input.ModTime, len(u.files)}
	dir, base := filepath.Split(u.files[0])
	if r, ok := files[filepath.Join(dir, requestName(base))]; ok && r.path != u.files[0] {
		state.bytes += r.size
		state.modTime = max(state.modTime, r.modTime)
		state.files++
	}
	s := f.known[u.input.Path]
	if s == nil || s.state != state {
		s = &sighting{state: state, since: now}
		if t := time.Unix(0, state.modTime); u.kind == fileUnit && state.files == 1 && f.stats.Polled == "" && t.Before(now) {
			s.since = t
		}
		f.known[u.input.Path] = s
	}
	s.look = f.looks
	return s
}

// lockRest is the time between two looks at a lock that is held.
const lockRest = 100 * time.Millisecond

// completeAt is when an input is complete if nothing changes, now or before when it is
// so already. A lock decides alone.
func (f *follower) completeAt(ctx context.Context, u unit, s *sighting, files map[string]foundFile, now time.Time) time.Time {
	locked := false
	for _, path := range u.files {
		if _, ok := files[path+lockSuffix]; !ok {
			continue
		}
		locked = true
		if errors.Is(WaitUnlocked(ctx, path, -1), errLocked) { // other errors are those of reading it
			return now.Add(lockRest)
		}
	}
	if locked {
		return now
	}
	return s.since.Add(f.Settle)
}

// refusePlaces tells once of each place that could not be looked into. What vanished
// while the directories were listed is not there to be refused.
func (f *follower) refusePlaces(faults []fault) error {
	for _, ft := range faults {
		if errors.Is(ft.err, os.ErrNotExist) {
			continue
		}
		if err := f.refuseOnce(ft.path, fmt.Errorf("not looked into: %w", ft.err)); err != nil {
			return err
		}
	}
	return nil
}

// refuseLocks tells once of each lock that is free and guards no file: its writer
// failed. One that has just been made may not be held yet.
func (f *follower) refuseLocks(ctx context.Context, files map[string]foundFile, now time.Time) error {
	for path := range files {
		guarded, ok := strings.CutSuffix(path, lockSuffix)
		if _, there := files[guarded]; !ok || there || f.told[path] {
			continue
		}
		s := f.known[path] // no input has an absolute name
		if s == nil || errors.Is(WaitUnlocked(ctx, guarded, -1), errLocked) {
			s = &sighting{since: now}
			f.known[path] = s
		}
		s.look = f.looks
		if again := s.since.Add(f.Settle); again.After(now) {
			f.lookAt(again)
			continue
		}
		if err := f.refuseOnce(path, errors.New("lock is free and the file that it guards is not there: the writer failed")); err != nil {
			return err
		}
	}
	return nil
}

// refuseOnce refuses a path that is no input.
func (f *follower) refuseOnce(path string, why error) error {
	if f.told[path] {
		return nil
	}
	f.told[path] = true
	if f.dirty.IsZero() {
		f.dirty = time.Now()
	}
	return f.run.reject(format.Input{Path: f.plan.rel(path)}, why)
}

// tell hands on what was done and is to do.
func (f *follower) tell() {
	f.stats.Stats = f.run.stats
	if f.OnProgress != nil {
		f.OnProgress(f.stats)
	}
}
