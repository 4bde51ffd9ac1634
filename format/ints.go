package format

import "encoding/binary"

// Ints is a one-dimensional view of integers or truth values: N elements, Stride bytes
// from the start of one to the start of the next, as [Rows] is one of states.
type Ints struct {
	DType     DType
	N, Stride int
	Data      []byte
}

// At is element i: a truth value is 0 or 1, and of a type that is neither Bool nor an
// integer every element is 0. A uint64 beyond int64 comes out negative, less 2^64: a
// caller that negative numbers mean something to asks for the type too.
func (v Ints) At(i int) int64 {
	b := v.Data[i*v.Stride:]
	switch v.DType {
	case Bool:
		if b[0] != 0 {
			return 1
		}
	case Uint8:
		return int64(b[0])
	case Int8:
		return int64(int8(b[0]))
	case Uint16:
		return int64(binary.LittleEndian.Uint16(b))
	case Int16:
		return int64(int16(binary.LittleEndian.Uint16(b)))
	case Uint32:
		return int64(binary.LittleEndian.Uint32(b))
	case Int32:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case Uint64, Int64:
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}
