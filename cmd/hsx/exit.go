package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"

	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/shard"
)

// The exit codes. Treat an unknown one as failure.
const (
	exitDone        = 0
	exitFailed      = 1   // could not do the work
	exitUsage       = 2   // the command line is wrong
	exitBadData     = 3   // the work was done, and the data is not good
	exitUncertain   = 4   // bench --gate: the verdict is inconclusive
	exitVoid        = 5   // bench --gate: there is no verdict
	exitInterrupted = 130 // by a signal
)

// errBadData means that the work was done and its result, which is printed already,
// is that the data is not good.
var errBadData = errors.New("data is not good")

// errUncertain and errVoid are verdicts that a gate asked for, printed already.
var (
	errUncertain = errors.New("verdict is inconclusive")
	errVoid      = errors.New("there is no verdict")
)

// usageError is a command line that asks for something that does not exist.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// hintError is an error that its command can give a hint for.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() }

func (e *hintError) Unwrap() error { return e.err }

// status prints an error for people, with a hint where there is one, and returns the
// exit code.
func status(w io.Writer, err error) int {
	var usage *usageError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, errBadData):
		return exitBadData
	case errors.Is(err, errUncertain):
		return exitUncertain
	case errors.Is(err, errVoid):
		return exitVoid
	case errors.As(err, &usage):
		say(w, "hsx: %s\nhint: see 'hsx --help' or 'hsx COMMAND --help'", withoutUsers(err.Error()))
		return exitUsage
	}
	text, code := err.Error(), exitFailed
	if errors.Is(err, context.Canceled) {
		text, code = "interrupted", exitInterrupted
	}
	say(w, "hsx: %s", withoutUsers(text))
	if h := hint(err); h != "" {
		say(w, "hint: %s", h)
	}
	return code
}

// withoutUsers is a text whose URLs name no users: what stands before an @ may be a secret,
// and what a terminal shows ends up in logs.
func withoutUsers(text string) string {
	return regexp.MustCompile(`://[^/\s@]*@`).ReplaceAllString(text, "://")
}

// hint is what a user can do about an error.
func hint(err error) string {
	var own *hintError
	switch {
	case errors.As(err, &own):
		return own.hint
	case errors.Is(err, shard.ErrNotDataset):
		return "make one with 'hsx ingest --out DIR PATH...'"
	case errors.Is(err, shard.ErrLocked):
		return "wait until the other hsx is done, or look who it is with 'fuser DIR/lock'; for a job array give each job its own --out and merge"
	case errors.Is(err, shard.ErrNames):
		return "dumps with the same file names need an 'ingest --root DIR' with a directory above them all; of dumps with the same ids one run over both takes the first and names the second; of parts, move one of the two inputs away and make the parts again"
	case errors.Is(err, shard.ErrMismatch):
		return "one dataset holds one capture: choose another --out, or make this one again with the right flags"
	case errors.Is(err, shard.ErrParts):
		return "'hsx plan' prints the command line of each part; a part that is not done goes on, and the others are not read again"
	case errors.Is(err, shard.ErrForeign):
		return "dumps are read with 'hsx ingest', and a dataset wants a directory of its own"
	case errors.Is(err, shard.ErrVersion):
		return "use the hsx that wrote it, or a newer one"
	case errors.Is(err, shard.ErrOtherDevice):
		return "merge as the owner of the datasets and on their file system, or pass --copy"
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return "what a dataset holds is safe; make room and run the same command again to continue"
	case errors.Is(err, unix.EROFS):
		return "choose an --out that can be written"
	case shard.IsCorrupt(err):
		return "see 'hsx verify DIR' for all of the damage"
	case errors.Is(err, fs.ErrPermission):
		return "check the owner and mode of the file and of its directory"
	case errors.Is(err, format.ErrUnsupported):
		return "see 'hsx inspect FILE' for what it holds"
	}
	return ""
}
