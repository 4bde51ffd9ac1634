package capture

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"hsx/format"
)

// A compressed dump may grow to maxRatio times its size, and to freeBytes in any
// case. States compress to two thirds, ids and masks (16 bytes of the tens of
// thousands of a token) to nearly nothing: no honest dump comes near.
const (
	maxRatio  = 100
	freeBytes = 1 << 20
)

// A zstd stream names the window that its decoder has to hold before it has given a
// byte: at least what RFC 8878 wants every decoder to support, at most what its
// highest level asks for.
const (
	minWindow = 8 << 20
	maxWindow = 128 << 20
)

// compression is what the first bytes say of a file's outer encoding.
func compression(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.HasPrefix(data, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	}
	return ""
}

// decompress unpacks a whole file into memory of its own.
func decompress(data []byte, how string) ([]byte, error) {
	limit := int64(len(data))*maxRatio + freeBytes
	fail := func(kind error, offset int64, f string, args ...any) error {
		return &format.DecodeError{Format: how, Offset: offset, Kind: kind, Err: fmt.Errorf(f, args...)}
	}
	in := bytes.NewReader(data)
	var r io.Reader
	switch how {
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fail(format.ErrCorrupt, 0, "header is not gzip's: %w", err)
		}
		r = z
	default:
		window := max(minWindow, min(limit, maxWindow))
		// Concurrency 1 reads in this goroutine, where a fault of the map is caught.
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(uint64(window)), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fail(format.ErrCorrupt, 0, "header is not zstd's: %w", err)
		}
		defer z.Close()
		r = z
	}
	var out bytes.Buffer
	out.Grow(2 * len(data)) // more than most states need, so that nothing is moved
	n, err := out.ReadFrom(io.LimitReader(r, limit+1))
	at := int64(len(data) - in.Len())
	switch {
	case n > limit:
		return nil, fail(format.ErrLimit, at, "%d bytes grow to more than %d, %d times their size: a dump does not compress so well", len(data), limit, maxRatio)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, zstd.ErrCRCMismatch):
		return nil, fail(format.ErrCorrupt, at, "checksum differs from that of the unpacked bytes (CRC mismatch)")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fail(format.ErrCorrupt, at, "truncated: the file ends within the compressed data, after %d unpacked bytes", n)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, fail(format.ErrLimit, at, "window is larger than a file of %d bytes may ask for", len(data))
	case err != nil:
		return nil, fail(format.ErrCorrupt, at, "compressed data is damaged: %w", err)
	}
	if inner := compression(out.Bytes()); inner != "" {
		return nil, fail(format.ErrUnsupported, -1, "nested compression: the unpacked bytes are %s again", inner)
	}
	return out.Bytes(), nil
}
