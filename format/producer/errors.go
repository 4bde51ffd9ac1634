package producer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"hsx/format"
)

// AmbiguousError means that a dump can be read in several ways, and that nothing
// in it decides. It wraps [format.ErrUnsupported].
type AmbiguousError struct {
	Candidates []string // the readings
	Decides    string   // what the user can say to decide
}

func (e *AmbiguousError) Error() string {
	return "dump may be " + strings.Join(e.Candidates, ", or ") + ": " + e.Decides + " decides"
}

// Unwrap gives [format.ErrUnsupported].
func (e *AmbiguousError) Unwrap() error { return format.ErrUnsupported }

// UnknownError means that a dump is of no known producer, or not of the one that
// was named. It wraps [format.ErrUnsupported].
type UnknownError struct {
	Keys     []string // what the dump holds
	Producer string   // the producer that was named, "" when none was
	Reason   string   // one clause, "" when the keys say it all
}

func (e *UnknownError) Error() string {
	msg := "dump is of no known producer"
	if e.Producer != "" {
		msg = "dump cannot be read as " + e.Producer
	}
	if e.Reason != "" {
		msg += ": " + e.Reason
	}
	if len(e.Keys) > 0 {
		msg += " (it holds " + list(e.Keys) + ")"
	}
	return msg
}

// Unwrap gives [format.ErrUnsupported].
func (e *UnknownError) Unwrap() error { return format.ErrUnsupported }

// FieldError means that one value of a dump is not what its producer writes.
type FieldError struct {
	Tensor string // the key, "" when no single value is to blame
	Kind   error  // format.ErrCorrupt, format.ErrUnsupported or format.ErrLimit
	Err    error
}

func (e *FieldError) Error() string { return e.Err.Error() }

// Unwrap gives the kind and the cause.
func (e *FieldError) Unwrap() []error { return []error{e.Kind, e.Err} }

func corrupt(key, msg string, args ...any) error {
	return fieldError(key, format.ErrCorrupt, fmt.Sprintf(msg, args...))
}

func unsupported(key, msg string, args ...any) error {
	return fieldError(key, format.ErrUnsupported, fmt.Sprintf(msg, args...))
}

func fieldError(key string, kind error, msg string) error {
	if key != "" {
		msg = label(key) + " " + msg
	}
	return &FieldError{Tensor: key, Kind: kind, Err: errors.New(msg)}
}

// inItem says which item of a dump of several an error belongs to.
func inItem(i int, err error) error {
	out := &FieldError{Kind: format.ErrUnsupported, Err: fmt.Errorf("item %d: %w", i, err)}
	if fe, ok := errors.AsType[*FieldError](err); ok {
		out.Tensor, out.Kind = fe.Tensor, fe.Kind
	}
	return out
}

// label keeps a hostile key from breaking the line it is printed in.
func label(key string) string {
	const most = 80
	if len(key) > most {
		key = key[:most] + "…"
	}
	if q := strconv.Quote(key); strings.ContainsRune(key, ' ') || q[1:len(q)-1] != key {
		return q
	}
	return key
}

func list(keys []string) string {
	const most = 8
	var b strings.Builder
	for i, k := range keys {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(keys)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(label(k))
	}
	return b.String()
}
