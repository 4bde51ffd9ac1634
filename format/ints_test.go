package format_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func TestIntsAt(t *testing.T) {
	t.Parallel()
	// The same bytes as every type: elements 1, 2^n-1, 0x80 on top, and 0.
	tests := map[format.DType][]int64{
		format.Bool:    {1, 1, 1, 0},
		format.Uint8:   {1, math.MaxUint8, 1 << 7, 0},
		format.Int8:    {1, -1, math.MinInt8, 0},
		format.Uint16:  {1, math.MaxUint16, 1 << 15, 0},
		format.Int16:   {1, -1, math.MinInt16, 0},
		format.Uint32:  {1, math.MaxUint32, 1 << 31, 0},
		format.Int32:   {1, -1, math.MinInt32, 0},
		format.Uint64:  {1, -1, math.MinInt64, 0},
		format.Int64:   {1, -1, math.MinInt64, 0},
		format.Float32: {0, 0, 0, 0},
	}
	for d, want := range tests {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			for _, gap := range []int{0, 1, 3} { // bytes between elements, never of one
				size := d.Size()
				v := format.Ints{DType: d, N: 4, Stride: size + gap, Data: make([]byte, 4*size+3*gap)}
				for i := range v.Data {
					v.Data[i] = 0xee
				}
				for i := range v.N {
					clear(v.Data[i*v.Stride:][:size])
				}
				v.Data[0] = 1
				for i := range size {
					v.Data[v.Stride+i] = 0xff
				}
				v.Data[2*v.Stride+size-1] = 0x80
				got := make([]int64, v.N)
				for i := range got {
					got[i] = v.At(i)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("elements with gaps of %d bytes (-want +got):\n%s", gap, diff)
				}
			}
		})
	}
}
