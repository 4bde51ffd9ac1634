package arrowmsg

import (
	"encoding/binary"
	"iter"
)

// blockBytes is a place in a file: where a message begins, how long its metadata and its
// body are.
const blockBytes = 24

// Blocks yields where the footer of an Arrow file says that its record batches begin.
// The footer only repeats what the messages say and was checked against nothing: what
// it claims may be anywhere. A damaged one yields nothing.
func Blocks(footer []byte) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		f := &flat{buf: footer}
		blocks := f.table(f.u32(0)).structs(3, blockBytes)
		for ; len(blocks) > 0; blocks = blocks[blockBytes:] {
			if !yield(int64(binary.LittleEndian.Uint64(blocks))) {
				return
			}
		}
	}
}
