//go:build !linux

package mapped

import (
	"os"

	"golang.org/x/sys/unix"
)

func populate(b []byte) error { return unix.Madvise(b, unix.MADV_WILLNEED) }

func populateWrite([]byte) {}

// reserve adds n bytes at the end of a file.
func reserve(f *os.File, size, n int64) error { return f.Truncate(size + n) }
