package shard

import (
	"encoding/binary"

	"github.com/apache/arrow/go/v15/arrow/bitutil"
	"github.com/zeebo/xxh3"

	"hsx/format"
)

// chunkBytes is how much of a state is copied before it is hashed: the copy is
// still in the cache then.
const chunkBytes = 256 << 10

// batch gathers samples into the buffers of one record batch. This is the one copy
// that a state makes between its dump and the kernel.
type batch struct {
	layout format.Layout
	target int64 // bytes of states that the buffers are made for

	id, source  text
	tokens      []int32 // offsets: where each sample's tokens end; the states share them
	maskEnds    []int32
	maskValid   []byte // one bit a row
	maskNulls   int
	ids, mask   []byte
	states      [][]byte
	digests     []byte
	moments     []moments
	origin      format.Origin // of all rows
	entries     []entry       // the inputs that the rows came from
	rejects     []format.Rejection
	hash        xxh3.Hasher
	stateBytes  int64
	rowsInBatch int
}

// text is the buffers of a string column.
type text struct {
	ends []int32
	data []byte
}

func (t *text) reset() { t.ends, t.data = append(t.ends[:0], 0), t.data[:0] }

func (t *text) add(s string) {
	t.data = append(t.data, s...)
	t.ends = append(t.ends, int32(len(t.data)))
}

func (t *text) at(i int) []byte { return t.data[t.ends[i]:t.ends[i+1]] }

func newBatch(target int64) *batch {
	b := &batch{target: target}
	b.reset()
	return b
}

func (b *batch) reset() {
	b.id.reset()
	b.source.reset()
	b.tokens, b.maskEnds = append(b.tokens[:0], 0), append(b.maskEnds[:0], 0)
	b.maskValid, b.maskNulls = b.maskValid[:0], 0
	b.ids, b.mask, b.digests = b.ids[:0], b.mask[:0], b.digests[:0]
	for i := range b.states {
		b.states[i] = b.states[i][:0]
	}
	clear(b.moments)
	b.entries, b.rejects = nil, nil
	b.stateBytes, b.rowsInBatch = 0, 0
}

// prepare makes the buffers of an empty batch fit a layout.
func (b *batch) prepare(l format.Layout) {
	if b.rowsInBatch > 0 || b.layout.Diff(l) == "" {
		return
	}
	b.layout = l
	b.states = make([][]byte, len(l.States))
	b.moments = make([]moments, len(l.States))
	total := 0
	for _, s := range l.States {
		total += s.DType.Size()
	}
	for i, s := range l.States {
		b.states[i] = make([]byte, 0, b.target*int64(s.DType.Size())/int64(total))
	}
}

// add copies a checked sample of the batch's layout. A fault of the mapped memory
// that the states lie in may leave it at any read; nothing of the sample counts
// before all of it is copied and its dump is found as it was.
func (b *batch) add(s *format.Sample) error {
	b.prepare(s.Layout())
	b.hash.Reset()
	hashTokens(&b.hash, s.Tokens)
	for i, h := range s.Hidden {
		b.states[i] = b.gather(b.states[i], h.Rows)
	}
	if err := intact(s); err != nil {
		return err
	}
	for i, h := range s.Hidden {
		size := int(h.Rows.Bytes())
		b.states[i] = b.states[i][:len(b.states[i])+size]
		b.stateBytes += int64(size)
		block := h.Rows
		block.Stride, block.Data = block.RowBytes(), b.states[i][len(b.states[i])-size:]
		b.moments[i].add(block)
	}
	b.addSmall(s, b.hash.Sum128().Bytes())
	return nil
}

// addSmall adds all of a sample but its states.
func (b *batch) addSmall(s *format.Sample, digest [digestSize]byte) {
	for _, t := range s.Tokens {
		b.ids = binary.LittleEndian.AppendUint32(b.ids, uint32(t))
	}
	b.tokens = append(b.tokens, b.tokens[len(b.tokens)-1]+int32(len(s.Tokens)))
	b.id.add(s.ID)
	b.source.add(s.Input.Path)
	b.addMask(s.LossMask)
	b.digests = append(b.digests, digest[:]...)
	b.origin = s.Origin
	b.rowsInBatch++
	b.note(s)
}

