package hfdata

import (
	"errors"

	"hsx/format"
	"hsx/internal/arrowmsg"
)

// batch is where the token columns of one record batch lie.
type batch struct {
	first     int // row of the stream
	ids, mask list
}

// list is where one list column of one record batch lies. A bitmap without bytes
// means that nothing is null.
type list struct {
	rows, elems       int
	valid, offsets    arrowmsg.Span
	elemValid, values arrowmsg.Span
}

// batch finds the token columns in a record batch.
func (s *schema) batch(m arrowmsg.Message) (b batch, err error) {
	r := layout{at: m.Meta.At}
	if r.Batch, err = m.Batch(); err != nil {
		return b, wrap(err)
	}
	wantBuffers := s.all.buffers
	for i := range r.Views() {
		wantBuffers += r.View(i)
	}
	switch {
	case r.Compressed:
		return b, r.refuse(format.ErrUnsupported, "", "record batch is compressed, want uncompressed buffers as save_to_disk writes them")
	case r.Nodes() != s.all.nodes || r.Views() != s.all.views || r.Buffers() != wantBuffers:
		return b, r.refuse(format.ErrCorrupt, "", "record batch has %d nodes, %d buffers and %d view columns, its schema calls for %d, %d and %d",
			r.Nodes(), r.Buffers(), r.Views(), s.all.nodes, wantBuffers, s.all.views)
	}
	if b.ids, err = r.list(&s.ids, idsColumn); err != nil || s.mask.list == 0 {
		return b, err
	}
	b.mask, err = r.list(&s.mask, maskColumn)
	return b, err
}

// layout is a record batch that has the nodes and buffers its schema calls for.
type layout struct {
	arrowmsg.Batch
	at int // where its metadata lies in the file
}

func (r *layout) refuse(kind error, column, msg string, args ...any) error {
	return refuse(kind, r.at, column, msg, args...)
}

// list finds one column and checks that its buffers hold what its nodes say.
func (r *layout) list(c *column, name string) (list, error) {
	var l list
	node, buffer := c.start.nodes, c.start.buffers
	for i := range c.start.views {
		buffer += r.View(i)
	}
	rows, rowNulls := r.Node(node)
	elems, elemNulls := r.Node(node + 1)
	if rows != r.Rows || rows < 0 || elems < 0 {
		return l, r.refuse(format.ErrCorrupt, name, "column %s has %d rows and %d elements in a record batch of %d rows", name, rows, elems, r.Rows)
	}

	spans := []*arrowmsg.Span{&l.valid, &l.offsets, &l.elemValid, &l.values}
	if c.list == typeFixedList {
		spans = []*arrowmsg.Span{&l.valid, &l.elemValid, &l.values}
	}
	for i, sp := range spans {
		var err error
		if *sp, err = r.Buffer(buffer + i); err != nil {
			return l, r.refuse(format.ErrCorrupt, name, "column %s has a %w", name, errors.Unwrap(err))
		}
	}

	// Counts that the bytes cannot hold are refused before they are multiplied.
	held := int64(len(l.values.Bytes)) * 8 / int64(c.bits)
	if elems > held {
		return l, r.refuse(format.ErrCorrupt, name, "column %s has %d elements of %d bits, its buffer of %d bytes holds %d", name, elems, c.bits, len(l.values.Bytes), held)
	}
	switch c.list {
	case typeFixedList:
		held = elems / int64(c.size)
	case typeLargeList:
		held = int64(len(l.offsets.Bytes)/8 - 1)
	default:
		held = int64(len(l.offsets.Bytes)/4 - 1)
	}
	if rows > max(held, 0) {
		return l, r.refuse(format.ErrCorrupt, name, "column %s has %d rows, its buffers hold %d", name, rows, max(held, 0))
	}
	l.rows, l.elems = int(rows), int(elems)
	for _, v := range []struct {
		bitmap *arrowmsg.Span
		n      int
		nulls  int64
	}{{&l.valid, l.rows, rowNulls}, {&l.elemValid, l.elems, elemNulls}} {
		switch {
		case v.nulls == 0:
			v.bitmap.Bytes = nil // the bitmap may be left out, so it is not looked at
		case len(v.bitmap.Bytes) < (v.n+7)/8 || v.n == 0:
			return l, r.refuse(format.ErrCorrupt, name, "column %s has %d nulls among %d values, its validity bitmap has %d bytes", name, v.nulls, v.n, len(v.bitmap.Bytes))
		}
	}
	return l, nil
}
