package strided_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"hsx/format"
	"hsx/internal/strided"
)

// gathered is what Gather must return, element by element.
func gathered(src []byte, size, stride []int64, width int) []byte {
	var out []byte
	var walk func(d int, at int64)
	walk = func(d int, at int64) {
		if d == len(size) {
			out = append(out, src[at*int64(width):(at+1)*int64(width)]...)
			return
		}
		for i := range size[d] {
			walk(d+1, at+i*stride[d])
		}
	}
	walk(0, 0)
	return out
}

func TestGather(t *testing.T) {
	t.Parallel()
	for _, v := range []struct{ size, stride []int64 }{
		{[]int64{64, 96}, []int64{1, 64}},  // whole tiles
		{[]int64{67, 101}, []int64{1, 67}}, // and what is left over on both sides
		{[]int64{67, 101}, []int64{1, 80}}, // columns with gaps
		{[]int64{3, 7}, []int64{1, 3}},     // less than a block
		{[]int64{9}, []int64{3}},           // one dimension
		{[]int64{1, 9}, []int64{1, 2}},     // one row
		{[]int64{1, 1}, []int64{1, 1}},     // one element
		{[]int64{40, 33, 1, 1}, []int64{1, 40, 1320, 1320}},
		{[]int64{34, 5, 33}, []int64{1, 34, 170}},  // all turned round
		{[]int64{5, 34, 33}, []int64{1122, 1, 34}}, // each of a batch transposed
		{[]int64{3, 36, 2, 37}, []int64{74, 222, 37 * 222, 2}},
	} {
		extent, _ := format.Extent(v.size, v.stride)
		for _, width := range []int{1, 2, 4, 8} {
			src := make([]byte, extent*int64(width))
			for i := range src {
				src[i] = byte(i*31 + i>>8)
			}
			if !bytes.Equal(strided.Gather(src, v.size, v.stride, width), gathered(src, v.size, v.stride, width)) {
				t.Errorf("size %v, strides %v, width %d: elements are not where they belong", v.size, v.stride, width)
			}
		}
	}
}

// FuzzGather takes views of up to four dimensions, in any order and with gaps.
func FuzzGather(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, uint8(40), uint8(70), uint8(3))
	}
	f.Fuzz(func(t *testing.T, seed uint64, a, b, c uint8) {
		size := []int64{1 + int64(a)%72, 1 + int64(b)%72, 1 + int64(c)%5, 1 + int64(seed)%3}
		rng := rand.New(rand.NewPCG(seed, 0))
		rng.Shuffle(len(size), func(i, j int) { size[i], size[j] = size[j], size[i] })
		stride := make([]int64, len(size))
		step := 1 + int64(rng.IntN(2))
		for _, d := range rng.Perm(len(size)) {
			stride[d] = step
			step = step*size[d] + int64(rng.IntN(3))
		}
		width := 1 << rng.IntN(4)
		extent, _ := format.Extent(size, stride)
		src := make([]byte, extent*int64(width))
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		if !bytes.Equal(strided.Gather(src, size, stride, width), gathered(src, size, stride, width)) {
			t.Fatalf("size %v, strides %v, width %d: elements are not where they belong", size, stride, width)
		}
	})
}

func BenchmarkGather(b *testing.B) {
	const rows, cols = 1024, 7168
	for _, width := range []int{1, 2, 4, 8} {
		src := make([]byte, rows*cols*width)
		b.Run(fmt.Sprintf("%d-byte", width), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			for b.Loop() {
				strided.Gather(src, []int64{rows, cols}, []int64{1, rows}, width)
			}
		})
	}
}
