package zhuff

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/klauspost/compress/fse"
)

// codeBits is the length of the longest code that zstd allows.
const codeBits = 11

// tree says which codes of bits stand for which bytes. Codes are numbered from the
// longest to the shortest, those of one length in the order of their bytes.
type tree struct {
	bits    [256]uint8 // the length of each byte's code; of bytes without one it is not looked at
	symbols []byte     // that have codes, in the order of those

	fse     fse.Scratch
	weights [256]byte
	written []byte // those that a planted tree is written by
	order   [256]byte
}

// A tree begins with a byte: that many bytes of weights in FSE follow, or, less
// plainWeights-1, so many weights of four bits.
const (
	plainWeights = 128
	leastLog     = 5 // of the table of FSE, to which what the description says is added
	mostLog      = 6
)

// read reads a tree, and returns what follows it.
func (t *tree) read(data []byte) (rest []byte, err error) {
	if len(data) < 2 {
		return nil, errors.New("tree is cut")
	}
	n := int(data[0])
	count := n - plainWeights + 1
	if count > 0 {
		n = (count + 1) / 2
	}
	data = data[1:]
	if n == 0 || n > len(data) {
		return nil, fmt.Errorf("tree has %d bytes, %d are there", n, len(data))
	}
	weights := t.weights[:0]
	if count > 0 {
		for _, b := range data[:n] {
			weights = append(weights, b>>4, b&15)
		}
		return data[n:], t.complete(weights[:count])
	}
	if data[0]&15 > mostLog-leastLog {
		return nil, fmt.Errorf("tree has weights in a table of 1<<%d, want at most 1<<%d", data[0]&15+leastLog, mostLog)
	}
	t.fse.Out, t.fse.DecompressLimit = weights, len(t.weights)-1
	weights, err = fse.Decompress(data[:n], &t.fse)
	t.fse.Out = nil
	if err != nil {
		return nil, fmt.Errorf("weights of a tree: %w", err)
	}
	return data[n:], t.complete(weights)
}

// complete makes a tree of the weights of its bytes, which are how much shorter than the
// longest their codes are. The weight of the last byte is not there: it is what is
// missing.
func (t *tree) complete(weights []byte) error {
	if len(weights) > len(t.weights)-1 {
		return fmt.Errorf("tree has %d weights, want at most %d", len(weights), len(t.weights)-1)
	}
	var ranks [codeBits + 2]int // bytes of each weight, and then where those begin
	total := 0
	for _, w := range weights {
		if w > codeBits {
			return fmt.Errorf("tree has a weight of %d, want at most %d", w, codeBits)
		}
		ranks[w]++
		total += 1 << w >> 1
	}
	longest := bits.Len(uint(total))
	left := 1<<longest - total
	if total == 0 || longest > codeBits || left&(left-1) != 0 {
		return fmt.Errorf("weights of a tree come to %d, want a power of two, at most %d, less another one", total, 1<<codeBits)
	}
	last := bits.Len(uint(left))
	if ranks[last]++; ranks[1] < 2 || ranks[1]%2 != 0 {
		return fmt.Errorf("tree has %d codes of %d bits, the longest, want an even number", ranks[1], longest)
	}
	at := 0
	for w := 1; w < len(ranks); w++ {
		ranks[w], at = at, at+ranks[w]
	}
	t.symbols = t.order[:at]
	place := func(b, w int) {
		if w > 0 {
			t.bits[b] = uint8(longest + 1 - w)
			t.symbols[ranks[w]] = byte(b)
			ranks[w]++
		}
	}
	for b, w := range weights {
		place(b, int(w))
	}
	place(len(weights), last)
	return nil
}
