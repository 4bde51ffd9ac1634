package torch

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"unicode/utf8"

	"hsx/format"
)

// sequence is a list or a tuple.
type sequence struct {
	tuple bool
	items []any
	built
}

// dict is a dict or an OrderedDict; keys are judged when the value is built.
type dict struct {
	ordered bool
	items   []item
	built
}

type item struct{ key, value any }

// storage is what a persistent id names: elements of a member of the archive.
type storage struct {
	class global
	key   string
	elems int64 // bytes for an untyped storage
	at    int64 // offset in the file, for errors
}

// view is a tensor before its storage is looked up. Offset and strides are in elements.
type view struct {
	storage *storage
	dtype   format.DType
	offset  int64
	size    []int64
	stride  []int64
	at      int64 // offset in the file, for errors
	built
}

// machine runs one pickle. It holds no code: every opcode either moves plain values
// or, for GLOBAL and REDUCE, goes through the closed list of lookup. Values are nil,
// bool, int64, float64, string, bigInt, *sequence, *dict, *storage, *view and *global.
//
// The first error sticks: later reads give zeros, and run ends before the next opcode.
type machine struct {
	data []byte
	base int64 // offset of data in the file
	pos  int   // next byte
	at   int   // the opcode that is being run

	proto int
	stack []any
	marks []int // lengths of the stack at each open MARK
	memo  map[uint32]any
	made  int
	err   error
}

// run executes up to STOP and returns the value that is left.
func (m *machine) run() (any, error) {
	if len(m.data) > maxPickle {
		return nil, fail(format.ErrLimit, m.base, "", "pickle has %d bytes, want at most %d", len(m.data), maxPickle)
	}
	if m.memo == nil {
		m.memo = map[uint32]any{}
	}
	if op := m.u8(); m.err == nil && op != opProto {
		m.malformed("pickle begins with %#02x, want the opcode PROTO (0x80)", op)
	}
	m.proto = int(m.u8())
	for m.err == nil {
		m.at = m.pos
		op := m.u8()
		if op == opStop && m.err == nil {
			v := m.pop()
			return v, m.err
		}
		m.step(op)
	}
	return nil, m.err
}

