package receive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// spool is the directory of bodies that are on their way, and how much they may take.
type spool struct {
	dir   string
	lock  *os.File
	quota int64

	mu   sync.Mutex
	used int64
}

const spoolPattern = "body-*.tmp"

// openSpool makes the directory, takes it, and removes what a killed receiver left.
func openSpool(dir string, quota int64) (*spool, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	s := &spool{dir: dir, lock: lock, quota: quota}
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

func (s *spool) create() (*os.File, error) { return os.CreateTemp(s.dir, spoolPattern) }

func (s *spool) close() error {
	_ = os.Remove(s.dir) // others may keep things there
	return s.lock.Close()
}
