package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/zeebo/xxh3"

	"hsx/format"
	"hsx/internal/arrowmsg"
	"hsx/internal/mapped"
)

// reader reads one listed shard from mapped memory.
type reader struct {
	info   Info
	layout format.Layout
	file   *mapped.File
	batch  []arrowmsg.Message

	unpackers sync.Pool
	buffers   sync.Pool
	last      []atomic.Pointer[decodedBlock] // of each half of each state
}

// magicBytes is the length of the magic at the start of an Arrow file, with padding.
const magicBytes = 8

// messagePrefix is the bytes before a message's metadata: a mark and the length.
const messagePrefix = 8

// openShardFile maps a shard and finds its messages. Of their bodies nothing is
// trusted yet.
func openShardFile(p place, info Info, layout format.Layout) (*reader, error) {
	f, err := p.shard(info)
	if err != nil {
		return nil, err
	}
	r := &reader{info: info, layout: layout, file: f}
	if err := mapped.Guard(r.scan); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *reader) close() error { return r.file.Close() }

// scan walks the messages of an Arrow IPC file: magic, schema, record batches, and a
// footer, which repeats where they are and is not needed. It compares their metadata
// with the manifest.
func (r *reader) scan() error {
	data := r.file.Bytes()
	if int64(len(data)) != r.info.Bytes {
		return fmt.Errorf("file has %d bytes, the manifest calls for %d", len(data), r.info.Bytes)
	}
	const magic = "ARROW1"
	if err := r.file.Need(data[:min(magicBytes, len(data))], data[len(data)-min(len(magic)+4, len(data)):]); err != nil {
		return err
	}
	if len(data) < magicBytes+len(magic)+4 || !bytes.HasPrefix(data, []byte(magic)) || !bytes.HasSuffix(data, []byte(magic)) {
		return fmt.Errorf("file does not begin and end with %s", magic)
	}
	tail := len(data) - len(magic) - 4
	footer := int64(tail) - int64(binary.LittleEndian.Uint32(data[tail:]))
	if err := r.needMessages(data[max(0, footer):tail]); err != nil {
		return err
	}
	var head xxh3.Hasher
	for pos := magicBytes; int64(pos) < footer; {
		if err := r.needMessage(data[pos:footer]); err != nil {
			return err
		}
		m, err := arrowmsg.Read(data[:footer], pos)
		if err != nil {
			return err
		}
		if m.Kind == arrowmsg.End {
			break
		}
		_, _ = head.Write(m.Meta.Bytes) // never fails
		r.batch = append(r.batch, m)
		pos = m.Next
	}
	if sum := Digest(head.Sum128().Bytes()); len(r.batch) == 0 || sum != r.info.Head {
		return fmt.Errorf("arrow metadata is not as it was written (head %s, the manifest calls for %s)", sum, r.info.Head)
	}
	first := r.batch[0]
	r.batch = r.batch[1:]
	if err := saneSchema(first); err != nil {
		return err
	}
	return r.checkSchema(data[magicBytes:first.Next])
}

// needMessage asks for the metadata of a message, not for its body.
func (r *reader) needMessage(data []byte) error {
	data = data[:min(messagePrefix, len(data))]
	if err := r.file.Need(data); err != nil || len(data) < messagePrefix {
		return err
	}
	n := messagePrefix + int64(binary.LittleEndian.Uint32(data[4:]))
	return r.file.Need(data[:min(n, int64(cap(data)))])
}

// saneSchema walks a schema's fields and metadata within their bounds. The Arrow
// library allocates as many of them as a vector claims: a manifest that was forged
// together with its shard must not make it do so.
func saneSchema(m arrowmsg.Message) error {
	const schemaFields, schemaMeta, fieldChildren, fieldMeta = 1, 2, 5, 6 // of Arrow's Schema.fbs
	left := 10_000                                                        // vectors may share tables
	var walk func(t arrowmsg.Table, children, meta, depth int)
	walk = func(t arrowmsg.Table, children, meta, depth int) {
		for range t.Tables(meta) {
			if left--; left < 0 {
				return
			}
		}
		for child := range t.Tables(children) {
			if left--; left < 0 || depth == 0 {
				left = -1
				return
			}
			walk(child, fieldChildren, fieldMeta, depth-1)
		}
	}
	walk(m.Header, schemaFields, schemaMeta, 8)
	if m.Kind != arrowmsg.Schema || m.Header.Damaged() || left < 0 {
		return errors.New("arrow schema is damaged, or larger than that of any dataset")
	}
	return nil
}

