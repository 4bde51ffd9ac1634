package zhuff

import "encoding/binary"

// codes has the codes of each two bytes that follow one another, in one, the code of the
// second below that of the first, as streams have them. An entry is the length of the
// code, and from bit lengthBits on the code. Entries of bytes that have no codes are not
// filled in.
type codes [1 << 16]uint32

const (
	lengthBits = 8
	lengthMask = 1<<lengthBits - 1
)

// fill makes the table of a tree.
func (c *codes) fill(t *tree) {
	var single [256]uint32
	// Codes of one length are numbered in their order, and go on from those that are
	// longer by what those begin with.
	next, length := uint32(0), t.bits[t.symbols[0]]
	for _, b := range t.symbols {
		n := t.bits[b]
		next >>= length - n
		length = n
		single[b] = next<<lengthBits | uint32(n)
		next++
	}
	for _, second := range t.symbols {
		low := single[second]
		n := low & lengthMask
		row := c[int(second)<<8:][:256]
		for _, first := range t.symbols {
			high := single[first]
			row[first] = low + high&^lengthMask<<n + high&lengthMask
		}
	}
}

// size is how many bytes a stream takes that holds each byte so many times.
func (t *tree) size(counts *[256]uint32) int {
	n := 1 // the bit that says where the codes end
	for _, b := range t.symbols {
		n += int(counts[b]) * int(t.bits[b])
	}
	return (n + 7) / 8
}

// pending is what is not written yet of a stream: the lowest n bits of word. The others
// are zero.
type pending struct {
	word uint64
	n    int
}

// encode fills dst, which is as long as it must be, with the codes of src, from the last
// to the first.
func (c *codes) encode(dst, src []byte) {
	var p pending
	i := len(src)
	if i%2 != 0 {
		i--
		p = c.one(src[i])
	}
	out, i, p := c.eights(dst, src[:i], p)
	for ; i > 0; i -= 2 {
		pair := c[int(src[i-2])|int(src[i-1])<<8]
		p.word |= uint64(pair>>lengthBits) << p.n
		for p.n += int(pair & lengthMask); p.n >= 8; p.n -= 8 {
			dst[out] = byte(p.word)
			out++
			p.word >>= 8
		}
	}
	p.word |= 1 << p.n
	for p.n++; p.n > 0; p.n -= 8 {
		dst[out] = byte(p.word)
		out++
		p.word >>= 8
	}
}

// eightsPlainly goes on with the codes of the last bytes of src, eight at a time, while
// there are eight and dst has room for two words, and returns how much of dst is final and
// how many bytes of src are left.
func (c *codes) eightsPlainly(dst, src []byte, p pending) (out, left int, _ pending) {
	i := len(src)
	for i >= 8 && len(dst)-out >= 16 {
		for range 2 {
			second, first := c[binary.LittleEndian.Uint16(src[i-2:i])], c[binary.LittleEndian.Uint16(src[i-4:i-2])]
			codes := uint64(second>>lengthBits) | uint64(first>>lengthBits)<<(second&63)
			p.word |= codes << (p.n & 63)
			p.n += int((second + first) & lengthMask)
			binary.LittleEndian.PutUint64(dst[out:out+8], p.word)
			out += p.n >> 3
			p.word >>= p.n & 0x38
			p.n &= 7
			i -= 4
		}
	}
	return out, i, p
}

// one is the code of one byte: half of that of two.
func (c *codes) one(b byte) pending {
	pair := c[int(b)<<8|int(b)]
	n := int(pair&lengthMask) / 2
	return pending{uint64(pair>>lengthBits) & (1<<n - 1), n}
}
