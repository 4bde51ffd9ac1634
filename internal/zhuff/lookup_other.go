//go:build !amd64

package zhuff

func rounds(l *lookup, dst, src []byte, s *[streams]stream, n int) { roundsPlainly(l, dst, src, s, n) }
