package capture

import (
	"fmt"

	"github.com/fsnotify/fsnotify"
)

// watcher says when it is worth while to look at directories. It may miss anything:
// the looks find what there is.
type watcher struct {
	fs     *fsnotify.Watcher // nil without events
	known  map[string]bool   // directories of the last look
	failed bool
	warn   func(dir string, err error)
	events chan struct{} // holds one while there was an event since the last drain
	done   chan struct{}
}

// newWatcher begins without any directory. File systems that other machines write to
// have no events of that.
func (f *follower) newWatcher() *watcher {
	w := &watcher{events: make(chan struct{}, 1), done: make(chan struct{}), warn: func(dir string, err error) {
		f.run.warn(dir, fmt.Sprintf("no events of the file system (%v): it is looked at every %s", err, f.Poll))
	}}
	for _, dir := range f.dirs {
		if fs := f.network(dir); fs != "" {
			f.stats.Polled = fs
		}
	}
	if f.stats.Polled == "" {
		var err error
		if w.fs, err = fsnotify.NewWatcher(); err != nil {
			w.fs = nil
			w.warn(f.dirs[0], err)
		}
	}
	if w.fs == nil {
		close(w.done)
		return w
	}
	go w.run()
	return w
}

// run ends when the watcher is closed. That events were lost, as any other error, is a
// reason to look too.
func (w *watcher) run() {
	defer close(w.done)
	for {
		select {
		case e, ok := <-w.fs.Events:
			if !ok {
				return
			}
			if !e.Has(fsnotify.Create) { // what is written to will settle, or not
				continue
			}
		case _, ok := <-w.fs.Errors:
			if !ok {
				return
			}
		}
		select {
		case w.events <- struct{}{}:
		default:
		}
	}
}

// add watches directories, and reports whether one of them is new. Those that are
// watched are added again: another may have taken the name.
func (w *watcher) add(dirs []string) (fresh bool) {
	if w.fs == nil {
		return false
	}
	known := make(map[string]bool, len(dirs))
	for _, dir := range dirs {
		if err := w.fs.Add(dir); err != nil && !w.failed {
			w.failed = true // they are too many, as a rule
			w.warn(dir, err)
		}
		known[dir] = true
		fresh = fresh || !w.known[dir]
	}
	w.known = known
	return fresh
}

// drain forgets the events before a look.
func (w *watcher) drain() {
	select {
	case <-w.events:
	default:
	}
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close() // it only reads
	}
	<-w.done
}
