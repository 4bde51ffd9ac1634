package shard

import (
	"cmp"
	"errors"
	"io"
	"path/filepath"

	"github.com/zeebo/xxh3"

	"hsx/format"
	"hsx/internal/arrowmsg"
	"hsx/internal/atomicfile"
	"hsx/internal/mapped"
)

// openShard is the shard that is being written.
type openShard struct {
	dir     string
	file    *atomicfile.Pending
	out     *shardFile
	schema  arrowmsg.Message
	batches []arrowmsg.Block
	pack    *packer   // nil: the shard is plain
	buf     [2][]byte // scratch of this batch, and of the one before, which may be on its way
	end     int64     // of what was written or is on its way
	info    Info
	saved   int64 // bytes that packing took off the states
	index   xxh3.Hasher
	moments []moments

	layout format.Layout
	origin format.Origin // of all rows

	rewritten bool // its name comes from its content
}

// createShard begins a shard of a layout, a compressed one when it gets a packer.
func createShard(fs atomicfile.FS, dir, name string, l format.Layout, pack *packer) (*openShard, error) {
	f, err := atomicfile.Create(fs, filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	s := &openShard{dir: dir, file: f, out: &shardFile{f: f}, pack: pack, moments: make([]moments, len(l.States))}
	s.info.Name = name
	if pack != nil {
		s.info.Encoding = EncodingSplit
	}
	if err := s.begin(l); err != nil {
		return nil, errors.Join(err, f.Discard())
	}
	s.end = s.out.n
	return s, nil
}

// begin writes what comes before the record batches.
func (s *openShard) begin(l format.Layout) error {
	data, err := schemaMessage(schema(l, s.info.Encoding))
	if err != nil {
		return err
	}
	if s.schema, err = arrowmsg.Read(data, 0); err != nil {
		return err
	}
	_, _ = s.out.head.Write(s.schema.Meta.Bytes) // never fails
	magic := append([]byte(arrowmsg.Magic), make([]byte, magicBytes-len(arrowmsg.Magic))...)
	return s.out.write(append(magic, data[:s.schema.Next]...))
}

// size is what the shard's file would have if it were plain: where shards are cut does
// not depend on how well they are packed.
func (s *openShard) size() int64 { return s.end + s.saved }

// discard removes the file.
func (s *openShard) discard() error {
	_ = s.out.wait() // nobody wants what is on its way
	return s.file.Discard()
}

// write adds a gathered batch.
func (s *openShard) write(b *batch) error {
	states := make([]format.Rows, len(b.states))
	for i, st := range s.layout.States {
		row := s.layout.HiddenSize * st.DType.Size()
		states[i] = format.Rows{DType: st.DType, N: len(b.states[i]) / row, Width: s.layout.HiddenSize, Stride: row, Data: b.states[i]}
	}
	return s.writeBatch(b, states, nil, func() error { return nil })
}

// stream adds a sample that is a batch of its own without gathering it: its states are
// hashed and written, or packed, from where they lie. When they fault, the shard is as it
// was before.
func (s *openShard) stream(b *batch, smp *format.Sample) error {
	states := make([]format.Rows, len(smp.Hidden))
	b.moments = make([]moments, len(smp.Hidden))
	for i, h := range smp.Hidden {
		states[i] = h.Rows
		b.moments[i].add(h.Rows)
	}
	var hash xxh3.Hasher
	hashTokens(&hash, smp.Tokens)
	return s.writeBatch(b, states, &hash, func() error {
		sum := hash.Sum128().Bytes()
		copy(b.digests, sum[:])
		return intact(smp)
	})
}

// hashRows adds a state to a row's digest.
func hashRows(h *xxh3.Hasher, r format.Rows) {
	if whole, ok := r.Contiguous(); ok {
		_, _ = h.Write(whole) // never fails
		return
	}
	for i := range r.N {
		_, _ = h.Write(r.Row(i))
	}
}

// writeBatch writes a record batch. The states are added to hash, if it is not nil, and
// then done is called. What was packed is on its way when it returns, while the next
// batch is packed; an error of that is the next call's.
func (s *openShard) writeBatch(b *batch, states []format.Rows, hash *xxh3.Hasher, done func() error) error {
	rec, err := s.record(b, states, hash)
	if err != nil {
		return err
	}
	if rec.ready() {
		if err := done(); err != nil {
			return err
		}
	}
	if err := s.out.wait(); err != nil {
		return err
	}
	before, start := *s.out, s.out.n
	s.buf[0], s.buf[1] = s.buf[1], s.buf[0]
	buf, block := arrowmsg.AppendBatch(s.buf[0][:0], start, int64(rec.rows), rec.nodes, rec.sizes(), rec.packed)
	_, _ = s.out.head.Write(buf[messagePrefix:]) // never fails
	if rec.ready() {
		var parts [][]byte
		parts, s.buf[0] = rec.parts(buf)
		s.end = start + s.out.writeLater(parts)
	} else {
		if !rec.packed {
			s.out.row = hash // states are hashed on their way to the file
		}
		err := mapped.Guard(func() error { return s.writeNow(buf, rec, done) })
		s.out.row = nil
		if errors.Is(err, mapped.ErrFault) {
			return cmp.Or(s.rollback(before), err)
		}
		if err != nil {
			return err
		}
		s.end = s.out.n
	}
	s.saved += rec.saved
	s.batches = append(s.batches, block)
	b.hashIndex(&s.index)
	for i := range b.moments {
		s.moments[i].merge(b.moments[i])
	}
	s.info.Rows += int64(b.rowsInBatch)
	s.info.Tokens += int64(b.tokens[b.rowsInBatch])
	s.info.LargestBatch = max(s.info.LargestBatch, s.end-start)
	return nil
}

// record is the batch as it will be written. Its buffers are the batch's own, and the
// packer's, which stay as they are until the batch after the next is packed.
func (s *openShard) record(b *batch, states []format.Rows, hash *xxh3.Hasher) (*record, error) {
	rec := &record{packed: s.pack != nil}
	var halves []packed
	if s.pack != nil {
		var err error
		if halves, err = s.pack.pack(states, hash); err != nil {
			return nil, err
		}
	}
	rec.columnsBefore(b)
	for i := range states {
		if halves == nil || !halves[i].split {
			rec.state(b.tokens, states[i].Width)
			rec.put(buffer{rows: &states[i]})
			continue
		}
		for _, half := range []buffer{halves[i].hi, halves[i].lo} { // which have their lengths
			rec.state(b.tokens, states[i].Width)
			rec.buffers = append(rec.buffers, half)
		}
		rec.saved += states[i].Bytes() - halves[i].hi.size() - halves[i].lo.size()
	}
	rec.digests(b)
	return rec, nil
}

// writeNow writes a record's buffers after buf. done is called when all states were read.
func (s *openShard) writeNow(buf []byte, rec *record, done func() error) (err error) {
	start := s.out.n
	for i, p := range rec.buffers {
		if i == len(rec.buffers)-1 { // the digests
			if err := done(); err != nil {
				return err
			}
		}
		if buf, err = s.writeBuffer(buf, p); err != nil {
			return err
		}
	}
	s.buf[0] = buf
	if err := s.out.write(buf); err != nil {
		return err
	}
	s.out.startWriteback(start)
	return nil
}

// writeBuffer adds a buffer with its padding to what is to be written next. What is long
// is written from where it lies.
func (s *openShard) writeBuffer(buf []byte, b buffer) (next []byte, err error) {
	for _, p := range b.pieces {
		if len(buf)+len(p) <= chunkBytes {
			buf = append(buf, p...)
			continue
		}
		if err := errors.Join(s.out.write(buf), s.out.write(p)); err != nil {
			return nil, err
		}
		buf = buf[:0]
	}
	if b.rows != nil {
		if err := s.out.write(buf); err != nil {
			return nil, err
		}
		if err := s.out.writeRows(*b.rows); err != nil {
			return nil, err
		}
		buf = buf[:0]
	}
	return append(buf, make([]byte, arrowmsg.Padding(b.size()))...), nil
}

// rollback takes back a batch of which only a part was written.
func (s *openShard) rollback(before shardFile) error {
	*s.out = before
	if err := s.file.Truncate(before.n); err != nil {
		return err
	}
	_, err := s.file.Seek(before.n, io.SeekStart)
	return err
}

// finish completes the file and gives it its name.
func (s *openShard) finish(states []stateJSON) (Info, error) {
	if err := s.out.wait(); err != nil {
		return Info{}, err
	}
	if err := s.out.write(arrowmsg.AppendFooter(nil, s.schema, s.batches)); err != nil {
		return Info{}, err
	}
	s.info.Bytes = s.out.n
	s.info.XXH3 = Digest(s.out.hash.Sum128().Bytes())
	if s.rewritten {
		s.info.Name = rewrittenName(shardNumber(s.info.Name), s.info.XXH3)
	}
	if err := s.file.CommitAs(filepath.Join(s.dir, s.info.Name)); err != nil {
		return Info{}, err
	}
	s.info.Head = Digest(s.out.head.Sum128().Bytes())
	s.info.Index = Digest(s.index.Sum128().Bytes())
	for i := range s.moments {
		s.info.Fingerprint = append(s.info.Fingerprint, s.moments[i].result(states[i].Column))
	}
	return s.info, nil
}

// intact reports whether what was read of a sample's states is what its dump held.
func intact(s *format.Sample) error {
	if s.Intact == nil {
		return nil
	}
	return s.Intact()
}
