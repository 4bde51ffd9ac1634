package shard

import "encoding/binary"

// split puts the halves of 16-bit values apart, each as long as there are values. A value
// is turned left by one bit first: the high half of a bfloat16 is then its exponent, which
// is all that shrinks of it, and the low half mantissa and sign. Eight values at a time
// are moved in two words.
func split(hi, lo, values []byte) {
	n := len(values) / 2
	hi, lo = hi[:n], lo[:n]
	whole := n &^ 7
	for i := 0; i < whole; i += 8 {
		v := values[2*i : 2*i+16]
		a, b := turnLeft(binary.LittleEndian.Uint64(v)), turnLeft(binary.LittleEndian.Uint64(v[8:]))
		binary.LittleEndian.PutUint64(lo[i:], gather(a)|gather(b)<<32)
		binary.LittleEndian.PutUint64(hi[i:], gather(a>>8)|gather(b>>8)<<32)
	}
	for i := whole; i < n; i++ {
		v := turnLeft(uint64(binary.LittleEndian.Uint16(values[2*i:])))
		lo[i], hi[i] = byte(v), byte(v>>8)
	}
}

// join is the inverse of split.
func join(values, hi, lo []byte) {
	n := len(values) / 2
	hi, lo = hi[:n], lo[:n]
	whole := n &^ 7
	for i := 0; i < whole; i += 8 {
		v := values[2*i : 2*i+16]
		l, h := binary.LittleEndian.Uint64(lo[i:]), binary.LittleEndian.Uint64(hi[i:])
		binary.LittleEndian.PutUint64(v, turnRight(scatter(l)|scatter(h)<<8))
		binary.LittleEndian.PutUint64(v[8:], turnRight(scatter(l>>32)|scatter(h>>32)<<8))
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

// gather is every second byte of x, the lowest first, in the lower half of a word.
func gather(x uint64) uint64 {
	x &= 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return (x | x>>16) & 0x00000000ffffffff
}

// scatter is the inverse of gather.
func scatter(x uint64) uint64 {
	x &= 0x00000000ffffffff
	x = (x | x<<16) & 0x0000ffff0000ffff
	return (x | x<<8) & 0x00ff00ff00ff00ff
}
