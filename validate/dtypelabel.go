package validate

import (
	"encoding/binary"

	"hsx/format"
)

// The bits of an fp16 number and those of a bf16 number differ in how many of them are
// the exponent, so a wrong label stretches or squeezes the scale of magnitudes eight
// times. The measure of it is the distance of the quartiles of bits>>7, which counts
// octaves in bf16 and eighths of octaves in fp16: 1.85 octaves for normally
// distributed values, 2.3 for Laplace's, and outliers do not move it. Real bf16 states
// have 2, real fp16 states about 15; the limits lie a factor of three from each.
const (
	dtypeRows   = 4   // of a sample, evenly spaced
	dtypeValues = 256 // of a row, evenly spaced
	dtypeLeast  = 64  // values without which nothing is said

	dtypeWide   = 7 // bf16 with quartiles this far apart is fp16
	dtypeNarrow = 4 // fp16 with quartiles this near is bf16
)

// checkDType reports 16-bit states whose values are those of the other 16-bit type.
func checkDType(a *dataAt, h format.Hidden, facts []rowFacts) {
	if h.Rows.DType.Size() != 2 {
		return
	}
	var counts [256]int
	n := 0
	for t := range spaced(h.Rows.N, dtypeRows) {
		if facts[t].NonFinite > 0 || facts[t].Constant {
			continue
		}
		n += countOctaves(&counts, h.Rows.Row(t))
	}
	if n < dtypeLeast {
		return
	}
	distance := quantile(&counts, n, 3) - quantile(&counts, n, 1)
	const do = "compare the dump's dtype with the capture's: read as the other type these values look ordinary"
	switch {
	case h.Rows.DType == format.BFloat16 && distance >= dtypeWide:
		a.find("dtype-label", Warning, h.State.Column(), -1, do, "half of all magnitudes span 2^%d, want about 2^2: these look like float16 values labelled bfloat16", distance)
	case h.Rows.DType == format.Float16 && distance <= dtypeNarrow:
		a.find("dtype-label", Warning, h.State.Column(), -1, do, "half of all magnitudes span 2^%.2g, want about 2^2: these look like bfloat16 values labelled float16", float64(distance)/8)
	}
}

// countOctaves counts up to dtypeValues evenly spaced values of a row, and returns how
// many of them are not 0. It is a loop of its own since it is run for each short sample.
func countOctaves(counts *[256]int, row []byte) (n int) {
	width := len(row) / 2
	most := min(width, dtypeValues)
	steps := max(1, most-1)
	step, rest := (width-1)/steps, (width-1)%steps
	for i, at, part := 0, 0, 0; i < most; i++ {
		if magnitude := binary.LittleEndian.Uint16(row[2*at:]) & 0x7fff; magnitude != 0 {
			counts[magnitude>>7]++
			n++
		}
		at += step
		if part += rest; part >= steps {
			at, part = at+1, part-steps
		}
	}
	return n
}

// quantile is the bin in which the q-th quarter of n counted values ends.
func quantile(counts *[256]int, n, q int) int {
	left := n * q / 4
	for bin, c := range counts {
		if left -= c; left < 0 {
			return bin
		}
	}
	return len(counts) - 1
}
