package arrowmsg_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"hsx/internal/arrowmsg"
)

// lists is a stream of one batch of two rows: n values, and a null.
func lists(tb testing.TB, elem arrow.DataType, n int, opts ...ipc.Option) []byte {
	tb.Helper()
	width := elem.(arrow.FixedWidthDataType).Bytes()
	values := make([]byte, n*width)
	for i := range values {
		values[i] = byte(i * 7)
	}
	offsets := []int32{0, int32(n), int32(n)}
	child := array.NewData(elem, n, []*memory.Buffer{nil, memory.NewBufferBytes(values)}, nil, 0, 0)
	list := array.NewData(arrow.ListOf(elem), 2, []*memory.Buffer{
		memory.NewBufferBytes([]byte{1}), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))}, []arrow.ArrayData{child}, 1, 0)
	sc := arrow.NewSchema([]arrow.Field{{Name: "x", Type: list.DataType(), Nullable: true}}, nil)
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, append([]ipc.Option{ipc.WithSchema(sc)}, opts...)...)
	err := w.Write(array.NewRecord(sc, []arrow.Array{array.MakeFromData(list)}, 2))
	if err = errors.Join(err, w.Close()); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, elem := range []arrow.DataType{
		arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint16, arrow.PrimitiveTypes.Int16,
		arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint64, arrow.PrimitiveTypes.Int64,
		arrow.FixedWidthTypes.Float16, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64,
	} {
		for _, n := range []int{0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
			t.Run(fmt.Sprintf("%s-%d", elem, n), func(t *testing.T) {
				t.Parallel()
				data := lists(t, elem, n)
				var kinds []arrowmsg.Kind
				for pos := 0; pos < len(data); {
					m, err := arrowmsg.Read(data, pos)
					if err != nil {
						t.Fatalf("Read(%d): %v", pos, err)
					}
					kinds = append(kinds, m.Kind)
					if m.Kind == arrowmsg.RecordBatch {
						checkLists(t, data, m, elem, n)
					}
					pos = m.Next
				}
				if got, want := fmt.Sprint(kinds), fmt.Sprint([]arrowmsg.Kind{arrowmsg.Schema, arrowmsg.RecordBatch, arrowmsg.End}); got != want {
					t.Errorf("messages are of kinds %s, want %s", got, want)
				}
			})
		}
	}
}

func checkLists(t *testing.T, data []byte, m arrowmsg.Message, elem arrow.DataType, n int) {
	t.Helper()
	b, err := m.Batch()
	if err != nil {
		t.Fatalf("Batch: %v", err)
	}
	if b.Rows != 2 || b.Compressed || b.Nodes() != 2 || b.Buffers() != 4 || b.Views() != 0 {
		t.Fatalf("batch has %d rows, %d nodes, %d buffers, %d views, compressed %t, want 2, 2, 4, 0, false",
			b.Rows, b.Nodes(), b.Buffers(), b.Views(), b.Compressed)
	}
	for i, want := range [][2]int64{{2, 1}, {int64(n), 0}} {
		if length, nulls := b.Node(i); length != want[0] || nulls != want[1] {
			t.Errorf("Node(%d): got %d, %d, want %v", i, length, nulls, want)
		}
	}
	values := make([]byte, n*elem.(arrow.FixedWidthDataType).Bytes())
	for i := range values {
		values[i] = byte(i * 7)
	}
	offsets := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(make([]byte, 4), uint32(n)), uint32(n))
	for i, want := range [][]byte{{1}, offsets, {}, values} {
		got, err := b.Buffer(i)
		if err != nil {
			t.Fatalf("Buffer(%d): %v", i, err)
		}
		if !bytes.HasPrefix(got.Bytes, want) {
			t.Errorf("Buffer(%d): got %x, want %x", i, got.Bytes, want)
		}
		checkSpan(t, data, got)
	}
}

// checkSpan checks that a span is where it says, and a part of data rather than a copy.
func checkSpan(tb testing.TB, data []byte, s arrowmsg.Span) {
	tb.Helper()
	if s.At < 0 || s.At > len(data) || len(s.Bytes) > len(data)-s.At || len(s.Bytes) != cap(s.Bytes) {
		tb.Fatalf("span of %d bytes (capacity %d) at %d leaves data of %d bytes", len(s.Bytes), cap(s.Bytes), s.At, len(data))
	}
	if len(s.Bytes) > 0 && &s.Bytes[0] != &data[s.At] {
		tb.Fatalf("span at %d is a copy", s.At)
	}
}

func checkErr(tb testing.TB, err error) {
	tb.Helper()
	var e *arrowmsg.Error
	if !errors.As(err, &e) || e.Err == nil {
		tb.Fatalf("got error %T (%v), want an *arrowmsg.Error with a cause", err, err)
	}
}

