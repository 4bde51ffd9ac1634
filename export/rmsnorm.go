package export

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"

	"hsx/format"
	"hsx/shard"
)

// Norm is the final RMS norm of a target: it makes of a state before the norm the one
// after it. Its methods can be called by several goroutines.
//
// For widths of 8 and more its results are, bit for bit, those of the target's own module
// in transformers with torch on an x86-64 CPU. Who adds the squares of a row in another order,
// as a GPU does, gets a scale that is a few units of float32 away: measured at widths of 576 to
// 7168 that changes fewer than one element in 10⁵ in bfloat16 and in 10⁴ in float16, by at
// most two units, and a quarter of those in float32, by at most six.
type Norm struct {
	rule    normRule
	eps     float32
	weights map[format.DType][]float32 // what rows of a type are multiplied by
	scratch sync.Pool                  // *[]float32, one row each
}

// NewNorm makes a norm of its weight [H], its epsilon and the model_type of the target,
// which decides whether rows are rounded before or after they are multiplied by the weight,
// and whether that is w or 1+w. See [Norm.String] for a model_type that is not known.
func NewNorm(weight *format.Tensor, eps float64, family string) (*Norm, error) {
	return newNorm(weight, eps, ruleOf(family))
}

func newNorm(weight *format.Tensor, eps float64, rule normRule) (*Norm, error) {
	if weight == nil {
		return nil, errors.New("read final norm: there is no weight, want the tensor model.norm.weight of the target")
	}
	if err := weight.Check(); err != nil {
		return nil, fmt.Errorf("read final norm: %w", err)
	}
	if !weight.DType.IsState() || len(weight.Shape) != 1 || weight.Shape[0] == 0 || !weight.Dense() {
		return nil, fmt.Errorf("read final norm: weight %q is %s of shape %v, want one dimension of float32, float16 or bfloat16", weight.Name, weight.DType, weight.Shape)
	}
	if !(eps >= 0 && eps <= 1) {
		return nil, fmt.Errorf("read final norm: epsilon is %g, want 0 to 1", eps)
	}
	n := &Norm{rule: rule, eps: float32(eps), weights: map[format.DType][]float32{}}
	width := int(weight.Shape[0])
	stored := make([]float32, width)
	weight.DType.Floats(stored, weight.Data)
	for i, v := range stored {
		if v-v != 0 { // infinite or NaN
			return nil, fmt.Errorf("read final norm: weight %q is %v at channel %d", weight.Name, v, i)
		}
	}
	for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		w := make([]float32, width)
		for i, v := range stored {
			if !n.rule.wide {
				v = round(d, v)
			}
			if n.rule.unit {
				v++
			}
			w[i] = v
		}
		n.weights[d] = w
	}
	n.scratch.New = func() any { x := make([]float32, width); return &x }
	return n, nil
}

// Width is the hidden size.
func (n *Norm) Width() int { return len(n.weights[format.Float32]) }

// String says how rows are normed, and when that is a guess.
func (n *Norm) String() string { return fmt.Sprintf("RMS norm with epsilon %g: %s", n.eps, n.rule) }

