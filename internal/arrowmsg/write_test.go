package arrowmsg_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"hsx/internal/arrowmsg"
)

// TestWrite writes files of one column of lists of numbers, which Arrow's own reader of
// files and this package's must read as they were written.
func TestWrite(t *testing.T) {
	t.Parallel()
	for _, batches := range []int{0, 1, 2, 5} {
		for _, n := range []int{0, 1, 3, 64, 1000} {
			t.Run(fmt.Sprintf("%d-%d", batches, n), func(t *testing.T) {
				t.Parallel()
				file, values := lines(t, batches, n)
				r, err := ipc.NewFileReader(bytes.NewReader(file))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = r.Close() }()
				if r.NumRecords() != batches {
					t.Fatalf("file has %d record batches, want %d", r.NumRecords(), batches)
				}
				pos := 8
				for i := -1; i < batches; i++ { // the schema first
					m, err := arrowmsg.Read(file, pos)
					if err != nil {
						t.Fatal(err)
					}
					pos = m.Next
					if i < 0 {
						continue
					}
					if m.Body.At%64 != 0 {
						t.Errorf("body of batch %d begins at byte %d, want a multiple of 64", i, m.Body.At)
					}
					rec, err := r.Record(i)
					if err != nil {
						t.Fatal(err)
					}
					got := rec.Column(0).(*array.List).ListValues().(*array.Uint8).Uint8Values()
					if rec.NumRows() != 1 || !bytes.Equal(got, values) {
						t.Errorf("batch %d has %d rows of %d values, want one of %d", i, rec.NumRows(), len(got), len(values))
					}
					b, err := m.Batch()
					if err != nil {
						t.Fatal(err)
					}
					if s, err := b.Buffer(3); err != nil || !bytes.Equal(s.Bytes, values) || b.Compressed {
						t.Errorf("batch %d: got %d values, compressed %t and error %v", i, len(s.Bytes), b.Compressed, err)
					}
				}
			})
		}
	}
}

// lines is a file of batches that have one row, a list of the n values.
func lines(t *testing.T, batches, n int) (file, values []byte) {
	t.Helper()
	var sc bytes.Buffer
	fields := []arrow.Field{{Name: "x", Type: arrow.ListOf(arrow.PrimitiveTypes.Uint8)}}
	if err := ipc.NewWriter(&sc, ipc.WithSchema(arrow.NewSchema(fields, nil))).Close(); err != nil {
		t.Fatal(err)
	}
	schema, err := arrowmsg.Read(sc.Bytes(), 0)
	if err != nil {
		t.Fatal(err)
	}
	values = make([]byte, n)
	for i := range values {
		values[i] = byte(i * 7)
	}
	ends := arrow.Int32Traits.CastToBytes([]int32{0, int32(n)})
	file = append([]byte(arrowmsg.Magic+"\x00\x00"), sc.Bytes()[:schema.Next]...)
	var blocks []arrowmsg.Block
	for range batches {
		nodes := []arrowmsg.Node{{Length: 1}, {Length: int64(n)}}
		sizes := []int64{0, int64(len(ends)), 0, int64(n)}
		var block arrowmsg.Block
		at := int64(len(file))
		file, block = arrowmsg.AppendBatch(file, at, 1, nodes, sizes, false)
		if body := int64(len(file)) - at; body != int64(block.Meta) || block.At != at {
			t.Errorf("message at %d has %d bytes before its body, the block says %d at %d", at, body, block.Meta, block.At)
		}
		for _, b := range [][]byte{ends, values} {
			file = append(append(file, b...), make([]byte, arrowmsg.Padding(int64(len(b))))...)
		}
		blocks = append(blocks, block)
	}
	return arrowmsg.AppendFooter(file, schema, blocks), values
}
