package zhuff

import (
	"slices"

	"github.com/klauspost/compress/fse"
)

// plant makes the tree of the shortest codes for bytes of which two or more come, each so
// many times. No code is longer than codeBits: Larmore and Hirschberg's package-merge.
func (t *tree) plant(counts *[256]uint32) {
	const shift = 8 // a leaf is a byte below how many times it comes
	var room [256]uint64
	leaves := room[:0]
	for b, n := range counts {
		if n > 0 {
			leaves = append(leaves, uint64(n)<<shift|uint64(b))
		}
	}
	slices.Sort(leaves)

	// What can be taken for each bit of a code: the leaves, and pairs of what there is for
	// the next bit, the least first.
	var isLeaf [codeBits][2 * len(room)]bool
	var items [2][2 * len(room)]uint64
	below := items[0][:0]
	for level := range isLeaf {
		at := items[(level+1)%2][:0]
		for i, pairs := 0, below; i < len(leaves) || len(pairs) > 1; {
			leaf := len(pairs) < 2 || i < len(leaves) && leaves[i]>>shift <= pairs[0]+pairs[1]
			isLeaf[level][len(at)] = leaf
			if leaf {
				at = append(at, leaves[i]>>shift)
				i++
			} else {
				at = append(at, pairs[0]+pairs[1])
				pairs = pairs[2:]
			}
		}
		below = at
	}

	// A code gets a bit for each time that its leaf is among the cheapest which suffice.
	var length [256]uint8
	take := 2*len(leaves) - 2
	for level := codeBits - 1; level >= 0; level-- {
		n := 0
		for _, leaf := range isLeaf[level][:take] {
			if leaf {
				length[n]++
				n++
			}
		}
		take = 2 * (take - n)
	}

	clear(t.weights[:])
	last := 0
	for k, leaf := range leaves {
		b := int(leaf & (1<<shift - 1))
		t.weights[b] = length[0] + 1 - length[k]
		last = max(last, b)
	}
	t.written = t.weights[:last]
	if err := t.complete(t.written); err != nil {
		panic(err) // the codes above are a whole tree
	}
}

// append writes a planted tree, if it can be written.
func (t *tree) append(dst []byte) ([]byte, bool) {
	t.fse.TableLog = mostLog
	coded, err := fse.Compress(t.written, &t.fse)
	plain := (len(t.written) + 1) / 2
	switch {
	case err == nil && len(coded) < plainWeights && (len(coded) < plain || len(t.written) > plainWeights):
		return append(append(dst, byte(len(coded))), coded...), true
	case len(t.written) > plainWeights:
		return dst, false
	}
	dst = append(dst, byte(plainWeights-1+len(t.written)))
	for i, w := range t.written {
		if i%2 == 0 {
			dst = append(dst, w<<4)
		} else {
			dst[len(dst)-1] |= w
		}
	}
	return dst, true
}
