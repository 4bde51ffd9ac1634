package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// JournalVersion is that of the journal's format, in its first line.
const JournalVersion = 1

// The types of a journal's lines. A reader skips the ones that it does not know.
const (
	linePlan    = "plan" // the first
	lineArm     = "arm"
	lineBegin   = "begin" // of a pass: requests of its key before this line belong to another try
	lineRequest = "request"
	linePass    = "pass"
	lineEvent   = "event"
	lineEnd     = "end"
)

// Journal is the file to which a measurement goes as it happens: one JSON object a line,
// each written at once, and synced to disk at the end of every pass. It may be used from
// several goroutines. Answers are in it when the plan keeps them; keys and headers of
// requests never are.
type Journal struct {
	name string
	w    io.Writer

	mu  sync.Mutex
	err error // of the first write that failed; nothing is written after it
}

// NewJournal writes a journal to w under a name for messages. If w has a Sync or a Close
// method, they are used.
func NewJournal(w io.Writer, name string) *Journal { return &Journal{name: name, w: w} }

// CreateJournal starts a journal in a new file that only its owner can read.
func CreateJournal(name string) (*Journal, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create journal: %w", err)
	}
	if err := lockJournal(f); err != nil {
		return nil, errors.Join(fmt.Errorf("create journal %s: %w", name, err), f.Close())
	}
	return NewJournal(f, name), nil
}

// ResumeJournal opens a journal to go on with it, and returns what is in it. A line that
// a kill has cut is taken off its end.
func ResumeJournal(name string) (*Journal, *Log, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open journal: %w", err)
	}
	log, err := resumeFile(f)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("resume %s: %w", name, err), f.Close())
	}
	return NewJournal(f, name), log, nil
}

func resumeFile(f *os.File) (*Log, error) {
	if err := lockJournal(f); err != nil {
		return nil, err
	}
	log, whole, err := readLog(f)
	if err != nil {
		return nil, err
	}
	return log, f.Truncate(whole)
}

// lockJournal keeps a second hsx from writing to the same file. The kernel drops the
// lock with the file, which a process that is being started holds for a moment too.
func lockJournal(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for try := 0; errors.Is(err, unix.EWOULDBLOCK) && try < 50; try++ {
		time.Sleep(10 * time.Millisecond)
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errors.New("another hsx is writing to it")
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// Close closes the file, if it is one. A second call does nothing.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, ok := j.w.(io.Closer)
	if !ok {
		return nil
	}
	if err := c.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("close journal: %w", err)
	}
	return nil
}

// write appends one line in one piece, so that a kill cuts the last line at most.
func (j *Journal) write(kind string, members any) error {
	object, err := json.Marshal(members)
	if err != nil {
		return fmt.Errorf("write journal %s: encode %s: %w", j.name, kind, err)
	}
	line := slices.Concat([]byte(`{"type":"`+kind+`",`), bytes.TrimPrefix(object, []byte("{")), []byte("\n"))
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	n, err := j.w.Write(line)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	return j.fail("write", err)
}

// commit writes a line, and all before it to disk.
func (j *Journal) commit(kind string, members any) error {
	if err := j.write(kind, members); err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if s, ok := j.w.(interface{ Sync() error }); ok && j.err == nil {
		return j.fail("sync", s.Sync())
	}
	return j.err
}

func (j *Journal) fail(verb string, err error) error {
	if err != nil {
		j.err = fmt.Errorf("%s journal %s: %w; what is in it so far is kept, and nothing more can be measured", verb, j.name, err)
	}
	return j.err
}

// journalHead is the first line.
type journalHead struct {
	Journal int       `json:"journal"`
	Began   time.Time `json:"began"`
	Plan
}

type journalEvent struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`
}
