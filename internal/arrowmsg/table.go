package arrowmsg

import (
	"encoding/binary"
	"iter"
)

// flat is a flatbuffer. Every access is checked: one that falls outside the buffer
// sets bad and gives zero, so that a caller may read several values and ask once.
type flat struct {
	buf []byte
	bad bool
}

// bytes are the n bytes at p, nil with bad set when they are not all there.
func (f *flat) bytes(p, n int) []byte {
	if p < 0 || n < 0 || p > len(f.buf)-n {
		f.bad = true
		return nil
	}
	return f.buf[p : p+n : p+n]
}

func (f *flat) u16(p int) int {
	if b := f.bytes(p, 2); b != nil {
		return int(binary.LittleEndian.Uint16(b))
	}
	return 0
}

func (f *flat) u32(p int) int {
	if b := f.bytes(p, 4); b != nil {
		return int(binary.LittleEndian.Uint32(b))
	}
	return 0
}

// table is the table at p. The distance back to its vtable is signed.
func (f *flat) table(p int) Table {
	vt := p - int(int32(f.u32(p)))
	size := f.u16(vt)
	if size < 4 || f.bytes(vt, size) == nil {
		f.bad = true
		return Table{f: f}
	}
	return Table{f: f, pos: p, vtable: vt, size: size}
}

// Table is one table of a message's metadata, a flatbuffer. Fields are numbered as in
// Arrow's Message.fbs and Schema.fbs, a union taking two numbers. A field that is not
// there reads as zero, and so does one whose place is outside the metadata: ask
// [Table.Damaged] before believing what was read.
type Table struct {
	f                 *flat
	pos, vtable, size int
}

// Damaged reports whether anything that was read so far from the metadata of this
// table, through this or any other of its tables, lay outside of it.
func (t Table) Damaged() bool { return t.f.bad }

// at is the place of a field, 0 when the table does not have it: no field can lie
// where the offset of the root does.
func (t Table) at(field int) int {
	slot := 4 + 2*field
	if slot+2 > t.size {
		return 0
	}
	off := t.f.u16(t.vtable + slot)
	if off == 0 {
		return 0
	}
	return t.pos + off
}

// Has reports whether the table has the field.
func (t Table) Has(field int) bool { return t.at(field) != 0 }

// fixed is the bytes of a field of n bytes, nil when there are none.
func (t Table) fixed(field, n int) []byte {
	if p := t.at(field); p != 0 {
		return t.f.bytes(p, n)
	}
	return nil
}

// Uint8 is a field of one byte.
func (t Table) Uint8(field int) int {
	if b := t.fixed(field, 1); b != nil {
		return int(b[0])
	}
	return 0
}

// Int16 is a field of two bytes.
func (t Table) Int16(field int) int {
	if b := t.fixed(field, 2); b != nil {
		return int(int16(binary.LittleEndian.Uint16(b)))
	}
	return 0
}

// Int32 is a field of four bytes.
func (t Table) Int32(field int) int {
	if b := t.fixed(field, 4); b != nil {
		return int(int32(binary.LittleEndian.Uint32(b)))
	}
	return 0
}

// Int64 is a field of eight bytes.
func (t Table) Int64(field int) int64 {
	if b := t.fixed(field, 8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// Table is the table that a field points to, one without fields when there is none.
func (t Table) Table(field int) Table {
	p := t.at(field)
	if p == 0 {
		return Table{f: t.f}
	}
	return t.f.table(p + t.f.u32(p))
}

// vector is the place and the number of a field's elements of the given size, all of
// them inside the metadata.
func (t Table) vector(field, size int) (pos, n int) {
	p := t.at(field)
	if p == 0 {
		return 0, 0
	}
	p += t.f.u32(p)
	n = t.f.u32(p)
	// The quotient cannot overflow, the product could.
	if n < 0 || n > len(t.f.buf)/size || t.f.bytes(p+4, n*size) == nil {
		t.f.bad = true
		return 0, 0
	}
	return p + 4, n
}

// structs is a field's vector of structs of the given size.
func (t Table) structs(field, size int) []byte {
	pos, n := t.vector(field, size)
	return t.f.bytes(pos, n*size)
}

// Tables yields the tables of a field's vector. Vectors may share tables, so that a
// walk down several of them can be far longer than the metadata: bound it.
func (t Table) Tables(field int) iter.Seq[Table] {
	return func(yield func(Table) bool) {
		pos, n := t.vector(field, 4)
		for p := pos; p < pos+4*n; p += 4 {
			if !yield(t.f.table(p + t.f.u32(p))) {
				return
			}
		}
	}
}

// Text is a field's string, a slice of the metadata: a thousand fields may share one
// long name.
func (t Table) Text(field int) []byte { return t.structs(field, 1) }
