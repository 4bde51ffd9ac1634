package capture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often a held lock is tried again, after shorter waits at first: a
// server's client often comes a few milliseconds early.
const lockPoll = 50 * time.Millisecond

// errLocked means that the writer of a file holds the lock beside it.
var errLocked = errors.New("locked by its writer")

// WaitUnlocked follows vLLM's protocol for reading a file that has a lock beside it:
// the writer holds it exclusively until the file is whole, a reader takes it shared.
// It returns when the lock was free; without a lock file, at once. With a limit below 0
// it tries once. The error of a lock that stays held wraps errLocked.
func WaitUnlocked(ctx context.Context, path string, limit time.Duration) error {
	// NFS needs a descriptor open for writing. What is no file must not block the open.
	f, err := os.OpenFile(path+lockSuffix, os.O_RDWR|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.EISDIR) {
		f, err = os.OpenFile(path+lockSuffix, os.O_RDONLY|unix.O_NONBLOCK, 0)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // which also drops the lock
	end := time.Now().Add(limit)
	for wait := time.Millisecond; ; wait = min(2*wait, lockPoll) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w: %s%s was held for %s, so it is still being written", errLocked, path, lockSuffix, limit)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}
