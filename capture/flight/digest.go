package flight

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"

	"hsx/format"
)

// checkDigest compares the digest that a client sent with that of the dataset's format:
// the ids as little-endian int32, then each state in column order.
func checkDigest(s *format.Sample, want []byte) error {
	var h xxh3.Hasher
	ids := make([]byte, 0, 4*len(s.Tokens))
	for _, t := range s.Tokens {
		ids = binary.LittleEndian.AppendUint32(ids, uint32(t))
	}
	_, _ = h.Write(ids) // never fails
	for _, state := range s.Hidden {
		for i := range state.Rows.N {
			_, _ = h.Write(state.Rows.Row(i))
		}
	}
	if got := h.Sum128().Bytes(); !bytes.Equal(got[:], want) {
		return fmt.Errorf("ids or states are not what was meant (their digest is %x, the row says %x)", got, want)
	}
	return nil
}
