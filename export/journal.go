package export

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"hsx/internal/atomicfile"
	"hsx/shard"
)

// journal is the file that says which units are written, and for which export. Its first
// line is the settings, each other one an entry. Only a unit that is durable gets its
// line, so that what has one need not be written again.
type journal struct {
	fs   atomicfile.FS
	path string
	lock atomicfile.File
	done map[string]int64 // bytes by name
}

// entry is the line of a unit.
type entry struct {
	File   string        `json:"file"`  // relative to the directory; it may be one
	Bytes  int64         `json:"bytes"` // of all its files
	ID     string        `json:"id,omitempty"`
	Tokens int           `json:"tokens"`
	Digest *shard.Digest `json:"digest,omitempty"` // of the sample, as in the dataset
}

// settings are what decides the bytes of an export.
type settings struct {
	To        string  `json:"to"`
	Dataset   string  `json:"dataset"` // XXH3-128 of its manifest
	Layers    []int   `json:"layers"`  // k of P_k
	Final     string  `json:"final"`   // pre, post, unknown or none
	Norm      string  `json:"norm"`    // how the final was normed on the way; "": it was not
	Select    string  `json:"select"`
	MinTokens int     `json:"min_tokens"`
	MaxTokens int     `json:"max_tokens"`
	Limit     int     `json:"limit"`
	Shuffle   bool    `json:"shuffle"`
	Seed      uint64  `json:"seed"`
	Split     []Split `json:"split"`
}

// openJournal makes the directory one of this export, or finds it to be one, and takes the
// lock of its one writer.
func openJournal(fsys atomicfile.FS, dir string, want settings) (*journal, error) {
	if err := refuseForeign(dir); err != nil {
		return nil, err
	}
	if err := atomicfile.MkdirAll(fsys, dir); err != nil {
		return nil, err
	}
	j := &journal{fs: fsys, path: filepath.Join(dir, journalName), done: map[string]int64{}}
	var err error
	if j.lock, err = fsys.OpenFile(j.path, os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	if err := j.open(dir, want); err != nil {
		return nil, errors.Join(err, j.close())
	}
	return j, nil
}

func (j *journal) close() error { return j.lock.Close() }

func (j *journal) open(dir string, want settings) error {
	err := unix.Flock(int(j.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return fmt.Errorf("directory %s: %w", dir, shard.ErrLocked)
	case err != nil:
		return &os.PathError{Op: "lock", Path: j.path, Err: err}
	}
	if err := j.fs.SyncDir(dir); err != nil {
		return err
	}
	return j.load(dir, want)
}

// refuseForeign keeps an export from settling in a directory that holds other things.
func refuseForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == journalName {
			return nil
		}
	}
	return fmt.Errorf("directory %s is neither empty nor an export: it holds %q and no %s", dir, entries[0].Name(), journalName)
}

// load reads the lines, and cuts off those that a killed export did not complete.
func (j *journal) load(dir string, want settings) error {
	data, err := os.ReadFile(j.path)
	if err != nil {
		return err
	}
	first, err := json.Marshal(want)
	if err != nil {
		return err
	}
	first = append(first, '\n')
	whole := 0
	for line := range bytes.Lines(data) {
		if line[len(line)-1] != '\n' {
			break
		}
		if whole == 0 {
			if !json.Valid(line) {
				break
			}
			if err := sameSettings(line, first); err != nil {
				return fmt.Errorf("directory %s holds another export: %w", dir, err)
			}
		} else {
			var e entry
			if json.Unmarshal(line, &e) != nil {
				break
			}
			j.done[e.File] = e.Bytes
		}
		whole += len(line)
	}
	if whole < len(data) {
		if err := j.fs.Truncate(j.path, int64(whole)); err != nil {
			return err
		}
	}
	if whole > 0 {
		return nil
	}
	return atomicfile.Append(j.fs, j.path, first)
}

// sameSettings names the first setting in which the export that a directory was begun
// with differs from the one that is wanted now.
func sameSettings(have, want []byte) error {
	if bytes.Equal(have, want) {
		return nil
	}
	var h, w map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(have, &h), json.Unmarshal(want, &w)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w)) {
		if !bytes.Equal(h[name], w[name]) {
			return fmt.Errorf("its %s is %s, this one's %s", name, h[name], w[name])
		}
	}
	return nil
}

// add makes units durable in the journal.
func (j *journal) add(entries []entry) error {
	var lines []byte
	for _, e := range entries {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
	}
	return atomicfile.Append(j.fs, j.path, lines)
}

// has reports whether a unit is written. A file of another size was changed since.
func (j *journal) has(dir, name string) bool {
	want, ok := j.done[name]
	if !ok {
		return false
	}
	have, err := sizeOf(filepath.Join(dir, filepath.FromSlash(name)))
	return err == nil && have == want
}

// sizeOf is the bytes of a file, or of all files of a directory.
func sizeOf(name string) (int64, error) {
	info, err := os.Stat(name)
	if err != nil {
		return 0, err
	}
	if !info.IsDir() {
		return info.Size(), nil
	}
	entries, err := os.ReadDir(name)
	if err != nil {
		return 0, err
	}
	sum := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}
