package validate

import "golang.org/x/sys/cpu"

// kernelLanes is what bf16Pair hands on: the sums of four lanes of each of two blocks,
// and of all blocks of a row the bits that differ and the greatest magnitudes, of which
// a word of its own is for every other word of the row.
type kernelLanes struct {
	squares     [2][4]float32
	differ, max [2]uint64
}

// bf16Pair looks at two blocks side by side, as [kernelWords.bf16] does at one after the
// other: its lanes are that function's sums, so that no bit of the result depends on which
// of the two was used.
//
//go:noescape
func bf16Pair(b *[2 * kernelBlock]byte, first uint64, l *kernelLanes)

// bf16Pairs looks at as many pairs of blocks as a row has, and returns what is left.
func (w *kernelWords) bf16Pairs(row []byte, f *rowFacts) []byte {
	if len(row) < 2*kernelBlock || !cpu.X86.HasAVX {
		return row
	}
	l := kernelLanes{differ: [2]uint64{w.differ}, max: [2]uint64{w.max}}
	for len(row) >= 2*kernelBlock {
		bf16Pair((*[2 * kernelBlock]byte)(row), w.first, &l)
		for _, q := range l.squares {
			f.SumSq += float64(q[0] + q[1] + (q[2] + q[3]))
		}
		row = row[2*kernelBlock:]
	}
	w.differ, w.max = l.differ[0]|l.differ[1], max16(l.max[0], l.max[1])
	return row
}