func golden(tb testing.TB) []byte {
	tb.Helper()
	data, err := os.ReadFile("testdata/speculators.arrow")
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func TestTable(t *testing.T) {
	t.Parallel()
	m, err := arrowmsg.Read(golden(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for field := range m.Header.Tables(1) {
		names = append(names, fmt.Sprintf("%s %d %t", field.Text(0), field.Uint8(2), field.Has(4)))
	}
	if got, want := fmt.Sprint(names), "[input_ids 12 false loss_mask 12 false seq_len 2 false]"; got != want || m.Header.Damaged() {
		t.Errorf("fields are %s, want %s (damaged: %t)", got, want, m.Header.Damaged())
	}
	none := m.Header.Table(99)
	if none.Has(0) || none.Uint8(0) != 0 || none.Int16(0) != 0 || none.Int32(0) != 0 || none.Int64(0) != 0 || len(none.Text(0)) != 0 || none.Damaged() {
		t.Errorf("a table that is not there has fields")
	}
}

func frame(meta string) []byte {
	return append(binary.LittleEndian.AppendUint32([]byte("\xff\xff\xff\xff"), uint32(len(meta))), meta...)
}

func TestReadRefuses(t *testing.T) {
	t.Parallel()
	good := golden(t)
	// A root table whose vtable is just before it, with a version and nothing else.
	meta := func(version byte) string {
		return "\x0c\x00\x00\x00\x06\x00\x06\x00\x04\x00\x00\x00\x08\x00\x00\x00" + string([]byte{version, 0})
	}
	for name, tc := range map[string]struct {
		data        []byte
		at          int
		unsupported bool
		want        string
	}{
		"empty":           {nil, 0, false, "truncated: 0 bytes are left"},
		"no mark":         {[]byte("\x10\x01\x00\x00\x00\x00\x00\x00"), 0, false, "begins with 10 01 00 00"},
		"negative length": {[]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), 4, false, "-1 bytes long"},
		"cut metadata":    {good[:20], 4, false, "truncated: metadata of a message needs"},
		"cut body":        {batchOf(t, good)[:400], 8, false, "truncated: body of a message needs"},
		"zeros":           {frame(strings.Repeat("\x00", 64)), 8, false, "points outside of it"},
		"root beyond":     {frame("\xff\xff\xff\x7f\x00\x00\x00\x00"), 8, false, "points outside of it"},
		"version 4":       {frame(meta(3)), 8, true, "version 3, want 4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := arrowmsg.Read(tc.data, 0)
			if err == nil {
				t.Fatalf("Read: got no error, want %q", tc.want)
			}
			checkErr(t, err)
			var e *arrowmsg.Error
			if errors.As(err, &e); e.At != tc.at || e.Unsupported != tc.unsupported || !strings.Contains(e.Error(), tc.want) {
				t.Errorf("Read: got error %v (unsupported: %t), want %q at byte %d (%t)", e, e.Unsupported, tc.want, tc.at, tc.unsupported)
			}
		})
	}
	if m, err := arrowmsg.Read(frame(meta(4)), 0); err != nil || m.Kind != 0 || m.Next != 26 {
		t.Errorf("Read of a message of nothing: got kind %d, next %d, error %v, want 0, 26, none", m.Kind, m.Next, err)
	}
}

// batchOf is the bytes from the first record batch on.
func batchOf(tb testing.TB, data []byte) []byte {
	tb.Helper()
	m, err := arrowmsg.Read(data, 0)
	if err != nil {
		tb.Fatal(err)
	}
	return data[m.Next:]
}

func TestBatchRefuses(t *testing.T) {
	t.Parallel()
	i32 := arrow.PrimitiveTypes.Int32
	data := lists(t, i32, 3)
	m, err := arrowmsg.Read(data, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Batch(); err == nil || !strings.Contains(err.Error(), "of kind 1, want a record batch (3)") {
		t.Errorf("Batch of a schema: got error %v", err)
	}
	if m, err = arrowmsg.Read(batchOf(t, lists(t, i32, 3, ipc.WithZstd())), 0); err != nil {
		t.Fatal(err)
	}
	if b, err := m.Batch(); err != nil || !b.Compressed {
		t.Errorf("Batch of compressed buffers: got compressed %t and error %v, want true and none", b.Compressed, err)
	}

	// What the metadata says of the last buffer, of 12 bytes.
	batch := batchOf(t, data)
	if m, err = arrowmsg.Read(batch, 0); err != nil {
		t.Fatal(err)
	}
	b, err := m.Batch()
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Buffer(3)
	if err != nil {
		t.Fatal(err)
	}
	at, size := uint64(s.At-m.Body.At), uint64(len(m.Body.Bytes))
	last := bytes.Index(batch, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, at), 12))
	if last < 0 {
		t.Fatal("stream does not have the buffer that this test changes")
	}
	for name, tc := range map[string]struct {
		at int
		v  uint64
		ok bool
	}{
		"as it is":        {last, at, true},
		"at the end":      {last, size - 12, true},
		"beyond the end":  {last, size - 11, false},
		"far beyond":      {last, 1<<63 - 1, false},
		"negative place":  {last, 1 << 63, false},
		"to the end":      {last + 8, size - at, true},
		"long":            {last + 8, size - at + 1, false},
		"very long":       {last + 8, 1<<63 - 1, false},
		"negative length": {last + 8, 1<<64 - 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := bytes.Clone(batch)
			binary.LittleEndian.PutUint64(bad[tc.at:], tc.v)
			m, err := arrowmsg.Read(bad, 0)
			if err != nil {
				t.Fatal(err)
			}
			b, err := m.Batch()
			if err != nil {
				t.Fatal(err)
			}
			s, err := b.Buffer(3)
			if (err == nil) != tc.ok {
				t.Fatalf("Buffer(3): got error %v, want one: %t", err, !tc.ok)
			}
			if err != nil {
				checkErr(t, err)
				return
			}
			checkSpan(t, bad, s)
		})
	}
}

