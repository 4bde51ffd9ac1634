package validate

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

// weightsUsable reports whether a row says anything: all rules leave out rows that
// the rules on values report.
func weightsUsable(f *sampleFacts, state, t int) bool {
	r := &f.States[state][t]
	return r.NonFinite == 0 && !r.Zero
}
