package shard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"hsx/internal/mapped"
)

// place is where the files of a dataset are read.
type place interface {
	String() string
	// manifest is the content of manifest.json and, in a store, the version that it has
	// there. The error wraps ErrNotDataset when there is none.
	manifest() (data []byte, version string, err error)
	// lines is the committed part of a journal, unchecked but for its length.
	lines(name string, committed Lines) ([]byte, error)
	// shard maps a listed shard. Its bytes may be sparse, and its size may be wrong.
	shard(info Info) (*mapped.File, error)
}

// directory is a place on a file system.
type directory string

func (d directory) String() string { return string(d) }

func (d directory) manifest() (data []byte, version string, err error) {
	data, err = os.ReadFile(filepath.Join(string(d), manifestName))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(string(d)); err != nil {
			return nil, "", err
		}
		return nil, "", notDataset(d)
	}
	return data, "", err
}

// lines reads a journal from its file, or from the files that it came with from a
// store.
func (d directory) lines(name string, committed Lines) (data []byte, err error) {
	for _, p := range committed.in(name) {
		if data, err = d.appendFile(data, p); err != nil {
			return nil, err
		}
	}
	return data, nil
}

func (d directory) appendFile(data []byte, p Part) ([]byte, error) {
	f, err := os.Open(filepath.Join(string(d), p.Name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, missing(p)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	more, err := io.ReadAll(io.LimitReader(f, p.Bytes))
	if err == nil && int64(len(more)) < p.Bytes {
		err = short(p, more)
	}
	return append(data, more...), err
}

func (d directory) shard(info Info) (*mapped.File, error) {
	f, err := mapped.Open(filepath.Join(string(d), shardsDir, info.Name))
	var errno unix.Errno
	if errors.As(err, &errno) && !errors.Is(err, os.ErrNotExist) { // no right to it, no descriptor left: what it holds is not known
		return nil, &unread{err}
	}
	return f, err
}

func notDataset(p place) error {
	return fmt.Errorf("%s has no %s: %w", p, manifestName, ErrNotDataset)
}

func missing(p Part) error {
	return corrupt(p.Name, "is missing, the manifest calls for %d bytes", p.Bytes)
}

func short(p Part, data []byte) error {
	return corrupt(p.Name, "has %d bytes, the manifest calls for %d", len(data), p.Bytes)
}
