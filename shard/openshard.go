package shard

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/mapped"
)

// openShard is the shard that is being written.
type openShard struct {
	dir     string
	file    *atomicfile.Pending
	out     *shardFile
	arrow   *ipc.FileWriter
	schema  *arrow.Schema
	info    Info
	index   xxh3.Hasher
	moments []moments

	layout format.Layout
	origin format.Origin // of all rows

	rewritten bool // its name comes from its content
}

func createShard(fs atomicfile.FS, dir, name string, l format.Layout) (*openShard, error) {
	f, err := atomicfile.Create(fs, filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	s := &openShard{dir: dir, file: f, out: &shardFile{f: f, skip: magicBytes}, schema: schema(l), moments: make([]moments, len(l.States))}
	s.info.Name = name
	s.arrow, err = ipc.NewFileWriter(s.out, ipc.WithSchema(s.schema))
	if err != nil {
		return nil, errors.Join(err, f.Discard())
	}
	return s, nil
}

// write adds a gathered batch.
func (s *openShard) write(b *batch) error { return s.writeRecord(b, b.states) }

// stream adds a sample that is a batch of its own without gathering it. Arrow's
// writer wants each column in one slice: for the states it gets address space that
// nobody touches, and the file, when it is to write that, takes the rows instead.
func (s *openShard) stream(b *batch, smp *format.Sample) (err error) {
	blank, err := reserve(smp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(blank)) }()
	src := &source{blank: blank, hidden: smp.Hidden, sample: smp, digest: b.digests, start: s.out.n}
	hashTokens(&src.hash, smp.Tokens)
	states := make([][]byte, len(smp.Hidden))
	for i, h := range smp.Hidden {
		states[i] = blank[:h.Rows.Bytes():h.Rows.Bytes()]
	}
	s.out.source = src
	defer func() { s.out.source = nil }()
	b.moments = make([]moments, len(smp.Hidden))
	for i, h := range smp.Hidden {
		b.moments[i].add(h.Rows)
	}
	return s.writeRecord(b, states)
}

// reserve takes address space, no memory, as long as the longest state.
func reserve(smp *format.Sample) ([]byte, error) {
	longest := int64(0)
	for _, h := range smp.Hidden {
		longest = max(longest, h.Rows.Bytes())
	}
	b, err := unix.Mmap(-1, 0, int(longest), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of address space: %w", longest, err)
	}
	return b, nil
}