func (m *machine) step(op byte) {
	switch op {
	case opProto:
		m.malformed("opcode PROTO is not the first")
	case opNone:
		m.push(nil)
	case opNewTrue:
		m.push(true)
	case opNewFalse:
		m.push(false)
	case opBinInt:
		m.push(int64(int32(m.u32())))
	case opBinInt1:
		m.push(int64(m.u8()))
	case opBinInt2:
		m.push(int64(m.u16()))
	case opLong1:
		m.push(parseLong(m.take(int64(m.u8()))))
	case opLong4:
		m.push(parseLong(m.take(int64(int32(m.u32())))))
	case opBinFloat:
		if b := m.take(8); b != nil {
			m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
	case opBinUnicode:
		m.text(int64(m.u32()))
	case opShortBinString, opShortBinUnicode:
		m.text(int64(m.u8()))
	case opEmptyTuple:
		m.push(&sequence{tuple: true})
	case opEmptyList, opEmptySet: // the opcodes that fill a set are refused, so it stays empty
		m.push(&sequence{})
	case opEmptyDict:
		m.push(&dict{})
	case opMark:
		m.marks = append(m.marks, len(m.stack))
		m.checkStack()
	case opTuple:
		m.push(&sequence{tuple: true, items: slices.Clone(m.popMark())})
	case opTuple1, opTuple2, opTuple3:
		m.push(&sequence{tuple: true, items: slices.Clone(m.popN(int(op-opTuple1) + 1))})
	case opAppend:
		m.extend(m.popN(1))
	case opAppends:
		m.extend(m.popMark())
	case opSetItem:
		m.set(m.popN(2))
	case opSetItems:
		m.set(m.popMark())
	case opBinPut:
		m.put(uint32(m.u8()))
	case opLongBinPut:
		m.put(m.u32())
	case opMemoize:
		m.put(uint32(len(m.memo)))
	case opBinGet:
		m.get(uint32(m.u8()))
	case opLongBinGet:
		m.get(m.u32())
	case opFrame: // a hint for readers of streams
		m.take(8)
	case opGlobal:
		m.global(m.line(), m.line())
	case opBinPersID:
		m.persistent(m.pop())
	case opReduce:
		args := m.pop()
		m.reduce(m.pop(), args)
	case opBuild:
		m.build(m.pop())
	default:
		m.refuse(op)
	}
}

// text pushes a string of n bytes.
func (m *machine) text(n int64) {
	b := m.take(n)
	switch {
	case m.err != nil:
	case len(b) > maxString:
		m.limit("string has %d bytes, want at most %d", len(b), maxString)
	case !utf8.Valid(b):
		m.malformed("string of %d bytes is not UTF-8", len(b))
	default:
		m.push(string(b))
	}
}

func (m *machine) extend(items []any) {
	s, ok := m.top().(*sequence)
	if !ok || s.tuple {
		m.malformed("APPEND to %s, want a list", kindOf(m.top()))
		return
	}
	s.items = append(s.items, items...)
}

func (m *machine) set(pairs []any) {
	d, ok := m.top().(*dict)
	switch {
	case !ok:
		m.malformed("SETITEM on %s, want a dict", kindOf(m.top()))
	case len(pairs)%2 != 0:
		m.malformed("SETITEMS with %d values, want pairs of key and value", len(pairs))
	default:
		d.items = slices.Grow(d.items, len(pairs)/2)
		for i := 0; i < len(pairs); i += 2 {
			d.items = append(d.items, item{pairs[i], pairs[i+1]})
		}
	}
}

// build drops the attributes of an OrderedDict, such as the _metadata of a state dict.
// Attributes of anything else would change what a value is.
func (m *machine) build(state any) {
	d, ok := m.top().(*dict)
	_, plain := state.(*dict)
	if m.err == nil && (!ok || !d.ordered || !plain) {
		m.unsupported("refused opcode BUILD (0x62) on %s with %s, want an OrderedDict with a dict", kindOf(m.top()), kindOf(state))
	}
}

// put never allocates by the index, which is the file's word.
func (m *machine) put(i uint32) {
	if i >= maxMemo {
		m.limit("memo index is %d, want less than %d", i, maxMemo)
		return
	}
	if v := m.top(); m.err == nil {
		m.memo[i] = v
	}
}

func (m *machine) get(i uint32) {
	v, ok := m.memo[i]
	if !ok {
		m.malformed("memo slot %d is read and was never set", i)
		return
	}
	m.push(v)
}

func (m *machine) push(v any) {
	if m.made++; m.made > maxValues {
		m.limit("pickle makes more than %d values", maxValues)
		return
	}
	m.stack = append(m.stack, v)
	m.checkStack()
}

func (m *machine) checkStack() {
	if len(m.stack)+len(m.marks) > maxStack {
		m.limit("stack holds more than %d values and marks", maxStack)
	}
}

// popN removes the top n values, which stay valid until the next push. An open mark
// is the floor.
func (m *machine) popN(n int) []any {
	floor := 0
	if len(m.marks) > 0 {
		floor = m.marks[len(m.marks)-1]
	}
	i := len(m.stack) - n
	if i < floor {
		m.malformed("stack underflow: opcode %#02x takes %d, has %d", m.data[m.at], n, len(m.stack)-floor)
		return nil
	}
	vs := m.stack[i:]
	m.stack = m.stack[:i]
	return vs
}

func (m *machine) pop() any {
	if vs := m.popN(1); vs != nil {
		return vs[0]
	}
	return nil
}

// top is the value that the next pop would give.
func (m *machine) top() any {
	if vs := m.popN(1); vs != nil {
		m.stack = m.stack[:len(m.stack)+1]
		return vs[0]
	}
	return nil
}

// popMark removes the values above the last mark, and the mark.
func (m *machine) popMark() []any {
	if len(m.marks) == 0 {
		m.malformed("stack underflow: opcode %#02x takes the values above a mark, has no mark", m.data[m.at])
		return nil
	}
	vs := m.popN(len(m.stack) - m.marks[len(m.marks)-1])
	m.marks = m.marks[:len(m.marks)-1]
	return vs
}

// take returns the next n bytes, nil when they are not there.
func (m *machine) take(n int64) []byte {
	have := int64(len(m.data) - m.pos)
	switch {
	case m.err != nil:
		return nil
	case n < 0:
		m.malformed("length is %d, want 0 or more", n)
		return nil
	case n > have:
		m.malformed("pickle is truncated: needs %d more bytes, has %d", n, have)
		return nil
	}
	b := m.data[m.pos : m.pos+int(n)]
	m.pos += int(n)
	return b
}

func (m *machine) u8() byte {
	if b := m.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (m *machine) u16() uint16 {
	if b := m.take(2); b != nil {
		return le16(b)
	}
	return 0
}

func (m *machine) u32() uint32 {
	if b := m.take(4); b != nil {
		return le32(b)
	}
	return 0
}

// line reads up to the next newline: half of the name of a global.
func (m *machine) line() string {
	const longest = 256
	rest := m.data[m.pos:]
	i := bytes.IndexByte(rest[:min(longest+1, len(rest))], '\n')
	switch {
	case i < 0 && len(rest) > longest:
		m.malformed("name of a global has more than %d bytes", longest)
	case i < 0:
		m.malformed("pickle is truncated inside the name of a global")
	default:
		return string(m.take(int64(i + 1))[:i])
	}
	return ""
}

func (m *machine) malformed(msg string, args ...any)   { m.fail(format.ErrCorrupt, msg, args...) }
func (m *machine) unsupported(msg string, args ...any) { m.fail(format.ErrUnsupported, msg, args...) }
func (m *machine) limit(msg string, args ...any)       { m.fail(format.ErrLimit, msg, args...) }

// fail keeps the first error, at the opcode that is being run.
func (m *machine) fail(kind error, msg string, args ...any) {
	if m.err == nil {
		m.err = fail(kind, m.base+int64(m.at), "", msg, args...)
	}
}
