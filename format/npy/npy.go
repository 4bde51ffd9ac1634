// Package npy reads NumPy's encodings: .npy files, which hold one array, and .npz
// archives, which are zip files of them. It writes .npy.
//
// Nothing in a file is run: object arrays, which hold pickles, are refused, and the
// header, a Python expression, is matched against a small grammar before npyio may
// read it. The package does not know what the arrays mean.
package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"hsx/format"
	"hsx/internal/strided"
)

const (
	magic       = "\x93NUMPY"
	preamble    = len(magic) + 2 // magic and version
	maxHeader   = 64 << 10       // bytes
	maxDims     = 64             // NumPy's own bound
	headerAlign = 64
)

// IsFile reports whether the first bytes of a file are those of a .npy file.
func IsFile(head []byte) bool { return bytes.HasPrefix(head, []byte(magic)) }

// Decode reads one .npy file of version 1, 2 or 3: bool, integers of 8 to 64 bits,
// float16, float32 or float64, of any shape up to 64 dimensions. The bytes after the
// header must be those of the shape, no fewer and no more.
//
// The tensor is dense, row-major and little-endian, has no name, and aliases data; only
// big-endian and Fortran-ordered arrays are copied. NumPy has no bfloat16: dumps hold
// its bits as uint16, and it is for the caller to know.
//
// The error is a *[format.DecodeError] with offsets in data.
func Decode(data []byte) (*format.Tensor, error) {
	h, begin, err := readHeader(data)
	if err != nil {
		return nil, err
	}
	dtype, bigEndian, err := parseDescr(h.descr)
	if err != nil {
		return nil, err
	}
	raw, size := data[begin:], dtype.Size()
	n, ok := format.Elems(h.shape)
	if !ok || n > math.MaxInt64/int64(size) {
		return nil, corrupt(preamble, "array of shape %v and type %s has more bytes than can be counted", h.shape, dtype)
	}
	switch want, have := n*int64(size), int64(len(raw)); {
	case have < want:
		return nil, corrupt(len(data), "array of shape %v and type %s needs %d bytes, has %d: the file is truncated or the shape wrong", h.shape, dtype, want, have)
	case have > want:
		return nil, corrupt(begin+int(want), "array of shape %v and type %s needs %d bytes, has %d: %d trailing bytes", h.shape, dtype, want, have, have-want)
	}
	owned := false
	if h.fortran && !flat(h.shape) {
		raw, owned = strided.Gather(raw, h.shape, columnMajor(h.shape), size), true
	}
	if bigEndian && size > 1 {
		if !owned {
			raw = bytes.Clone(raw)
		}
		swap(raw, size)
	}
	return &format.Tensor{DType: dtype, Shape: h.shape, Data: raw[:len(raw):len(raw)]}, nil
}

// Encode writes t as a .npy file of version 1.0 whose data begins at a multiple of 64
// bytes, byte for byte what numpy.save writes. A bfloat16 tensor is written as the
// uint16 of its bits. The tensor must be dense; its name is not written.
func Encode(w io.Writer, t *format.Tensor) error {
	if err := t.Check(); err != nil {
		return fmt.Errorf("encode npy: %w", err)
	}
	if !t.Dense() {
		return fmt.Errorf("encode npy: tensor %q of shape %v has strides %v, want a dense one", t.Name, t.Shape, t.Strides)
	}
	if len(t.Shape) > maxDims {
		return fmt.Errorf("encode npy: tensor %q has %d dimensions, want at most %d", t.Name, len(t.Shape), maxDims)
	}
	dict := header{descr: descrOf(t.DType), shape: t.Shape}.String()
	begin := preamble + 2 + len(dict) + 1 // the length, the dict, the newline
	pad := (headerAlign - begin%headerAlign) % headerAlign
	n := len(dict) + pad + 1

	head := append(make([]byte, 0, begin+pad), magic...)
	head = append(head, 1, 0, byte(n), byte(n>>8))
	head = append(head, dict...)
	head = append(head, bytes.Repeat([]byte{' '}, pad)...)
	head = append(head, '\n')
	if _, err := w.Write(head); err != nil {
		return err
	}
	elems, _ := format.Elems(t.Shape)
	_, err := w.Write(t.Data[:elems*int64(t.DType.Size())])
	return err
}

// flat reports whether row-major and column-major order are the same for a shape.
func flat(shape []int64) bool {
	long := 0
	for _, d := range shape {
		if d == 0 {
			return true
		}
		if d > 1 {
			long++
		}
	}
	return long <= 1
}

// columnMajor is the elements from one to the next of each dimension.
func columnMajor(shape []int64) []int64 {
	strides := make([]int64, len(shape))
	step := int64(1)
	for i, d := range shape {
		strides[i] = step
		step *= d
	}
	return strides
}

// swap reverses the bytes of each element in place.
func swap(b []byte, size int) {
	switch size {
	case 2:
		for ; len(b) >= 8; b = b[8:] {
			w := binary.LittleEndian.Uint64(b)
			const even = 0x00ff00ff_00ff00ff
			binary.LittleEndian.PutUint64(b, w>>8&even|w&even<<8)
		}
		for ; len(b) >= 2; b = b[2:] {
			b[0], b[1] = b[1], b[0]
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			binary.LittleEndian.PutUint32(b, binary.BigEndian.Uint32(b))
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			binary.LittleEndian.PutUint64(b, binary.BigEndian.Uint64(b))
		}
	}
}

func corrupt(at int, msg string, args ...any) error {
	return fault(format.ErrCorrupt, at, msg, args...)
}

func fault(kind error, at int, msg string, args ...any) error {
	return &format.DecodeError{Format: "npy", Offset: int64(at), Kind: kind, Err: fmt.Errorf(msg, args...)}
}
