package hfdata_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
)

// row is one row of a test stream; a nil slice is a null.
type row struct {
	tokens, mask []int64
}

// column writes rows into a builder of one column.
type column struct {
	name string
	typ  arrow.DataType
	add  func(b array.Builder, i int, r row)
}

func listColumn(name string, typ arrow.DataType) column {
	return column{name, typ, func(b array.Builder, _ int, r row) {
		values := r.tokens
		if name == "loss_mask" {
			values = r.mask
		}
		lb := b.(interface {
			array.Builder
			Append(bool)
			ValueBuilder() array.Builder
		})
		if values == nil {
			b.AppendNull()
			return
		}
		lb.Append(true)
		for _, v := range values {
			appendInt(lb.ValueBuilder(), v)
		}
	}}
}

const null = -1 << 40 // stands for a null element

func appendInt(b array.Builder, v int64) {
	if v == null {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.Int64Builder:
		b.Append(v)
	case *array.Int32Builder:
		b.Append(int32(v))
	case *array.Int16Builder:
		b.Append(int16(v))
	case *array.Int8Builder:
		b.Append(int8(v))
	case *array.Uint32Builder:
		b.Append(uint32(v))
	case *array.Uint16Builder:
		b.Append(uint16(v))
	case *array.Uint8Builder:
		b.Append(uint8(v))
	case *array.Uint64Builder:
		b.Append(uint64(v))
	case *array.BooleanBuilder:
		b.Append(v != 0)
	case *array.Float32Builder:
		b.Append(float32(v))
	}
}

// stream writes batches of rows with the Arrow library.
func stream(tb testing.TB, cols []column, batches [][]row, opts ...ipc.Option) []byte {
	tb.Helper()
	fields := make([]arrow.Field, len(cols))
	for i, c := range cols {
		fields[i] = arrow.Field{Name: c.name, Type: c.typ, Nullable: true}
	}
	sc := arrow.NewSchema(fields, nil)
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, append([]ipc.Option{ipc.WithSchema(sc)}, opts...)...)
	for _, rows := range batches {
		b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
		for i, r := range rows {
			for k, c := range cols {
				c.add(b.Field(k), i, r)
			}
		}
		rec := b.NewRecord()
		if err := w.Write(rec); err != nil {
			tb.Fatal(err)
		}
		rec.Release()
		b.Release()
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func tokenColumns(ids, mask arrow.DataType) []column {
	return []column{listColumn("input_ids", ids), listColumn("loss_mask", mask)}
}

// shared is a stream of one schema whose only column is a struct of two fields, both
// the same struct of two fields, and so on: as many paths as 2 to the depth in a
// schema of 24 bytes a level.
func shared(depth int) []byte {
	le := binary.LittleEndian
	var b []byte
	u16 := func(vs ...uint16) {
		for _, v := range vs {
			b = le.AppendUint16(b, v)
		}
	}
	u32 := func(vs ...int) {
		for _, v := range vs {
			b = le.AppendUint32(b, uint32(v))
		}
	}
	const message, schema, field = 4, 16, 24 // vtables
	const first = 40
	u32(first)
	u16(12, 12, 4, 6, 8, 0)       // version, kind, header
	u16(8, 8, 0, 4)               // fields
	u16(16, 12, 0, 0, 4, 0, 0, 8) // type, children
	u32(first - message)          // message at 40
	u16(4, 1)                     // V5, schema
	u32(4)                        // header at 52
	u32(first + 12 - schema)      // schema at 52
	u32(4, 1, 4)                  // one field, at 68
	for ; depth > 0; depth-- {
		u32(len(b)-field, 13, 4, 2, 8, 4) // a struct of two children, both just behind
	}
	u32(len(b)-field, 1, 0)
	return append(frame(b), "\xff\xff\xff\xff\x00\x00\x00\x00"...)
}

func frame(meta []byte) []byte {
	for len(meta)%8 != 0 {
		meta = append(meta, 0)
	}
	return append(binary.LittleEndian.AppendUint32([]byte("\xff\xff\xff\xff"), uint32(len(meta))), meta...)
}
