package receive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"hsx/internal/mapped"
)

// spool is the directory of bodies that are on their way, and how much they may take.
// Files are used again, as long as all that were are not too large together: pages that
// are there cost nothing to fill.
type spool struct {
	dir         string
	lock        *os.File
	quota, most int64

	mu         sync.Mutex
	used       int64
	idle       []*spooled // the last one used is the last
	kept, keep int64      // bytes of the files that were used more than once, and how many may be
}

// spooled is a file of the spool.
type spooled struct {
	*mapped.Scratch
	kept int64 // what it counts for in spool.kept
}

const (
	spoolPattern = "body-*.tmp"
	mostKept     = 1 << 30 // bytes
)

// openSpool makes the directory, takes it, and removes what a killed receiver left.
// Bodies have most bytes at most.
func openSpool(dir string, quota, most int64) (*spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	s := &spool{dir: dir, lock: lock, quota: quota, most: most, keep: min(quota/4, mostKept)}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w (another receiver has it)", dir, err), lock.Close())
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if ours, _ := filepath.Match(spoolPattern, e.Name()); ours { // the pattern is well formed
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return s, nil
}

// reserve takes n bytes of the quota, if they are there.
func (s *spool) reserve(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.quota-s.used {
		return false
	}
	s.used += n
	return true
}

func (s *spool) free(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

func (s *spool) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// take gives a file for one body, what an earlier one left in it included.
func (s *spool) take() (*spooled, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		defer s.mu.Unlock()
		f := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return f, nil
	}
	s.mu.Unlock()
	f, err := mapped.NewScratch(s.dir, spoolPattern, s.most+1) // one more, to see that a body ends
	if err != nil {
		return nil, err
	}
	return &spooled{Scratch: f}, nil
}

// grow makes a file longer. Where there is no room, files that wait to be used again
// make some.
func (s *spool) grow(f *spooled, n int64) error {
	err := f.Grow(n)
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	return f.Grow(n)
}

// drop closes the files that wait to be used again.
func (s *spool) drop() {
	for _, f := range s.idle {
		s.kept -= f.kept
		_ = f.Close() // nobody needs what it holds
	}
	s.idle = nil
}

// give takes a file back.
func (s *spool) give(f *spooled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept -= f.kept
	if f.kept = int64(len(f.Bytes())); s.kept+f.kept > s.keep {
		_ = f.Close() // nobody needs what it holds
		return
	}
	s.kept += f.kept
	s.idle = append(s.idle, f)
}

// close removes the spool directory if it is empty, and lets go of it.
func (s *spool) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop()
	_ = os.Remove(s.dir) // others may keep things there
	return s.lock.Close()
}