// walk reads all that can be found in data and checks what must hold of any.
func walk(tb testing.TB, data []byte) {
	tb.Helper()
	for pos := 0; ; {
		m, err := arrowmsg.Read(data, pos)
		if err != nil {
			checkErr(tb, err)
			return
		}
		if m.Next <= pos || m.Next > len(data) {
			tb.Fatalf("message at %d of %d bytes is followed by one at %d", pos, len(data), m.Next)
		}
		if pos = m.Next; m.Kind == arrowmsg.End {
			return
		}
		checkSpan(tb, data, m.Meta)
		checkSpan(tb, data, m.Body)
		n := 0
		for field := range m.Header.Tables(1) {
			if n++; len(field.Text(0)) > len(m.Meta.Bytes) || 4*n > len(m.Meta.Bytes) {
				tb.Fatalf("field %d with a name of %d bytes in metadata of %d", n, len(field.Text(0)), len(m.Meta.Bytes))
			}
		}
		b, err := m.Batch()
		if err != nil {
			checkErr(tb, err)
			continue
		}
		for i := range b.Nodes() {
			b.Node(i)
		}
		for i := range b.Views() {
			if n := b.View(i); n < 0 || n > b.Buffers() {
				tb.Fatalf("View(%d) = %d of %d buffers", i, n, b.Buffers())
			}
		}
		for i := range b.Buffers() {
			s, err := b.Buffer(i)
			if err != nil {
				checkErr(tb, err)
				continue
			}
			checkSpan(tb, m.Body.Bytes, arrowmsg.Span{At: s.At - m.Body.At, Bytes: s.Bytes})
		}
	}
}

func TestDamage(t *testing.T) {
	t.Parallel()
	good := golden(t)
	for i := range good {
		walk(t, good[:i:i])
		for _, x := range []byte{0x01, 0x80, 0xff} {
			bad := bytes.Clone(good)
			bad[i] ^= x
			walk(t, bad)
		}
	}
}

func TestAllocates(t *testing.T) {
	data := lists(t, arrow.PrimitiveTypes.Int64, 1<<20)
	if got := testing.AllocsPerRun(10, func() { walk(t, data) }); got > 20 {
		t.Errorf("walking a stream of two messages made %v allocations, want at most 20", got)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(golden(f))
	f.Add(lists(f, arrow.FixedWidthTypes.Float16, 65))
	f.Add(lists(f, arrow.PrimitiveTypes.Int32, 2, ipc.WithLZ4()))
	f.Fuzz(func(t *testing.T, data []byte) {
		data = data[:len(data):len(data)]
		// What is found is part of the data, so allocations follow the messages alone.
		got := testing.AllocsPerRun(1, func() { walk(t, data) })
		if most := float64(16 + len(data)); got > most {
			t.Fatalf("walking %d bytes made %v allocations, want at most %v", len(data), got, most)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	data := lists(b, arrow.PrimitiveTypes.Int32, 1<<20)
	b.Run("int32-2x1048576", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			walk(b, data)
		}
	})
}

// TestParse finds the same parts where metadata and body lie apart.
func TestParse(t *testing.T) {
	t.Parallel()
	data := lists(t, arrow.PrimitiveTypes.Int32, 65)
	for pos, n := 0, 0; ; n++ {
		want, err := arrowmsg.Read(data, pos)
		if err != nil {
			t.Fatal(err)
		}
		if want.Kind == arrowmsg.End {
			if n != 2 {
				t.Errorf("stream has %d messages, want schema and batch", n)
			}
			return
		}
		got, err := arrowmsg.Parse(want.Meta.Bytes, append(bytes.Clone(want.Body.Bytes), "more"...))
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind != want.Kind || !bytes.Equal(got.Body.Bytes, want.Body.Bytes) || got.Body.At != len(want.Meta.Bytes) {
			t.Errorf("message %d: kind %d and %d bytes of body at %d, want kind %d and %d", n, got.Kind, len(got.Body.Bytes), got.Body.At, want.Kind, len(want.Body.Bytes))
		}
		if len(want.Body.Bytes) > 0 {
			if _, err := arrowmsg.Parse(want.Meta.Bytes, want.Body.Bytes[1:]); err == nil || !strings.Contains(err.Error(), "body of a message needs") {
				t.Errorf("message %d without its last byte: %v, want a body that is too short", n, err)
			}
		}
		if _, err := arrowmsg.Parse(nil, want.Body.Bytes); err == nil {
			t.Errorf("message %d without metadata: no error", n)
		}
		pos = want.Next
	}
}
