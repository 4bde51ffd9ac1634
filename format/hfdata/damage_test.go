package hfdata_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"

	"hsx/format/hfdata"
	"hsx/internal/hsxtest"
)

// Every cut is told as one, and no flipped byte of the metadata does worse than an
// error.
func TestDamage(t *testing.T) {
	t.Parallel()
	good := hsxtest.Golden(t, "speculators.arrow")
	for n := range good {
		_, err := hfdata.Open(good[:n])
		if err == nil {
			t.Fatalf("Open(first %d bytes): got no error", n)
		}
		hsxtest.CheckDecodeError(t, err, n)
		if n >= 4 && !strings.Contains(err.Error(), "truncated") {
			t.Fatalf("Open(first %d bytes): got error %v, want truncated", n, err)
		}
	}
	for i := range good {
		for _, x := range []byte{0x01, 0x80, 0xff} {
			bad := bytes.Clone(good)
			bad[i] ^= x
			walk(t, bad)
		}
	}
}

// walk reads all that a stream gives and checks what must hold of any stream.
func walk(tb testing.TB, data []byte) {
	tb.Helper()
	s, err := hfdata.Open(data)
	if err != nil {
		hsxtest.CheckDecodeError(tb, err, len(data))
		return
	}
	if s.Len() > len(data) {
		tb.Fatalf("Len() = %d of %d bytes", s.Len(), len(data))
	}
	for i := range min(s.Len(), 64) {
		tokens, mask, err := s.Row(i)
		if err != nil {
			hsxtest.CheckDecodeError(tb, err, len(data))
			continue
		}
		if len(tokens) > len(data) || len(mask) > 8*len(data) {
			tb.Fatalf("Row(%d) has %d tokens and %d mask values of %d bytes", i, len(tokens), len(mask), len(data))
		}
	}
}

func TestOpenAllocates(t *testing.T) {
	i64 := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	big := stream(t, tokenColumns(i64, i64), [][]row{{{make([]int64, 1<<20), make([]int64, 1<<20)}}})
	huge := bytes.Clone(hsxtest.Golden(t, "speculators.arrow"))
	binary.LittleEndian.PutUint32(huge[344:], 20_000_000)
	for name, data := range map[string][]byte{"16 MiB of tokens": big, "20 million fields": huge, "shared fields": shared(200)} {
		t.Run(name, func(t *testing.T) {
			var err error
			if got := hsxtest.Allocated(func() { _, err = hfdata.Open(data) }); got > 64<<10 {
				t.Errorf("Open allocated %d bytes (error %v), want at most 65536", got, err)
			}
		})
	}
}

func FuzzOpen(f *testing.F) {
	i64 := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	large := arrow.LargeListOf(arrow.PrimitiveTypes.Int32)
	fixed := arrow.FixedSizeListOf(2, arrow.FixedWidthTypes.Boolean)
	rows := [][]row{{{[]int64{1, 2}, []int64{0, 1}}, {[]int64{3, 4}, nil}}}
	f.Add(hsxtest.Golden(f, "speculators.arrow"))
	f.Add(stream(f, tokenColumns(i64, fixed), rows))
	f.Add(stream(f, append([]column{{"s", arrow.BinaryTypes.StringView, func(b array.Builder, _ int, _ row) { b.AppendNull() }}}, tokenColumns(large, i64)...), rows))
	f.Add(shared(60))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s *hfdata.Stream
		var err error
		got := hsxtest.Allocated(func() { s, err = hfdata.Open(data) })
		if most := uint64(16*len(data) + 1<<16); got > most {
			t.Fatalf("Open allocated %d bytes for %d bytes of input (error %v), want at most %d", got, len(data), err, most)
		}
		walk(t, data)
		// A stream is whole only with its last byte.
		if err == nil && s.Len() > 0 {
			if _, err := hfdata.Open(data[:len(data)-1]); err == nil {
				t.Fatal("Open without the last byte: got no error")
			}
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	i64 := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	batch := []row{{make([]int64, 2048), make([]int64, 2048)}, {make([]int64, 2048), make([]int64, 2048)}}
	data := stream(b, tokenColumns(i64, i64), [][]row{batch, batch, batch, batch, batch, batch, batch, batch})
	b.Run("8-batches-2x2048", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := hfdata.Open(data); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRow(b *testing.B) {
	i64 := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	s, err := hfdata.Open(stream(b, tokenColumns(i64, i64), [][]row{{{make([]int64, 2048), make([]int64, 2048)}}}))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("int64-2048", func(b *testing.B) {
		b.SetBytes(2 * 8 * 2048)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := s.Row(0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
