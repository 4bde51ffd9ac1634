package shard

import (
	"errors"
	"fmt"

	"hsx/format"
)

// What a caller may branch on.
var (
	// ErrNotDataset means the directory holds no manifest.
	ErrNotDataset = errors.New("not a dataset")
	// ErrForeign means the directory's manifest.json is another program's, such as Automodel's:
	// nothing is damaged, and nothing may be written there.
	ErrForeign = errors.New("it is another program's")
	// ErrVersion means a newer hsx wrote the dataset in a format this one cannot read.
	ErrVersion = errors.New("newer format version")
	// ErrReplaced means a writer joined or rewrote shards since the dataset was opened:
	// open it again.
	ErrReplaced = errors.New("dataset was rewritten since it was opened")
	// ErrLocked means another process is writing to the dataset.
	ErrLocked = errors.New("locked by another writer")
	// ErrConflict means another process committed to a dataset in a store meanwhile.
	ErrConflict = errors.New("another writer committed meanwhile")
	// ErrMismatch means the dataset holds something else than the caller wants to add.
	ErrMismatch = errors.New("dataset differs")
	// ErrNames means that datasets have an id, or the name of an input, in common.
	ErrNames = errors.New("names are not unique")
)

// CorruptError is damage in a dataset: what is not as it was written, and where.
type CorruptError struct {
	File string // relative to the dataset
	Row  int    // in the shard, -1 when the damage has no row
	ID   string // of the row's sample, when it could be read
	Err  error
}

func (e *CorruptError) Error() string {
	switch {
	case e.Row >= 0 && e.ID != "":
		return fmt.Sprintf("%s: row %d (%s): %v", e.File, e.Row, e.ID, e.Err)
	case e.Row >= 0:
		return fmt.Sprintf("%s: row %d: %v", e.File, e.Row, e.Err)
	}
	return e.File + ": " + e.Err.Error()
}

func (e *CorruptError) Unwrap() error { return e.Err }

func corrupt(file string, format string, args ...any) *CorruptError {
	return &CorruptError{File: file, Row: -1, Err: fmt.Errorf(format, args...)}
}

// refusal is an error that concerns one sample alone: it is format.ErrRefused, and
// says only why.
type refusal struct{ error }

func (r refusal) Unwrap() []error { return []error{format.ErrRefused, r.error} }

func refuse(f string, args ...any) error { return refusal{fmt.Errorf(f, args...)} }
