package shard

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"testing"

	"hsx/format"
)

// splitPlainly is what split does, one value at a time.
func splitPlainly(hi, lo, values []byte) {
	for i := range len(values) / 2 {
		v := bits.RotateLeft16(binary.LittleEndian.Uint16(values[2*i:]), 1)
		hi[i], lo[i] = byte(v>>8), byte(v)
	}
}

func FuzzHalves(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 2, 14, 16, 18, 30, 32, 34, 254, 256, 258} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, values []byte) {
		values = values[:len(values)&^1]
		n := len(values) / 2
		wantHi, wantLo := make([]byte, n), make([]byte, n)
		splitPlainly(wantHi, wantLo, values)
		for name, c := range map[string]struct {
			split func(hi, lo, values []byte)
			join  func(values, hi, lo []byte)
		}{"vectors": {split, join}, "words": {splitWords, joinWords}} {
			hi, lo, back := make([]byte, n), make([]byte, n), make([]byte, 2*n)
			c.split(hi, lo, values)
			if !bytes.Equal(hi, wantHi) || !bytes.Equal(lo, wantLo) {
				t.Errorf("%s: split %x: got %x and %x, want %x and %x", name, values, hi, lo, wantHi, wantLo)
			}
			if c.join(back, hi, lo); !bytes.Equal(back, values) {
				t.Errorf("%s: join: got %x, want %x", name, back, values)
			}
		}
	})
}

func TestShrinks(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	row := func(hi, lo func() byte) []byte {
		b := make([]byte, 2*1024*16)
		for i := 0; i < len(b); i += 2 {
			b[i], b[i+1] = lo(), hi()
		}
		return b
	}
	any, few := func() byte { return byte(rng.Uint32()) }, func() byte { return byte(rng.Uint32()) & 0x83 }
	for name, c := range map[string]struct {
		data   []byte
		hi, lo bool
	}{
		"bytes of no kind": {row(any, any), false, false},
		"high ones shrink": {row(few, any), true, false},
		"both shrink":      {row(few, few), true, true},
		"zeros":            {make([]byte, 2*1024*16), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if hi, lo := shrinks(bfloat16Rows(c.data, 1024)); hi != c.hi || lo != c.lo {
				t.Errorf("shrinks: got %t and %t, want %t and %t", hi, lo, c.hi, c.lo)
			}
		})
	}
}

func bfloat16Rows(data []byte, width int) format.Rows {
	return format.Rows{DType: format.BFloat16, N: len(data) / 2 / width, Width: width, Stride: 2 * width, Data: data}
}

func BenchmarkHalves(b *testing.B) {
	values := make([]byte, 256<<10)
	hi, lo := make([]byte, len(values)/2), make([]byte, len(values)/2)
	for name, f := range map[string]func(){
		"split": func() { split(hi, lo, values) }, "split-words": func() { splitWords(hi, lo, values) },
		"join": func() { join(values, hi, lo) }, "join-words": func() { joinWords(values, hi, lo) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(values)))
			for b.Loop() {
				f()
			}
		})
	}
}
