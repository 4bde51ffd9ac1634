package shard

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"hsx/internal/mapped"
	"hsx/internal/zhuff"
)

// lengthBytes is what each buffer of a compressed record batch begins with.
const lengthBytes = 8

// half is the column of the high or of the low bytes of a state's values in a compressed
// record batch. What its values are stored as is not looked at before one is wanted.
type half struct {
	column        // without values
	items  int    // rows of values of all rows
	stored []byte // the buffer of the values, with its length
	blocks atomic.Pointer[blocks]
	last   *atomic.Pointer[decodedBlock] // of this column in any batch: mostly where the next row begins
}

// blocks is where the values of a half are: as they are, or in a frame.
type blocks struct {
	raw   []byte
	frame *zhuff.Frame
}

// decodedBlock is one block of a half.
type decodedBlock struct {
	of     *half
	number int
	data   []byte
}

// unpacker is the scratch of one goroutine that unpacks. Unpackers are used again.
type unpacker struct {
	dec    zhuff.Decoder
	hi, lo []byte // one block
}

func newUnpacker() *unpacker {
	return &unpacker{hi: make([]byte, zhuff.BlockBytes), lo: make([]byte, zhuff.BlockBytes)}
}

// half takes a column of halves.
func (c *cursor) half(name string, size int, last *atomic.Pointer[decodedBlock]) *half {
	h := &half{column: column{name: name, size: size}, last: last}
	rows, nulls := c.takeNode()
	c.takeBuffer(name) // validity
	h.offsets = c.takeBuffer(name)
	items, itemNulls := c.takeNode()
	c.takeBuffer(name)
	values, valueNulls := c.takeNode()
	c.takeBuffer(name)
	h.stored = c.takeStored(name)
	switch {
	case rows != c.batch.Rows || rows < 0 || rows > int64(len(h.offsets)/4-1):
		c.refuse("column %s has %d rows and %d bytes of offsets in a record batch of %d rows", name, rows, len(h.offsets), c.batch.Rows)
	case nulls != 0 || itemNulls != 0 || valueNulls != 0:
		c.refuse("column %s has %d nulls, %d among its rows of values and %d among those, want none", name, nulls, itemNulls, valueNulls)
	case items >= 0 && values != items*int64(size):
		c.refuse("column %s has %d rows of values and %d values, want %d in a row", name, items, values, size)
	case items < 0 || items > zhuff.MaxRatio*int64(len(h.stored))/int64(size):
		c.refuse("column %s has %d rows of values, its buffer of %d bytes holds at most %d times as many bytes", name, items, len(h.stored), zhuff.MaxRatio)
	}
	h.items = int(items)
	return h
}

// bounds are the items of row i.
func (h *half) bounds(i int) (start, end int, err error) { return h.within(i, h.items) }

// open finds the blocks. What is not there of the file is asked for.
func (h *half) open(file *mapped.File) (*blocks, error) {
	if b := h.blocks.Load(); b != nil {
		return b, nil
	}
	n := h.items * h.size
	if len(h.stored) < lengthBytes {
		return nil, fmt.Errorf("column %s has a buffer of %d bytes, want a length first", h.name, len(h.stored))
	}
	if err := file.Need(h.stored[:lengthBytes]); err != nil {
		return nil, err
	}
	b := &blocks{raw: h.stored[lengthBytes:]}
	switch length := int64(binary.LittleEndian.Uint64(h.stored)); {
	case length == notCompressed && len(b.raw) >= n:
		b.raw = b.raw[:n]
	case length == int64(n) && n > 0:
		if err := file.Need(h.stored); err != nil {
			return nil, err
		}
		var err error
		if b.frame, err = zhuff.Open(b.raw, n); err != nil {
			return nil, fmt.Errorf("column %s: %w", h.name, err)
		}
	default:
		return nil, fmt.Errorf("column %s says that %d bytes hold %d, want %d or, for bytes as they are, %d", h.name, len(b.raw), length, n, notCompressed)
	}
	h.blocks.Store(b)
	return b, nil
}

// block is block k of a half, or a copy in buf. A block that is not wanted whole is kept:
// the next row goes on in it.
func (h *half) block(u *unpacker, buf []byte, k int, whole bool) ([]byte, error) {
	b := h.blocks.Load()
	if b.frame == nil {
		at := k * zhuff.BlockBytes
		return b.raw[at:min(at+zhuff.BlockBytes, len(b.raw))], nil
	}
	if d := h.last.Load(); d != nil && d.of == h && d.number == k {
		return d.data, nil
	}
	if !whole {
		buf = make([]byte, min(zhuff.BlockBytes, h.items*h.size-k*zhuff.BlockBytes))
	}
	data, err := u.dec.Block(buf, b.frame, k)
	if err != nil {
		return nil, fmt.Errorf("column %s: %w", h.name, err)
	}
	if !whole {
		h.last.Store(&decodedBlock{of: h, number: k, data: data})
	}
	return data, nil
}

