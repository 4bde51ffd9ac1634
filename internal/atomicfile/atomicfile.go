// Package atomicfile writes files that are complete and durable, or absent. It
// knows nothing of their content.
package atomicfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
)

// FS is the file system as a writer of durable files uses it: every operation
// after which the state on disk may differ. Tests stop it before each of them.
type FS interface {
	OpenFile(name string, flag int, perm os.FileMode) (File, error)
	Truncate(name string, size int64) error
	Rename(oldname, newname string) error
	Link(oldname, newname string) error
	Remove(name string) error
	Mkdir(name string, perm os.FileMode) error
	SyncDir(name string) error
}

// File is an open file of an [FS].
type File interface {
	io.WriteSeeker
	io.Closer
	Truncate(size int64) error
	Sync() error
	Fd() uintptr
}

// OS is the operating system's file system.
type OS struct{}

// OpenFile is [os.OpenFile].
func (OS) OpenFile(name string, flag int, perm os.FileMode) (File, error) {
	return os.OpenFile(name, flag, perm)
}

// Truncate is [os.Truncate].
func (OS) Truncate(name string, size int64) error { return os.Truncate(name, size) }

// Rename is [os.Rename].
func (OS) Rename(oldname, newname string) error { return os.Rename(oldname, newname) }

// Link is [os.Link].
func (OS) Link(oldname, newname string) error { return os.Link(oldname, newname) }

// Remove is [os.Remove].
func (OS) Remove(name string) error { return os.Remove(name) }

// Mkdir is [os.Mkdir].
func (OS) Mkdir(name string, perm os.FileMode) error { return os.Mkdir(name, perm) }

// SyncDir makes the entries of a directory durable.
func (OS) SyncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// TempSuffix ends the name of a file that is not complete yet. Whoever owns the
// directory may remove such files when no writer is at work.
const TempSuffix = ".tmp"

// Pending is a file that Commit will give its name.
type Pending struct {
	File
	fs   FS
	name string
}

// Create opens name+TempSuffix for writing, over what an earlier crash left there.
func Create(fs FS, name string) (*Pending, error) {
	f, err := fs.OpenFile(name+TempSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return &Pending{File: f, fs: fs, name: name}, nil
}

// Commit makes the file durable under its name: fsync, close, rename, fsync of the
// directory, in this order. After an error the name holds what it held before, unless
// the last step failed: then it holds one or the other after a power loss.
func (p *Pending) Commit() error { return p.CommitAs(p.name) }

// CommitAs is Commit under another name of the same directory, one that could not be
// known before the content was.
func (p *Pending) CommitAs(name string) error {
	if err := errors.Join(p.Sync(), p.Close()); err != nil {
		return errors.Join(err, p.fs.Remove(p.name+TempSuffix))
	}
	if err := p.fs.Rename(p.name+TempSuffix, name); err != nil {
		return errors.Join(err, p.fs.Remove(p.name+TempSuffix))
	}
	return p.fs.SyncDir(filepath.Dir(name))
}

// Discard closes and removes the unfinished file.
func (p *Pending) Discard() error {
	return errors.Join(p.Close(), p.fs.Remove(p.name+TempSuffix))
}

// Write gives name the content data, durably, or leaves it as it was.
func Write(fs FS, name string, data []byte) error {
	p, err := Create(fs, name)
	if err != nil {
		return err
	}
	if _, err := p.Write(data); err != nil {
		return errors.Join(err, p.Discard())
	}
	return p.Commit()
}

// Append adds data to the end of name, durably, and creates the file if need be.
// After a crash any part of data may be there: the owner must know from elsewhere
// how long the file is.
func Append(fs FS, name string, data []byte) error {
	_, err := os.Lstat(name)
	f, openErr := fs.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if openErr != nil {
		return openErr
	}
	_, werr := f.Write(data)
	if err := errors.Join(werr, f.Sync(), f.Close()); err != nil {
		return err
	}
	if errors.Is(err, os.ErrNotExist) {
		return fs.SyncDir(filepath.Dir(name))
	}
	return nil
}

// MkdirAll creates a directory and its parents, durably. One that exists is made
// durable too: whoever created it may have been killed before it could do that.
func MkdirAll(fs FS, dir string) error {
	parent := filepath.Dir(dir)
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &os.PathError{Op: "mkdir", Path: dir, Err: errors.New("a file of this name exists")}
		}
		// A parent that may not be read is not one that we changed.
		if err := fs.SyncDir(parent); err != nil && !errors.Is(err, os.ErrPermission) {
			return err
		}
		return nil
	}
	if parent != dir {
		if err := MkdirAll(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return fs.SyncDir(parent)
}
