package validate

import (
	"math"
	"math/bits"
)

// statSum adds floats without rounding, in fixed point: 64 bits before the point and
// 64 after it, the high word first. Such a sum is the same in whatever order and
// grouping its terms come, so that workers and partitions cannot change a figure.
// What lies below 2^-64 is cut off term by term; above 2^64 the sum stays at its end.
type statSum [2]uint64

// add takes a term of at least 0; a NaN counts nothing.
func (s *statSum) add(v float64) {
	const limit = 1 << 63
	if !(v > 0) {
		return
	}
	// v is a whole number of 53 bits times a power of two, but where it is far below 2^-64.
	b := math.Float64bits(min(v, limit))
	whole := b&(1<<52-1) | 1<<52
	switch shift := int(b>>52) - 1075 + 64; {
	case shift < 0:
		s.merge(statSum{0, whole >> -shift})
	case shift < 64:
		s.merge(statSum{whole >> (64 - shift), whole << shift})
	default:
		s.merge(statSum{whole << (shift - 64), 0})
	}
}

func (s *statSum) merge(o statSum) {
	lo, carry := bits.Add64(s[1], o[1], 0)
	hi, over := bits.Add64(s[0], o[0], carry)
	if over != 0 {
		hi, lo = math.MaxUint64, math.MaxUint64
	}
	*s = statSum{hi, lo}
}

func (s statSum) value() float64 { return float64(s[0]) + float64(s[1])/(1<<64) }

// statMean is a number of terms and their sum.
type statMean struct {
	N   int64   `json:"n"`
	Sum statSum `json:"sum"`
}

func (m *statMean) add(v float64) {
	m.N++
	m.Sum.add(v)
}

func (m *statMean) merge(o statMean) {
	m.N += o.N
	m.Sum.merge(o.Sum)
}

// mean is 0 when there were no terms.
func (m statMean) mean() float64 {
	if m.N <= 0 {
		return 0
	}
	return m.Sum.value() / float64(m.N)
}

// statLengths counts lengths in bins that are exact below 32 and 1/16 of their length
// wide above, so that two histograms add and a quantile is within 6 %.
type statLengths []int64

const statSubBins = 16

func statBin(n int) int {
	if n < statSubBins {
		return n
	}
	e := bits.Len(uint(n)) - 5
	return statSubBins*e + n>>e
}

// statBinEdges are the first length of a bin and the first beyond it.
func statBinEdges(b int) (from, to int) {
	if b < 2*statSubBins {
		return b, b + 1
	}
	e := b/statSubBins - 1
	from = (b - statSubBins*e) << e
	return from, from + 1<<e
}

func (h *statLengths) add(n int) {
	b := statBin(n)
	*h = statGrow(*h, b+1)
	(*h)[b]++
}

func (h *statLengths) merge(o statLengths) { *h = statAddCounts(*h, o) }

// quantile is the length below or at which the share q of all lies, interpolated
// within its bin; 0 when there are none.
func (h statLengths) quantile(q float64) int {
	var all int64
	for _, c := range h {
		all += c
	}
	rank := max(1, int64(math.Ceil(q*float64(all))))
	for b, c := range h {
		if rank <= c {
			from, to := statBinEdges(b)
			return from + int(float64(to-from)*(float64(rank)-0.5)/float64(c))
		}
		rank -= c
	}
	return 0
}

// statGrow makes s at least n long.
func statGrow[T any](s []T, n int) []T {
	if n > len(s) {
		s = append(s, make([]T, n-len(s))...)
	}
	return s
}

func statAddCounts(s, o []int64) []int64 {
	s = statGrow(s, len(o))
	for i, c := range o {
		s[i] += c
	}
	return s
}
