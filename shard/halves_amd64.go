package shard

import "unsafe"

// halvesBlock is how many values the vector instructions move at a time.
const halvesBlock = 16

// splitBlocks is split of whole blocks, at least one, on the vectors that every amd64 has.
//
//go:noescape
func splitBlocks(hi, lo, values *byte, blocks int)

// joinBlocks is the inverse of splitBlocks.
//
//go:noescape
func joinBlocks(values, hi, lo *byte, blocks int)

func split(hi, lo, values []byte) {
	n := len(values) / 2
	hi, lo = hi[:n], lo[:n]
	if blocks := n / halvesBlock; blocks > 0 {
		splitBlocks(unsafe.SliceData(hi), unsafe.SliceData(lo), unsafe.SliceData(values), blocks)
	}
	whole := n &^ (halvesBlock - 1)
	splitWords(hi[whole:], lo[whole:], values[2*whole:])
}

func join(values, hi, lo []byte) {
	n := len(values) / 2
	hi, lo = hi[:n], lo[:n]
	if blocks := n / halvesBlock; blocks > 0 {
		joinBlocks(unsafe.SliceData(values), unsafe.SliceData(hi), unsafe.SliceData(lo), blocks)
	}
	whole := n &^ (halvesBlock - 1)
	joinWords(values[2*whole:], hi[whole:], lo[whole:])
}