// hashTokens begins a row's digest: its ids as little-endian int32.
func hashTokens(h *xxh3.Hasher, tokens []int32) {
	var buf [512]byte
	for len(tokens) > 0 {
		n := min(len(tokens), len(buf)/4)
		for i, t := range tokens[:n] {
			binary.LittleEndian.PutUint32(buf[4*i:], uint32(t))
		}
		_, _ = h.Write(buf[:4*n]) // never fails
		tokens = tokens[n:]
	}
}

// gather copies rows behind buf and hashes them. The result has buf's length: its
// caller extends it when all states are there.
func (b *batch) gather(buf []byte, r format.Rows) []byte {
	size, row := int(r.Bytes()), r.RowBytes()
	buf = grow(buf, size)
	dst := buf[len(buf) : len(buf)+size]
	step := max(1, chunkBytes/row)
	contiguous, whole := r.Contiguous()
	for i := 0; i < r.N; i += step {
		end := min(i+step, r.N)
		chunk := dst[i*row : end*row]
		if whole {
			copy(chunk, contiguous[i*row:end*row])
		} else {
			for j := i; j < end; j++ {
				copy(dst[j*row:(j+1)*row], r.Row(j))
			}
		}
		_, _ = b.hash.Write(chunk) // never fails
	}
	return buf
}

// grow makes room for n more bytes, exactly: doubling a buffer of this size would
// break the memory bound.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b
	}
	bigger := make([]byte, len(b), len(b)+n)
	copy(bigger, b)
	return bigger
}

func (b *batch) addMask(mask []byte) {
	if b.rowsInBatch%8 == 0 {
		b.maskValid = append(b.maskValid, 0)
	}
	if mask == nil {
		b.maskNulls++
	} else {
		bitutil.SetBit(b.maskValid, b.rowsInBatch)
		b.mask = append(b.mask, mask...)
	}
	b.maskEnds = append(b.maskEnds, int32(len(b.mask)))
}

// note keeps which input a row came from.
func (b *batch) note(s *format.Sample) {
	if n := len(b.entries); n == 0 || b.entries[n-1].Path != s.Input.Path || b.entries[n-1].Done {
		b.entries = append(b.entries, entry{Input: s.Input})
	}
	e := &b.entries[len(b.entries)-1]
	e.IDs = append(e.IDs, s.ID)
	e.Done = s.Last
}

// hashIndex adds the rows' small columns to a shard's index hash.
func (b *batch) hashIndex(h *xxh3.Hasher) {
	for i := range b.rowsInBatch {
		ids := b.ids[4*b.tokens[i] : 4*b.tokens[i+1]]
		var mask []byte
		if bitutil.BitIsSet(b.maskValid, i) {
			mask = b.mask[b.maskEnds[i]:b.maskEnds[i+1]:b.maskEnds[i+1]]
		}
		hashIndex(h, b.id.at(i), b.source.at(i), ids, mask, b.digests[i*digestSize:(i+1)*digestSize])
	}
}

// hashIndex adds one row to a shard's index hash: every column but the states, each
// with its length, so that a reader can trust them (and through the digest, the
// states) without reading the whole shard. ids are little-endian int32; a nil mask
// is a null.
func hashIndex(h *xxh3.Hasher, id, source, ids, mask, digest []byte) {
	var n [4]byte
	maskLen := uint32(len(mask))
	if mask == nil {
		maskLen = ^uint32(0)
	}
	for _, part := range []struct {
		n uint32
		b []byte
	}{{uint32(len(id)), id}, {uint32(len(source)), source}, {uint32(len(ids)), ids}, {maskLen, mask}, {uint32(len(digest)), digest}} {
		binary.LittleEndian.PutUint32(n[:], part.n)
		_, _ = h.Write(n[:]) // never fails
		_, _ = h.Write(part.b)
	}
}
