// Package mapped reads and fills files through the page cache without copying them, and
// turns the faults of such memory into errors. It does not interpret what it maps.
package mapped

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// ErrFault means that mapped memory is not, or may not be, what the file held when it
// was opened: the file shrank or was written to, or its disk failed.
var ErrFault = errors.New("file changed or could not be read while it was mapped")

// File is a whole file mapped for reading.
type File struct {
	f       *os.File
	data    []byte
	modTime time.Time
	sparse  *sparse // nil: all of it is there
}

// Open maps a regular file. An empty file gives empty bytes.
func Open(path string) (*File, error) {
	// A pipe that took the file's name must not block the open.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	m := &File{f: f}
	if err := m.mmap(); err != nil {
		_ = f.Close() // opened for reading: nothing can be lost
		return nil, &fs.PathError{Op: "map", Path: path, Err: err}
	}
	return m, nil
}

func (m *File) mmap() error {
	info, err := m.f.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case int64(int(size)) != size:
		return fmt.Errorf("%d bytes are more than this machine can address", size)
	}
	m.modTime = info.ModTime()
	if size > 0 {
		m.data, err = unix.Mmap(int(m.f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	}
	return err
}

// Intact returns [ErrFault] if the file has another size or modification time than
// when it was opened. What was read before a call that returns nil is what the file
// held then. A file that only lost its name, or gave it to another, is intact, and so
// is a sparse one.
func (m *File) Intact() error {
	if m.sparse != nil { // nobody else has it
		return nil
	}
	info, err := m.f.Stat()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFault, err)
	}
	if size := int64(len(m.data)); info.Size() != size {
		return fmt.Errorf("%w: it had %d bytes and has %d", ErrFault, size, info.Size())
	}
	if !info.ModTime().Equal(m.modTime) {
		return fmt.Errorf("%w: it was written to", ErrFault)
	}
	return nil
}

// Bytes is the file's content, valid until Close. Reading it after the file shrank
// faults: do it under [Guard].
func (m *File) Bytes() []byte { return m.data }

// ModTime is the modification time when the file was opened.
func (m *File) ModTime() time.Time { return m.modTime }

// populateLimit is the largest file that is brought in at once: more could push out
// what is being read.
const populateLimit = 1 << 30

// Populate brings all but very large files into memory with one call instead of a
// fault for every few pages. It is a hint: what it does not do, the faults will.
func (m *File) Populate() {
	if n := len(m.data); n > 0 && n <= populateLimit && m.sparse == nil {
		_ = populate(m.data) // only a hint
	}
}

// Close unmaps the file. Its bytes, and all that aliases them, must not be used after.
func (m *File) Close() error {
	if m.f == nil {
		return nil
	}
	if m.sparse != nil {
		m.sparse.filling.Wait()
	}
	f, data := m.f, m.data
	m.f, m.data = nil, nil
	var err error
	if data != nil {
		err = unix.Munmap(data)
	}
	if m.sparse != nil && err == nil {
		return m.sparse.chunks.close(f)
	}
	return errors.Join(err, f.Close())
}

// Guard runs fn and returns [ErrFault] if it touched mapped memory that is gone.
// Without it such an access (SIGBUS) would end the process. fn must keep its own
// data consistent when it is left at any read.
func Guard(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr // only faults of the memory have one
		}:
			err = ErrFault
		default:
			panic(r)
		}
	}()
	return fn()
}
