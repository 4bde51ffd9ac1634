package format

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DType is the type of a tensor's elements.
type DType uint8

// The element types that dumps hold. States are of a floating type; the integer
// types occur as token ids, masks and vocabulary maps.
const (
	InvalidDType DType = iota
	Bool
	Uint8
	Int8
	Uint16
	Int16
	Uint32
	Int32
	Uint64
	Int64
	Float16
	BFloat16
	Float32
	Float64
)

type dtypeInfo struct {
	name, short string
	size        int
}

func (d DType) info() dtypeInfo {
	switch d {
	case Bool:
		return dtypeInfo{"bool", "bool", 1}
	case Uint8:
		return dtypeInfo{"uint8", "u8", 1}
	case Int8:
		return dtypeInfo{"int8", "i8", 1}
	case Uint16:
		return dtypeInfo{"uint16", "u16", 2}
	case Int16:
		return dtypeInfo{"int16", "i16", 2}
	case Uint32:
		return dtypeInfo{"uint32", "u32", 4}
	case Int32:
		return dtypeInfo{"int32", "i32", 4}
	case Uint64:
		return dtypeInfo{"uint64", "u64", 8}
	case Int64:
		return dtypeInfo{"int64", "i64", 8}
	case Float16:
		return dtypeInfo{"float16", "fp16", 2}
	case BFloat16:
		return dtypeInfo{"bfloat16", "bf16", 2}
	case Float32:
		return dtypeInfo{"float32", "fp32", 4}
	case Float64:
		return dtypeInfo{"float64", "fp64", 8}
	}
	return dtypeInfo{"invalid", "invalid", 0}
}

// Size is the number of bytes of one element, 0 for an invalid type.
func (d DType) Size() int { return d.info().size }

// String is the long name, as torch and NumPy write it: "bfloat16".
func (d DType) String() string { return d.info().name }

// IsState reports whether a dataset can hold states of this type.
func (d DType) IsState() bool { return d == Float16 || d == BFloat16 || d == Float32 }

// IsInteger reports whether the type is a signed or unsigned integer.
func (d DType) IsInteger() bool { return d >= Uint8 && d <= Int64 }

// ParseDType reads a long or a short name: "bfloat16" or "bf16".
func ParseDType(s string) (DType, error) {
	for d := Bool; d <= Float64; d++ {
		if in := d.info(); s == in.name || s == in.short {
			return d, nil
		}
	}
	return InvalidDType, fmt.Errorf("dtype %q is not known, want bfloat16, float16 or float32", s)
}

// MarshalText writes the long name.
func (d DType) MarshalText() ([]byte, error) {
	if d.Size() == 0 {
		return nil, fmt.Errorf("dtype %d is not valid", uint8(d))
	}
	return []byte(d.String()), nil
}

// UnmarshalText reads what [ParseDType] reads.
func (d *DType) UnmarshalText(b []byte) error {
	v, err := ParseDType(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// Floats fills dst with the first of the numbers that row, elements of a type of states,
// stands for: row has len(dst) elements at least. Of another type it reads nothing.
func (d DType) Floats(dst []float32, row []byte) {
	switch d {
	case BFloat16:
		dst, row := bf16Vectors(dst, row[:2*len(dst)])
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(row[2*i:])) << 16)
		}
	case Float16:
		row = row[:2*len(dst)]
		for i := range dst {
			dst[i] = Float16Value(binary.LittleEndian.Uint16(row[2*i:]))
		}
	case Float32:
		row = row[:4*len(dst)]
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
		}
	}
}

// Float16Value is the number that IEEE 754 half precision bits stand for.
func Float16Value(bits uint16) float32 {
	// The exponent's bias is 112 less than that of a float32. The product is exact, also
	// of subnormals.
	v := math.Float32bits(math.Float32frombits(uint32(bits&0x7fff)<<13) * 0x1p112)
	if bits&0x7c00 == 0x7c00 { // infinity, NaN
		v |= 0xff << 23
	}
	return math.Float32frombits(v | uint32(bits>>15)<<31)
}
