package shard

import (
	"github.com/zeebo/xxh3"

	"hsx/format"
)

// Look is shown the states of a sample, a few rows at a time: those of each state in
// their order, and the states one after another.
type Look func(state int, rows format.Rows)

// lookBytes is how much of a state is hashed before it is shown: it is in the processor's
// nearest cache then.
const lookBytes = 16 << 10

// hash adds a state to a row's digest, and shows it.
func (look Look) hash(h *xxh3.Hasher, state int, r format.Rows) {
	if look == nil {
		_, _ = h.Write(r.Data) // never fails
		return
	}
	step := max(1, lookBytes/r.Stride)
	for t := 0; t < r.N; t += step {
		part := r
		part.N = min(step, r.N-t)
		part.Data = r.Data[t*r.Stride : (t+part.N)*r.Stride]
		_, _ = h.Write(part.Data) // never fails
		look(state, part)
	}
}
