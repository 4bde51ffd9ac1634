package validate

import (
	"encoding/binary"
	"math"

	"hsx/format"
)

// weightsWiden makes float32 of a row of any floating type.
func weightsWiden(dst []float32, d format.DType, row []byte) {
	switch d {
	case format.BFloat16:
		row = row[:2*len(dst)]
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(row[2*i:])) << 16)
		}
	case format.Float16:
		row = row[:2*len(dst)]
		for i := range dst {
			dst[i] = format.Float16Value(binary.LittleEndian.Uint16(row[2*i:]))
		}
	case format.Float32:
		row = row[:4*len(dst)]
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(row[4*i:]))
		}
	}
}

// weightsDot is the inner product of two rows of equal length. Eight sums of their
// own keep the additions from waiting for each other.
func weightsDot(a, b []float32) float32 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float32
	for len(a) >= 8 && len(b) >= 8 {
		s0 += a[0] * b[0]
		s1 += a[1] * b[1]
		s2 += a[2] * b[2]
		s3 += a[3] * b[3]
		s4 += a[4] * b[4]
		s5 += a[5] * b[5]
		s6 += a[6] * b[6]
		s7 += a[7] * b[7]
		a, b = a[8:], b[8:]
	}
	for i := range min(len(a), len(b)) {
		s0 += a[i] * b[i]
	}
	return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
}

// weightsSpread is up to n of the positions, evenly spaced and ascending, the first
// among them.
func weightsSpread(positions []int, n int) []int {
	if len(positions) <= n {
		return positions
	}
	out := make([]int, n)
	for i := range out {
		out[i] = positions[i*len(positions)/n]
	}
	return out
}

// weightsToken is the token whose state row t is, and ok false when the sample does
// not hold it: shifted dumps keep each token one place to the left of its state.
func weightsToken(s *format.Sample, t int) (id int32, ok bool) {
	if s.Shifted {
		t--
	}
	if t < 0 || t >= len(s.Tokens) {
		return 0, false
	}
	return s.Tokens[t], true
}

// weightsUsable reports whether a row says anything: all rules leave out rows that
// the rules on values report.
func weightsUsable(f *sampleFacts, state, t int) bool {
	r := &f.States[state][t]
	return r.NonFinite == 0 && !r.Zero
}
