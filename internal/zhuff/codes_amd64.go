package zhuff

import "unsafe"

// encodeEights is eightsPlainly on the registers of amd64.
//
//go:noescape
func encodeEights(table *uint32, dst, src *byte, room, n int, word uint64, used int) (out, left int, rest uint64, bits int)

func (c *codes) eights(dst, src []byte, p pending) (out, left int, _ pending) {
	if len(dst) < 16 { // of nil there is no last place for two words
		return 0, len(src), p
	}
	out, left, word, used := encodeEights(&c[0], unsafe.SliceData(dst), unsafe.SliceData(src), len(dst), len(src), p.word, p.n)
	return out, left, pending{word, used}
}