// state is one state of a record batch: a column of whole values, or two of halves.
type state struct {
	column
	hi, lo *half // nil: whole
}

// guess adds what row i takes if it is where the ids say, items start up to end, and its
// offsets.
func (s *state) guess(parts [][]byte, i, start, end int) [][]byte {
	if s.hi == nil {
		parts = append(parts, s.offsets[4*i:4*i+8])
		if end <= len(s.values)/s.size {
			parts = append(parts, s.values[start*s.size:end*s.size])
		}
		return parts
	}
	for _, h := range []*half{s.hi, s.lo} {
		parts = append(parts, h.offsets[4*i:4*i+8], h.stored[:min(lengthBytes, len(h.stored))])
	}
	return parts
}

// parts adds where row i is. Of a half that is coded, that is all of it.
func (s *state) parts(parts [][]byte, file *mapped.File, i int) ([][]byte, error) {
	if s.hi == nil {
		data, err := s.column.row(i)
		return append(parts, data), err
	}
	for _, h := range []*half{s.hi, s.lo} {
		start, end, err := h.bounds(i)
		if err != nil {
			return nil, err
		}
		b, err := h.open(file)
		if err != nil {
			return nil, err
		}
		if b.frame == nil {
			parts = append(parts, b.raw[start*h.size:end*h.size])
		}
	}
	return parts, nil
}

// row is row i, of a plain shard where it lies. All that it takes must be there.
func (s *state) row(i int, pool *sync.Pool) ([]byte, error) {
	if s.hi == nil {
		return s.column.row(i)
	}
	return s.unpack(pool, i)
}

// unpack is row i of a state whose halves are apart, in memory of its own.
func (s *state) unpack(pool *sync.Pool, i int) ([]byte, error) {
	start, end, err := s.hi.bounds(i)
	if err != nil {
		return nil, err
	}
	if loStart, loEnd, err := s.lo.bounds(i); err != nil || loStart != start || loEnd != end {
		return nil, fmt.Errorf("columns %s and %s differ: one has rows %d to %d, the other %d to %d", s.hi.name, s.lo.name, start, end, loStart, loEnd)
	}
	from, to := start*s.hi.size, end*s.hi.size // values
	out := make([]byte, 2*(to-from))
	first, count := from/zhuff.BlockBytes, 0
	if to > from {
		count = (to-1)/zhuff.BlockBytes + 1 - first
	}
	const unit = 8 // blocks that are worth a goroutine
	workers := min(runtime.GOMAXPROCS(0), (count+unit-1)/unit)
	if workers <= 1 {
		return out, s.unpackBlocks(out, pool, from, to, first, first+count)
	}
	var g errgroup.Group
	for w := range workers {
		a, b := first+count*w/workers, first+count*(w+1)/workers
		g.Go(func() error {
			return mapped.Guard(func() error { return s.unpackBlocks(out, pool, from, to, a, b) })
		})
	}
	return out, g.Wait()
}

// unpackBlocks fills what blocks a up to b hold of the values from and up to to.
func (s *state) unpackBlocks(out []byte, pool *sync.Pool, from, to, a, b int) error {
	u, _ := pool.Get().(*unpacker)
	if u == nil {
		u = newUnpacker()
	}
	defer pool.Put(u)
	for k := a; k < b; k++ {
		begin, end := k*zhuff.BlockBytes, (k+1)*zhuff.BlockBytes
		lo, hi := max(from, begin), min(to, end)
		whole := lo == begin && hi == end
		high, err := s.hi.block(u, u.hi, k, whole)
		if err != nil {
			return err
		}
		low, err := s.lo.block(u, u.lo, k, whole)
		if err != nil {
			return err
		}
		if len(high) < hi-begin || len(low) < hi-begin {
			return fmt.Errorf("columns %s and %s end at value %d and %d, want %d", s.hi.name, s.lo.name, begin+len(high), begin+len(low), hi)
		}
		join(out[2*(lo-from):2*(hi-from)], high[lo-begin:hi-begin], low[lo-begin:hi-begin])
	}
	return nil
}
