package mapped

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func populate(b []byte) error {
	if err := unix.Madvise(b, unix.MADV_POPULATE_READ); err == nil {
		return nil
	}
	return unix.Madvise(b, unix.MADV_WILLNEED) // before Linux 5.14
}

// populateWrite brings in pages that are about to be written. It is a hint.
func populateWrite(b []byte) { _ = unix.Madvise(b, unix.MADV_POPULATE_WRITE) }

// reserve adds n bytes at the end of a file and their room on the disk.
func reserve(f *os.File, size, n int64) error {
	for {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, n); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return f.Truncate(size + n)
		default:
			return err
		}
	}
}
