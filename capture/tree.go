package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"hsx/internal/mapped"
)

// Tree is where the dumps of a plan lie when that is not the file system.
type Tree interface {
	// String is what the place is called. Its last element is taken for the name of the
	// directory that holds the dumps.
	String() string
	// List tells of each file, by its slash-separated name below the place.
	List(ctx context.Context, each func(name string, size int64, modified time.Time) error) error
	// Open maps a file, all of which is there.
	Open(ctx context.Context, name string) (*mapped.File, error)
}

// files is what a plan asks of the place where its inputs lie. Paths are absolute.
type files interface {
	open(path string) (*mapped.File, error)
	// side reads a small file beside a dump; nil when there is none.
	side(path string) ([]byte, error)
	// names are those of the files of a directory.
	names(dir string) ([]string, error)
	// unlocked waits until the writer of a file is done.
	unlocked(ctx context.Context, path string, limit time.Duration) error
}

// system is the file system.
type system struct{}

func (system) open(path string) (*mapped.File, error) { return mapped.Open(path) }
func (system) side(path string) ([]byte, error)       { return readSide(path) }

func (system) names(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, err
}

func (system) unlocked(ctx context.Context, path string, limit time.Duration) error {
	return WaitUnlocked(ctx, path, limit)
}

// listing is a tree whose files were listed once.
type listing struct {
	ctx   context.Context //nolint:containedctx // of the plan, and all that is read for it
	tree  Tree
	root  string // what its names are below of
	found map[string]foundFile
}

func newListing(ctx context.Context, t Tree) (*listing, error) {
	l := &listing{ctx: ctx, tree: t, root: "/" + path.Base(t.String()), found: map[string]foundFile{}}
	err := t.List(ctx, func(name string, size int64, modified time.Time) error {
		if strings.HasSuffix(name, "/") || strings.HasPrefix(path.Base(name), ".") && strings.HasSuffix(name, ".tmp") {
			return nil // a mark of an empty directory, or what a writer has not given its name yet
		}
		abs := path.Join(l.root, name)
		l.found[abs] = foundFile{abs, size, modified.UnixNano()}
		return nil
	})
	if err == nil && len(l.found) == 0 {
		err = fmt.Errorf("nothing is in %s: %w", t, os.ErrNotExist)
	}
	return l, err
}

// open maps a file as it was listed.
func (l *listing) open(abs string) (*mapped.File, error) {
	was, ok := l.found[abs]
	if !ok {
		return nil, &os.PathError{Op: "open", Path: abs, Err: os.ErrNotExist}
	}
	f, err := l.tree.Open(l.ctx, strings.TrimPrefix(abs, l.root+"/"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		err = &unreachable{err}
	}
	if err == nil && int64(len(f.Bytes())) != was.size {
		err = errors.Join(fmt.Errorf("source changed since it was listed: it had %d bytes and has %d", was.size, len(f.Bytes())), f.Close())
	}
	return f, err
}

// unreachable is a tree that did not give what it listed, which says nothing of a dump:
// it ends the work.
type unreachable struct{ error }

func (u *unreachable) Unwrap() error { return u.error }

func (l *listing) side(abs string) ([]byte, error) {
	was, ok := l.found[abs]
	if !ok {
		return nil, nil
	}
	if was.size > maxSideBytes {
		return nil, tooLargeBeside(abs, was.size)
	}
	f, err := l.open(abs)
	if err != nil {
		return nil, err
	}
	return bytes.Clone(f.Bytes()), f.Close()
}

func (l *listing) names(dir string) (names []string, err error) {
	for abs := range l.found {
		if path.Dir(abs) == dir {
			names = append(names, path.Base(abs))
		}
	}
	return names, nil
}

// unlocked returns at once: what lies in a store was written whole.
func (l *listing) unlocked(context.Context, string, time.Duration) error { return nil }

// all is the files in the order of their names.
func (l *listing) all() []foundFile {
	var out []foundFile
	for _, f := range l.found {
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b foundFile) int { return strings.Compare(a.path, b.path) })
	return out
}

func tooLargeBeside(path string, size int64) error {
	return fmt.Errorf("%s has %d bytes, at most %d are read of a file beside a dump", filepath.Base(path), size, maxSideBytes)
}
