package shard

import (
	"slices"

	"github.com/zeebo/xxh3"

	"hsx/format"
)

// Look is shown the states of a sample, a few rows at a time: those of each state in
// their order, and the states one after another. What it is shown is gone when it returns.
type Look func(state int, rows format.Rows)

// lookBytes is how much of a state is hashed before it is shown: it is in the processor's
// caches then.
const lookBytes = 128 << 10

// show adds a state to a row's digest, and shows it if look is not nil. So much of a plain
// shard is read into memory that stays in the cache: that costs less than the faults of
// mapped pages.
func (b *rows) show(look Look, h *xxh3.Hasher, state int, r format.Rows) error {
	if look == nil {
		_, _ = h.Write(r.Data) // never fails
		return nil
	}
	step := max(1, lookBytes/r.Stride)
	var buf []byte
	if b.states[state].hi == nil && r.N >= step {
		kept, _ := b.buffers.Get().(*[]byte)
		if kept == nil {
			kept = new([]byte)
		}
		defer b.buffers.Put(kept)
		*kept = slices.Grow((*kept)[:0], step*r.Stride)
		buf = (*kept)[:step*r.Stride]
	}
	for t := 0; t < r.N; t += step {
		part := r
		part.N = min(step, r.N-t)
		part.Data = r.Data[t*r.Stride : (t+part.N)*r.Stride]
		if buf != nil {
			if err := b.file.Read(buf, part.Data); err != nil {
				return err
			}
			part.Data = buf[:len(part.Data)]
		}
		_, _ = h.Write(part.Data)
		look(state, part)
	}
	return nil
}
