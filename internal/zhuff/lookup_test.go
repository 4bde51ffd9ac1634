package zhuff

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzRounds holds what the registers do against the plain loop, on bits of any kind: a
// complete tree reads something out of all of them.
func FuzzRounds(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4}, bytes.Repeat([]byte{0x5a, 0x13, 0xff, 0x80}, 20))
	f.Add([]byte{1}, make([]byte, 100))
	f.Add([]byte{1, 1, 2, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11}, bytes.Repeat([]byte{0xb7, 0x01}, 90))
	f.Fuzz(func(t *testing.T, weights, codes []byte) {
		n := (len(codes) - 8 - streams) / 7
		var tr tree
		if tr.complete(weights) != nil || n < 1 {
			return
		}
		var l lookup
		l.fill(&tr)
		room := n*looks*entryBytes + 8
		got, want := make([]byte, streams*room), make([]byte, streams*room)
		var gotStreams, wantStreams [streams]stream
		for k := range streams {
			in := len(codes) - 8 - k
			wantStreams[k] = stream{word: (binary.LittleEndian.Uint64(codes[in:]) | 1) << k, in: in, out: k * room}
		}
		gotStreams = wantStreams
		rounds(&l, got, codes, &gotStreams, n)
		roundsPlainly(&l, want, codes, &wantStreams, n)
		if !bytes.Equal(got, want) || gotStreams != wantStreams {
			t.Errorf("%d rounds of %x by weights %v: got %x and %v, want %x and %v", n, codes, weights, got, gotStreams, want, wantStreams)
		}
	})
}
