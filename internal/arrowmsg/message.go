package arrowmsg

import (
	"encoding/binary"
	"fmt"
)

// Magic is what an Arrow file begins with, padded to 8 bytes, and ends with.
const Magic = "ARROW1"

// mark begins each message.
const mark = "\xff\xff\xff\xff"

// prefixBytes is the length of what comes before the metadata: the mark and a length.
const prefixBytes = 8

// versionV5 is the version of the metadata that is read here.
const versionV5 = 4

// Kind says what a message is, as numbered in Arrow's Message.fbs.
type Kind int

// The kinds of message. A message may state another number: callers refuse what they
// do not expect.
const (
	End         Kind = -1 // the mark at the end of a stream: no message follows
	Schema      Kind = 1
	Dictionary  Kind = 2
	RecordBatch Kind = 3
)

// Span is a piece of the data that a message was read from, and where in it it lies.
type Span struct {
	At    int
	Bytes []byte
}

// Message is one IPC message. It aliases the data that it was read from.
type Message struct {
	Kind   Kind
	Meta   Span  // a flatbuffer, without the mark and the length before it
	Header Table // the schema, dictionary or record batch that Meta is about
	Body   Span
	Next   int // where in the data the next message begins
}

// Error is what makes a message unreadable.
type Error struct {
	At          int  // the byte to blame, in the data that the message was read from
	Unsupported bool // the bytes may be sound, and are not of the form read here
	Err         error
}

func (e *Error) Error() string { return fmt.Sprintf("arrow message at byte %d: %v", e.At, e.Err) }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

func corrupt(at int, msg string, args ...any) error {
	return &Error{At: at, Err: fmt.Errorf(msg, args...)}
}

// Begins reports whether a message can begin with head: ff ff ff ff comes before each.
func Begins(head []byte) bool { return len(head) >= len(mark) && string(head[:len(mark)]) == mark }

// Read finds the parts of the message at pos, which must lie in data: a mark, the
// length of the metadata, the metadata, the body. The body is only measured. Of the
// end-of-stream mark only Kind and Next are set.
//
// Its error is an *[Error].
func Read(data []byte, pos int) (Message, error) {
	left := data[pos:]
	if len(left) < 8 {
		return Message{}, corrupt(pos, "stream is truncated: %d bytes are left where a message or the end-of-stream mark has 8", len(left))
	}
	if !Begins(left) {
		return Message{}, corrupt(pos, "message begins with % x, want ff ff ff ff", left[:4])
	}
	n := int(int32(binary.LittleEndian.Uint32(left[4:])))
	if n == 0 {
		return Message{Kind: End, Next: pos + 8}, nil
	}
	left = left[8:]
	if n < 0 {
		return Message{}, corrupt(pos+4, "metadata of a message is %d bytes long", n)
	}
	if n > len(left) {
		return Message{}, corrupt(pos+4, "stream is truncated: metadata of a message needs %d bytes, has %d", n, len(left))
	}
	m, err := parse(Span{pos + 8, left[:n:n]}, left[n:])
	if err != nil {
		return Message{}, err
	}
	m.Next = m.Body.At + len(m.Body.Bytes)
	return m, nil
}

// Parse finds the parts of a message whose metadata and body lie apart, as Arrow Flight
// sends them: body is what follows the metadata, and may be longer than the message's.
// Places of the metadata are in meta, those of the body follow them.
//
// Its error is an *[Error].
func Parse(meta, body []byte) (Message, error) { return parse(Span{0, meta}, body) }

func parse(meta Span, left []byte) (Message, error) {
	f := &flat{buf: meta.Bytes}
	root := f.table(f.u32(0))
	m := Message{Kind: Kind(root.Uint8(1)), Meta: meta, Header: root.Table(2)}
	version, body := root.Int16(0), root.Int64(3)
	switch {
	case f.bad:
		return Message{}, corrupt(m.Meta.At, "metadata of a message points outside of it")
	case version != versionV5:
		return Message{}, &Error{At: m.Meta.At, Unsupported: true,
			Err: fmt.Errorf("metadata has version %d, want %d (V5, written since Arrow 1.0)", version, versionV5)}
	case body < 0:
		return Message{}, corrupt(m.Meta.At, "body of a message is %d bytes long", body)
	case body > int64(len(left)):
		return Message{}, corrupt(m.Meta.At, "stream is truncated: body of a message needs %d bytes, has %d", body, len(left))
	}
	m.Body = Span{meta.At + len(meta.Bytes), left[:body:body]}
	return m, nil
}
