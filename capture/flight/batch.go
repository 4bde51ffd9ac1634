package flight

import (
	"encoding/binary"
	"fmt"
	"maps"
	"time"
	"unicode/utf8"

	"hsx/capture/receive"
	"hsx/format"
	"hsx/internal/arrowmsg"
)

const maxID = 4096 // bytes, as over HTTP

// values is a column in one batch, where it lies in the body. Row i of text and lists is
// the items from offset i up to offset i+1. The sizes of its buffers were checked, and
// nothing of what they hold.
type values struct {
	column
	size    int    // bytes of an item: a character, a number, a state of one token, a digest
	valid   []byte // one bit a row; nil when no row is null
	offsets []byte // int32, one more than rows; nil when each row is one item
	data    []byte // whole items
}

// batch is one record batch.
type batch struct {
	rows     int
	columns  map[string]*values
	order    []*values // of the states, as the schema has them
	metadata map[string]string
}

// readBatch finds the columns of a record batch. It reads nothing of the body.
func readBatch(m arrowmsg.Message, s *schema) (*batch, error) {
	in, err := m.Batch()
	if err != nil {
		return nil, err
	}
	switch nodes, buffers := s.count(); {
	case in.Compressed:
		return nil, fmt.Errorf("record batch is compressed, want it as it is (pyarrow: IpcWriteOptions(compression=None))")
	case in.Rows < 0 || in.Rows > maxRows:
		return nil, fmt.Errorf("record batch has %d rows, want at most %d", in.Rows, maxRows)
	case in.Nodes() != nodes || in.Buffers() != buffers || in.Views() != 0:
		return nil, fmt.Errorf("record batch has %d nodes and %d buffers, its schema calls for %d and %d", in.Nodes(), in.Buffers(), nodes, buffers)
	}
	b := &batch{rows: int(in.Rows), columns: map[string]*values{}, metadata: s.metadata}
	c := &cursor{batch: in}
	for _, col := range s.columns {
		v, err := c.column(col)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", col.name, err)
		}
		b.columns[col.name] = v
		if col.kind == states {
			b.order = append(b.order, v)
		}
	}
	return b, nil
}

// count is how many nodes and buffers each batch of the schema has.
func (s *schema) count() (nodes, buffers int) {
	for _, c := range s.columns {
		switch c.kind {
		case text: // validity, offsets, characters
			nodes, buffers = nodes+1, buffers+3
		case numbers: // and those of the numbers: validity, values
			nodes, buffers = nodes+2, buffers+4
		case states:
			nodes, buffers = nodes+3, buffers+5
		case binary16:
			nodes, buffers = nodes+1, buffers+2
		}
	}
	return nodes, buffers
}

// cursor takes nodes and buffers in their order, each column before its children.
type cursor struct {
	batch        arrowmsg.Batch
	node, buffer int
}

func (c *cursor) takeNode() (length, nulls int64) {
	length, nulls = c.batch.Node(c.node)
	c.node++
	return length, nulls
}

func (c *cursor) takeBuffer() ([]byte, error) {
	s, err := c.batch.Buffer(c.buffer)
	c.buffer++
	return s.Bytes, err
}

