package shard

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/ipc"

	"hsx/format"
)

// The fixed columns; the states follow between loss_mask and digest.
const (
	colID       = "id"
	colSource   = "source"
	colIDs      = "input_ids"
	colMask     = "loss_mask"
	colDigest   = "digest"
	stateColumn = 4 // index of the first state
)

// EncodingSplit is how a compressed shard stores states: the high and the low bytes of
// 16-bit values are columns of their own, and their buffers are zstd frames where that
// makes them shorter. A shard without an encoding is plain.
const EncodingSplit = "split-zstd"

// schema is the Arrow schema of a layout in an encoding, as section 4 of DESIGN.md lays
// it down.
func schema(l format.Layout, encoding string) *arrow.Schema {
	fields := []arrow.Field{
		{Name: colID, Type: arrow.BinaryTypes.String},
		{Name: colSource, Type: arrow.BinaryTypes.String},
		{Name: colIDs, Type: arrow.ListOf(arrow.PrimitiveTypes.Int32)},
		{Name: colMask, Type: arrow.ListOf(arrow.PrimitiveTypes.Uint8), Nullable: true},
	}
	for _, s := range l.States {
		if encoding == EncodingSplit && s.DType.Size() == 2 {
			fields = append(fields, halfField(s, l.HiddenSize, highBytes), halfField(s, l.HiddenSize, lowBytes))
		} else {
			fields = append(fields, StateField(s, l.HiddenSize))
		}
	}
	fields = append(fields, arrow.Field{Name: colDigest, Type: &arrow.FixedSizeBinaryType{ByteWidth: digestSize}})
	return arrow.NewSchema(fields, nil)
}

// What the columns of a state's halves add to its name.
const (
	highBytes = ".hi"
	lowBytes  = ".lo"
)

// halfField is the column of the high or the low bytes of a state's values.
func halfField(s format.State, hidden int, half string) arrow.Field {
	f := StateField(s, hidden)
	f.Name += half
	f.Type = arrow.ListOf(arrow.FixedSizeListOf(int32(hidden), arrow.PrimitiveTypes.Uint8))
	meta := f.Metadata.ToMap()
	meta["hsx.dtype"] = s.DType.String() // which the bytes do not say
	meta["hsx.turned"] = "left by 1"     // before the bytes were taken apart
	f.Metadata = arrow.MetadataFrom(meta)
	return f
}

// schemaMessage is the message that says a schema, and what ends a stream.
func schemaMessage(sc *arrow.Schema) ([]byte, error) {
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(sc)).Close(); err != nil {
		return nil, fmt.Errorf("encode the schema: %w", err)
	}
	return b.Bytes(), nil
}

// StateField is the column of a state of a given hidden size: how each dtype is stored
// in Arrow, and what the field's metadata says of it.
func StateField(s format.State, hidden int) arrow.Field {
	var elem arrow.DataType
	meta := map[string]string{}
	switch s.DType {
	case format.BFloat16: // Arrow has no bfloat16
		elem = arrow.PrimitiveTypes.Uint16
		meta["hsx.dtype"] = s.DType.String()
	case format.Float16:
		elem = arrow.FixedWidthTypes.Float16
	default:
		elem = arrow.PrimitiveTypes.Float32
	}
	if s.Role == format.RoleFinal {
		meta["hsx.norm"] = s.Norm.String()
	}
	return arrow.Field{
		Name:     s.Column(),
		Type:     arrow.ListOf(arrow.FixedSizeListOf(int32(hidden), elem)),
		Metadata: arrow.MetadataFrom(meta),
	}
}

// checkSchema reports how the schema of a shard differs from the one of its
// dataset's layout and of its encoding: names, types and metadata all carry meaning.
func checkSchema(got *arrow.Schema, l format.Layout, encoding string) error {
	want := schema(l, encoding)
	if got.Equal(want) {
		return nil
	}
	if g, w := got.NumFields(), want.NumFields(); g != w {
		return fmt.Errorf("schema has %d columns, the manifest calls for %d", g, w)
	}
	for i, w := range want.Fields() {
		if g := got.Field(i); !g.Equal(w) {
			return fmt.Errorf("column %d is %v, the manifest calls for %v", i, g, w)
		}
	}
	return fmt.Errorf("schema metadata differs from the manifest")
}
