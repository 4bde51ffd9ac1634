package arrowmsg_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"hsx/internal/arrowmsg"
)

// footer is that of a file of n record batches, and where these begin.
func footer(tb testing.TB, n int) (data []byte, begin []int64) {
	tb.Helper()
	b := array.NewInt32Builder(memory.DefaultAllocator)
	b.AppendValues([]int32{1, 2, 3}, nil)
	sc := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int32}}, nil)
	rec := array.NewRecord(sc, []arrow.Array{b.NewArray()}, 3)
	var buf seeker
	w, err := ipc.NewFileWriter(&buf, ipc.WithSchema(sc))
	for range n {
		err = errors.Join(err, w.Write(rec))
	}
	if err := errors.Join(err, w.Close()); err != nil {
		tb.Fatal(err)
	}
	file := buf.Bytes()
	tail := len(file) - 10
	start := tail - int(binary.LittleEndian.Uint32(file[tail:]))
	for pos := 8; pos < start; {
		m, err := arrowmsg.Read(file[:start], pos)
		if err != nil {
			tb.Fatal(err)
		}
		if m.Kind == arrowmsg.End {
			break
		}
		if m.Kind == arrowmsg.RecordBatch {
			begin = append(begin, int64(pos))
		}
		pos = m.Next
	}
	return file[start:tail], begin
}

// seeker tells where it is, which is all that the writer of files asks.
type seeker struct{ bytes.Buffer }

func (s *seeker) Seek(int64, int) (int64, error) { return int64(s.Len()), nil }

func TestBlocks(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 17} {
		data, want := footer(t, n)
		if got := slices.Collect(arrowmsg.Blocks(data)); !slices.Equal(got, want) {
			t.Errorf("Blocks of %d batches: got %v, want %v", n, got, want)
		}
		for i := range data { // whatever it says, it ends, within the data
			for _, x := range []byte{0x01, 0x80, 0xff} {
				bad := bytes.Clone(data)
				bad[i] ^= x
				if got := slices.Collect(arrowmsg.Blocks(bad)); len(got) > len(data)/24 {
					t.Fatalf("byte %d xor %#x: got %d blocks from %d bytes", i, x, len(got), len(data))
				}
			}
			_ = slices.Collect(arrowmsg.Blocks(data[:i:i]))
		}
	}
	if got := slices.Collect(arrowmsg.Blocks(nil)); got != nil {
		t.Errorf("Blocks of nothing: got %v", got)
	}
}
