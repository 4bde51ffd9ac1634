package producer

import (
	"encoding/binary"
	"fmt"
	"math"

	"hsx/format"
)

// field is a tensor under the name that the dump gives it; t is nil when the dump
// has none.
type field struct {
	key string
	t   *format.Tensor
}

// dims checks that the tensor's bytes are there and that no two elements share one,
// and gives its strides. Elements that share bytes would let a small file ask for
// any number of rows.
func (f field) dims() (shape, strides []int64, err error) {
	t := *f.t
	t.Name = f.key
	for _, d := range t.Shape {
		if d <= 0 {
			return nil, nil, unsupported(f.key, "has shape %v, which holds nothing", t.Shape)
		}
	}
	if err := t.Check(); err != nil {
		return nil, nil, &FieldError{Tensor: f.key, Kind: format.ErrCorrupt, Err: err}
	}
	strides = t.Strides
	if strides == nil {
		strides = make([]int64, len(t.Shape))
	}
	extent := int64(1) // elements from the first to the last of one step of the dimension
	for i := len(t.Shape) - 1; i >= 0; i-- {
		if t.Strides == nil {
			strides[i] = extent
		}
		if t.Shape[i] == 1 {
			continue
		}
		if strides[i] < extent {
			return nil, nil, unsupported(f.key, "is a view of shape %v and strides %v, want rows that follow one another", t.Shape, strides)
		}
		extent += (t.Shape[i] - 1) * strides[i]
	}
	return t.Shape, strides, nil
}

// item is the view of index i of the first dimension. The caller has checked the
// tensor with dims and i against the shape.
func (f field) item(i int, strides []int64) field {
	if f.t == nil {
		return f
	}
	t := *f.t
	t.Shape, t.Strides = t.Shape[1:], strides[1:]
	t.Data = t.Data[int64(i)*strides[0]*int64(t.DType.Size()):]
	return field{f.key, &t}
}

// mostStates bounds the states of a sample. No target has so many layers, and a
// hidden size of 1 would turn every two bytes of a file into a state of its own.
const mostStates = 1024

func tooMany(key string, n int64) error {
	return fieldError(key, format.ErrLimit, fmt.Sprintf("holds %d states, want at most %d", n, mostStates))
}

// rows is a state tensor as rows: [T, W] or [1, T, W].
func (f field) rows() (format.Rows, error) {
	shape, strides, err := f.dims()
	if err != nil {
		return format.Rows{}, err
	}
	if len(shape) == 3 {
		if shape[0] != 1 {
			return format.Rows{}, unsupported(f.key, "has shape %v, want a first dimension of 1: one sample", shape)
		}
		shape, strides = shape[1:], strides[1:]
	}
	if len(shape) != 2 {
		return format.Rows{}, unsupported(f.key, "has shape %v, want [tokens, width] or [1, tokens, width]", f.t.Shape)
	}
	return f.view(shape, strides)
}

// slots is a state tensor [T, S, H] as S views of [T, H].
func (f field) slots() ([]format.Rows, error) {
	shape, strides, err := f.dims()
	if err != nil {
		return nil, err
	}
	if len(shape) != 3 {
		return nil, unsupported(f.key, "has shape %v, want [tokens, slots, hidden size]", shape)
	}
	if shape[1] > mostStates {
		return nil, tooMany(f.key, shape[1])
	}
	flat, err := f.view([]int64{shape[0], shape[2]}, []int64{strides[0], strides[2]})
	if err != nil {
		return nil, err
	}
	step := int(strides[1]) * f.t.DType.Size()
	out := make([]format.Rows, shape[1])
	for i := range out {
		out[i] = flat
		out[i].Data = flat.Data[i*step:]
	}
	return out, nil
}

func (f field) view(shape, strides []int64) (format.Rows, error) {
	if shape[1] > 1 && strides[1] != 1 {
		return format.Rows{}, unsupported(f.key, "is a transposed view (strides %v), want each row in one piece", f.t.Strides)
	}
	r := format.Rows{DType: f.t.DType, N: int(shape[0]), Width: int(shape[1]), Data: f.t.Data}
	r.Stride = r.RowBytes()
	if r.N > 1 { // the stride of a single row may be any number
		r.Stride = int(strides[0]) * r.DType.Size()
	}
	return r, nil
}

// columns is the view of width columns from the first-th on.
func columns(r format.Rows, first, width int) format.Rows {
	r.Data = r.Data[first*r.DType.Size():]
	r.Width = width
	return r
}

// retype gives untyped numbers the type that the user says they have, and refuses
// what is no state.
func (m *Match) retype(key string, r format.Rows) (format.Rows, error) {
	want := m.facts.DType
	switch {
	case m.dump.Container == JSON && r.DType == format.Float32 && (want == format.BFloat16 || want == format.Float16):
		return narrow(key, r, want)
	case r.DType.IsState():
		return r, nil
	case r.DType == format.Uint16 && want == format.BFloat16:
		r.DType = format.BFloat16
		return r, nil
	case r.DType == format.Uint16:
		return r, unsupported(key, "is uint16, want bfloat16, float16 or float32 (if these are bit patterns of bfloat16, --dtype bf16 says so)")
	}
	return r, unsupported(key, "is %s, want bfloat16, float16 or float32", r.DType)
}

// narrow stores float32 numbers in two bytes each, if no bit is lost.
func narrow(key string, r format.Rows, to format.DType) (format.Rows, error) {
	out := format.Rows{DType: to, N: r.N, Width: r.Width, Stride: r.Width * 2, Data: make([]byte, r.N*r.Width*2)}
	for i := range r.N {
		src, dst := r.Row(i), out.Row(i)
		for j := range r.Width {
			bits := binary.LittleEndian.Uint32(src[j*4:])
			v, ok := uint16(bits>>16), bits&0xffff == 0
			if to == format.Float16 {
				v, ok = half(bits)
			}
			if !ok {
				return out, unsupported(key, "holds %v at row %d column %d, which is no %s value", math.Float32frombits(bits), i, j, to)
			}
			binary.LittleEndian.PutUint16(dst[j*2:], v)
		}
	}
	return out, nil
}

// half is the IEEE half of the value of float32 bits, when there is one.
func half(bits uint32) (h uint16, ok bool) {
	const lost = 13 // fraction bits that a half does not have
	sign := uint16(bits >> 16 & 0x8000)
	exp, frac := int(bits>>23&0xff), bits&0x7fffff
	switch exp {
	case 0:
		return sign, frac == 0
	case 0xff:
		return sign | 0x7c00 | uint16(frac>>lost), frac&(1<<lost-1) == 0
	}
	switch e := exp - 127; {
	case e > 15 || e < -24:
		return 0, false
	case e >= -14:
		return sign | uint16(e+15)<<10 | uint16(frac>>lost), frac&(1<<lost-1) == 0
	default:
		frac |= 1 << 23
		shift := lost - 14 - e
		return sign | uint16(frac>>shift), frac&(1<<shift-1) == 0
	}
}

// kindOf names a value in messages.
func kindOf(v format.Value) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case *format.Tensor:
		if v == nil {
			return "None"
		}
		return fmt.Sprintf("a %s tensor of shape %v", v.DType, v.Shape)
	case *format.Record:
		return "a dict"
	case []format.Value:
		return fmt.Sprintf("a list of %d", len(v))
	case string:
		return "a string"
	case int64:
		return "an integer"
	case float64:
		return "a number"
	case bool:
		return "a bool"
	}
	return "of another type"
}
