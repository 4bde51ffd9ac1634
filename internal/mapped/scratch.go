package mapped

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Scratch is a file without a name that is written and read as memory: what a system
// call reads into it is copied once, into the page cache. It is used best again and
// again, since its pages are there then.
type Scratch struct {
	f    *os.File
	data []byte // address space; the first size bytes lie in the file
	size int64
}

// NewScratch makes an empty scratch file in dir that can grow to most bytes. Its name,
// after pattern as in [os.CreateTemp], is gone when it returns.
func NewScratch(dir, pattern string, most int64) (*Scratch, error) {
	if most < 1 || int64(int(most)) != most {
		return nil, fmt.Errorf("make scratch file: %d bytes cannot be mapped", most)
	}
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(most), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map %d bytes of a scratch file: %w", most, err), f.Close())
	}
	return &Scratch{f: f, data: data}, nil
}

// Grow makes the file at least n bytes long, and takes the room for them on the disk
// where the file system can; where it cannot, writing may fault.
func (s *Scratch) Grow(n int64) error {
	if n <= s.size {
		return nil
	}
	if n > int64(len(s.data)) {
		return fmt.Errorf("grow scratch file to %d bytes: it was made for %d", n, len(s.data))
	}
	if err := reserve(s.f, s.size, n-s.size); err != nil {
		return fmt.Errorf("grow scratch file to %d bytes: %w", n, err)
	}
	page := int64(os.Getpagesize())
	populateWrite(s.data[s.size/page*page : n])
	s.size = n
	return nil
}

// Bytes is the file, valid until Close. Touch it under [Guard].
func (s *Scratch) Bytes() []byte { return s.data[:s.size] }

// Close frees the memory and the room on the disk.
func (s *Scratch) Close() error {
	if s.data == nil {
		return nil
	}
	data := s.data
	s.data, s.size = nil, 0
	return errors.Join(unix.Munmap(data), s.f.Close())
}
