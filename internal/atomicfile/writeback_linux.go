package atomicfile

import "golang.org/x/sys/unix"

// StartWriteback asks the kernel to begin writing a range to the disk and does not
// wait for it. It promises nothing: durability is Sync's.
func StartWriteback(f File, offset, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), offset, n, unix.SYNC_FILE_RANGE_WRITE) // only a hint
}
