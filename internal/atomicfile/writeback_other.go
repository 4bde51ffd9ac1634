//go:build !linux

package atomicfile

// StartWriteback does nothing where the kernel has no such call.
func StartWriteback(File, int64, int64) {}
