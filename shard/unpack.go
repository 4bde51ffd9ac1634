package shard

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"
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
		data, err := s.row(i)
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

// halves are the values of row i of a state whose halves are apart.
func (s *state) halves(i int) (from, to int, err error) {
	start, end, err := s.hi.bounds(i)
	if err != nil {
		return 0, 0, err
	}
	if loStart, loEnd, err := s.lo.bounds(i); err != nil || loStart != start || loEnd != end {
		return 0, 0, fmt.Errorf("columns %s and %s differ: one has rows %d to %d, the other %d to %d", s.hi.name, s.lo.name, start, end, loStart, loEnd)
	}
	return start * s.hi.size, end * s.hi.size, nil
}

// Memory is what the states of a sample of a compressed shard are made in. The zero value
// is ready to use, for one sample at a time: the next one takes the place of the last.
type Memory struct {
	buf []byte
}

// room is n bytes, of any content. Without a Memory they are the caller's own.
func (m *Memory) room(n int) []byte {
	if m == nil {
		return make([]byte, n)
	}
	if n > cap(m.buf) {
		m.buf = nil // it need not be there together with what takes its place
		m.buf = make([]byte, n+n/8)
	}
	return m.buf[:n]
}

// piece is a part of a row that is hashed at once: a state that lies in the map, or what
// one block holds of one.
type piece struct {
	data     []byte
	state    int
	of       *state // nil: the data is there
	block    int
	from, to int // values
}

// unpack returns row i of each state, of a plain shard where it lies, else in m. Those of a
// packed one it adds to h, if that is not nil. All that they take of the file must be
// there.
func (b *rows) unpack(i int, m *Memory, h *xxh3.Hasher) ([][]byte, error) {
	out := make([][]byte, len(b.states))
	var pieces []piece
	values, blocks := 0, 0 // to be made
	for k := range b.states {
		st := &b.states[k]
		if st.hi == nil {
			var err error
			if out[k], err = st.row(i); err != nil {
				return nil, err
			}
			if b.packed {
				pieces = append(pieces, piece{data: out[k]})
			}
			continue
		}
		from, to, err := st.halves(i)
		if err != nil {
			return nil, err
		}
		values += to - from
		for ; from < to; blocks++ {
			block := from / zhuff.BlockBytes
			end := min(to, (block+1)*zhuff.BlockBytes)
			pieces = append(pieces, piece{state: k, of: st, block: block, from: from, to: end})
			from = end
		}
	}
	if !b.packed {
		return out, nil
	}
	mem, at := m.room(2*values), 0
	for j := range pieces {
		if p := &pieces[j]; p.of != nil {
			end := at + 2*(p.to-p.from)
			p.data = mem[at:end]
			out[p.state] = mem[at-len(out[p.state]) : end : end]
			at = end
		}
	}
	return out, unpackPieces(pieces, blocks, b.unpackers, h)
}

// unpackPieces makes the pieces with as many processors as they are worth. They are hashed
// in their order, each soon after it was made.
func unpackPieces(pieces []piece, blocks int, pool *sync.Pool, h *xxh3.Hasher) error {
	const worth = 2 // blocks for each goroutine
	var next atomic.Int64
	turn := turns{ready: make([]bool, len(pieces)), do: func(k int) { _, _ = h.Write(pieces[k].data) }} // never fails
	work := func() error {
		var u *unpacker
		if blocks > 0 {
			if u, _ = pool.Get().(*unpacker); u == nil {
				u = newUnpacker()
			}
			defer pool.Put(u)
		}
		return mapped.Guard(func() error {
			for k := int(next.Add(1)) - 1; k < len(pieces); k = int(next.Add(1)) - 1 {
				if err := pieces[k].make(u); err != nil {
					return err
				}
				if h != nil {
					turn.come(k)
				}
			}
			return nil
		})
	}
	workers := min(runtime.GOMAXPROCS(0), blocks/worth)
	if workers <= 1 {
		return work()
	}
	var g errgroup.Group
	for range workers {
		g.Go(work)
	}
	return g.Wait()
}

// make makes the data of a piece that is not there.
func (p *piece) make(u *unpacker) error {
	if p.of == nil {
		return nil
	}
	hi, lo, begin := p.of.hi, p.of.lo, p.block*zhuff.BlockBytes
	whole := p.to-p.from == zhuff.BlockBytes
	high, err := hi.block(u, u.hi, p.block, whole)
	if err != nil {
		return err
	}
	low, err := lo.block(u, u.lo, p.block, whole)
	if err != nil {
		return err
	}
	if len(high) < p.to-begin || len(low) < p.to-begin {
		return fmt.Errorf("columns %s and %s end at value %d and %d, want %d", hi.name, lo.name, begin+len(high), begin+len(low), p.to)
	}
	join(p.data, high[p.from-begin:p.to-begin], low[p.from-begin:p.to-begin])
	return nil
}

// turns has something done for each of some things in their order, by whoever has the
// first one ready that is next.
type turns struct {
	do func(k int)

	mu    sync.Mutex
	ready []bool
	next  int
	busy  bool
}

// come says that thing k is ready, and does whatever is to be done now.
func (t *turns) come(k int) {
	t.mu.Lock()
	t.ready[k] = true
	for !t.busy && t.next < len(t.ready) && t.ready[t.next] {
		t.busy = true
		t.mu.Unlock()
		t.do(t.next) // when it faults, nobody goes on
		t.mu.Lock()
		t.busy = false
		t.next++
	}
	t.mu.Unlock()
}
