package format

import (
	"errors"
	"fmt"
)

// What a caller may branch on.
var (
	// ErrCorrupt means the bytes contradict their own format: a truncation, a wrong
	// checksum, a length that is not there.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnsupported means the bytes may be sound, and hsx does not read them: another
	// format, a refused pickle global, an unknown key set.
	ErrUnsupported = errors.New("unsupported")
	// ErrLimit means the input asks for more than it may: nesting, a length, a ratio.
	ErrLimit = errors.New("limit exceeded")

	// ErrRefused means a sink will not take this sample, and can take others.
	ErrRefused = errors.New("refused")
	// ErrKnown means a sink already holds this sample of this input.
	ErrKnown = errors.New("already held")
)

// DecodeError is the error of every codec: what is wrong with the bytes, and where.
type DecodeError struct {
	Format string // the encoding: "torch archive", "safetensors", …
	Offset int64  // in the file (after decompression), -1 when no single place is to blame
	Tensor string // the tensor, key or member, "" when none is
	Kind   error  // ErrCorrupt, ErrUnsupported or ErrLimit
	Err    error
}

func (e *DecodeError) Error() string {
	s := e.Format
	if e.Offset >= 0 {
		s += fmt.Sprintf(" at byte %d", e.Offset)
	}
	return s + ": " + e.Err.Error()
}

// Unwrap gives the kind and the cause.
func (e *DecodeError) Unwrap() []error { return []error{e.Kind, e.Err} }

// Rejection is one input that was refused, as it is kept beside a dataset.
type Rejection struct {
	Input
	Reason string `json:"reason"`
	Offset int64  `json:"offset"` // -1 when no single place is to blame
	Tensor string `json:"tensor,omitempty"`
}
