package zhuff

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Frame finds the blocks of a frame, which it neither trusts nor copies.
type Frame struct {
	size   int
	data   []byte
	blocks []int // where each begins in data
}

// Open walks the headers of the blocks of a frame whose content must have n bytes.
// It allocates a few bytes for each block that is there.
func Open(data []byte, n int) (*Frame, error) {
	if len(data) < HeaderBytes || binary.LittleEndian.Uint32(data) != magic || data[4] != descriptor || data[5] != window {
		return nil, errors.New("zstd frame does not begin as those of hsx do")
	}
	if size := binary.LittleEndian.Uint64(data[6:]); size != uint64(n) || n > MaxRatio*len(data) {
		return nil, fmt.Errorf("zstd frame of %d bytes says that it holds %d, want %d and at most %d times its length", len(data), size, n, MaxRatio)
	}
	f := &Frame{size: n, data: data}
	pos, last := HeaderBytes, false
	for at := 0; at < n; at += BlockBytes {
		f.blocks = append(f.blocks, pos)
		for left := min(BlockBytes, n-at); left > 0; {
			b, err := f.block(pos)
			if err != nil {
				return nil, err
			}
			if last || b.size > left {
				return nil, fmt.Errorf("zstd block at byte %d holds %d bytes where %d are left (after the last: %t)", pos, b.size, left, last)
			}
			left -= b.size
			pos, last = b.next, b.last
		}
	}
	if !last || pos != len(data) {
		return nil, fmt.Errorf("zstd frame has %d bytes, its blocks end at %d (the last: %t)", len(data), pos, last)
	}
	return f, nil
}

// block is what one block says of itself.
type block struct {
	kind, size int    // size is of the content
	data       []byte // after the headers
	next       int
	last       bool
}

func (f *Frame) block(pos int) (block, error) {
	left := f.data[pos:]
	if len(left) < blockHeader {
		return block{}, fmt.Errorf("zstd block at byte %d is cut", pos)
	}
	h := int(left[0]) | int(left[1])<<8 | int(left[2])<<16
	left = left[blockHeader:]
	b := block{kind: h >> 1 & 3, size: h >> 3, last: h&1 != 0}
	stored := b.size
	if b.kind == runBlock {
		stored = 1
	}
	if stored > len(left) || b.size == 0 || b.kind > codedBlock {
		return block{}, fmt.Errorf("zstd block at byte %d is of type %d and %d bytes, of which %d are there", pos, b.kind, b.size, len(left))
	}
	b.data, b.next = left[:stored], pos+blockHeader+stored
	if b.kind == codedBlock {
		if len(b.data) < literalHeader+1 || b.data[0]&15 != codedLiterals || b.data[len(b.data)-1] != 0 {
			return block{}, fmt.Errorf("zstd block at byte %d does not hold literals alone", pos)
		}
		sizes := int(binary.LittleEndian.Uint32(b.data)) | int(b.data[4])<<32
		b.data = b.data[literalHeader : len(b.data)-1]
		b.size = sizes >> 4 & (1<<18 - 1)
		if coded := sizes >> 22; coded != len(b.data) || b.size == 0 || b.size > BlockBytes {
			return block{}, fmt.Errorf("zstd block at byte %d says that %d bytes hold %d, it has %d", pos, coded, b.size, len(b.data))
		}
	}
	return b, nil
}

// Blocks is the number of blocks of BlockBytes of content.
func (f *Frame) Blocks() int { return len(f.blocks) }

// Decoder decodes blocks. The zero value is ready to use, by one goroutine at a time.
type Decoder struct {
	tree   tree
	lookup lookup
}

// Block decodes block k of a frame, bytes k*BlockBytes and on of its content, into dst,
// which has room for BlockBytes, and returns what of it was filled. What the frame's
// memory holds may have changed since Open.
func (d *Decoder) Block(dst []byte, f *Frame, k int) ([]byte, error) {
	want := min(BlockBytes, f.size-k*BlockBytes)
	pos, n := f.blocks[k], 0
	for n < want {
		b, err := f.block(pos)
		if err != nil {
			return nil, err
		}
		if b.size > want-n {
			return nil, fmt.Errorf("zstd block at byte %d holds %d bytes where %d are left", pos, b.size, want-n)
		}
		if err := d.content(dst[n:n+b.size:n+b.size], b); err != nil {
			return nil, fmt.Errorf("zstd block at byte %d: %w", pos, err)
		}
		n += b.size
		pos = b.next
	}
	return dst[:n], nil
}

func (d *Decoder) content(dst []byte, b block) error {
	switch b.kind {
	case rawBlock:
		copy(dst, b.data)
	case runBlock:
		for i := range dst {
			dst[i] = b.data[0]
		}
	default:
		codes, err := d.tree.read(b.data)
		if err != nil {
			return err
		}
		d.lookup.fill(&d.tree)
		return d.lookup.decode(&d.tree, dst, codes)
	}
	return nil
}
