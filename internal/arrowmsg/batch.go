package arrowmsg

import "encoding/binary"

const (
	nodeBytes   = 16 // length and null count
	bufferBytes = 16 // place in the body and length
	viewBytes   = 8
)

// Batch is what a record batch says of itself. Its nodes and buffers are those of the
// columns and of their children, depth first in the order of the schema.
type Batch struct {
	Rows       int64 // as it states them: only the buffers show whether they are there
	Compressed bool  // each buffer is a length and compressed bytes

	meta, body            Span
	nodes, buffers, views []byte
}

// Batch reads the metadata of a record batch. Its error is an *[Error], also for a
// message of another kind.
func (m Message) Batch() (Batch, error) {
	if m.Kind != RecordBatch {
		return Batch{}, corrupt(m.Meta.At, "message is of kind %d, want a record batch (%d)", m.Kind, RecordBatch)
	}
	t := m.Header
	b := Batch{
		Rows: t.Int64(0), Compressed: t.Has(3), meta: m.Meta, body: m.Body,
		nodes: t.structs(1, nodeBytes), buffers: t.structs(2, bufferBytes), views: t.structs(4, viewBytes),
	}
	for i := range b.Views() {
		if n := int64(binary.LittleEndian.Uint64(b.views[viewBytes*i:])); n < 0 || n > int64(b.Buffers()) {
			return Batch{}, corrupt(m.Meta.At, "record batch has %d data buffers in a view column, of %d buffers in all", n, b.Buffers())
		}
	}
	if t.Damaged() {
		return Batch{}, corrupt(m.Meta.At, "metadata of a record batch points outside of it")
	}
	return b, nil
}

// Nodes is the number of field nodes, one for each array.
func (b *Batch) Nodes() int { return len(b.nodes) / nodeBytes }

// Buffers is the number of buffers.
func (b *Batch) Buffers() int { return len(b.buffers) / bufferBytes }

// Views is the number of arrays of a view type.
func (b *Batch) Views() int { return len(b.views) / viewBytes }

// Node is the length and the null count that node i states, unchecked; i is below
// [Batch.Nodes].
func (b *Batch) Node(i int) (length, nulls int64) {
	return int64s(b.nodes[nodeBytes*i:])
}

// View is the number of data buffers of the i-th array of a view type, no more than
// there are buffers in all; i is below [Batch.Views].
func (b *Batch) View(i int) int { return int(binary.LittleEndian.Uint64(b.views[viewBytes*i:])) }

// Buffer is the bytes of buffer i, a slice of the body; i is below [Batch.Buffers].
// A buffer that was left out, such as a validity bitmap without nulls, has none.
//
// Its error is an *[Error].
func (b *Batch) Buffer(i int) (Span, error) {
	at, n := int64s(b.buffers[bufferBytes*i:])
	if size := int64(len(b.body.Bytes)); at < 0 || n < 0 || at > size || n > size-at {
		return Span{}, corrupt(b.meta.At, "buffer of %d bytes at %d of a body of %d", n, at, size)
	}
	return Span{b.body.At + int(at), b.body.Bytes[at : at+n : at+n]}, nil
}

func int64s(b []byte) (x, y int64) {
	return int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))
}