// column takes one column.
func (c *cursor) column(col column) (*values, error) {
	v := &values{column: col}
	depth := 0
	switch col.kind {
	case text:
		v.size = 1
	case numbers:
		v.size, depth = col.dtype.Size(), 1
	case states:
		v.size, depth = col.width*col.dtype.Size(), 2
	case binary16:
		v.size = digestBytes
	}
	length, nulls := c.takeNode()
	var err error
	if v.valid, err = c.takeBuffer(); err != nil {
		return nil, err
	}
	if col.kind != binary16 {
		if v.offsets, err = c.takeBuffer(); err != nil {
			return nil, err
		}
	}
	items := int64(-1) // as the outermost child states them
	for range depth {
		n, childNulls := c.takeNode()
		if items < 0 {
			items = n
		}
		if childNulls != 0 {
			return nil, fmt.Errorf("there are %d nulls among its values, want none", childNulls)
		}
		if _, err := c.takeBuffer(); err != nil { // validity of what is never null
			return nil, err
		}
	}
	if v.data, err = c.takeBuffer(); err != nil {
		return nil, err
	}
	held := int64(len(v.data) / v.size)
	if depth == 0 {
		items = held
	}
	rows := c.batch.Rows
	switch {
	case length != rows:
		return nil, fmt.Errorf("it has %d rows in a record batch of %d", length, rows)
	case items < 0 || items > held:
		return nil, fmt.Errorf("it has %d values, its buffer of %d bytes holds %d", items, len(v.data), held)
	case col.kind == binary16 && rows > held:
		return nil, fmt.Errorf("it has %d bytes for %d rows", len(v.data), rows)
	case col.kind != binary16 && rows > 0 && int64(len(v.offsets)) < 4*(rows+1):
		return nil, fmt.Errorf("it has %d bytes of offsets for %d rows", len(v.offsets), rows)
	case nulls < 0 || nulls > rows || nulls > 0 && int64(len(v.valid)) < (rows+7)/8:
		return nil, fmt.Errorf("it has %d nulls among %d rows and a validity bitmap of %d bytes", nulls, rows, len(v.valid))
	case nulls == 0:
		v.valid = nil // the bitmap may be left out, so it is not looked at
	}
	v.data = v.data[:items*int64(v.size)]
	return v, nil
}

// row is the bytes of row i, nil when it is null.
func (v *values) row(i int) ([]byte, error) {
	if v.valid != nil && v.valid[i/8]>>(i%8)&1 == 0 {
		return nil, nil
	}
	start, end := i, i+1
	if v.offsets != nil {
		start = int(int32(binary.LittleEndian.Uint32(v.offsets[4*i:])))
		end = int(int32(binary.LittleEndian.Uint32(v.offsets[4*i+4:])))
	}
	if items := len(v.data) / v.size; start < 0 || end < start || end > items {
		return nil, fmt.Errorf("column %s goes from %d to %d of %d values", v.name, start, end, items)
	}
	return v.data[start*v.size : end*v.size : end*v.size], nil
}

// text is row i of a column of text that may be missing: "" then, or when it is null.
func (b *batch) text(name string, i int) (string, error) {
	v := b.columns[name]
	if v == nil {
		return "", nil
	}
	raw, err := v.row(i)
	switch {
	case err != nil:
		return "", err
	case len(raw) > maxID:
		return "", fmt.Errorf("column %s has %d bytes, want at most %d", name, len(raw), maxID)
	case !utf8.Valid(raw):
		return "", fmt.Errorf("column %s is not valid UTF-8", name)
	}
	return string(raw), nil
}

// sample is row i, as the Python hook would name its parts. What of it is known is
// returned with an error too.
func (b *batch) sample(i int, id string, now time.Time) (row receive.Row, err error) {
	row.ID, row.Input = id, format.Input{Path: "flight:" + id, ModTime: now.UnixNano()}
	if id == "" {
		row.Input.Path = fmt.Sprintf("flight:row %d of a batch", i)
	}
	source, err := b.text(colSource, i)
	if err != nil {
		return row, err
	}
	if source != "" {
		row.Input.Path = "flight:" + source
	}
	row.Record = &format.Record{}
	add := func(name string) error {
		v := b.columns[name]
		if v == nil {
			return nil
		}
		data, err := v.row(i)
		switch {
		case err != nil:
			return err
		case data == nil && name == colMask:
			return nil
		case data == nil:
			return fmt.Errorf("column %s is null", name)
		}
		t := &format.Tensor{Name: name, DType: v.dtype, Shape: []int64{int64(len(data) / v.size)}, Data: data}
		if v.kind == states {
			t.Shape = append(t.Shape, int64(v.width))
		}
		row.Input.Bytes += int64(len(data))
		row.Record.Fields = append(row.Record.Fields, format.Field{Key: name, Value: t})
		return nil
	}
	for _, name := range []string{colIDs, colMask} {
		if err := add(name); err != nil {
			return row, err
		}
	}
	for _, v := range b.order {
		if err := add(v.name); err != nil {
			return row, err
		}
	}
	row.Metadata = maps.Clone(b.metadata)
	row.Metadata["hsx.id"] = id
	if v := b.columns[colDigest]; v != nil {
		want, err := v.row(i)
		if err != nil {
			return row, err
		}
		if want != nil {
			row.Check = func(s *format.Sample) error { return checkDigest(s, want) }
		}
	}
	return row, nil
}
