package validate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/zeebo/xxh3"

	"hsx/format"
)

// naiveFacts is what rowFactsOf should give, one value at a time.
func naiveFacts(row []byte, d format.DType) (f rowFacts) {
	f.Hash = xxh3.Hash(row)
	size := d.Size()
	n := len(row) / size
	f.Zero, f.Constant = n > 0, n > 1
	for i := range n {
		var x float64
		var b uint32
		switch d {
		case format.BFloat16:
			b = uint32(binary.LittleEndian.Uint16(row[i*2:]))
			x = float64(math.Float32frombits(b << 16))
		case format.Float16:
			b = uint32(binary.LittleEndian.Uint16(row[i*2:]))
			x = float64(format.Float16Value(uint16(b)))
			if math.Abs(x) == 65504 {
				f.Saturated++
			}
		case format.Float32:
			b = binary.LittleEndian.Uint32(row[i*4:])
			x = float64(math.Float32frombits(b))
		}
		f.Zero = f.Zero && x == 0
		f.Constant = f.Constant && string(row[:size]) == string(row[i*size:][:size])
		if math.IsNaN(x) || math.IsInf(x, 0) {
			f.NonFinite++
			continue
		}
		f.SumSq += x * x
		f.MaxAbs = max(f.MaxAbs, float32(math.Abs(x)))
	}
	return f
}

func checkFacts(t *testing.T, row []byte, d format.DType) {
	t.Helper()
	got := rowFactsOf(row, d)
	want := naiveFacts(row, d)
	// Float32 cannot tell squares below 1e-45 from 0.
	if math.Abs(got.SumSq-want.SumSq) > 1e-5*want.SumSq+1e-43 {
		t.Errorf("rowFactsOf(%s, %d bytes): got squares %g, want %g", d, len(row), got.SumSq, want.SumSq)
	}
	got.SumSq, want.SumSq = 0, 0
	if got != want {
		t.Errorf("rowFactsOf(%s, %x): got %+v, want %+v", d, row[:min(len(row), 64)], got, want)
	}
	channel, value := firstNonFinite(row, d)
	if (channel >= 0) != (want.NonFinite > 0) {
		t.Errorf("firstNonFinite(%s): got channel %d and %v, want one of %d", d, channel, value, want.NonFinite)
	}
}

// stateDTypes are the types a dataset holds.
func stateDTypes() []format.DType {
	return []format.DType{format.BFloat16, format.Float16, format.Float32}
}

// randomRow makes a row of width values of one kind.
func randomRow(rng *rand.Rand, d format.DType, width int, kind string) []byte {
	row := make([]byte, width*d.Size())
	put := func(i int, bits uint32) {
		if d.Size() == 4 {
			binary.LittleEndian.PutUint32(row[4*i:], bits)
		} else {
			binary.LittleEndian.PutUint16(row[2*i:], uint16(bits))
		}
	}
	sign := uint32(1) << (8*d.Size() - 1)
	inf := kernelInf(d)
	for i := range width {
		normal := math.Float32bits(float32(rng.NormFloat64()))
		switch d {
		case format.BFloat16:
			normal >>= 16
		case format.Float16:
			normal = normal>>16&0x8000 | max(normal>>13&0x3ffff, 112<<10) - 112<<10
		}
		switch kind {
		case "zero":
		case "signed zero":
			put(i, rng.Uint32()&sign)
		case "constant":
			put(i, inf-7)
		case "subnormal":
			put(i, rng.Uint32()&sign|uint32(rng.IntN(64)))
		case "bits":
			put(i, rng.Uint32())
		case "normal":
			put(i, normal)
		case "one nan":
			put(i, normal)
			if i == width/2 {
				put(i, inf+1+uint32(rng.IntN(100)))
			}
		case "infs":
			put(i, normal)
			if rng.IntN(5) == 0 {
				put(i, inf|rng.Uint32()&sign)
			}
		case "largest":
			put(i, rng.Uint32()&sign|(inf-1))
		}
	}
	return row
}

func TestRowFacts(t *testing.T) {
	t.Parallel()
	widths := []int{255, 256, 257, 1023, 1024, 1025, 7168}
	for w := range 131 {
		widths = append(widths, w)
	}
	for _, d := range stateDTypes() {
		for _, kind := range []string{"zero", "signed zero", "constant", "subnormal", "bits", "normal", "one nan", "infs", "largest"} {
			t.Run(d.String()+" "+kind, func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, uint64(d)))
				for _, w := range widths {
					checkFacts(t, randomRow(rng, d, w, kind), d)
				}
			})
		}
	}
}

// TestRowFactsOneByOne sets each channel of a row to each special value.
func TestRowFactsOneByOne(t *testing.T) {
	t.Parallel()
	for _, d := range stateDTypes() {
		t.Run(d.String(), func(t *testing.T) {
			t.Parallel()
			size, inf := d.Size(), kernelInf(d)
			sign := uint32(1) << (8*size - 1)
			for _, special := range []uint32{0, sign, 1, inf, inf | sign, inf + 1, sign - 1, 2*sign - 1, inf - 1, inf - 1 | sign} {
				for i := range 21 {
					for _, kind := range []string{"zero", "constant", "normal"} {
						row := randomRow(rand.New(rand.NewPCG(2, uint64(i))), d, 21, kind)
						if size == 4 {
							binary.LittleEndian.PutUint32(row[4*i:], special)
						} else {
							binary.LittleEndian.PutUint16(row[2*i:], uint16(special))
						}
						checkFacts(t, row, d)
					}
				}
			}
		})
	}
}

