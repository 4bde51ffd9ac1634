package arrowmsg

import "encoding/binary"

// align is what the bodies of messages and the buffers in them are aligned to in a
// file, as Arrow advises.
const align = 64

// Padding is how many bytes follow n of them up to the next aligned place.
func Padding(n int64) int { return int(-n & (align - 1)) }

// Node is one array of a record batch.
type Node struct{ Length, Nulls int64 }

// Block is where a file has a record batch: the message, with the mark and the length
// before it, and its body.
type Block struct {
	At   int64
	Meta int32 // bytes before the body
	Body int64
}

// AppendBatch adds the message of a record batch, up to its body, that is to begin at a
// place in a file. Its buffers, each with the padding behind it, make up the body. zstd
// says that each of them begins with the length of what it holds, or -1 when it is not
// compressed.
func AppendBatch(dst []byte, at, rows int64, nodes []Node, buffers []int64, zstd bool) (msg []byte, block Block) {
	const fixed, vectors = 72, 16 // bytes before the vectors, and around their structs
	n := fixed + vectors + nodeBytes*len(nodes) + bufferBytes*len(buffers)
	b := flatWriter(make([]byte, n, n+16))
	nodesAt := fixed + 4
	buffersAt := nodesAt + 4 + nodeBytes*len(nodes) + 4

	// Message: version, the type of the header, header, the length of the body.
	b.vtable(4, 16, 20, 16, 18, 4, 8)
	b.u32(0, 16)
	b.u16(32, versionV5)
	b[34] = byte(RecordBatch)
	b.link(20, 48)
	// RecordBatch: rows, nodes, buffers, compression.
	b.vtable(36, 48, 24, 8, 4, 16, 20)
	b.u64(56, rows)
	b.link(52, nodesAt)
	b.link(64, buffersAt)
	b.u32(nodesAt, len(nodes))
	for i, node := range nodes {
		b.u64(nodesAt+4+nodeBytes*i, node.Length)
		b.u64(nodesAt+12+nodeBytes*i, node.Nulls)
	}
	b.u32(buffersAt, len(buffers))
	body := int64(0)
	for i, size := range buffers {
		b.u64(buffersAt+4+bufferBytes*i, body)
		b.u64(buffersAt+12+bufferBytes*i, size)
		body += size + int64(Padding(size))
	}
	b.u64(24, body)
	if zstd {
		// BodyCompression: codec 1, with the default method, which is by buffer.
		b = b[:n+16]
		b.u16(n, 6)
		b.u16(n+2, 8)
		b.u16(n+4, 4)
		b.u32(n+8, 8)
		b[n+12] = 1
		b.link(68, n+8)
	} else {
		b.u16(36+4+2*3, 0)
	}
	msg = appendMessage(dst, at, b)
	return msg, Block{At: at, Meta: int32(len(msg) - len(dst)), Body: body}
}

// appendMessage adds metadata with what comes before it, and makes what follows it
// aligned.
func appendMessage(dst []byte, at int64, meta []byte) []byte {
	pad := Padding(at + prefixBytes + int64(len(meta)))
	dst = append(dst, mark...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(meta)+pad))
	dst = append(dst, meta...)
	return append(dst, make([]byte, pad)...)
}

// AppendFooter adds what ends a file: the end of its messages, and the footer, which
// repeats the schema and where the record batches are, with its length and the magic.
func AppendFooter(dst []byte, schema Message, batches []Block) []byte {
	const fixed, blockBytes = 48, 24
	n := fixed + blockBytes*len(batches)
	b := flatWriter(make([]byte, n, n+len(schema.Meta.Bytes)))
	// Footer: version, schema, dictionaries (none), record batches.
	b.vtable(4, 16, 20, 16, 4, 8, 12)
	b.u32(0, 16)
	b.link(24, 36)
	b.link(28, 44)
	b.u16(32, versionV5)
	b.u32(44, len(batches))
	for i, block := range batches {
		b.u64(fixed+blockBytes*i, block.At)
		b.u32(fixed+blockBytes*i+8, int(block.Meta))
		b.u64(fixed+blockBytes*i+16, block.Body)
	}
	// Places in a flatbuffer are relative, so that the schema's can be part of this one.
	b = append(b, schema.Meta.Bytes...)
	b.link(20, n+schema.Header.pos)

	dst = append(dst, mark+"\x00\x00\x00\x00"...)
	dst = append(dst, b...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, Magic...)
}

// flatWriter is a flatbuffer of a layout that its writer knows.
type flatWriter []byte

func (b flatWriter) u16(at, v int)       { binary.LittleEndian.PutUint16(b[at:], uint16(v)) }
func (b flatWriter) u32(at, v int)       { binary.LittleEndian.PutUint32(b[at:], uint32(v)) }
func (b flatWriter) u64(at int, v int64) { binary.LittleEndian.PutUint64(b[at:], uint64(v)) }

// link makes the field at a place point to what lies behind it.
func (b flatWriter) link(at, to int) { b.u32(at, to-at) }

// vtable puts the vtable of a table of some bytes before it, and says where the table
// has each of its fields.
func (b flatWriter) vtable(at, table, size int, fields ...int) {
	b.u16(at, 4+2*len(fields))
	b.u16(at+2, size)
	for i, f := range fields {
		b.u16(at+4+2*i, f)
	}
	b.u32(table, table-at)
}
