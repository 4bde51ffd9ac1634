package shard

import (
	"encoding/binary"
	"fmt"

	"hsx/internal/arrowmsg"
)

// column is one column of a record batch that is made of lists. Row i is the items
// from offset i up to offset i+1. Only the sizes of its buffers were checked.
type column struct {
	name    string
	size    int    // of an item: a character, a token, a state of one token
	valid   []byte // one bit a row; nil when no row is null
	offsets []byte // int32, one more than rows
	values  []byte // whole items
}

// row is the bytes of row i, nil when it is null.
func (c *column) row(i int) ([]byte, error) {
	if c.valid != nil && c.valid[i/8]>>(i%8)&1 == 0 {
		return nil, nil
	}
	start, end, err := c.bounds(i)
	if err != nil {
		return nil, err
	}
	return c.values[start*c.size : end*c.size : end*c.size], nil
}

// bounds are the items of row i.
func (c *column) bounds(i int) (start, end int, err error) {
	return c.within(i, len(c.values)/c.size)
}

// within is bounds of a column of the given number of items.
func (c *column) within(i, items int) (start, end int, err error) {
	start = int(int32(binary.LittleEndian.Uint32(c.offsets[4*i:])))
	end = int(int32(binary.LittleEndian.Uint32(c.offsets[4*i+4:])))
	if start < 0 || end < start || end > items {
		return 0, 0, fmt.Errorf("column %s goes from %d to %d of %d values", c.name, start, end, items)
	}
	return start, end, nil
}

// cursor takes the nodes and buffers of a record batch in their order: that of the
// columns, each before its children. The first error stays.
type cursor struct {
	batch        arrowmsg.Batch
	node, buffer int
	err          error
}

func (c *cursor) takeNode() (length, nulls int64) {
	length, nulls = c.batch.Node(c.node)
	c.node++
	return length, nulls
}

// takeBuffer takes a buffer of bytes as they are. In a compressed batch it begins with a
// length that says so, which is not looked at: the file may not be there yet, and
// whatever it says, the bytes are compared with hashes.
func (c *cursor) takeBuffer(name string) []byte {
	b := c.takeStored(name)
	if c.batch.Compressed && len(b) > 0 {
		if len(b) < lengthBytes {
			c.refuse("column %s has a buffer of %d bytes, want a length first", name, len(b))
			return nil
		}
		b = b[lengthBytes:]
	}
	return b
}

// takeStored takes a buffer as it is stored.
func (c *cursor) takeStored(name string) []byte {
	s, err := c.batch.Buffer(c.buffer)
	c.buffer++
	if err != nil {
		c.refuse("column %s: %w", name, err)
	}
	return s.Bytes
}

func (c *cursor) refuse(msg string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(msg, args...)
	}
}

// column takes a column of lists whose items have the given size and lie the given
// number of arrays deeper: none for text, one for a list of numbers, two for a list
// of rows of numbers.
func (c *cursor) column(name string, size, depth int) column {
	rows, nulls := c.takeNode()
	col := column{name: name, size: size, valid: c.takeBuffer(name), offsets: c.takeBuffer(name)}
	items := int64(-1)
	for range depth {
		n, childNulls := c.takeNode()
		if items < 0 {
			items = n
		}
		if c.takeBuffer(name); childNulls != 0 {
			c.refuse("column %s has %d nulls among its values, want none", name, childNulls)
		}
	}
	col.values = c.takeBuffer(name)
	held := int64(len(col.values) / size)
	if depth == 0 {
		items = held
	}
	switch {
	case rows != c.batch.Rows || rows < 0 || rows > int64(len(col.offsets)/4-1):
		c.refuse("column %s has %d rows and %d bytes of offsets in a record batch of %d rows", name, rows, len(col.offsets), c.batch.Rows)
	case items < 0 || items > held:
		c.refuse("column %s has %d values, its buffer of %d bytes holds %d", name, items, len(col.values), held)
	case nulls == 0:
		col.valid = nil // the bitmap may be left out, so it is not looked at
	case name != colMask || rows > 8*int64(len(col.valid)): // no other column is nullable
		c.refuse("column %s has %d nulls among %d rows and a validity bitmap of %d bytes", name, nulls, rows, len(col.valid))
	}
	if c.err != nil {
		return column{}
	}
	col.values = col.values[:int(items)*size]
	return col
}

// digests takes the last column.
func (c *cursor) digests() []byte {
	rows, nulls := c.takeNode()
	c.takeBuffer(colDigest) // validity
	values := c.takeBuffer(colDigest)
	if rows != c.batch.Rows || nulls != 0 || rows > int64(len(values)/digestSize) {
		c.refuse("column %s has %d rows, %d nulls and %d bytes in a record batch of %d rows", colDigest, rows, nulls, len(values), c.batch.Rows)
	}
	return values
}
