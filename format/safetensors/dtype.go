package safetensors

import "hsx/format"

// dtypeName is the header's word for d, "" when it has none.
func dtypeName(d format.DType) string {
	switch d {
	case format.Bool:
		return "BOOL"
	case format.Uint8:
		return "U8"
	case format.Int8:
		return "I8"
	case format.Uint16:
		return "U16"
	case format.Int16:
		return "I16"
	case format.Uint32:
		return "U32"
	case format.Int32:
		return "I32"
	case format.Uint64:
		return "U64"
	case format.Int64:
		return "I64"
	case format.Float16:
		return "F16"
	case format.BFloat16:
		return "BF16"
	case format.Float32:
		return "F32"
	case format.Float64:
		return "F64"
	}
	return ""
}

// dtypeOf is the type with the header's word s.
func dtypeOf(s string) (format.DType, bool) {
	for d := format.Bool; d <= format.Float64; d++ {
		if s == dtypeName(d) {
			return d, true
		}
	}
	return format.InvalidDType, false
}
