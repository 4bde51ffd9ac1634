package zhuff

import (
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/huff0"
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
	huff huff0.Scratch
}

// AppendBlock adds the next block of a frame, of BlockBytes of content or less if it is
// the last. It takes BlockBound(len(src)) at most.
func (e *Encoder) AppendBlock(dst, src []byte, last bool) []byte {
	if len(src) < smallest {
		return append(appendHeader(dst, rawBlock, len(src), last), src...)
	}
	e.huff.Reuse = huff0.ReusePolicyNone
	coded, _, err := huff0.Compress4X(src, &e.huff)
	size := literalHeader + len(coded) + 1
	switch {
	case errors.Is(err, huff0.ErrUseRLE):
		return appendRuns(dst, src[0], len(src), last)
	case err != nil || size >= len(src): // it says why not, and raw is always right
		return append(appendHeader(dst, rawBlock, len(src), last), src...)
	}
	dst = appendHeader(dst, codedBlock, size, last)
	sizes := uint64(codedLiterals | len(src)<<4 | len(coded)<<22)
	dst = append(dst, byte(sizes), byte(sizes>>8), byte(sizes>>16), byte(sizes>>24), byte(sizes>>32))
	return append(append(dst, coded...), 0) // no sequences
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
