package live

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// file is one file of states that a server wrote for us and that is ours to remove.
type file struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	ModTime int64  `json:"mtime_ns"`
}

// remove removes the file, if it is still the one that was read, and its lock.
func (f *file) remove() error {
	info, err := os.Lstat(f.Path)
	switch {
	case errors.Is(err, os.ErrNotExist): // perhaps the lock is left
	case err != nil:
		return err
	case !info.Mode().IsRegular() || info.Size() != f.Bytes || info.ModTime().UnixNano() != f.ModTime:
		return fmt.Errorf("%s is another file than the one that was read, so it stays", f.Path)
	default:
		if err := os.Remove(f.Path); err != nil {
			return err
		}
	}
	if err := os.Remove(f.Path + lockSuffix); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// pending are the files whose samples were put and that are not removed yet, in a file
// that outlives a kill. A line is written before its sample is put: whatever is listed
// was read, and is either in the dataset or will be asked for again.
type pending struct {
	out   *os.File
	files []file
	size  int64 // of the list before its last line
}

// openPending opens the list, with the files that a killed run left on it.
func openPending(path string) (*pending, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	p := &pending{}
	for line := range bytes.Lines(old) {
		var f file
		if json.Unmarshal(line, &f) == nil && f.Path != "" { // else the end of it is missing
			p.files = append(p.files, f)
		}
	}
	if p.out, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *pending) add(f file) error {
	line, err := json.Marshal(f)
	if err != nil {
		return err
	}
	info, err := p.out.Stat()
	if err == nil {
		p.size = info.Size()
		_, err = p.out.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("list a file to remove: %w", err)
	}
	p.files = append(p.files, f)
	return nil
}

// drop takes the file that was added last off the list.
func (p *pending) drop() error {
	p.files = p.files[:len(p.files)-1]
	return p.out.Truncate(p.size)
}

// removeAll removes all files and empties the list. It returns how many are gone, and
// what kept others from it.
func (p *pending) removeAll() (removed int, faults []error, err error) {
	for _, f := range p.files {
		if err := f.remove(); err != nil {
			faults = append(faults, err)
			continue
		}
		removed++
	}
	p.files = nil
	return removed, faults, p.out.Truncate(0)
}

// close removes the list when nothing is on it.
func (p *pending) close() error {
	err := p.out.Close()
	if len(p.files) == 0 {
		err = errors.Join(err, os.Remove(p.out.Name()))
	}
	return err
}
