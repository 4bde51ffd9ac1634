package producer

import (
	"encoding/binary"
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"

	"hsx/format"
)

// sequence is a tensor of one value per token: [T] or [1, T]. Its values may be floats,
// which only their bytes tell.
func (f field) sequence() (format.Ints, error) {
	shape, strides, err := f.dims()
	if err != nil {
		return format.Ints{}, err
	}
	if len(shape) == 2 {
		if shape[0] != 1 {
			return format.Ints{}, unsupported(f.key, "has shape %v, want a first dimension of 1: one sample", shape)
		}
		shape, strides = shape[1:], strides[1:]
	}
	if len(shape) != 1 {
		return format.Ints{}, unsupported(f.key, "has shape %v, want [tokens] or [1, tokens]", f.t.Shape)
	}
	d := f.t.DType
	return format.Ints{DType: d, N: int(shape[0]), Stride: int(strides[0]) * d.Size(), Data: f.t.Data}, nil
}

// tokenIDs reads token ids. Ids that no vocabulary has are kept: whether an id is
// sound is a finding about the data.
func (f field) tokenIDs() ([]int32, error) {
	if s := f.t.Shape; len(s) > 0 && s[len(s)-1] == 0 {
		return nil, unsupported(f.key, "has shape %v: no tokens", s)
	}
	if !f.t.DType.IsInteger() {
		return nil, unsupported(f.key, "is %s, want integers", f.t.DType)
	}
	seq, err := f.sequence()
	if err != nil {
		return nil, err
	}
	ids := make([]int32, seq.N)
	for i := range ids {
		v := seq.At(i)
		// A uint64 near 2^64 is a small negative number there, and would pass for an id.
		if v < math.MinInt32 || v > math.MaxInt32 || v < 0 && seq.DType == format.Uint64 {
			return nil, unsupported(f.key, "holds %s at position %d, which is beyond int32", decimal(seq.DType, v), i)
		}
		ids[i] = int32(v)
	}
	return ids, nil
}

// mask reads one small number per token: bool, integers of 0 to 255 or floats that
// are 0 or 1.
func (f field) mask() ([]byte, error) {
	seq, err := f.sequence()
	if err != nil {
		return nil, err
	}
	out := make([]byte, seq.N)
	for i := range out {
		switch d := seq.DType; {
		case d == format.Bool || d.IsInteger():
			v := seq.At(i)
			if v < 0 || v > math.MaxUint8 {
				return nil, unsupported(f.key, "holds %s at position %d, want 0 or 1", decimal(d, v), i)
			}
			out[i] = byte(v)
		default:
			one, ok := zeroOrOne(d, seq.Data[i*seq.Stride:])
			if !ok {
				return nil, unsupported(f.key, "holds a %s other than 0 and 1 at position %d", d, i)
			}
			out[i] = one
		}
	}
	return out, nil
}

// attended is the number of positions that an attention mask of n values marks, all
// at the front.
func (f field) attended(n int) (int, error) {
	mask, err := f.mask()
	if err != nil {
		return 0, err
	}
	if len(mask) != n {
		return 0, corrupt(f.key, "has %d values for %d tokens", len(mask), n)
	}
	ones := 0
	for i, v := range mask {
		switch {
		case v > 1:
			return 0, unsupported(f.key, "holds %d at position %d, want 0 or 1", v, i)
		case v == 1 && ones < i:
			return 0, unsupported(f.key, "is 0 at position %d and 1 at %d, want padding at the end only", ones, i)
		case v == 1:
			ones++
		}
	}
	if ones == 0 {
		return 0, unsupported(f.key, "marks none of %d positions: no tokens", n)
	}
	return ones, nil
}

// unpadded is the number of positions before the trailing run of id 0 and mask 0,
// at least 1.
func unpadded(ids []int32, mask []byte) int {
	n := len(ids)
	for n > 1 && len(mask) == len(ids) && ids[n-1] == 0 && mask[n-1] == 0 {
		n--
	}
	return n
}

func decimal(d format.DType, v int64) string {
	if d == format.Uint64 && v < 0 {
		return "a number above 2^63"
	}
	return strconv.FormatInt(v, 10)
}

func zeroOrOne(d format.DType, b []byte) (v byte, ok bool) {
	var bits, one uint64
	switch d {
	case format.Float16:
		bits, one = uint64(binary.LittleEndian.Uint16(b)), 0x3c00
	case format.BFloat16:
		bits, one = uint64(binary.LittleEndian.Uint16(b)), 0x3f80
	case format.Float32:
		bits, one = uint64(binary.LittleEndian.Uint32(b)), 0x3f800000
	default:
		bits, one = binary.LittleEndian.Uint64(b), 0x3ff0000000000000
	}
	if bits == one {
		return 1, true
	}
	return 0, bits == 0
}

// sampleID is a producer's own id of a sample, "" when it has none. The id is data
// and never a path, so a slash in it does no harm.
func sampleID(key string, v format.Value) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case string:
		const most = 4096
		if len(v) > most {
			return "", unsupported(key, "has %d bytes, want at most %d", len(v), most)
		}
		if !utf8.ValidString(v) {
			return "", unsupported(key, "is not valid UTF-8")
		}
		for _, r := range v {
			if unicode.IsControl(r) {
				return "", unsupported(key, "holds the control character %U", r)
			}
		}
		return v, nil
	}
	return "", unsupported(key, "is %s, want a string or an integer", kindOf(v))
}
