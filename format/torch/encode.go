package torch

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"hsx/format"
)

// maxEncoded bounds the bytes of a data.pkl that Encode writes. Each value takes a byte
// at least, so that Decode finds no more values and no longer string than it reads.
const maxEncoded = maxValues

// Encode writes a dict as torch.save does, byte for byte but for the member
// .data/serialization_id, which is left out: no reader needs it, and torch makes it from
// hashes of its C++ library. The file is clean under weights_only, and mmap finds the
// data of every tensor at a multiple of 64. Equal arguments give equal bytes.
//
// The keys keep the order of the record, and each tensor gets a storage of its own.
// Tensors must be dense; their Name and Storage count for nothing. Those of uint16, uint32
// and uint64 take torch 2.3 or newer to read, all others any torch from 1.6 on.
//
// Prefix is the directory of the members, as a rule the name of the file without its
// last extension. As in torch, an empty one and one that is not ASCII becomes "archive".
//
// The data of the tensors goes from their memory to w in one pass. A record that cannot
// be written is an error before the first byte is.
func Encode(w io.Writer, prefix string, r *format.Record) error {
	prefix, err := plainPrefix(prefix)
	if err != nil {
		return fmt.Errorf("encode torch archive: %w", err)
	}
	p := &pickler{slots: map[string]int{}}
	p.op(opProto, 2)
	if err := p.value(r, 0); err != nil {
		return fmt.Errorf("encode torch archive: %w", err)
	}
	p.op(opStop)

	z := newZipWriter(w, prefix)
	z.add("data.pkl", p.buf)
	z.add(".format_version", []byte("1"))
	z.add(".storage_alignment", []byte(strconv.Itoa(alignment)))
	z.add("byteorder", []byte("little"))
	for i, data := range p.storages {
		z.add("data/"+strconv.Itoa(i), data)
	}
	z.add("version", []byte("3\n"))
	return z.close()
}

// plainPrefix is the directory that torch would use.
func plainPrefix(s string) (string, error) {
	if strings.Contains(s, "/") || len(s) > 255 || s != "" && !validName(s) {
		return "", fmt.Errorf("prefix %.300q is not a plain file name of at most 255 bytes", s)
	}
	if s == "" || strings.ContainsFunc(s, func(c rune) bool { return c > 127 }) {
		return "archive", nil
	}
	return s, nil
}

// denseData is the data of a tensor that can be a storage; a view may have more behind it.
func denseData(t *format.Tensor) ([]byte, error) {
	if t == nil {
		return nil, errors.New("tensor is missing, want one, or nil for None")
	}
	if err := t.Check(); err != nil {
		return nil, err
	}
	if !t.Dense() {
		return nil, fmt.Errorf("tensor %q of shape %v has strides %v, want a dense one", t.Name, t.Shape, t.Strides)
	}
	if len(t.Shape) > maxDims {
		return nil, fmt.Errorf("tensor %q has %d dimensions, want at most %d", t.Name, len(t.Shape), maxDims)
	}
	n, _ := format.Elems(t.Shape)
	return t.Data[:n*int64(t.DType.Size())], nil
}

// denseStrides are the strides in elements that torch gives a new tensor of this shape.
func denseStrides(shape []int64) []int64 {
	strides := make([]int64, len(shape))
	next := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = next
		next *= max(1, shape[i])
	}
	return strides
}
