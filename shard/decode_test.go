package shard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hsx/format"
	"hsx/internal/arrowmsg"
	"hsx/internal/hsxtest"
	"hsx/internal/mapped"
	"hsx/internal/zhuff"
)

// written is the bytes of a shard of one record batch of three rows, of which the
// second has no mask, its layout, and where the batch begins.
func written(tb testing.TB, opt Options) (data []byte, l format.Layout, at int) {
	tb.Helper()
	dir := tb.TempDir()
	w, err := OpenWriter(dir, opt)
	if err != nil {
		tb.Fatal(err)
	}
	spec := hsxtest.Spec{Hidden: 3, Layers: []format.Layer{2, 30}, Final: true, DType: format.BFloat16}
	if opt.Compress {
		spec.Hidden, spec.Skewed = 40, true // enough to be coded
	}
	for i := range 3 {
		spec.NoMask = i == 1
		if err := w.Put(tb.Context(), hsxtest.Sample(spec, i, 2+i)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(tb.Context()), w.Close()); err != nil {
		tb.Fatal(err)
	}
	if data, err = os.ReadFile(filepath.Join(dir, shardsDir, shardName(0))); err != nil {
		tb.Fatal(err)
	}
	m, err := arrowmsg.Read(data, magicBytes)
	if err != nil {
		tb.Fatal(err)
	}
	return data, hsxtest.Sample(spec, 0, 1).Layout(), m.Next
}

// readBatch decodes the record batch at the start of data and its rows up to the
// first bad one, and returns how many were good.
func readBatch(data []byte, l format.Layout, encoding string) (good int, err error) {
	m, err := arrowmsg.Read(data, 0)
	if err != nil {
		return 0, err
	}
	b, err := (&reader{info: Info{Encoding: encoding}, layout: l, file: &mapped.File{}, batch: []arrowmsg.Message{m}}).decode(0)
	if err != nil {
		return 0, err
	}
	for i := range b.n {
		if _, err := b.sample(i, nil, nil); err != nil {
			return i, err
		}
	}
	return b.n, nil
}

// Even metadata that no hash protects leads to nothing worse than an error.
func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	file, l, at := written(t, Options{})
	batch := file[at:]
	m, err := arrowmsg.Read(batch, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := m.Batch()
	if err != nil {
		t.Fatal(err)
	}
	offsets, err := b.Buffer(7) // of input_ids
	if err != nil {
		t.Fatal(err)
	}
	set := func(at int, v uint32) []byte {
		bad := bytes.Clone(batch)
		binary.LittleEndian.PutUint32(bad[at:], v)
		return bad
	}
	other := l
	other.States = l.States[:2]
	wider := l
	wider.HiddenSize = 4
	for name, tc := range map[string]struct {
		data   []byte
		layout format.Layout
		good   int
		want   string
	}{
		"as written":       {batch, l, 3, ""},
		"a state more":     {batch, other, 0, "has 16 nodes and 31 buffers (compressed: false), want 13 and 26"},
		"a wider state":    {batch, wider, 0, "column layer_2 has 9 values, its buffer of 54 bytes holds 6"},
		"offset beyond":    {set(offsets.At+4, 10), l, 0, "column input_ids goes from 0 to 10 of 9 values"},
		"negative offset":  {set(offsets.At+4, math.MaxUint32), l, 0, "column input_ids goes from 0 to -1"},
		"falling offset":   {set(offsets.At+8, 1), l, 1, "column input_ids goes from 2 to 1"},
		"a schema instead": {file[magicBytes:], l, 0, "message is of kind 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			good, err := readBatch(tc.data, tc.layout, "")
			if good != tc.good || (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("decode: got %d rows and error %v, want %d and %q", good, err, tc.good, tc.want)
			}
		})
	}
}

func FuzzDecodeBatch(f *testing.F) {
	file, l, at := written(f, Options{})
	f.Add(file[at:])
	f.Add(file[magicBytes:])
	f.Fuzz(func(t *testing.T, data []byte) { fuzzBatch(t, data, l, "", 64) })
}

// Of a compressed batch a row may take as many times the bytes of its states as frames may
// hold, and once more when they are put together.
func FuzzDecodeCompressed(f *testing.F) {
	file, l, at := written(f, Options{Compress: true})
	m, err := arrowmsg.Read(file, at)
	if err != nil {
		f.Fatal(err)
	}
	if good, err := readBatch(file[at:m.Next], l, EncodingSplit); good != 3 {
		f.Fatalf("as written: got %d rows and error %v, want 3", good, err)
	}
	f.Add(file[at:m.Next])
	for i := m.Meta.At; i < m.Next; i += 37 {
		changed := bytes.Clone(file[at:m.Next])
		changed[i-at] ^= 0x84
		f.Add(changed)
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzBatch(t, data, l, EncodingSplit, 4*zhuff.MaxRatio) })
}

func fuzzBatch(t *testing.T, data []byte, l format.Layout, encoding string, times int) {
	t.Helper()
	var good int
	var err error
	got := hsxtest.Allocated(func() { good, err = readBatch(data, l, encoding) })
	if most := uint64(times*len(data) + 2<<20); got > most {
		t.Fatalf("decode allocated %d bytes for %d bytes of input (error %v), want at most %d", got, len(data), err, most)
	}
	if good > len(data)/digestSize {
		t.Fatalf("decode: got %d good rows of %d bytes", good, len(data))
	}
}
