package validate

import "golang.org/x/sys/cpu"

// kernelLanes is what bf16Quad and bf16Pair hand on: the sums of four lanes of each of
// their blocks, and of all blocks of a row the bits that differ and the greatest magnitudes,
// of which a word of its own is for every second or fourth word.
type kernelLanes struct {
	squares     [4][4]float32
	differ, max [4]uint64
}

// bf16Quad looks at four blocks side by side, as [kernelWords.bf16] does at one after the
// other: its lanes are that function's sums, so that no bit of the result depends on which
// of the two was used. It takes AVX2.
//
//go:noescape
func bf16Quad(b *[4 * kernelBlock]byte, first uint64, l *kernelLanes)

// bf16Pair does so with two blocks, and AVX.
//
//go:noescape
func bf16Pair(b *[2 * kernelBlock]byte, first uint64, l *kernelLanes)

// bf16Vectors looks at as many pairs of blocks as a row has, and returns what is left.
func (w *kernelWords) bf16Vectors(row []byte, f *rowFacts) []byte {
	if len(row) < 2*kernelBlock || !cpu.X86.HasAVX {
		return row
	}
	l := kernelLanes{differ: [4]uint64{w.differ}, max: [4]uint64{w.max}}
	if cpu.X86.HasAVX2 {
		for len(row) >= 4*kernelBlock {
			bf16Quad((*[4 * kernelBlock]byte)(row), w.first, &l)
			for i := range l.squares {
				q := &l.squares[i]
				f.SumSq += float64(q[0] + q[1] + (q[2] + q[3]))
			}
			row = row[4*kernelBlock:]
		}
	}
	for len(row) >= 2*kernelBlock {
		bf16Pair((*[2 * kernelBlock]byte)(row), w.first, &l)
		for i := range 2 {
			q := &l.squares[i]
			f.SumSq += float64(q[0] + q[1] + (q[2] + q[3]))
		}
		row = row[2*kernelBlock:]
	}
	w.differ = l.differ[0] | l.differ[1] | l.differ[2] | l.differ[3]
	w.max = max16(max16(l.max[0], l.max[1]), max16(l.max[2], l.max[3]))
	return row
}