// checkSchema compares the schema message with the dataset's layout. The Arrow
// library allocates whatever damaged metadata asks for, so it must not see a schema
// before its hash was compared. It gets a copy: a fault of the map is for our Guard.
func (r *reader) checkSchema(message []byte) error {
	const most = math.MaxInt32 / 4 // the bytes of a state still fit an int
	if r.layout.HiddenSize > most {
		return fmt.Errorf("hidden size is %d, want at most %d", r.layout.HiddenSize, most)
	}
	rd, err := ipc.NewReader(bytes.NewReader(bytes.Clone(message)))
	if err != nil {
		return err
	}
	defer rd.Release()
	return checkSchema(rd.Schema(), r.layout, r.info.Encoding)
}

// rows is one record batch, where it lies in the map.
type rows struct {
	n                     int
	id, source, ids, mask column
	states                []state
	digest                []byte
	layout                format.Layout
	origin                format.Origin
	file                  *mapped.File // that all of it lies in
	packed                bool
	unpackers             *sync.Pool
	buffers               *sync.Pool // of bytes; see show
}

func (r *reader) lastBlocks() []atomic.Pointer[decodedBlock] {
	if r.last == nil {
		r.last = make([]atomic.Pointer[decodedBlock], 2*len(r.layout.States))
	}
	return r.last
}

// decode finds the columns of batch i without copying them.
func (r *reader) decode(i int) (b *rows, err error) {
	err = mapped.Guard(func() error {
		batch, err := r.batch[i].Batch()
		if err != nil {
			return err
		}
		// The fixed columns, and for each state one or two lists of lists of numbers.
		packed, lists := r.info.Encoding == EncodingSplit, 0
		for _, s := range r.layout.States {
			lists++
			if packed && s.DType.Size() == 2 {
				lists++
			}
		}
		if nodes, buffers := 7+3*lists, 16+5*lists; batch.Compressed != packed || batch.Nodes() != nodes || batch.Buffers() != buffers {
			return fmt.Errorf("record batch has %d nodes and %d buffers (compressed: %t), want %d and %d (compressed: %t)",
				batch.Nodes(), batch.Buffers(), batch.Compressed, nodes, buffers, packed)
		}
		c := &cursor{batch: batch}
		b = &rows{
			n:  int(batch.Rows),
			id: c.column(colID, 1, 0), source: c.column(colSource, 1, 0),
			ids: c.column(colIDs, 4, 1), mask: c.column(colMask, 1, 1),
			layout: r.layout, file: r.file, packed: packed, unpackers: &r.unpackers, buffers: &r.buffers,
		}
		last := r.lastBlocks()
		for k, s := range r.layout.States {
			var st state
			if packed && s.DType.Size() == 2 {
				st.hi = c.half(s.Column()+highBytes, r.layout.HiddenSize, &last[2*k])
				st.lo = c.half(s.Column()+lowBytes, r.layout.HiddenSize, &last[2*k+1])
			} else {
				st.column = c.column(s.Column(), r.layout.HiddenSize*s.DType.Size(), 2)
			}
			b.states = append(b.states, st)
		}
		b.digest = c.digests()
		return c.err
	})
	return b, err
}

// small is the columns of a row that are not states, where they lie in the map.
type small struct {
	id, source, ids, digest []byte
	mask                    []byte // nil: null
}

func (b *rows) small(i int) (s small, err error) {
	for _, f := range []struct {
		into *[]byte
		from *column
	}{{&s.id, &b.id}, {&s.source, &b.source}, {&s.ids, &b.ids}, {&s.mask, &b.mask}} {
		if *f.into, err = f.from.row(i); err != nil {
			return small{}, err
		}
	}
	s.digest = b.digest[i*digestSize : (i+1)*digestSize]
	return s, nil
}