func (s *openShard) writeRecord(b *batch, states [][]byte) error {
	start := s.out.n
	s.out.messages = 1
	if s.info.Rows == 0 {
		s.out.messages = 2 // the schema comes with the first batch
	}
	rec := b.record(s.schema, states)
	defer rec.Release()
	if err := s.arrow.Write(rec); err != nil {
		return s.out.cause(err)
	}
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

// mark is a state of the shard that rollback returns to.
type mark struct {
	out  shardFile
	rows int64
}

func (s *openShard) mark() mark { return mark{out: *s.out, rows: s.info.Rows} }

// rollback takes back a batch of which only a part was written.
func (s *openShard) rollback(m mark) error {
	*s.out = m.out
	if err := s.file.Truncate(m.out.n); err != nil {
		return err
	}
	_, err := s.file.Seek(m.out.n, io.SeekStart)
	return err
}

// finish completes the file and gives it its name.
func (s *openShard) finish(states []stateJSON) (Info, error) {
	if err := s.arrow.Close(); err != nil {
		return Info{}, s.out.cause(err)
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

// shardFile hashes what it writes: all of it, and apart the metadata of the Arrow
// messages. It can tell its position, which is all that Arrow's file writer seeks for.
type shardFile struct {
	f    atomicfile.File
	hash xxh3.Hasher
	n    int64

	head     xxh3.Hasher
	skip     int    // bytes of the file's magic that are still to come
	messages int    // whose metadata is still to come
	prefix   []byte // of the next one: a mark and the length, 4 bytes each
	left     int    // of its metadata

	source *source // of the states while a sample is streamed, nil otherwise
	err    error   // of the file, as it came
}

// cause is the file's own error, which names the file, without what Arrow's writer
// says around it. A fault of the sample's memory is not the file's.
func (h *shardFile) cause(err error) error {
	if errors.Is(err, mapped.ErrFault) {
		return err
	}
	return cmp.Or(h.err, err)
}

// Write writes p, or the next state of the source where p stands for it.
func (h *shardFile) Write(p []byte) (int, error) {
	if h.source != nil && h.source.standsFor(p) {
		before := h.n
		err := mapped.Guard(func() error { return h.source.next(h, len(p)) })
		if errors.Is(err, mapped.ErrFault) {
			// The sample will be taken back. Arrow's writer adds what it hears here to its
			// position, which its footer repeats, and learns of it in no other way.
			return int(h.source.start - before), err
		}
		return len(p), err
	}
	h.hashHead(p)
	total := len(p)
	for len(p) > 0 { // the kernel then copies what hashing left in the cache
		n := min(len(p), chunkBytes)
		if err := h.write(p[:n]); err != nil {
			return total - len(p), err
		}
		p = p[n:]
	}
	return total, nil
}

func (h *shardFile) write(p []byte) error {
	_, _ = h.hash.Write(p) // never fails
	n, err := h.f.Write(p)
	h.n += int64(n)
	h.err = err
	return err
}

// Seek tells the position.
func (h *shardFile) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		return 0, errors.ErrUnsupported
	}
	return h.n, nil
}

// hashHead follows the bytes of a message up to the end of its metadata. Only a
// message that has no body may be followed by another one.
func (h *shardFile) hashHead(p []byte) {
	n := min(h.skip, len(p))
	h.skip -= n
	p = p[n:]
	for h.messages > 0 && len(p) > 0 {
		if need := messagePrefix - len(h.prefix); need > 0 {
			n := min(need, len(p))
			h.prefix = append(h.prefix, p[:n]...)
			p = p[n:]
			if len(h.prefix) == messagePrefix {
				h.left = int(binary.LittleEndian.Uint32(h.prefix[4:]))
			}
			continue
		}
		n := min(h.left, len(p))
		_, _ = h.head.Write(p[:n]) // never fails
		p = p[n:]
		if h.left -= n; h.left == 0 {
			h.messages--
			h.prefix = nil
		}
	}
}

// source gives the states of one sample to the file, in their order, and makes the
// row's digest on the way.
type source struct {
	blank   []byte // stands for any state
	hidden  []format.Hidden
	hash    xxh3.Hasher
	digest  []byte // filled after the last state: Arrow writes it later than those
	sample  *format.Sample
	start   int64 // of the record batch in the file
	scratch [chunkBytes]byte
}

func (s *source) standsFor(p []byte) bool { return len(p) > 0 && &p[0] == &s.blank[0] }

// next writes the next state in chunks: what a chunk costs is one read of the dump
// and one write of the file, all else happens in the cache.
func (s *source) next(out *shardFile, size int) error {
	r := s.hidden[0].Rows
	s.hidden = s.hidden[1:]
	if int64(size) != r.Bytes() {
		return fmt.Errorf("state has %d bytes, arrow asks for %d", r.Bytes(), size)
	}
	whole, contiguous := r.Contiguous()
	row := r.RowBytes()
	step := max(1, chunkBytes/row)
	var chunk []byte
	for i := 0; i < r.N; i += step {
		end := min(i+step, r.N)
		if contiguous {
			chunk = whole[i*row : end*row]
		} else {
			chunk = s.scratch[:0]
			for j := i; j < end; j++ {
				chunk = append(chunk, r.Row(j)...)
			}
		}
		_, _ = s.hash.Write(chunk) // never fails
		if err := out.write(chunk); errors.Is(err, unix.EFAULT) {
			return mapped.ErrFault // the chunk was there a moment ago
		} else if err != nil {
			return err
		}
	}
	if len(s.hidden) > 0 {
		return nil
	}
	sum := s.hash.Sum128().Bytes()
	copy(s.digest, sum[:])
	return intact(s.sample)
}

// intact reports whether what was read of a sample's states is what its dump held.
func intact(s *format.Sample) error {
	if s.Intact == nil {
		return nil
	}
	return s.Intact()
}
