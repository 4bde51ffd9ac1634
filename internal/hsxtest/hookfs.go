package hsxtest

import (
	"fmt"
	"os"

	"hsx/internal/atomicfile"
)

// The kinds of operations on a file system. Closing and seeking change nothing on
// disk, and of the two only closing is seen.
const (
	OpOpen     = "open"
	OpWrite    = "write"
	OpSync     = "sync"
	OpClose    = "close"
	OpTruncate = "truncate"
	OpRename   = "rename"
	OpLink     = "link"
	OpRemove   = "remove"
	OpMkdir    = "mkdir"
	OpSyncDir  = "syncdir"
)

// Op is one operation on a file system.
type Op struct {
	Kind string // OpOpen …
	Path string // of the file or directory; the new name for OpRename and OpLink
}

// String is the form for messages: "sync /data/manifest.json.tmp".
func (o Op) String() string { return o.Kind + " " + o.Path }

// HookFS asks a test before each operation of another file system.
type HookFS struct {
	atomicfile.FS

	// Before, if not nil, is called with each operation; an error from it is the
	// operation's result, as an *os.PathError. A file is closed all the same.
	Before func(Op) error

	// Half makes a write that Before fails write half of its bytes, as a full disk does.
	Half bool
}

func (h *HookFS) ask(kind, path string) error {
	if h.Before == nil {
		return nil
	}
	if err := h.Before(Op{kind, path}); err != nil {
		return &os.PathError{Op: kind, Path: path, Err: err}
	}
	return nil
}

// OpenFile is the inner OpenFile, after Before.
func (h *HookFS) OpenFile(name string, flag int, perm os.FileMode) (atomicfile.File, error) {
	if err := h.ask(OpOpen, name); err != nil {
		return nil, err
	}
	f, err := h.FS.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &hookFile{File: f, fs: h, name: name}, nil
}

// Truncate is the inner Truncate, after Before.
func (h *HookFS) Truncate(name string, size int64) error {
	if err := h.ask(OpTruncate, name); err != nil {
		return err
	}
	return h.FS.Truncate(name, size)
}

// Rename is the inner Rename, after Before.
func (h *HookFS) Rename(oldname, newname string) error {
	if err := h.ask(OpRename, newname); err != nil {
		return err
	}
	return h.FS.Rename(oldname, newname)
}

// Link is the inner Link, after Before.
func (h *HookFS) Link(oldname, newname string) error {
	if err := h.ask(OpLink, newname); err != nil {
		return err
	}
	return h.FS.Link(oldname, newname)
}

// Remove is the inner Remove, after Before.
func (h *HookFS) Remove(name string) error {
	if err := h.ask(OpRemove, name); err != nil {
		return err
	}
	return h.FS.Remove(name)
}

// Mkdir is the inner Mkdir, after Before.
func (h *HookFS) Mkdir(name string, perm os.FileMode) error {
	if err := h.ask(OpMkdir, name); err != nil {
		return err
	}
	return h.FS.Mkdir(name, perm)
}

// SyncDir is the inner SyncDir, after Before.
func (h *HookFS) SyncDir(name string) error {
	if err := h.ask(OpSyncDir, name); err != nil {
		return err
	}
	return h.FS.SyncDir(name)
}

type hookFile struct {
	atomicfile.File
	fs   *HookFS
	name string
}

func (f *hookFile) Write(p []byte) (int, error) {
	err := f.fs.ask(OpWrite, f.name)
	if err == nil {
		return f.File.Write(p)
	}
	if !f.fs.Half {
		return 0, err
	}
	n, halfErr := f.File.Write(p[:len(p)/2])
	if halfErr != nil {
		err = fmt.Errorf("%w, and half of it: %w", err, halfErr)
	}
	return n, err
}

func (f *hookFile) Truncate(size int64) error {
	if err := f.fs.ask(OpTruncate, f.name); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *hookFile) Sync() error {
	if err := f.fs.ask(OpSync, f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

func (f *hookFile) Close() error {
	err := f.fs.ask(OpClose, f.name)
	if closed := f.File.Close(); closed != nil {
		return closed
	}
	return err
}