func TestFirstNonFinite(t *testing.T) {
	t.Parallel()
	row := make([]byte, 20)
	binary.LittleEndian.PutUint16(row[6:], 0xff80)
	binary.LittleEndian.PutUint16(row[8:], 0x7fc0)
	if channel, value := firstNonFinite(row, format.BFloat16); channel != 3 || !math.IsInf(float64(value), -1) {
		t.Errorf("firstNonFinite: got channel %d and %v, want 3 and -Inf", channel, value)
	}
}

// TestRowFactsOtherTypes: only states have values; nothing else is read as one.
func TestRowFactsOtherTypes(t *testing.T) {
	t.Parallel()
	row := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for d := format.InvalidDType; d <= format.Float64; d++ {
		if got, want := rowFactsOf(row, d), (rowFacts{Hash: xxh3.Hash(row)}); !d.IsState() && got != want {
			t.Errorf("rowFactsOf(%s): got %+v, want the hash alone", d, got)
		}
	}
}

func TestRowFactsDoesNotAllocate(t *testing.T) {
	for _, d := range stateDTypes() {
		for _, kind := range []string{"normal", "bits"} {
			row := randomRow(rand.New(rand.NewPCG(3, 3)), d, 1025, kind)
			if n := testing.AllocsPerRun(100, func() { rowFactsOf(row, d) }); n != 0 {
				t.Errorf("rowFactsOf(%s, %s): got %v allocations, want 0", d, kind, n)
			}
		}
	}
}

func FuzzRowFacts(f *testing.F) {
	rng := rand.New(rand.NewPCG(4, 4))
	for _, d := range stateDTypes() {
		for _, kind := range []string{"signed zero", "constant", "bits", "one nan", "infs"} {
			f.Add(uint8(d), randomRow(rng, d, 37, kind))
		}
	}
	f.Fuzz(func(t *testing.T, dtype uint8, row []byte) {
		d := stateDTypes()[int(dtype)%3]
		checkFacts(t, row[:len(row)/d.Size()*d.Size()], d)
	})
}

// FuzzKernelVectors holds what bf16Vectors finds, where this processor has it, to the bits that
// the plain loop finds.
func FuzzKernelVectors(f *testing.F) {
	rng := rand.New(rand.NewPCG(6, 6))
	for _, kind := range []string{"zero", "constant", "bits", "normal", "one nan", "infs", "largest"} {
		f.Add(randomRow(rng, format.BFloat16, 300, kind), uint16(7168))
	}
	f.Fuzz(func(t *testing.T, pattern []byte, width uint16) {
		if len(pattern) < 2 {
			return
		}
		row := make([]byte, 0, 2*int(width))
		for len(row) < cap(row) {
			row = append(row, pattern[:min(len(pattern), cap(row)-len(row))]...)
			pattern = append(pattern[1:], pattern[0]+1) // so that no two blocks are alike
		}
		if len(row) == 0 {
			return
		}
		first := uint64(binary.LittleEndian.Uint16(row)) * lanes16
		got, want := kernelWords{first: first}, kernelWords{first: first}
		var gotFacts, wantFacts rowFacts
		got.row(row, format.BFloat16, &gotFacts)
		want.blocks(row, format.BFloat16, &wantFacts)
		if g, w := math.Float64bits(gotFacts.SumSq), math.Float64bits(wantFacts.SumSq); g != w && !(math.IsNaN(gotFacts.SumSq) && math.IsNaN(wantFacts.SumSq)) {
			t.Errorf("squares of %d values: got %v, want %v", width, gotFacts.SumSq, wantFacts.SumSq)
		}
		if got.top(format.BFloat16) != want.top(format.BFloat16) || (got.differ == 0) != (want.differ == 0) {
			t.Errorf("%d values: got top %#x and differ %#x, want %#x and %#x", width, got.top(format.BFloat16), got.differ, want.top(format.BFloat16), want.differ)
		}
	})
}

func BenchmarkKernel(b *testing.B) {
	for _, d := range stateDTypes() {
		for _, width := range []int{64, 576, 7168} {
			b.Run(fmt.Sprintf("%s-%d", d, width), func(b *testing.B) {
				row := randomRow(rand.New(rand.NewPCG(5, 5)), d, width, "normal")
				b.SetBytes(int64(len(row)))
				b.ReportAllocs()
				for b.Loop() {
					rowFactsOf(row, d)
				}
			})
		}
	}
	b.Run("bfloat16-7168-nan", func(b *testing.B) {
		row := randomRow(rand.New(rand.NewPCG(5, 5)), format.BFloat16, 7168, "one nan")
		b.SetBytes(int64(len(row)))
		b.ReportAllocs()
		for b.Loop() {
			rowFactsOf(row, format.BFloat16)
		}
	})
}

// factsOf is the facts of all rows of a sample.
func factsOf(s *format.Sample) [][]rowFacts {
	var f sampleFacts
	f.begin(len(s.Hidden))
	for i, h := range s.Hidden {
		f.see(i, h.Rows)
	}
	return f.States
}