// Apply norms rows of Width elements of type d, one after the other without gaps, from
// src into dst, which may be the same memory and must not overlap it otherwise. It uses
// all processors. The error says that the sizes do not fit, or that a file that src
// lies in is damaged (see [shard.Guard]).
func (n *Norm) Apply(dst, src []byte, d format.DType, rows int) error {
	size := n.Width() * d.Size()
	if !d.IsState() {
		return fmt.Errorf("norm states: rows are %s, want bfloat16, float16 or float32", d)
	}
	if rows < 0 || len(src)%size != 0 || len(src)/size != rows || len(dst) != len(src) {
		return fmt.Errorf("norm states: %d rows of %d bytes are to be read from %d bytes and written to %d", rows, size, len(src), len(dst))
	}
	const worth = 64 << 10 // bytes for which a goroutine is started
	parts := max(1, min(runtime.GOMAXPROCS(0), len(src)/worth))
	errs := make([]error, parts)
	var wg sync.WaitGroup
	for i := range parts {
		from, to := rows*i/parts*size, rows*(i+1)/parts*size
		wg.Go(func() { // faults of mapped memory stay in the goroutine that has them
			errs[i] = shard.Guard(func() error {
				n.apply(dst[from:to], src[from:to], d)
				return nil
			})
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (n *Norm) apply(dst, src []byte, d format.DType) {
	p := n.scratch.Get().(*[]float32)
	defer n.scratch.Put(p)
	x, w := *p, n.weights[d]
	size := len(x) * d.Size()
	for len(src) > 0 {
		d.Floats(x, src)
		mean := sumSquares(x) / float32(len(x))
		scale := 1 / float32(math.Sqrt(float64(mean+n.eps)))
		switch d {
		case format.BFloat16:
			n.bfloat16s(dst[:size], x, w, scale)
		case format.Float16:
			n.float16s(dst[:size], x, w, scale)
		default:
			for i, v := range x {
				binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v*scale*w[i]))
			}
		}
		dst, src = dst[size:], src[size:]
	}
}

func (n *Norm) bfloat16s(dst []byte, x, w []float32, scale float32) {
	w, dst = w[:len(x)], dst[:2*len(x)]
	for i, v := range x {
		v *= scale
		if n.rule.early {
			v = math.Float32frombits(bfloat16(v) << 16)
		}
		binary.LittleEndian.PutUint16(dst[2*i:], uint16(bfloat16(v*w[i])))
	}
}

func (n *Norm) float16s(dst []byte, x, w []float32, scale float32) {
	w, dst = w[:len(x)], dst[:2*len(x)]
	for i, v := range x {
		v *= scale
		if n.rule.early {
			if b := math.Float32bits(v); plainHalf(b) {
				v = math.Float32frombits(evenHalf(b))
			} else {
				v = format.Float16Value(float16(v))
			}
		}
		b := math.Float32bits(v * w[i])
		h := halfBits(b)
		if !plainHalf(b) {
			h = float16(v * w[i])
		}
		binary.LittleEndian.PutUint16(dst[2*i:], h)
	}
}

// sumSquares adds the squares of x in torch's order: 4 × 8 sums side by side, moved
// up a level after each 16, 256 and 4096 additions; then what is left over, then the
// sums, one after the other. The order is what makes the result torch's to the last bit.
func sumSquares(x []float32) float32 {
	const lanes, block, step, levels = 8, 32, 16, 4
	var acc [levels][block]float32
	blocks := len(x) / block
	for i := 0; i < blocks; {
		if i+step > blocks {
			addSquares(acc[0][:], x[i*block:blocks*block])
			break
		}
		addSquares(acc[0][:], x[i*block:(i+step)*block])
		i += step
		for j := 1; j < levels; j++ {
			merge(&acc[j], &acc[j-1])
			acc[j-1] = [block]float32{}
			if i>>(4*j)%step != 0 {
				break
			}
		}
	}
	for j := 1; j < levels; j++ {
		merge(&acc[0], &acc[j])
	}
	p, tail := acc[0][:], len(x)/lanes*lanes
	addSquares(p[:lanes], x[blocks*block:tail])
	sum := float32(0)
	for _, v := range x[tail:] {
		sum += float32(v * v)
	}
	for i, v := range p[:lanes] {
		sum += v + p[i+lanes] + p[i+2*lanes] + p[i+3*lanes]
	}
	return sum
}

// addSquares adds the squares of x to sums, element i to sum i modulo their number.
func addSquares(sums, x []float32) {
	for len(x) >= len(sums) {
		for i, v := range x[:len(sums)] {
			// The conversion keeps a processor that could from fusing the two operations.
			sums[i] += float32(v * v)
		}
		x = x[len(sums):]
	}
}

func merge(to, from *[32]float32) {
	for i := range to {
		to[i] += from[i]
	}
}

// round is the value of a type of states that is next to v.
func round(d format.DType, v float32) float32 {
	switch d {
	case format.BFloat16:
		return math.Float32frombits(bfloat16(v) << 16)
	case format.Float16:
		return format.Float16Value(float16(v))
	}
	return v
}

// bfloat16 is the bits of the bfloat16 that is next to v, of two the even one. It keeps
// every NaN that a processor makes, or passes on from a bfloat16: their low halves are 0.
func bfloat16(v float32) uint32 {
	b := math.Float32bits(v)
	return (b + 0x7fff + b>>16&1) >> 16
}

// float16 is the bits of the IEEE half that is next to v, of two the even one.
func float16(v float32) uint16 {
	b := math.Float32bits(v)
	if plainHalf(b) {
		return halfBits(b)
	}
	sign, b := uint16(b>>16&0x8000), b&0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 // NaN
	case b >= 0x38800000:
		return sign | 0x7c00
	}
	// The addition rounds: the last bit of 0.5 is that of the least half.
	return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-math.Float32bits(0.5))
}

// plainHalf reports whether the half next to a float32 is a normal number, as nearly all
// are. For those a loop need not call float16.
func plainHalf(b uint32) bool {
	const least, limit = 0x38800000, 0x477ff000 // 2^-14, 65520
	return b&^(1<<31)-least < limit-least
}

// evenHalf is the bits of the float32 that is a normal half and next to b.
func evenHalf(b uint32) uint32 { return (b + 0xfff + b>>13&1) &^ 0x1fff }

// halfBits is float16 where plainHalf is true.
func halfBits(b uint32) uint16 {
	const rebias = (127 - 15) << 23
	return uint16(b>>16&0x8000 | (evenHalf(b)&^(1<<31)-rebias)>>13)
}
