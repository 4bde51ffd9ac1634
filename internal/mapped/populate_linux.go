package mapped

import "golang.org/x/sys/unix"

func populate(b []byte) error {
	if err := unix.Madvise(b, unix.MADV_POPULATE_READ); err == nil {
		return nil
	}
	return unix.Madvise(b, unix.MADV_WILLNEED) // before Linux 5.14
}
