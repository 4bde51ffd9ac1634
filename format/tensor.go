package format

import (
	"fmt"
	"iter"
	"math/bits"
)

// Tensor is an n-dimensional array of little-endian elements.
//
// Data may alias a mapped file: it is valid until the dump it came from is
// closed, and reading it after the file shrank faults.
type Tensor struct {
	Name    string
	DType   DType
	Shape   []int64
	Strides []int64 // in elements; nil means dense and row-major
	Data    []byte  // begins at element [0,…,0]

	// Storage names the part of its container that the data lies in, when the
	// container has such parts. Tensors of equal, non-empty Storage are views of
	// one piece of memory.
	Storage string
}

// Elems is the number of elements that shape calls for. ok is false when a
// dimension is negative or the product does not fit in an int64.
func Elems(shape []int64) (n int64, ok bool) {
	n = 1
	zero := false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(uint64(n), uint64(d))
		if hi != 0 || lo > 1<<62 {
			return 0, false
		}
		n = int64(lo)
	}
	if zero {
		return 0, true
	}
	return n, true
}

// Extent is the number of elements from the first to the last that a view of
// this shape and these strides touches, both included; 0 for an empty view.
// ok is false for negative strides or dimensions, and on overflow.
func Extent(shape, strides []int64) (n int64, ok bool) {
	if elems, ok := Elems(shape); !ok || len(shape) != len(strides) {
		return 0, false
	} else if elems == 0 {
		return 0, true
	}
	last := uint64(0)
	for i, d := range shape {
		if strides[i] < 0 {
			return 0, false
		}
		hi, lo := bits.Mul64(uint64(d-1), uint64(strides[i]))
		if hi != 0 || lo > 1<<62 || last+lo > 1<<62 {
			return 0, false
		}
		last += lo
	}
	return int64(last) + 1, true
}

// Check reports whether Data has the bytes that DType, Shape and Strides call for.
// Dense tensors must have exactly those, views at least.
func (t *Tensor) Check() error {
	size := int64(t.DType.Size())
	if size == 0 {
		return fmt.Errorf("tensor %q has no valid dtype", t.Name)
	}
	n, ok := Elems(t.Shape)
	if t.Strides != nil {
		n, ok = Extent(t.Shape, t.Strides)
	}
	if !ok || n > (1<<62)/size {
		return fmt.Errorf("tensor %q of shape %v and strides %v has no valid size", t.Name, t.Shape, t.Strides)
	}
	have := int64(len(t.Data))
	if want := n * size; have < want || t.Strides == nil && have != want {
		return fmt.Errorf("tensor %q of shape %v and type %s needs %d bytes, has %d", t.Name, t.Shape, t.DType, want, have)
	}
	return nil
}

// Dense reports whether the elements lie in row-major order without gaps.
func (t *Tensor) Dense() bool {
	if t.Strides == nil {
		return true
	}
	want := int64(1)
	for i := len(t.Shape) - 1; i >= 0; i-- {
		if t.Shape[i] != 1 && t.Strides[i] != want {
			return false
		}
		want *= t.Shape[i]
	}
	return true
}

// Rows is a two-dimensional view: N rows of Width elements, Stride bytes from the
// start of one to the start of the next. A layer's block of a concatenated dump is
// such a view, so that splitting copies nothing.
type Rows struct {
	DType    DType
	N, Width int
	Stride   int // bytes
	Data     []byte
}

// RowBytes is the number of bytes of one row.
func (r Rows) RowBytes() int { return r.Width * r.DType.Size() }

// Row is the bytes of row i.
func (r Rows) Row(i int) []byte {
	off := i * r.Stride
	return r.Data[off : off+r.RowBytes() : off+r.RowBytes()]
}

// Bytes is the number of bytes of all rows without the gaps between them.
func (r Rows) Bytes() int64 { return int64(r.N) * int64(r.RowBytes()) }

// Contiguous returns the rows as one slice when there are no gaps between them.
func (r Rows) Contiguous() ([]byte, bool) {
	if r.N <= 1 || r.Stride == r.RowBytes() {
		return r.Data[:r.Bytes()], true
	}
	return nil, false
}

// Spread numbers at most n rows, evenly spaced and ascending. Row 0 stays out where there
// are others: many models keep massive activations there.
func (r Rows) Spread(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		first := 0
		if r.N > 1 {
			first = 1
		}
		step := max(1, (r.N-first+n-1)/n)
		for i := first; i < r.N; i += step {
			if !yield(i) {
				return
			}
		}
	}
}

// Slice is the view of rows [0, n).
func (r Rows) Slice(n int) Rows {
	r.N = n
	return r
}
