package shard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"hsx/internal/mapped"
)

// place is where the files of a dataset are read.
type place interface {
	String() string
	// manifest is the content of manifest.json and, in a store, the version that it has
	// there. The error wraps ErrNotDataset when there is none.
	manifest() (data []byte, version string, err error)
	// lines is at least the committed part of a journal, if there is that much.
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

func (d directory) lines(name string, committed Lines) ([]byte, error) {
	f, err := os.Open(filepath.Join(string(d), name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, missing(name, committed)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	return io.ReadAll(io.LimitReader(f, committed.Bytes))
}

func (d directory) shard(info Info) (*mapped.File, error) {
	return mapped.Open(filepath.Join(string(d), shardsDir, info.Name))
}

func notDataset(p place) error {
	return fmt.Errorf("%s has no %s: %w", p, manifestName, ErrNotDataset)
}

func missing(name string, committed Lines) error {
	return corrupt(name, "is missing, the manifest calls for %d bytes", committed.Bytes)
}
