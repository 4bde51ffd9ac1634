package zhuff

import "unsafe"

// decodeRounds is rounds, at least one, on the registers of amd64.
//
//go:noescape
func decodeRounds(table *uint64, dst, src *byte, s *[streams]stream, n int)

func rounds(l *lookup, dst, src []byte, s *[streams]stream, n int) {
	decodeRounds(&l[1<<codeBits], unsafe.SliceData(dst), unsafe.SliceData(src), s, n)
}
