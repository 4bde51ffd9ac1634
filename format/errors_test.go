package format_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"hsx/format"
)

func TestDecodeError(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		err  format.DecodeError
		text string
	}{
		"with a place": {
			format.DecodeError{Format: "safetensors", Offset: 8, Tensor: "x", Kind: format.ErrCorrupt, Err: errors.New(`tensor "x" needs 8 bytes, has 4`)},
			`safetensors at byte 8: tensor "x" needs 8 bytes, has 4`,
		},
		"at the start": {
			format.DecodeError{Format: "npy", Offset: 0, Kind: format.ErrUnsupported, Err: io.ErrUnexpectedEOF},
			"npy at byte 0: unexpected EOF",
		},
		"without a place": {
			format.DecodeError{Format: "torch archive", Offset: -1, Kind: format.ErrLimit, Err: errors.New("nesting is 101 deep, want at most 100")},
			"torch archive: nesting is 101 deep, want at most 100",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fmt.Errorf("read a.pt: %w", &tc.err)
			if got, want := err.Error(), "read a.pt: "+tc.text; got != want {
				t.Errorf("Error(): got %q, want %q", got, want)
			}
			for _, kind := range []error{format.ErrCorrupt, format.ErrUnsupported, format.ErrLimit} {
				if got, want := errors.Is(err, kind), errors.Is(tc.err.Kind, kind); got != want {
					t.Errorf("errors.Is(err, %v): got %t, want %t", kind, got, want)
				}
			}
			if !errors.Is(err, tc.err.Err) {
				t.Errorf("errors.Is(err, %v): got false, want the cause to be found", tc.err.Err)
			}
			var de *format.DecodeError
			if !errors.As(err, &de) || de.Tensor != tc.err.Tensor {
				t.Errorf("errors.As: got %+v, want %+v", de, tc.err)
			}
		})
	}
}
