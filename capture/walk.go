package capture

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// foundFile is one regular file that a walk met.
type foundFile struct {
	path    string // absolute
	size    int64
	modTime int64
}

// fault is a place below a given path that a walk could not look into.
type fault struct {
	path string // absolute
	err  error
}

// walker lists files, each once. It follows symbolic links after all else, so that a
// file that is also reached without one has that name, whatever the links are called.
type walker struct {
	exclude string          // a real path
	seen    map[string]bool // real paths
	links   []string
	files   []foundFile
	dirs    []string // real paths of those that were looked into
	empty   []string // of the given paths, those that hold nothing
	faults  []fault
}

// walk lists what is under paths. A path that cannot be looked at is an error; what
// lies below one is a fault.
func (w *walker) walk(ctx context.Context, paths []string) error {
	for _, path := range paths {
		dirs, met := len(w.dirs), w.met()
		if err := w.follow(ctx, path); err != nil {
			return err
		}
		if len(w.dirs) > dirs && w.met() == met {
			w.empty = append(w.empty, path)
		}
	}
	for len(w.links) > 0 { // a linked directory may hold further links
		path := w.links[0]
		w.links = w.links[1:]
		if err := w.note(ctx, path, w.follow(ctx, path)); err != nil {
			return err
		}
	}
	return nil
}

// met counts what a walk has found so far.
func (w *walker) met() int { return len(w.files) + len(w.links) + len(w.faults) }

// follow visits a path that may lead through symbolic links.
func (w *walker) follow(ctx context.Context, path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(real)
	if err != nil {
		return err
	}
	return w.visit(ctx, path, real, fs.FileInfoToDirEntry(info))
}

// visit takes a file, or goes into a directory. real is path without links.
func (w *walker) visit(ctx context.Context, path, real string, e fs.DirEntry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// Sockets, pipes and devices are no dumps.
	if !e.IsDir() && !e.Type().IsRegular() || w.seen[real] || real == w.exclude {
		return nil
	}
	w.seen[real] = true
	if !e.IsDir() {
		info, err := e.Info()
		if err != nil {
			return err
		}
		w.files = append(w.files, foundFile{path, info.Size(), info.ModTime().UnixNano()})
		return nil
	}
	entries, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	w.dirs = append(w.dirs, real)
	for _, e := range entries {
		if name := e.Name(); name[0] == '.' && strings.HasSuffix(name, ".tmp") {
			continue // what a writer has not given its name yet, or never will
		}
		path, real := filepath.Join(path, e.Name()), filepath.Join(real, e.Name())
		if e.Type()&fs.ModeSymlink != 0 {
			w.links = append(w.links, path)
			continue
		}
		if err := w.note(ctx, path, w.visit(ctx, path, real, e)); err != nil {
			return err
		}
	}
	return nil
}

// note keeps what went wrong below a given path: that is one bad input, and the rest
// goes on.
func (w *walker) note(ctx context.Context, path string, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		err = pe.Err // the path is that of the input
	}
	w.faults = append(w.faults, fault{path, err})
	return nil
}
