package shard

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

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
	pack    *packer // nil: the shard is plain
	buf     []byte  // scratch
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
func (s *openShard) size() int64 { return s.out.n + s.saved }

// write adds a gathered batch.
func (s *openShard) write(b *batch) error {
	states := make([]format.Rows, len(b.states))
	for i, st := range s.layout.States {
		row := s.layout.HiddenSize * st.DType.Size()
		states[i] = format.Rows{DType: st.DType, N: len(b.states[i]) / row, Width: s.layout.HiddenSize, Stride: row, Data: b.states[i]}
	}
	return s.writeBatch(b, states, func() error { return nil })
}

// stream adds a sample that is a batch of its own without gathering it: its states are
// hashed and written, or packed, from where they lie.
func (s *openShard) stream(b *batch, smp *format.Sample) error {
	states := make([]format.Rows, len(smp.Hidden))
	b.moments = make([]moments, len(smp.Hidden))
	for i, h := range smp.Hidden {
		states[i] = h.Rows
		b.moments[i].add(h.Rows)
	}
	var hash xxh3.Hasher
	hashTokens(&hash, smp.Tokens)
	done := func() error {
		sum := hash.Sum128().Bytes()
		copy(b.digests, sum[:])
		return intact(smp)
	}
	if s.pack == nil {
		s.out.row = &hash // states are hashed on their way to the file
		defer func() { s.out.row = nil }()
		return s.writeBatch(b, states, done)
	}
	for _, r := range states {
		hashRows(&hash, r)
	}
	return s.writeBatch(b, states, done)
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

// writeBatch writes a record batch. done is called when all states were read.
func (s *openShard) writeBatch(b *batch, states []format.Rows, done func() error) error {
	start := s.out.n
	rec, err := s.record(b, states)
	if err != nil {
		return err
	}
	buf, block := arrowmsg.AppendBatch(s.buf[:0], start, int64(rec.rows), rec.nodes, rec.sizes(), rec.packed)
	_, _ = s.out.head.Write(buf[messagePrefix:]) // never fails
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
	s.buf = buf
	if err := s.out.write(buf); err != nil {
		return err
	}
	s.batches = append(s.batches, block)
	b.hashIndex(&s.index)
	for i := range b.moments {
		s.moments[i].merge(b.moments[i])
	}
	s.info.Rows += int64(b.rowsInBatch)
	s.info.Tokens += int64(b.tokens[b.rowsInBatch])
	s.info.LargestBatch = max(s.info.LargestBatch, s.out.n-start)
	// Let the disk work while the next batch is made: the fsync at the end of the
	// shard then finds little left to do.
	atomicfile.StartWriteback(s.file, start, s.out.n-start)
	return nil
}

// record is the batch as it will be written. Its buffers are the batch's own, and the
// packer's, which must be written before they are used again.
func (s *openShard) record(b *batch, states []format.Rows) (*record, error) {
	rec := &record{packed: s.pack != nil}
	var halves []packed
	if s.pack != nil {
		var err error
		if halves, err = s.pack.pack(states); err != nil {
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
		s.saved += states[i].Bytes() - halves[i].hi.size() - halves[i].lo.size()
	}
	rec.digests(b)
	return rec, nil
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

// mark is a state of the shard that rollback returns to.
type mark struct {
	out   shardFile
	rows  int64
	saved int64
}

func (s *openShard) mark() mark { return mark{out: *s.out, rows: s.info.Rows, saved: s.saved} }

// rollback takes back a batch of which only a part was written.
func (s *openShard) rollback(m mark) error {
	*s.out, s.saved = m.out, m.saved
	if err := s.file.Truncate(m.out.n); err != nil {
		return err
	}
	_, err := s.file.Seek(m.out.n, io.SeekStart)
	return err
}

// finish completes the file and gives it its name.
func (s *openShard) finish(states []stateJSON) (Info, error) {
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

// shardFile hashes what it writes.
type shardFile struct {
	f    atomicfile.File
	hash xxh3.Hasher  // of all of it
	head xxh3.Hasher  // of the metadata of the Arrow messages, which openShard adds
	row  *xxh3.Hasher // of the states that are written from where they lie, if not nil
	n    int64

	scratch []byte // one chunk
}

// write writes p in chunks: the kernel copies what hashing left in the cache.
func (h *shardFile) write(p []byte) error {
	for len(p) > 0 {
		chunk := p[:min(len(p), chunkBytes)]
		_, _ = h.hash.Write(chunk) // never fails
		n, err := h.f.Write(chunk)
		h.n += int64(n)
		if err != nil {
			return err
		}
		p = p[len(chunk):]
	}
	return nil
}

// writeRows writes a state in chunks: what a chunk costs is one read of the dump and one
// write of the file, all else happens in the cache.
func (h *shardFile) writeRows(r format.Rows) error {
	whole, contiguous := r.Contiguous()
	row := r.RowBytes()
	step := max(1, chunkBytes/row)
	for i := 0; i < r.N; i += step {
		end := min(i+step, r.N)
		var chunk []byte
		if contiguous {
			chunk = whole[i*row : end*row]
		} else {
			chunk = h.scratch[:0]
			for j := i; j < end; j++ {
				chunk = append(chunk, r.Row(j)...)
			}
			h.scratch = chunk
		}
		if h.row != nil {
			_, _ = h.row.Write(chunk) // never fails
		}
		if err := h.write(chunk); errors.Is(err, unix.EFAULT) {
			return mapped.ErrFault // the chunk was there a moment ago
		} else if err != nil {
			return err
		}
	}
	return nil
}

// intact reports whether what was read of a sample's states is what its dump held.
func intact(s *format.Sample) error {
	if s.Intact == nil {
		return nil
	}
	return s.Intact()
}
