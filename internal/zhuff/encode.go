package zhuff

import (
	"encoding/binary"
	"slices"
)

// BlockBytes is how much content each block of a frame holds, the last one excepted:
// the most that zstd allows.
const BlockBytes = 128 << 10

// MaxRatio bounds the content of a frame: it is at most so many times as long as the
// frame. Long runs of one value are cut to keep it, so that readers can refuse what
// claims more before they make room for it.
const MaxRatio = 64

// HeaderBytes is the length of a frame's header.
const HeaderBytes = 14

// BlockBound is the most that a block of n bytes takes.
func BlockBound(n int) int { return blockHeader + n }

const (
	blockHeader   = 3
	literalHeader = 5
	smallest      = 64 // bytes worth a table of codes
	runBytes      = 256
	magic         = 0xFD2FB528
	// The header has no window of the content's size, which streaming decoders refuse
	// when it is large, but one of a block: no block looks at another.
	descriptor, window = 0xC0, 0x38
)

// The types of a block.
const (
	rawBlock = iota
	runBlock
	codedBlock
)

// codedLiterals says that a block's literals are four Huffman streams with their table,
// their sizes in 18 bits each.
const codedLiterals = 2 | 3<<2

// AppendHeader begins a frame of n bytes of content.
func AppendHeader(dst []byte, n int) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, magic)
	dst = append(dst, descriptor, window)
	return binary.LittleEndian.AppendUint64(dst, uint64(n))
}

// Encoder makes blocks. The zero value is ready to use, by one goroutine at a time.
type Encoder struct {
	counts [streams][256]uint32
	tree   tree
	head   []byte // the tree as it is written
	codes  codes
}

// AppendBlock adds the next block of a frame, of BlockBytes of content or less if it is
// the last. It takes BlockBound(len(src)) at most.
func (e *Encoder) AppendBlock(dst, src []byte, last bool) []byte {
	raw := func() []byte { return append(appendHeader(dst, rawBlock, len(src), last), src...) }
	if len(src) < smallest {
		return raw()
	}
	parts := divide(src)
	total := e.count(parts)
	if int(total[src[0]]) == len(src) {
		return appendRuns(dst, src[0], len(src), last)
	}
	e.tree.plant(&total)
	var ok bool
	if e.head, ok = e.tree.append(e.head[:0]); !ok {
		return raw()
	}
	var sizes [streams]int
	coded := len(e.head) + jumpBytes
	for k := range sizes {
		sizes[k] = e.tree.size(&e.counts[k])
		coded += sizes[k]
	}
	size := literalHeader + coded + 1
	if size >= len(src) {
		return raw()
	}
	e.codes.fill(&e.tree)
	dst = appendHeader(dst, codedBlock, size, last)
	both := uint64(codedLiterals | len(src)<<4 | coded<<22)
	dst = append(dst, byte(both), byte(both>>8), byte(both>>16), byte(both>>24), byte(both>>32))
	dst = append(dst, e.head...)
	for _, n := range sizes[:streams-1] {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(n))
	}
	for k, part := range parts {
		n := len(dst)
		dst = slices.Grow(dst, sizes[k])[:n+sizes[k]]
		e.codes.encode(dst[n:], part)
	}
	return append(dst, 0) // no sequences
}

// divide is what of a block's content each of its streams holds.
func divide(src []byte) (parts [streams][]byte) {
	for k := range parts {
		from, to := share(len(src), k)
		parts[k] = src[from:to]
	}
	return parts
}

// count counts the bytes of each part, and of all. The parts take turns: an addition to a
// count must wait for the one before it, and one byte often follows itself.
func (e *Encoder) count(parts [streams][]byte) (total [256]uint32) {
	clear(e.counts[:])
	a, b, c, d := &e.counts[0], &e.counts[1], &e.counts[2], &e.counts[3]
	n := len(parts[streams-1]) // the shortest
	pa, pb, pc, pd := parts[0][:n], parts[1][:n], parts[2][:n], parts[3][:n]
	for i := range n {
		a[pa[i]]++
		b[pb[i]]++
		c[pc[i]]++
		d[pd[i]]++
	}
	for k, part := range parts {
		for _, v := range part[n:] {
			e.counts[k][v]++
		}
	}
	for v := range total {
		total[v] = a[v] + b[v] + c[v] + d[v]
	}
	return total
}

// appendRuns is one block of content as several, none of them too small for what it
// stands for.
func appendRuns(dst []byte, b byte, n int, last bool) []byte {
	for ; n > runBytes; n -= runBytes {
		dst = append(appendHeader(dst, runBlock, runBytes, false), b)
	}
	return append(appendHeader(dst, runBlock, n, last), b)
}

func appendHeader(dst []byte, kind, size int, last bool) []byte {
	h := kind<<1 | size<<3
	if last {
		h |= 1
	}
	return append(dst, byte(h), byte(h>>8), byte(h>>16))
}
