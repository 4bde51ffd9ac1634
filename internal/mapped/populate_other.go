//go:build !linux

package mapped

import "golang.org/x/sys/unix"

func populate(b []byte) error { return unix.Madvise(b, unix.MADV_WILLNEED) }
