package shard

import "encoding/binary"

// lower is the lower half of a word.
const lower = 1<<32 - 1

// splitWords is split, which puts the halves of 16-bit values apart, each as long as there
// are values. A value is turned left by one bit first: the high half of a bfloat16 is then
// its exponent, which is all that shrinks of it, and the low half mantissa and sign. Eight
// values at a time are moved in two words.
func splitWords(hi, lo, values []byte) {
	n := len(values) / 2
	hi, lo = hi[:n], lo[:n]
	whole := n &^ 7
	for i := 0; i < whole; i += 8 {
		v := values[2*i : 2*i+16]
		a, b := apart(turnLeft(binary.LittleEndian.Uint64(v))), apart(turnLeft(binary.LittleEndian.Uint64(v[8:])))
		binary.LittleEndian.PutUint64(lo[i:], a&lower|b<<32)
		binary.LittleEndian.PutUint64(hi[i:], a>>32|b&^lower)
	}
	for i := whole; i < n; i++ {
		v := turnLeft(uint64(binary.LittleEndian.Uint16(values[2*i:])))
		lo[i], hi[i] = byte(v), byte(v>>8)
	}
}

// joinWords is join, the inverse of split.
func joinWords(values, hi, lo []byte) {
	n := len(values) / 2
	hi, lo = hi[:n], lo[:n]
	whole := n &^ 7
	for i := 0; i < whole; i += 8 {
		v := values[2*i : 2*i+16]
		l, h := binary.LittleEndian.Uint64(lo[i:]), binary.LittleEndian.Uint64(hi[i:])
		binary.LittleEndian.PutUint64(v, turnRight(together(l&lower|h<<32)))
		binary.LittleEndian.PutUint64(v[8:], turnRight(together(l>>32|h&^lower)))
	}
	for i := whole; i < n; i++ {
		v := turnRight(uint64(lo[i]) | uint64(hi[i])<<8)
		binary.LittleEndian.PutUint16(values[2*i:], uint16(v))
	}
}

// turnLeft turns each of four 16-bit values by one bit.
func turnLeft(x uint64) uint64 {
	return x&0x7fff7fff7fff7fff<<1 | x>>15&0x0001000100010001
}

// turnRight is the inverse of turnLeft.
func turnRight(x uint64) uint64 {
	return x>>1&0x7fff7fff7fff7fff | x&0x0001000100010001<<15
}

// apart puts the bytes of four 16-bit values apart: the low ones into the lower half of a
// word, the high ones into the upper half, each in their order.
func apart(x uint64) uint64 {
	return swap(swap(x, 8, 0x0000ff000000ff00), 16, 0x00000000ffff0000)
}

// together is the inverse of apart.
func together(x uint64) uint64 {
	return swap(swap(x, 16, 0x00000000ffff0000), 8, 0x0000ff000000ff00)
}

// swap exchanges the bits of a mask with those n places above.
func swap(x uint64, n int, mask uint64) uint64 {
	t := (x ^ x>>n) & mask
	return x ^ t ^ t<<n
}
