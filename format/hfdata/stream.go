package hfdata

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sort"

	"hsx/format"
	"hsx/internal/arrowmsg"
)

const (
	streamFormat = "arrow stream"
	fileMagic    = "ARROW1"
)

// Stream is the token columns of one Arrow IPC stream. It aliases the bytes that it
// was opened on and may be read by several goroutines.
type Stream struct {
	schema  *schema
	batches []batch
	rows    int
}

// IsStream reports whether a file that begins with head can be an Arrow IPC stream:
// ff ff ff ff comes before each of its messages.
func IsStream(head []byte) bool { return arrowmsg.Begins(head) }

// Open finds the record batches of a stream. It reads their metadata and none of
// their values: those are checked row by row, by [Stream.Row]. The stream has to be
// whole, to its end-of-stream mark, and its buffers have to be uncompressed.
//
// Its error is a *[format.DecodeError].
func Open(data []byte) (*Stream, error) {
	switch {
	case len(data) == 0:
		return nil, refuse(format.ErrCorrupt, 0, "", "file is truncated: it is empty")
	case bytes.HasPrefix(data, []byte(fileMagic)):
		return nil, refuse(format.ErrUnsupported, 0, "", "file is an Arrow IPC file, want a stream as save_to_disk writes it")
	case !IsStream(data):
		return nil, refuse(format.ErrUnsupported, 0, "", "file begins with % x, want ff ff ff ff", data[:min(len(data), 4)])
	}
	s := &Stream{}
	for pos := 0; ; {
		m, err := arrowmsg.Read(data, pos)
		if err != nil {
			return nil, wrap(err)
		}
		if m.Kind == arrowmsg.End {
			if m.Next != len(data) {
				return nil, refuse(format.ErrCorrupt, m.Next, "", "%d bytes follow the end of the stream, want none", len(data)-m.Next)
			}
			break
		}
		if err := s.add(m); err != nil {
			return nil, err
		}
		pos = m.Next
	}
	if s.schema == nil {
		return nil, refuse(format.ErrCorrupt, 0, "", "stream ends before its schema")
	}
	return s, nil
}

// add takes in one message.
func (s *Stream) add(m arrowmsg.Message) (err error) {
	switch {
	case s.schema == nil && m.Kind != arrowmsg.Schema:
		return refuse(format.ErrCorrupt, m.Meta.At, "", "first message is of kind %d, want a schema (%d)", m.Kind, arrowmsg.Schema)
	case s.schema == nil:
		s.schema, err = readSchema(m)
		return err
	case m.Kind == arrowmsg.Dictionary:
		return nil // of another column: those read here are not dictionary-encoded
	}
	b, err := s.schema.batch(m)
	if err != nil {
		return err
	}
	b.first = s.rows
	s.rows += b.ids.rows
	s.batches = append(s.batches, b)
	return nil
}

// Len is the number of rows.
func (s *Stream) Len() int { return s.rows }

// Row is the tokens and the loss mask of row i, in memory of their own. The mask is
// nil when the column is not there or is null for this row; its length is the file's
// and need not be that of the tokens. A token outside int32, a mask value outside
// 0..255, a null among them and a list that does not lie in its column are refused
// with the row and the position.
//
// Its error is a *[format.DecodeError].
func (s *Stream) Row(i int) (tokens []int32, lossMask []byte, err error) {
	if i < 0 || i >= s.rows {
		return nil, nil, refuse(format.ErrCorrupt, -1, idsColumn, "row %d is not there: the stream has %d rows", i, s.rows)
	}
	// A batch of no rows begins where the next one does, so the one wanted is the
	// last that begins at or before i.
	b := &s.batches[sort.Search(len(s.batches), func(k int) bool { return s.batches[k].first > i })-1]

	ids := reader{&s.schema.ids, &b.ids, idsColumn, i}
	lo, hi, null, err := ids.bounds(i - b.first)
	if err != nil {
		return nil, nil, err
	}
	if null {
		return nil, nil, refuse(format.ErrCorrupt, b.ids.valid.At, idsColumn, "input_ids of row %d is null, want a list", i)
	}
	tokens = make([]int32, hi-lo)
	for k := range tokens {
		v, err := ids.value(lo, k, math.MinInt32, math.MaxInt32)
		if err != nil {
			return nil, nil, err
		}
		tokens[k] = int32(v)
	}
	if s.schema.mask.list == 0 {
		return tokens, nil, nil
	}

	mask := reader{&s.schema.mask, &b.mask, maskColumn, i}
	lo, hi, null, err = mask.bounds(i - b.first)
	if err != nil || null {
		return tokens, nil, err
	}
	lossMask = make([]byte, hi-lo)
	for k := range lossMask {
		v, err := mask.value(lo, k, 0, math.MaxUint8)
		if err != nil {
			return nil, nil, err
		}
		lossMask[k] = byte(v)
	}
	return tokens, lossMask, nil
}

