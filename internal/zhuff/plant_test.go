package zhuff

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
)

// huffman is what all bytes take in bits, and the length of the longest code, when codes
// may be as long as they like.
func huffman(counts *[256]uint32) (total int, longest int) {
	type node struct{ count, depth int }
	var nodes []node
	for _, n := range counts {
		if n > 0 {
			nodes = append(nodes, node{int(n), 0})
		}
	}
	for len(nodes) > 1 {
		slices.SortFunc(nodes, func(a, b node) int { // of equal ones the flattest first: no tree is flatter
			if a.count != b.count {
				return a.count - b.count
			}
			return a.depth - b.depth
		})
		both := node{nodes[0].count + nodes[1].count, max(nodes[0].depth, nodes[1].depth) + 1}
		total += both.count
		nodes = append(nodes[2:], both)
	}
	return total, nodes[0].depth
}

// plantedBits is what all bytes take in a tree, which must be whole, written and read.
func plantedBits(t *testing.T, counts *[256]uint32) int {
	t.Helper()
	var tr, back tree
	tr.plant(counts)
	total, sum := 0, 0
	for b, n := range counts {
		if n == 0 {
			continue
		}
		if tr.bits[b] < 1 || tr.bits[b] > codeBits {
			t.Fatalf("byte %d has a code of %d bits, want 1 to %d", b, tr.bits[b], codeBits)
		}
		total += int(n) * int(tr.bits[b])
		sum += 1 << (codeBits - tr.bits[b])
	}
	if sum != 1<<codeBits {
		t.Errorf("codes are %d of %d parts of a whole tree", sum, 1<<codeBits)
	}
	if head, ok := tr.append(nil); ok {
		rest, err := back.read(append(head, 1, 2, 3))
		if err != nil || len(rest) != 3 || !bytes.Equal(back.symbols, tr.symbols) {
			t.Errorf("tree %x: %d bytes are left (error %v), of symbols %v, want 3 and %v", head, len(rest), err, back.symbols, tr.symbols)
		}
		for _, b := range tr.symbols {
			if back.bits[b] != tr.bits[b] {
				t.Errorf("byte %d has %d bits when read, %d when written", b, back.bits[b], tr.bits[b])
			}
		}
	} else if len(tr.written) <= plainWeights {
		t.Errorf("tree of %d weights is not written", len(tr.written))
	}
	return total
}

func TestPlantIsShortest(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(7, 8))
	cut := 0
	for range 2000 {
		var counts [256]uint32
		present, skew := 2+rng.IntN(255), rng.IntN(17)
		for k := range present {
			counts[(k*151+3)%256] = 1 + rng.Uint32N(1<<rng.IntN(skew+1))
		}
		got := plantedBits(t, &counts)
		want, longest := huffman(&counts)
		if longest > codeBits {
			cut++
		}
		if got < want || longest <= codeBits && got != want {
			t.Fatalf("codes of %d bytes take %d bits, want %d (the longest without a limit has %d)", present, got, want, longest)
		}
	}
	if cut == 0 {
		t.Error("no codes were too long without a limit, want some")
	}
}

func TestPlantLimitsCodes(t *testing.T) {
	t.Parallel()
	var counts [256]uint32 // Fibonacci's numbers make the longest codes there are
	a, b := uint32(1), uint32(1)
	for k := range 24 {
		counts[200-5*k] = a
		a, b = b, a+b
	}
	want, longest := huffman(&counts)
	if longest != 23 {
		t.Fatalf("longest code without a limit has %d bits, want 23", longest)
	}
	if got := plantedBits(t, &counts); got < want || got > want*101/100 {
		t.Errorf("codes take %d bits, want little more than %d", got, want)
	}
}
