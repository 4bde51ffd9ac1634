package zhuff

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// entryBytes is how many bytes of content one look at the table finds at most.
const entryBytes = 6

// lookup says what bits stand for: entry 1<<k | v is for the k bits v, and has all whole
// codes that they begin with, or nearly so. An entry is how many bits those take, from
// bit 8 on their number, and from bit 16 on the bytes that they stand for.
type lookup [2 << codeBits]uint64

// fill makes the table of a tree. What a few bits begin with is one code, and then what
// the rest of them begins with, which is in the table already.
func (l *lookup) fill(t *tree) {
	l[1] = 0
	symbols := t.symbols
	first := len(symbols) // that fits into k bits: short codes are at the end
	for k := 1; k <= codeBits; k++ {
		for first > 0 && int(t.bits[symbols[first-1]]) <= k {
			first--
		}
		end := 2 << k
		for i := len(symbols) - 1; i >= first; i-- {
			b := symbols[i]
			n := int(t.bits[b])
			from := l[1<<(k-n) : 2<<(k-n)]
			end -= len(from)
			to := l[end:][:len(from)]
			code := uint64(b)<<16 + 1<<8 + uint64(n)
			for j, e := range from {
				if e>>8&0xff == entryBytes {
					e = 0
				}
				to[j] = e>>16<<24 + e&0xffff + code
			}
		}
		clear(l[1<<k : end]) // what longer codes begin with
	}
}

const (
	streams   = 4
	jumpBytes = 2 * (streams - 1) // before the streams: the lengths of all but the last
	// A round is so many looks at each stream: what one word of bits is enough for, when
	// up to eight of them were used up before.
	looks = 5
)

// stream is where one of the streams of a block is. Its codes are read from its end.
type stream struct {
	// The next bits, from the highest on. The lowest bit that is set is none of them, but
	// shows how many of the word were used up.
	word    uint64
	in, out int // where the word begins in the codes, and what comes next in the content
}

// share is which of n bytes of content stream k holds.
func share(n, k int) (from, to int) {
	each := (n + streams - 1) / streams
	return min(k*each, n), min((k+1)*each, n)
}

// decode fills dst with what four streams of a tree's codes hold.
func (l *lookup) decode(t *tree, dst, src []byte) error {
	if len(src) < jumpBytes {
		return errors.New("streams are cut")
	}
	var s [streams]stream
	var start, end, left [streams]int
	for k, at := 0, jumpBytes; k < streams; k++ {
		next := len(src)
		if k < streams-1 {
			next = at + int(binary.LittleEndian.Uint16(src[2*k:]))
		}
		if next > len(src) || next <= at {
			return fmt.Errorf("stream %d goes from byte %d to %d of %d", k, at, next, len(src))
		}
		unused := bits.LeadingZeros8(src[next-1]) + 1 // that bit says where the codes end
		if unused > 8 {
			return fmt.Errorf("stream %d does not end in a bit", k)
		}
		start[k], at = at, next
		s[k].out, end[k] = share(len(dst), k)
		left[k] = 8*(next-start[k]) - unused
		if s[k].in = next - 8; s[k].in >= start[k] {
			s[k].word = (binary.LittleEndian.Uint64(src[s[k].in:]) | 1) << unused
		}
	}
	for {
		n := len(dst)
		for k := range s {
			n = min(n, (s[k].in-start[k])/7, (end[k]-s[k].out-8)/(looks*entryBytes))
		}
		if n <= 0 {
			break
		}
		rounds(l, dst, src, &s, n)
		for k := range s {
			left[k] = 8*(s[k].in+8-start[k]) - bits.TrailingZeros64(s[k].word)
		}
	}
	for k := range s {
		if n := l.rest(t, dst[s[k].out:end[k]], src[start[k]:], left[k]); n != 0 {
			return fmt.Errorf("stream %d has %d bits left after its codes", k, n)
		}
	}
	return nil
}

// roundsPlainly goes on with each stream by n rounds. There is room for the most that
// they write, and there are bits for them.
func roundsPlainly(l *lookup, dst, src []byte, s *[streams]stream, n int) {
	table := (*[1 << codeBits]uint64)(l[1<<codeBits:])
	for range n {
		for k := range s {
			w, out := s[k].word, s[k].out
			for range looks {
				e := table[w>>(64-codeBits)]
				binary.LittleEndian.PutUint64(dst[out:], e>>16)
				w <<= e & 63
				out += int(e >> 8 & 0xff)
			}
			used := bits.TrailingZeros64(w)
			in := s[k].in - used/8
			s[k] = stream{word: (binary.LittleEndian.Uint64(src[in:]) | 1) << (used % 8), in: in, out: out}
		}
	}
}

// rest fills dst with what the first n bits of a stream hold, from the last on, and
// returns how many are left, which is less than none when there were not enough.
func (l *lookup) rest(t *tree, dst, src []byte, n int) int {
	table := (*[1 << codeBits]uint64)(l[1<<codeBits:])
	for len(dst) >= 8 && n >= codeBits {
		e := table[before(src, n)]
		binary.LittleEndian.PutUint64(dst, e>>16)
		dst = dst[e>>8&0xff:]
		n -= int(e & 0xff)
	}
	for i := range dst { // an entry may have more than there is
		b := byte(table[before(src, n)] >> 16)
		dst[i] = b
		n -= int(t.bits[b])
	}
	return n
}

// before is the codeBits bits of src before bit n, zeros where there are none.
func before(src []byte, n int) int {
	v, last := 0, (n+7)/8-1 // the byte that has the highest of them
	for i := max(0, last-2); i <= last; i++ {
		v |= int(src[i]) << (8 * (i - last + 3))
	}
	return v >> (24 + (n+7)%8 + 1 - codeBits) & (1<<codeBits - 1)
}
