package torch

import (
	"encoding/binary"

	"hsx/format"
	"hsx/internal/strided"
)

// record is a storage whose bytes were found and measured.
type record struct {
	class format.DType // InvalidDType when untyped
	data  []byte       // little-endian
}

// view is the storage as a tensor: all of its elements in one dimension.
func (s *storage) view() *view {
	v := &view{storage: s, dtype: s.class.dtype, size: []int64{s.elems}, stride: []int64{1}, at: s.at}
	if v.dtype == format.InvalidDType {
		v.dtype = format.Uint8
	}
	return v
}

// tensor looks a view's storage up and checks that every element lies in it. The
// result aliases the archive when its rows do.
func (b *builder) tensor(v *view) (format.Value, error) {
	rec, err := b.record(v)
	if err != nil {
		return nil, err
	}
	key := clip(v.storage.key)
	width := int64(v.dtype.Size())
	held := int64(len(rec.data)) / width
	t := &format.Tensor{Name: b.path(), DType: v.dtype, Shape: v.size, Data: rec.data[:0:0], Storage: v.storage.key}

	if len(v.size) != len(v.stride) {
		return nil, b.fail(format.ErrCorrupt, v.at, "%s has %d sizes and %d strides, want as many", b.what("tensor"), len(v.size), len(v.stride))
	}
	for i, d := range v.size {
		if d < 0 || v.stride[i] < 0 {
			return nil, b.fail(format.ErrCorrupt, v.at, "%s of shape %v has a negative size or stride (strides %v)", b.what("tensor"), v.size, v.stride)
		}
	}
	elems, ok1 := format.Elems(v.size)
	extent, ok2 := format.Extent(v.size, v.stride)
	switch {
	case !ok1 || !ok2:
		return nil, b.fail(format.ErrCorrupt, v.at, "%s of shape %v and strides %v overflows 64 bits", b.what("tensor"), v.size, v.stride)
	case v.offset < 0:
		return nil, b.fail(format.ErrCorrupt, v.at, "%s begins at element %d of its storage, want 0 or more", b.what("tensor"), v.offset)
	case extent > 0 && (extent > held || v.offset > held-extent):
		return nil, b.fail(format.ErrCorrupt, v.at, "%s of shape %v needs %d elements from element %d of storage %q, which has %d",
			b.what("tensor"), v.size, extent, v.offset, key, held)
	case elems > held:
		return nil, b.fail(format.ErrLimit, v.at, "%s of shape %v has %d elements over storage %q, which has %d: save a contiguous copy",
			b.what("tensor"), v.size, elems, key, held)
	}
	v.cost.tensors = 1
	v.cost.bytes = elems * width
	if elems == 0 {
		return t, nil
	}
	for i, d := range v.size {
		if d > 1 && v.stride[i] == 0 {
			return nil, b.fail(format.ErrUnsupported, v.at, "%s of shape %v repeats elements by stride 0: save a contiguous copy", b.what("tensor"), v.size)
		}
	}

	lo, hi := v.offset*width, (v.offset+extent)*width
	t.Data = rec.data[lo:hi:hi]
	t.Strides = v.stride
	switch {
	case t.Dense():
		t.Strides = nil
	case !rowsAreWhole(v.size, v.stride):
		if b.copied += v.cost.bytes; b.copied > b.maxBytes {
			return nil, b.fail(format.ErrLimit, v.at, "transposed tensors have more than %d bytes together, %d times the archive", b.maxBytes, maxShare)
		}
		t.Data = strided.Gather(t.Data, v.size, v.stride, int(width))
		t.Strides = nil
	}
	return t, nil
}

// rowsAreWhole reports whether the elements of the last dimension that has several
// are neighbours: such a view can be read row by row where it lies.
func rowsAreWhole(size, stride []int64) bool {
	for i := len(size) - 1; i >= 0; i-- {
		if size[i] > 1 {
			return stride[i] == 1
		}
	}
	return true
}

// record finds the bytes of a view's storage and checks their number.
func (b *builder) record(v *view) (record, error) {
	s := v.storage
	key := clip(s.key)
	m := b.dir.byName["data/"+key]
	if m == nil {
		return record{}, b.fail(format.ErrCorrupt, s.at, "%s needs storage %q, and the archive has no member %q", b.what("tensor"), key, b.dir.path("data/"+key))
	}
	width := int64(max(1, s.class.dtype.Size()))
	have := int64(len(m.data))
	if have%width != 0 || s.elems != have/width {
		return record{}, b.fail(format.ErrCorrupt, s.at, "storage %q of %s declares %d elements of %d bytes, and member %q has %d bytes",
			key, b.what("tensor"), s.elems, width, m.name, have)
	}
	rec, ok := b.records[s.key]
	switch {
	case b.big && s.class.dtype == format.InvalidDType && v.dtype.Size() > 1:
		return record{}, b.fail(format.ErrUnsupported, s.at, "%s is big-endian in an untyped storage, want a little-endian archive", b.what("tensor"))
	case ok && rec.class != s.class.dtype:
		return record{}, b.fail(format.ErrCorrupt, s.at, "storage %q is declared with two element types, here with %s", key, s.class.name)
	case ok:
		return rec, nil
	}
	rec = record{class: s.class.dtype, data: m.data}
	if b.big && width > 1 {
		rec.data = swapped(m.data, int(width))
	}
	b.records[s.key] = rec
	return rec, nil
}

// swapped is a copy of data with the bytes of each element reversed.
func swapped(data []byte, width int) []byte {
	out := make([]byte, len(data))
	for i := 0; i < len(data); i += width {
		in, out := data[i:i+width], out[i:i+width]
		switch width {
		case 2:
			binary.LittleEndian.PutUint16(out, binary.BigEndian.Uint16(in))
		case 4:
			binary.LittleEndian.PutUint32(out, binary.BigEndian.Uint32(in))
		case 8:
			binary.LittleEndian.PutUint64(out, binary.BigEndian.Uint64(in))
		}
	}
	return out
}
