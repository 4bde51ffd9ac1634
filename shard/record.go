package shard

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/apache/arrow/go/v15/arrow"

	"hsx/format"
	"hsx/internal/arrowmsg"
)

// record is a record batch that is about to be written: its arrays and buffers, those
// of each column before those of its children.
type record struct {
	packed  bool // each buffer begins with the length of what it holds: the shard is compressed
	rows    int
	nodes   []arrowmsg.Node
	buffers []buffer
	saved   int64 // bytes that packing took off the states
}

// buffer is pieces in memory and, after them, the rows of a state, which are written
// from where they lie.
type buffer struct {
	pieces [][]byte
	rows   *format.Rows
	kept   bool // the pieces are the packer's
}

func (b *buffer) size() int64 {
	n := int64(0)
	for _, p := range b.pieces {
		n += int64(len(p))
	}
	if b.rows != nil {
		n += b.rows.Bytes()
	}
	return n
}

// notCompressed is what Arrow puts in place of a length before what is stored as it is.
const notCompressed = -1

func lengthPrefix(n int64) []byte { return binary.LittleEndian.AppendUint64(nil, uint64(n)) }

func (r *record) node(length, nulls int) {
	r.nodes = append(r.nodes, arrowmsg.Node{Length: int64(length), Nulls: int64(nulls)})
}

// put adds a buffer that is stored as it is. An empty one, such as the bitmap of a
// column without nulls, has no length before it.
func (r *record) put(b buffer) {
	if r.packed && b.size() > 0 {
		b.pieces = append([][]byte{lengthPrefix(notCompressed)}, b.pieces...)
	}
	r.buffers = append(r.buffers, b)
}

func (r *record) bytes(p []byte) { r.put(buffer{pieces: [][]byte{p}}) }

func (r *record) text(t text) {
	r.node(r.rows, 0)
	r.put(buffer{})
	r.bytes(int32Bytes(t.ends))
	r.bytes(t.data)
}

// list begins a column of lists.
func (r *record) list(nulls int, valid []byte, ends []int32) {
	r.node(r.rows, nulls)
	if nulls == 0 {
		valid = nil
	}
	r.bytes(valid)
	r.bytes(int32Bytes(ends))
}

// values begins the array of values below a list.
func (r *record) values(n int) {
	r.node(n, 0)
	r.put(buffer{})
}

// columnsBefore adds the columns of a batch that come before its states.
func (r *record) columnsBefore(b *batch) {
	r.rows = b.rowsInBatch
	r.text(b.id)
	r.text(b.source)
	r.list(0, nil, b.tokens)
	r.values(len(b.ids) / 4)
	r.bytes(b.ids)
	r.list(b.maskNulls, b.maskValid, b.maskEnds)
	r.values(len(b.mask))
	r.bytes(b.mask)
}

// state begins the column of a state, or that of one half of its values, whose rows have
// the given width.
func (r *record) state(ends []int32, width int) {
	r.list(0, nil, ends)
	tokens := int(ends[len(ends)-1])
	r.values(tokens)
	r.values(tokens * width)
}

// digests adds the last column.
func (r *record) digests(b *batch) {
	r.node(r.rows, 0)
	r.put(buffer{})
	r.bytes(b.digests)
}

// ready reports whether nothing of the record lies where it was read: states are packed.
func (r *record) ready() bool {
	return r.packed && !slices.ContainsFunc(r.buffers, func(b buffer) bool { return b.rows != nil })
}

// parts is a record that is ready as it is written after buf: what the packer keeps where
// it is, and copies behind buf of all else, which is small.
func (r *record) parts(buf []byte) (parts [][]byte, scratch []byte) {
	from := 0
	cut := func() {
		parts = append(parts, buf[from:])
		from = len(buf)
	}
	for i := range r.buffers {
		b := &r.buffers[i]
		for _, p := range b.pieces {
			if b.kept && len(p) > chunkBytes/4 {
				cut()
				parts = append(parts, p)
			} else {
				buf = append(buf, p...)
			}
		}
		buf = append(buf, make([]byte, arrowmsg.Padding(b.size()))...)
	}
	cut()
	return parts, buf
}

// sizes are those of the buffers.
func (r *record) sizes() []int64 {
	out := make([]int64, len(r.buffers))
	for i := range r.buffers {
		out[i] = r.buffers[i].size()
	}
	return out
}

func int32Bytes(v []int32) []byte { return arrow.Int32Traits.CastToBytes(v) }

// entropy is the bits that a value of a sample holds, taken by itself.
func entropy(count *[256]int) float64 {
	n, sum := 0, 0.0
	for _, c := range count {
		if c > 0 {
			n += c
			sum += float64(c) * math.Log2(float64(c))
		}
	}
	return math.Log2(float64(n)) - sum/float64(n)
}
