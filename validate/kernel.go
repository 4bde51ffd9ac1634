package validate

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/zeebo/xxh3"

	"hsx/format"
)

// rowFactsOf looks at one row of n ≥ 0 elements of a state's type, once for its hash
// and once for its values, the second time from the cache. It does not allocate.
//
// Values are read eight bytes at a time, and added up in float32: over blocks short
// enough that SumSq is right to 1e-5, in an order that is the same on every processor: the
// conversions of products keep one that could from fusing two operations. Rows that this cannot do, those with non-finite or
// extreme values, are read again one value at a time.
func rowFactsOf(row []byte, d format.DType) rowFacts {
	f := rowFacts{Hash: xxh3.Hash(row)}
	size := d.Size()
	if !d.IsState() || len(row) < size {
		return f
	}
	var w kernelWords
	switch size {
	case 2:
		w.first = uint64(binary.LittleEndian.Uint16(row)) * lanes16
	case 4:
		w.first = uint64(binary.LittleEndian.Uint32(row)) * lanes32
	}
	w.row(row, d, &f)
	top := w.top(d)
	f.Zero = top == 0
	f.Constant = w.differ == 0 && len(row) > size
	f.MaxAbs = kernelValue(d, top)
	// The negated comparison is true of NaN too.
	extreme := !(f.SumSq <= math.MaxFloat32) || f.SumSq < 1e-30 && !f.Zero
	if extreme || top >= kernelInf(d) || d == format.Float16 && top == fp16Max {
		kernelSlow(row, d, &f)
	}
	return f
}

// Words hold four elements of 16 bits or two of 32. An element's sign bit is the
// lane's top bit, free for carries once the sign is cut off; magnitudes of floats are
// ordered as the integers of their bits.
const (
	lanes16 = 0x0001_0001_0001_0001
	lanes32 = 0x0000_0001_0000_0001
	sign16  = lanes16 << 15
	sign32  = lanes32 << 31

	fp16Max = 0x7bff // ±65504, where conversion to fp16 saturates

	// kernelBlock is how many bytes are added up in float32: 64 terms in each of the
	// four sums of a 16-bit type.
	kernelBlock = 512
)

// kernelInf is the magnitude bits of infinity: those of NaN are above it.
func kernelInf(d format.DType) uint32 {
	switch d {
	case format.BFloat16:
		return 0x7f80
	case format.Float16:
		return 0x7c00
	}
	return 0x7f80_0000
}

// kernelValue is the number that the bits of an element stand for.
func kernelValue(d format.DType, b uint32) float32 {
	switch d {
	case format.BFloat16:
		return math.Float32frombits(b << 16)
	case format.Float16:
		return format.Float16Value(uint16(b))
	}
	return math.Float32frombits(b)
}

// kernelWords is what the words of a row have shown so far.
type kernelWords struct {
	first  uint64 // the first element, in every lane
	differ uint64 // bits in which any element differs from it
	max    uint64 // the greatest magnitude seen in each lane
}

// top is the greatest magnitude.
func (w *kernelWords) top(d format.DType) uint32 {
	if d == format.Float32 {
		return max(uint32(w.max), uint32(w.max>>32))
	}
	return uint32(max(w.max&0xffff, w.max>>16&0xffff, w.max>>32&0xffff, w.max>>48))
}

// row looks at a row, or at a part of it behind what was looked at before.
func (w *kernelWords) row(row []byte, d format.DType, f *rowFacts) {
	if d == format.BFloat16 {
		row = w.bf16Vectors(row, f)
	}
	w.blocks(row, d, f)
}

// blocks looks at a row in pieces, the last one filled up with zeros.
func (w *kernelWords) blocks(row []byte, d format.DType, f *rowFacts) {
	for len(row) >= 8 {
		n := min(kernelBlock, len(row)&^7)
		w.block(row[:n], d, f)
		row = row[n:]
	}
	if len(row) == 0 {
		return
	}
	var tail, first [8]byte
	copy(tail[:], row)
	differ := w.differ
	w.block(tail[:], d, f)
	// What the filling differs in does not count.
	binary.LittleEndian.PutUint64(first[:], w.first)
	copy(tail[len(row):], first[len(row):])
	w.differ = differ | (binary.LittleEndian.Uint64(tail[:]) ^ w.first)
}

func (w *kernelWords) block(b []byte, d format.DType, f *rowFacts) {
	var squares float32
	switch d {
	case format.BFloat16:
		squares = w.bf16(b)
	case format.Float16:
		squares = w.fp16(b)
	case format.Float32:
		squares = w.fp32(b)
	}
	f.SumSq += float64(squares)
}

// max16 is the greater magnitude in each lane of 16 bits; neither has a sign bit.
func max16(a, b uint64) uint64 {
	d := a | sign16 - b // the sign bit stays where a ≥ b
	t := d & sign16
	return b + d&(t-t>>15)
}

