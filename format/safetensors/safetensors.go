// Package safetensors reads and writes the safetensors encoding: an 8-byte length,
// a JSON header, and the bytes of the tensors one after the other.
//
// It takes only files whose header accounts for every byte, once. It does not know
// what the tensors mean, does not look at their values, and does no I/O beyond the
// writer that [Encode] is given.
package safetensors

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"hsx/format"
)

const (
	encoding    = "safetensors"
	lengthBytes = 8
	maxHeader   = 100_000_000 // bytes; the reference implementation has the same bound
	maxDims     = 64          // what NumPy and torch can hold
	maxName     = 4096        // bytes; names are repeated in messages and in rejected.jsonl
)

// File is one decoded safetensors file.
type File struct {
	// Record holds a *format.Tensor for each name, in the order of the data. The
	// tensors are dense, row-major, little-endian, and alias the input.
	Record *format.Record
	// Metadata is the __metadata__ entry of the header, nil when there is none.
	Metadata map[string]string
	// Notes says, one clause each, what was left out although the file was accepted.
	Notes []string
}

// IsFile reports whether the first bytes of a file of size bytes look like
// safetensors. It needs 9 bytes of head and looks at no more. A file that was cut
// inside its header still looks like one, so that [Decode] can name the cut.
func IsFile(head []byte, size int64) bool {
	if len(head) <= lengthBytes || head[lengthBytes] != '{' {
		return false
	}
	n := binary.LittleEndian.Uint64(head)
	return n >= 2 && (n <= maxHeader || size > lengthBytes && n <= uint64(size-lengthBytes))
}

// Decode reads a whole file. Nothing is copied: the tensors are valid as long as data is.
//
// It wants what the reference implementation wants (a header of at most 100 MB, data
// offsets that follow each other without gap or overlap up to the last byte, shapes
// that fit their bytes) and refuses in addition duplicate keys, unknown fields and
// more than 64 dimensions. Metadata values that are not strings are left out with a note.
//
// The error is a *[format.DecodeError] with offsets in the file.
func Decode(data []byte) (*File, error) {
	if len(data) == 0 {
		return nil, corrupt(0, "", "file is empty")
	}
	if len(data) < lengthBytes {
		return nil, corrupt(int64(len(data)), "", "file is truncated: it has %d bytes, the header length alone takes %d", len(data), lengthBytes)
	}
	n, rest := binary.LittleEndian.Uint64(data), len(data)-lengthBytes
	switch {
	case n > maxHeader:
		return nil, fault(format.ErrLimit, 0, "", "header length is %d, want at most %d", n, maxHeader)
	case n < 2:
		return nil, corrupt(0, "", "header length is %d, want at least 2", n)
	case n > uint64(rest):
		return nil, corrupt(int64(len(data)), "", "file is truncated: the header length is %d, and %d bytes follow", n, rest)
	}
	head, body := data[lengthBytes:lengthBytes+n], data[lengthBytes+n:]
	h, err := parseHeader(head)
	if err != nil {
		return nil, err
	}
	if err := place(h.entries, body, int64(lengthBytes+n)); err != nil {
		return nil, err
	}
	rec := &format.Record{Fields: make([]format.Field, len(h.entries))}
	for i, e := range h.entries {
		rec.Fields[i] = format.Field{Key: e.tensor.Name, Value: e.tensor}
	}
	return &File{Record: rec, Metadata: h.metadata, Notes: h.notes}, nil
}

// place sorts the entries by their data, checks that together they are all of body,
// which begins at byte base of the file, and gives each tensor its bytes.
func place(entries []entry, body []byte, base int64) error {
	slices.SortStableFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	next := int64(0)
	for _, e := range entries {
		t := e.tensor
		size := int64(t.DType.Size())
		n, ok := format.Elems(t.Shape)
		switch {
		case e.end < e.begin:
			return corrupt(e.at, t.Name, "tensor %q has data offsets [%d, %d], which run backwards", t.Name, e.begin, e.end)
		case e.begin < next:
			return corrupt(base+e.begin, t.Name, "tensor %q has data offsets [%d, %d], which overlap the tensor before it: that ends at %d", t.Name, e.begin, e.end, next)
		case e.begin > next:
			return corrupt(base+next, t.Name, "tensor %q has data offsets [%d, %d], want a beginning at %d: there is a hole of %d bytes", t.Name, e.begin, e.end, next, e.begin-next)
		case !ok || n > math.MaxInt64/size:
			return corrupt(e.at, t.Name, "tensor %q of shape %v and type %s has more bytes than can be counted", t.Name, t.Shape, t.DType)
		case n*size != e.end-e.begin:
			return corrupt(e.at, t.Name, "tensor %q of shape %v and type %s needs %d bytes, its data offsets [%d, %d] hold %d", t.Name, t.Shape, t.DType, n*size, e.begin, e.end, e.end-e.begin)
		case e.end > int64(len(body)):
			return corrupt(base+int64(len(body)), t.Name, "tensor %q has data offsets [%d, %d], and the data ends at %d: the file is truncated", t.Name, e.begin, e.end, len(body))
		}
		t.Data = body[e.begin:e.end:e.end]
		next = e.end
	}
	if extra := int64(len(body)) - next; extra > 0 {
		return corrupt(base+next, "", "data has %d trailing bytes that the data offsets of no tensor cover", extra)
	}
	return nil
}

func corrupt(at int64, tensor, msg string, args ...any) error {
	return fault(format.ErrCorrupt, at, tensor, msg, args...)
}

func fault(kind error, at int64, tensor, msg string, args ...any) error {
	return &format.DecodeError{Format: encoding, Offset: at, Tensor: tensor, Kind: kind, Err: fmt.Errorf(msg, args...)}
}
