package flight

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"math"
)

// The fields of FlightData that are read, as numbered in Flight.proto.
const (
	fieldHeader = 2
	fieldBody   = 1000
)

const (
	maxHeader = 1 << 20  // bytes of Arrow metadata of a message
	maxOther  = 64 << 10 // bytes of another field
)

// message is the FlightData of one gRPC message but for its body.
type message struct {
	header []byte // a flatbuffer, nil where the message has none
}

// readMessage reads the next message, whose body of n bytes it hands to spool as it comes
// in, once at most, to be read to its end. Its error is io.EOF where the client ended the stream.
func readMessage(in *bufio.Reader, spool func(body io.Reader, n int64) error) (message, error) {
	var m message
	var prefix [5]byte
	if _, err := io.ReadFull(in, prefix[:]); err != nil {
		return m, err // EOF before the first byte, else ErrUnexpectedEOF
	}
	if prefix[0] != 0 {
		return m, fail(unimplemented, "a message is compressed, want messages as they are")
	}
	rest := &counted{in: in, left: int64(binary.BigEndian.Uint32(prefix[1:]))}
	seen := false
	for rest.left > 0 {
		field, n, err := rest.field()
		if err != nil {
			return m, err
		}
		switch {
		case field == fieldBody && seen:
			return m, fail(invalid, "FlightData has two bodies")
		case field == fieldBody:
			seen = true
			if err := spool(&counted{in: rest, left: n}, n); err != nil {
				return m, err
			}
		case field == fieldHeader && n > maxHeader:
			return m, fail(invalid, "Arrow metadata of a message has %d bytes, want at most %d", n, maxHeader)
		case field == fieldHeader:
			if m.header, err = io.ReadAll(&counted{in: rest, left: n}); err != nil {
				return m, err
			}
		case n > maxOther:
			return m, fail(invalid, "field %d of FlightData has %d bytes, want at most %d", field, n, maxOther)
		default:
			if _, err := io.CopyN(io.Discard, rest, n); err != nil {
				return m, err
			}
		}
	}
	return m, nil
}

// counted is the next bytes of a reader: all of them, or ErrUnexpectedEOF.
type counted struct {
	in   io.Reader
	left int64
}

// Read reads what is left.
func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.in.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if errors.Is(err, io.EOF) && c.left > 0 {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// uvarint reads one varint.
func (c *counted) uvarint() (v uint64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		var b [1]byte
		if c.left == 0 {
			return 0, fail(invalid, "FlightData is damaged: it ends within a field")
		}
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return 0, err
		}
		v |= uint64(b[0]&0x7f) << shift
		if b[0] < 0x80 {
			return v, nil
		}
	}
	return 0, fail(invalid, "FlightData is damaged: a number has more than 64 bits")
}

// field reads the head of the next field: its number and the length of its bytes. Fields
// of other kinds, which no FlightData has, are skipped and have none.
func (c *counted) field() (number uint64, n int64, err error) {
	tag, err := c.uvarint()
	if err != nil {
		return 0, 0, err
	}
	const varint, fixed64, bytes, fixed32 = 0, 1, 2, 5
	size := uint64(0)
	switch tag & 7 {
	case varint:
		_, err = c.uvarint()
	case fixed64:
		size = 8
	case fixed32:
		size = 4
	case bytes:
		size, err = c.uvarint()
	default:
		err = fail(invalid, "FlightData is damaged: a field is of kind %d", tag&7)
	}
	if err != nil {
		return 0, 0, err
	}
	if size > math.MaxInt64 || int64(size) > c.left {
		return 0, 0, fail(invalid, "FlightData is damaged: a field has %d bytes of %d that are left", size, c.left)
	}
	if tag&7 != bytes {
		return 0, int64(size), nil
	}
	return tag >> 3, int64(size), nil
}
