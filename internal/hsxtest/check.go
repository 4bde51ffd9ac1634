package hsxtest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"hsx/format"
)

// Allocated is how many bytes f takes from the heap, freed or not, and what other
// goroutines take meanwhile: a test that measures is not parallel.
func Allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// CheckDecodeError ends the test unless err is what every codec promises of an error
// about an input of size bytes: a [format.DecodeError] of a format, with a cause, of one
// of the three kinds, and at a place in the input or at -1.
func CheckDecodeError(tb testing.TB, err error, size int) {
	tb.Helper()
	_ = DecodeError(tb, err, size)
}

// DecodeError is err as the error that [CheckDecodeError] asks for.
func DecodeError(tb testing.TB, err error, size int) *format.DecodeError {
	tb.Helper()
	var e *format.DecodeError
	if !errors.As(err, &e) {
		tb.Fatalf("got error %v of type %T, want a *format.DecodeError", err, err)
	}
	if e.Format == "" || e.Err == nil {
		tb.Fatalf("got error %+v, want one with a format and a cause", *e)
	}
	if !errors.Is(e.Kind, format.ErrCorrupt) && !errors.Is(e.Kind, format.ErrUnsupported) && !errors.Is(e.Kind, format.ErrLimit) {
		tb.Fatalf("got error %v of kind %v, want one of the three", err, e.Kind)
	}
	if e.Offset < -1 || e.Offset > int64(size) {
		tb.Fatalf("got error %v at byte %d, want -1 or a place in the input of %d bytes", err, e.Offset, size)
	}
	return e
}

// CheckFault wants err to be a [format.DecodeError] like want, whose Err does not count,
// and to have text in its message.
func CheckFault(tb testing.TB, err error, want format.DecodeError, text string) {
	tb.Helper()
	var e *format.DecodeError
	if !errors.As(err, &e) {
		tb.Fatalf("got error %v of type %T, want a *format.DecodeError about %q", err, err, text)
	}
	if e.Format != want.Format || !errors.Is(e.Kind, want.Kind) || e.Offset != want.Offset || e.Tensor != want.Tensor {
		tb.Errorf("got %s, %v at %d in %q, want %s, %v at %d in %q (%v)",
			e.Format, e.Kind, e.Offset, e.Tensor, want.Format, want.Kind, want.Offset, want.Tensor, err)
	}
	if !strings.Contains(err.Error(), text) {
		tb.Errorf("got error %q, want one about %q", err, text)
	}
}

// Read is the content of a file, named with forward slashes.
func Read(tb testing.TB, name string) []byte {
	tb.Helper()
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// Golden is a file of the package's testdata, named with forward slashes.
func Golden(tb testing.TB, name string) []byte {
	tb.Helper()
	return Read(tb, "testdata/"+name)
}