// reader reads one row of one column of one batch. All its places were checked
// against the batch, except what the offsets say.
type reader struct {
	col  *column
	list *list
	name string
	row  int // in the stream
}

// bounds is the range of elements of row r of the batch.
func (rd *reader) bounds(r int) (lo, hi int, null bool, err error) {
	l := rd.list
	if !rd.set(l.valid, r) {
		return 0, 0, true, nil
	}
	at, offsets := l.offsets.At, l.offsets.Bytes
	switch rd.col.list {
	case typeFixedList:
		return r * rd.col.size, (r + 1) * rd.col.size, false, nil
	case typeList:
		at += 4 * r
		lo = int(int32(binary.LittleEndian.Uint32(offsets[4*r:])))
		hi = int(int32(binary.LittleEndian.Uint32(offsets[4*r+4:])))
	default:
		at += 8 * r
		lo = int(int64(binary.LittleEndian.Uint64(offsets[8*r:])))
		hi = int(int64(binary.LittleEndian.Uint64(offsets[8*r+8:])))
	}
	if lo < 0 || hi < lo || hi > l.elems {
		return 0, 0, false, refuse(format.ErrCorrupt, at, rd.name, "%s of row %d is elements %d to %d of a column of %d", rd.name, rd.row, lo, hi, l.elems)
	}
	return lo, hi, false, nil
}

// value is element k of the row, whose first element is lo, between least and most.
func (rd *reader) value(lo, k int, least, most int64) (int64, error) {
	var v int64
	at, values := 0, rd.list.values.Bytes // at: within the values
	switch i := lo + k; rd.col.bits {
	case 64:
		at = 8 * i
		v = int64(binary.LittleEndian.Uint64(values[at:]))
	case 32:
		at = 4 * i
		u := binary.LittleEndian.Uint32(values[at:])
		if v = int64(u); rd.col.signed {
			v = int64(int32(u))
		}
	case 16:
		at = 2 * i
		u := binary.LittleEndian.Uint16(values[at:])
		if v = int64(u); rd.col.signed {
			v = int64(int16(u))
		}
	case 8:
		at = i
		if v = int64(values[at]); rd.col.signed {
			v = int64(int8(values[at]))
		}
	default:
		at = i / 8
		v = int64(values[at] >> (i % 8) & 1)
	}
	at += rd.list.values.At
	if !rd.set(rd.list.elemValid, lo+k) {
		return 0, refuse(format.ErrCorrupt, at, rd.name, "%s of row %d has null at position %d, want an integer", rd.name, rd.row, k)
	}
	if v < least || v > most {
		return 0, refuse(format.ErrCorrupt, at, rd.name, "%s of row %d has %d at position %d, want %d to %d", rd.name, rd.row, v, k, least, most)
	}
	return v, nil
}

// set reports whether bit i of a validity bitmap is set; without one all are.
func (rd *reader) set(bitmap arrowmsg.Span, i int) bool {
	return len(bitmap.Bytes) == 0 || bitmap.Bytes[i/8]>>(i%8)&1 != 0
}

// refuse is the error of this package about the byte at the given place in the file.
func refuse(kind error, at int, column, msg string, args ...any) error {
	return &format.DecodeError{Format: streamFormat, Offset: int64(at), Tensor: column, Kind: kind, Err: fmt.Errorf(msg, args...)}
}

// wrap makes what is wrong with a message an error of this package.
func wrap(err error) error {
	kind := format.ErrCorrupt
	var e *arrowmsg.Error
	if !errors.As(err, &e) {
		return refuse(kind, -1, "", "%w", err)
	}
	if e.Unsupported {
		kind = format.ErrUnsupported
	}
	return refuse(kind, e.At, "", "%w", e.Err)
}
