package format_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func TestElems(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		shape []int64
		want  int64
		ok    bool
	}{
		"scalar":                {nil, 1, true},
		"matrix":                {[]int64{7, 4096}, 28672, true},
		"empty":                 {[]int64{0, 64}, 0, true},
		"empty hides no size":   {[]int64{0, math.MaxInt64}, 0, false},
		"empty hides no sign":   {[]int64{0, -1}, 0, false},
		"negative":              {[]int64{-1}, 0, false},
		"two negatives":         {[]int64{-2, -2}, 0, false},
		"limit":                 {[]int64{1 << 31, 1 << 31}, 1 << 62, true},
		"above the limit":       {[]int64{1 << 31, 1<<31 + 1}, 0, false},
		"wraps to 0":            {[]int64{1 << 32, 1 << 32}, 0, false},
		"wraps to small":        {[]int64{1 << 32, 1<<32 + 1}, 0, false},
		"empty after overflow":  {[]int64{1 << 40, 1 << 40, 0}, 0, false},
		"many ones":             {[]int64{1, 1, 1, 1, 3}, 3, true},
		"max in one dimension":  {[]int64{math.MaxInt64}, 0, false},
		"most negative of them": {[]int64{math.MinInt64, 2}, 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := format.Elems(tc.shape); got != tc.want || ok != tc.ok {
				t.Errorf("Elems(%v): got %d, %t, want %d, %t", tc.shape, got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestExtent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		shape, strides []int64
		want           int64
		ok             bool
	}{
		"scalar":          {nil, nil, 1, true},
		"dense":           {[]int64{3, 4}, []int64{4, 1}, 12, true},
		"block":           {[]int64{16, 192}, []int64{256, 1}, 15*256 + 192, true},
		"transposed":      {[]int64{4, 3}, []int64{1, 4}, 12, true},
		"expanded":        {[]int64{1 << 40, 4}, []int64{0, 1}, 4, true},
		"one row":         {[]int64{1, 4}, []int64{math.MaxInt64, 1}, 4, true},
		"empty":           {[]int64{0, 4}, []int64{4, 1}, 0, true},
		"ranks differ":    {[]int64{3, 4}, []int64{4}, 0, false},
		"negative stride": {[]int64{3, 4}, []int64{-4, 1}, 0, false},
		"product wraps":   {[]int64{3, 4}, []int64{1 << 63 >> 1, 1}, 0, false},
		"sum wraps":       {[]int64{2, 2}, []int64{1 << 62, 1 << 62}, 0, false},
		"huge elements":   {[]int64{1 << 40, 1 << 40}, []int64{0, 0}, 0, false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := format.Extent(tc.shape, tc.strides); got != tc.want || ok != tc.ok {
				t.Errorf("Extent(%v, %v): got %d, %t, want %d, %t", tc.shape, tc.strides, got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestTensorCheckAndDense(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		tensor       format.Tensor
		dense        bool
		wantErrParts []string
	}{
		"dense":         {tensor: format.Tensor{DType: format.BFloat16, Shape: []int64{3, 4}, Data: make([]byte, 24)}, dense: true},
		"scalar":        {tensor: format.Tensor{DType: format.Int64, Data: make([]byte, 8)}, dense: true},
		"empty":         {tensor: format.Tensor{DType: format.Float32, Shape: []int64{0, 64}}, dense: true},
		"dense strides": {tensor: format.Tensor{DType: format.Float16, Shape: []int64{1, 3, 4}, Strides: []int64{999, 4, 1}, Data: make([]byte, 24)}, dense: true},
		"view":          {tensor: format.Tensor{DType: format.Float16, Shape: []int64{2, 3}, Strides: []int64{4, 1}, Data: make([]byte, 14)}},
		"view with more behind": {
			tensor: format.Tensor{DType: format.Float16, Shape: []int64{2, 3}, Strides: []int64{4, 1}, Data: make([]byte, 16)},
		},
		"one byte short": {
			tensor: format.Tensor{Name: "x", DType: format.BFloat16, Shape: []int64{3, 4}, Data: make([]byte, 23)}, dense: true,
			wantErrParts: []string{`"x"`, "[3 4]", "bfloat16", "needs 24 bytes, has 23"},
		},
		"one byte long": {
			tensor: format.Tensor{DType: format.BFloat16, Shape: []int64{3, 4}, Data: make([]byte, 25)}, dense: true,
			wantErrParts: []string{"needs 24 bytes, has 25"},
		},
		"view short": {
			tensor:       format.Tensor{DType: format.Float16, Shape: []int64{2, 3}, Strides: []int64{4, 1}, Data: make([]byte, 13)},
			wantErrParts: []string{"needs 14 bytes, has 13"},
		},
		"no dtype": {
			tensor: format.Tensor{Name: "x", Shape: []int64{1}, Data: make([]byte, 1)}, dense: true,
			wantErrParts: []string{`"x"`, "no valid dtype"},
		},
		"bytes overflow": {
			tensor: format.Tensor{DType: format.Float64, Shape: []int64{1 << 31, 1 << 31}}, dense: true,
			wantErrParts: []string{"no valid size"},
		},
		"negative": {
			tensor: format.Tensor{DType: format.Float64, Shape: []int64{-1}}, dense: true,
			wantErrParts: []string{"no valid size"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkErr(t, tc.tensor.Check(), tc.wantErrParts)
			if got := tc.tensor.Dense(); got != tc.dense {
				t.Errorf("Dense(): got %t, want %t", got, tc.dense)
			}
		})
	}
}

// blocks cuts rows of n×width elements, as a dump concatenates layers, into n views.
func blocks(d format.DType, data []byte, n, width int) []format.Rows {
	stride := n * width * d.Size()
	views := make([]format.Rows, n)
	for i := range views {
		off := min(i*width*d.Size(), len(data))
		views[i] = format.Rows{DType: d, N: len(data) / stride, Width: width, Stride: stride, Data: data[off:]}
	}
	return views
}

func TestRowsSplitAndJoin(t *testing.T) {
	t.Parallel()
	const width = 5
	rng := rand.NewChaCha8([32]byte{1})
	for _, d := range []format.DType{format.Float16, format.BFloat16, format.Float32} {
		for _, n := range []int{0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
			data := make([]byte, n*3*width*d.Size())
			if _, err := rng.Read(data); err != nil {
				t.Fatal(err)
			}
			t.Run(fmt.Sprintf("%s-%d", d, n), func(t *testing.T) {
				t.Parallel()
				views := blocks(d, data, 3, width)
				joined := make([]byte, 0, len(data))
				for i := range n {
					for _, v := range views {
						row := v.Row(i)
						if len(row) != v.RowBytes() || cap(row) != v.RowBytes() {
							t.Fatalf("Row(%d): got length %d and capacity %d, want %d", i, len(row), cap(row), v.RowBytes())
						}
						joined = append(joined, row...)
					}
				}
				if !bytes.Equal(joined, data) {
					t.Errorf("rows of %d %s tokens put together again differ from the dump", n, d)
				}
				if got, want := views[0].Bytes(), int64(len(data)/3); got != want {
					t.Errorf("Bytes(): got %d, want %d", got, want)
				}
			})
		}
	}
}

func TestRowsContiguous(t *testing.T) {
	t.Parallel()
	data := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	tests := map[string]struct {
		rows format.Rows
		want []byte
		ok   bool
	}{
		"dense":          {format.Rows{DType: format.Float16, N: 3, Width: 2, Stride: 4, Data: data}, data, true},
		"first rows":     {format.Rows{DType: format.Float16, N: 3, Width: 2, Stride: 4, Data: data}.Slice(2), data[:8], true},
		"block":          {format.Rows{DType: format.Float16, N: 3, Width: 1, Stride: 4, Data: data}, nil, false},
		"one of a block": {format.Rows{DType: format.Float16, N: 1, Width: 1, Stride: 4, Data: data}, data[:2], true},
		"none":           {format.Rows{DType: format.Float32, Width: 2, Stride: 8}, nil, true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := tc.rows.Contiguous(); ok != tc.ok || !bytes.Equal(got, tc.want) {
				t.Errorf("Contiguous(): got %v, %t, want %v, %t", got, ok, tc.want, tc.ok)
			}
		})
	}
}

func TestRowsSpread(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rows, most int
		want       []int
	}{
		"none":           {0, 8, nil},
		"only row 0":     {1, 8, []int{0}},
		"two":            {2, 8, []int{1}},
		"as many":        {9, 8, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		"one more":       {10, 8, []int{1, 3, 5, 7, 9}},
		"evenly":         {1025, 4, []int{1, 257, 513, 769}},
		"one of many":    {1024, 1, []int{1}},
		"one of one row": {1, 1, []int{0}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := slices.Collect(format.Rows{N: tc.rows}.Spread(tc.most))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Spread(%d) of %d rows (-want +got):\n%s", tc.most, tc.rows, diff)
			}
		})
	}
}

func BenchmarkRows(b *testing.B) {
	for name, width := range map[string]int{"bf16-3x1024x64": 64, "bf16-3x1024x7168": 7168} {
		b.Run(name, func(b *testing.B) {
			const n = 1024
			views := blocks(format.BFloat16, make([]byte, n*3*width*2), 3, width)
			out := make([]byte, width*2)
			b.SetBytes(n * 3 * int64(width) * 2)
			b.ReportAllocs()
			for b.Loop() {
				for _, v := range views {
					for i := range v.N {
						copy(out, v.Row(i))
					}
				}
			}
		})
	}
}