// checkIndex compares the small columns of the whole shard with the manifest. After
// it a row's digest can be trusted, and through it the row's states.
func (r *reader) checkIndex() error {
	var batches []*rows
	var parts [][]byte
	for i := range r.batch {
		b, err := r.decode(i)
		if err != nil {
			return fmt.Errorf("record batch %d: %w", i, err)
		}
		batches = append(batches, b)
		for _, c := range []*column{&b.id, &b.source, &b.ids, &b.mask} {
			parts = append(parts, c.valid, c.offsets, c.values)
		}
		parts = append(parts, b.digest)
	}
	if err := r.file.Need(parts...); err != nil {
		return err
	}
	var h xxh3.Hasher
	var rowsSeen, tokens int64
	for _, b := range batches {
		err := mapped.Guard(func() error {
			for j := range b.n {
				s, err := b.small(j)
				if err != nil {
					return fmt.Errorf("row %d: %w", rowsSeen, err)
				}
				hashIndex(&h, s.id, s.source, s.ids, s.mask, s.digest)
				rowsSeen++
				tokens += int64(len(s.ids) / 4)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if rowsSeen != r.info.Rows || tokens != r.info.Tokens {
		return fmt.Errorf("shard holds %d rows and %d tokens, the manifest calls for %d and %d", rowsSeen, tokens, r.info.Rows, r.info.Tokens)
	}
	if sum := Digest(h.Sum128().Bytes()); sum != r.info.Index {
		return fmt.Errorf("ids, masks or digests are not as they were written (index %s, the manifest calls for %s)", sum, r.info.Index)
	}
	return nil
}

// head is row i without its states.
func (b *rows) head(i int) (h Head, err error) {
	err = mapped.Guard(func() error {
		s, err := b.small(i)
		if err != nil {
			return err
		}
		h = Head{ID: string(s.id), Source: string(s.source), Tokens: tokens(s.ids), LossMask: bytes.Clone(s.mask), Digest: Digest(s.digest)}
		return nil
	})
	return h, err
}

func tokens(ids []byte) []int32 {
	out := make([]int32, len(ids)/4)
	for t := range out {
		out[t] = int32(binary.LittleEndian.Uint32(ids[4*t:]))
	}
	return out
}

// stateParts is where the states of row i lie. That is in the offsets of each column,
// which are to be fetched themselves: those of the ids, which are there, say the same,
// as long as nothing is damaged.
func (b *rows) stateParts(i int) (parts [][]byte) {
	start, end, err := b.ids.bounds(i)
	if err != nil {
		return nil
	}
	for k := range b.states {
		parts = b.states[k].guess(parts, i, start, end)
	}
	return parts
}

// needStates asks for the states of row i, and checks where they lie.
func (b *rows) needStates(i int) error {
	if b.file.Sparse() {
		if err := b.file.Need(b.stateParts(i)...); err != nil {
			return err
		}
	}
	parts := make([][]byte, 0, 2*len(b.states))
	var err error
	for k := range b.states {
		if parts, err = b.states[k].parts(parts, b.file, i); err != nil {
			return err
		}
	}
	return b.file.Need(parts...)
}

// sample is row i, checked against its digest. The mask and the states of a plain shard
// alias the map; others lie in m.
// With an error the sample may be there too, to be named.
func (b *rows) sample(i int, m *Memory, look Look) (out *format.Sample, err error) {
	err = mapped.Guard(func() error {
		s, err := b.small(i)
		if err != nil {
			return err
		}
		out = &format.Sample{
			ID: string(s.id), Input: format.Input{Path: string(s.source)}, Origin: b.origin,
			Tokens: tokens(s.ids), LossMask: s.mask, Hidden: make([]format.Hidden, 0, len(b.states)),
		}
		if err := b.needStates(i); err != nil {
			return err
		}
		var h xxh3.Hasher
		_, _ = h.Write(s.ids)  // never fails
		var early *xxh3.Hasher // of what is hashed as it is made: nobody looks on
		if b.packed && look == nil {
			early = &h
		}
		states, err := b.unpack(i, m, early)
		if err != nil {
			return err
		}
		for k, st := range b.layout.States {
			data := states[k]
			size := b.layout.HiddenSize * st.DType.Size()
			rows := format.Rows{DType: st.DType, N: len(data) / size, Width: b.layout.HiddenSize, Stride: size, Data: data}
			out.Hidden = append(out.Hidden, format.Hidden{State: st, Rows: rows})
			if early == nil {
				if err := b.show(look, &h, k, rows); err != nil {
					return err
				}
			}
		}
		if err := out.Check(); err != nil {
			return err
		}
		if sum := h.Sum128().Bytes(); !bytes.Equal(sum[:], s.digest) {
			return fmt.Errorf("states or ids are not as they were written (digest %x, the row says %x)", sum, s.digest)
		}
		return nil
	})
	return out, err
}
