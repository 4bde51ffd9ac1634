package zhuff

import (
	"bytes"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// FuzzEights holds what the registers do against the plain loop, with room for all codes
// and with less.
func FuzzEights(f *testing.F) {
	f.Add([]byte{1}, []byte{0, 1, 1, 0, 1, 0, 0, 1, 1}, uint16(40), uint8(0))
	f.Add([]byte{1, 1, 2, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11}, bytes.Repeat([]byte{13, 12, 0, 14, 1}, 50), uint16(400), uint8(11))
	f.Add([]byte{1, 1, 2, 0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11}, bytes.Repeat([]byte{0, 1}, 90), uint16(100), uint8(3))
	f.Fuzz(func(t *testing.T, weights, content []byte, room uint16, used uint8) {
		var tr tree
		if tr.complete(weights) != nil {
			return
		}
		var c codes
		c.fill(&tr)
		for i, b := range content { // only what has codes
			content[i] = tr.symbols[int(b)%len(tr.symbols)]
		}
		p := pending{n: int(used) % (codeBits + 1)}
		p.word = 0x5a5 & (1<<p.n - 1)
		got, want := make([]byte, room), make([]byte, room)
		gotOut, gotLeft, gotRest := c.eights(got, content, p)
		wantOut, wantLeft, wantRest := c.eightsPlainly(want, content, p)
		if !bytes.Equal(got, want) || gotOut != wantOut || gotLeft != wantLeft || gotRest != wantRest {
			t.Errorf("codes of %x by weights %v: got %x, %d, %d, %v, want %x, %d, %d, %v",
				content, weights, got, gotOut, gotLeft, gotRest, want, wantOut, wantLeft, wantRest)
		}
	})
}

func BenchmarkEights(b *testing.B) {
	var tr tree
	if err := tr.complete([]byte{1, 1, 2, 3, 4, 5, 6, 7}); err != nil {
		b.Fatal(err)
	}
	var c codes
	c.fill(&tr)
	rng := rand.New(rand.NewPCG(9, 10))
	content := make([]byte, BlockBytes/streams)
	for i := range content { // half of them have the shortest code, as in states
		content[i] = 8 - byte(min(bits.TrailingZeros32(rng.Uint32()), 8))
	}
	dst := make([]byte, 2*len(content))
	for _, way := range []struct {
		name   string
		eights func(dst, src []byte, p pending) (int, int, pending)
	}{{"registers", c.eights}, {"plain", c.eightsPlainly}} {
		b.Run(way.name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				way.eights(dst, content, pending{})
			}
		})
	}
}