// max32 is the greater magnitude in each lane of 32 bits; neither has a sign bit.
func max32(a, b uint64) uint64 {
	d := a | sign32 - b
	t := d & sign32
	return b + d&(t-t>>31)
}

// bf16 adds up the squares of whole words of bf16.
func (w *kernelWords) bf16(b []byte) (squares float32) {
	var q0, q1, q2, q3 float32
	first, differ, top := w.first, w.differ, w.max
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b)
		b = b[8:]
		differ |= v ^ first
		top = max16(v&^sign16, top)
		lo, hi := uint32(v), uint32(v>>32)
		x0, x1 := math.Float32frombits(lo<<16), math.Float32frombits(lo&0xffff_0000)
		x2, x3 := math.Float32frombits(hi<<16), math.Float32frombits(hi&0xffff_0000)
		q0, q1, q2, q3 = q0+float32(x0*x0), q1+float32(x1*x1), q2+float32(x2*x2), q3+float32(x3*x3)
	}
	w.differ, w.max = differ, top
	return q0 + q1 + (q2 + q3)
}

// fp16 adds up the squares of whole words of fp16. An fp16 number moved into the place of a
// float32's is 2^112 times too small, subnormals too.
func (w *kernelWords) fp16(b []byte) (squares float32) {
	const scale = 1 << 112
	var q0, q1, q2, q3 float32
	first, differ, top := w.first, w.differ, w.max
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b)
		b = b[8:]
		differ |= v ^ first
		top = max16(v&^sign16, top)
		lo, hi := uint32(v), uint32(v>>32)
		x0, x1 := fp16Place(lo<<16)*scale, fp16Place(lo)*scale
		x2, x3 := fp16Place(hi<<16)*scale, fp16Place(hi)*scale
		q0, q1, q2, q3 = q0+float32(x0*x0), q1+float32(x1*x1), q2+float32(x2*x2), q3+float32(x3*x3)
	}
	w.differ, w.max = differ, top
	return q0 + q1 + (q2 + q3)
}

// fp16Place moves the fp16 in the upper half of v to where a float32 has its sign,
// exponent and fraction.
func fp16Place(v uint32) float32 {
	return math.Float32frombits(uint32(int32(v)>>3) & 0x8fff_e000)
}

// fp32 adds up the squares of whole words of fp32.
func (w *kernelWords) fp32(b []byte) (squares float32) {
	var q0, q1 float32
	first, differ, top := w.first, w.differ, w.max
	for len(b) >= 8 {
		v := binary.LittleEndian.Uint64(b)
		b = b[8:]
		differ |= v ^ first
		top = max32(v&^sign32, top)
		x0, x1 := math.Float32frombits(uint32(v)), math.Float32frombits(uint32(v>>32))
		q0, q1 = q0+float32(x0*x0), q1+float32(x1*x1)
	}
	w.differ, w.max = differ, top
	return q0 + q1
}

// kernelSlow replaces the sums and counts of a row by those of its finite values.
func kernelSlow(row []byte, d format.DType, f *rowFacts) {
	f.SumSq, f.MaxAbs, f.NonFinite, f.Saturated = 0, 0, 0, 0
	size, inf := d.Size(), kernelInf(d)
	for i := 0; i+size <= len(row); i += size {
		b := kernelBits(row[i:], d)
		magnitude := b & (1<<(8*size-1) - 1)
		if magnitude >= inf {
			f.NonFinite++
			continue
		}
		if d == format.Float16 && magnitude == fp16Max {
			f.Saturated++
		}
		x := float64(kernelValue(d, b))
		f.SumSq += x * x
		f.MaxAbs = max(f.MaxAbs, float32(math.Abs(x)))
	}
}

// kernelBits is the bits of the element that b begins with.
func kernelBits(b []byte, d format.DType) uint32 {
	if d == format.Float32 {
		return binary.LittleEndian.Uint32(b)
	}
	return uint32(binary.LittleEndian.Uint16(b))
}

// firstNonFinite is the first channel of a row whose value is NaN or Inf, -1 if none
// is, and that value.
func firstNonFinite(row []byte, d format.DType) (channel int, value float32) {
	size := d.Size()
	for i := 0; i+size <= len(row); i += size {
		v := kernelValue(d, kernelBits(row[i:], d))
		if bits := math.Float32bits(v); bits&0x7f80_0000 == 0x7f80_0000 {
			return i / size, v
		}
	}
	return -1, 0
}

// begin forgets all rows, and keeps their memory for those of a sample with n states.
func (f *sampleFacts) begin(n int) {
	f.States = slices.Grow(f.States[:0], n)[:n]
	for i := range f.States {
		f.States[i] = f.States[i][:0]
	}
}

// see adds the facts of the next rows of a state.
func (f *sampleFacts) see(state int, r format.Rows) {
	facts := f.States[state]
	for t := range r.N {
		facts = append(facts, rowFactsOf(r.Row(t), r.DType))
	}
	f.States[state] = facts
}
