// Package hsxtest is what the tests of several packages share: deterministic samples,
// checks of what every codec promises, fixture kits, and file systems that fail or lose
// their power when a test says so. Only tests import it.
package hsxtest

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"hsx/format"
)

// Spec says what samples to make. The zero value is one token wide and long.
type Spec struct {
	Hidden int
	Layers []format.Layer
	DType  format.DType // Float32 when unset
	Norm   format.Norm
	Final  bool
	NoMask bool
	Concat bool // the layers are strided views of one [T, n*H] block, as most dumps have them
	Skewed bool // the high bytes of 16-bit values are few, as those of real states; else all bytes are random
}

// Sample makes sample n of length tokens. Equal arguments give equal samples.
func Sample(spec Spec, n, tokens int) *format.Sample {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(tokens)))
	if spec.DType == format.InvalidDType {
		spec.DType = format.Float32
	}
	if spec.Hidden == 0 {
		spec.Hidden = 1
	}
	s := &format.Sample{
		ID:     fmt.Sprintf("sample-%d", n),
		Input:  format.Input{Path: fmt.Sprintf("rows_0-2000/data_%d.ckpt", n), Bytes: int64(1000 + n), ModTime: int64(1e18 + n)},
		Last:   true,
		Origin: format.Origin{Producer: "specforge-eagle3"},
		Tokens: make([]int32, tokens),
	}
	for i := range s.Tokens {
		s.Tokens[i] = int32(rng.IntN(1000))
	}
	if !spec.NoMask {
		s.LossMask = make([]byte, tokens)
		for i := range s.LossMask {
			s.LossMask[i] = byte(rng.IntN(2))
		}
	}
	row := spec.Hidden * spec.DType.Size()
	if spec.Concat {
		data := spec.values(rng, tokens*row*len(spec.Layers))
		for i, l := range spec.Layers {
			r := format.Rows{DType: spec.DType, N: tokens, Width: spec.Hidden, Stride: row * len(spec.Layers)}
			if tokens > 0 {
				r.Data = data[i*row:]
			}
			s.Hidden = append(s.Hidden, format.Hidden{State: format.State{Layer: l, DType: spec.DType}, Rows: r})
		}
	} else {
		for _, l := range spec.Layers {
			s.Hidden = append(s.Hidden, format.Hidden{State: format.State{Layer: l, DType: spec.DType}, Rows: dense(rng, spec, tokens)})
		}
	}
	if spec.Final {
		st := format.State{Role: format.RoleFinal, Norm: spec.Norm, DType: spec.DType}
		s.Hidden = append(s.Hidden, format.Hidden{State: st, Rows: dense(rng, spec, tokens)})
	}
	return s
}

func dense(rng *rand.Rand, spec Spec, tokens int) format.Rows {
	row := spec.Hidden * spec.DType.Size()
	return format.Rows{DType: spec.DType, N: tokens, Width: spec.Hidden, Stride: row, Data: spec.values(rng, tokens*row)}
}

// values are n bytes of states.
func (s Spec) values(rng *rand.Rand, n int) []byte {
	b := random(rng, n)
	if s.Skewed {
		for i := 1; i < n; i += 2 {
			b[i] = b[i]&0x80 | 0x3c + b[i]>>1&b[i]>>2&0x03
		}
	}
	return b
}

func random(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// Clone copies a sample that a dataset's iterator lends, with all that it points to.
func Clone(s *format.Sample) *format.Sample {
	c := *s
	c.Tokens, c.LossMask, c.Hidden = slices.Clone(s.Tokens), slices.Clone(s.LossMask), slices.Clone(s.Hidden)
	for i := range c.Hidden {
		c.Hidden[i].Rows.Data = slices.Clone(c.Hidden[i].Rows.Data)
	}
	return &c
}

// Equal says how two samples differ, "" if they hold the same values.
func Equal(got, want *format.Sample) string {
	if got.ID != want.ID || got.Input.Path != want.Input.Path {
		return fmt.Sprintf("id and source are %q and %q, want %q and %q", got.ID, got.Input.Path, want.ID, want.Input.Path)
	}
	if fmt.Sprint(got.Tokens) != fmt.Sprint(want.Tokens) {
		return fmt.Sprintf("tokens are %v, want %v", got.Tokens, want.Tokens)
	}
	if (got.LossMask == nil) != (want.LossMask == nil) || string(got.LossMask) != string(want.LossMask) {
		return fmt.Sprintf("loss mask is %v, want %v", got.LossMask, want.LossMask)
	}
	if d := want.Layout().Diff(got.Layout()); d != "" {
		return d
	}
	for i, w := range want.Hidden {
		for t := range w.Rows.N {
			if string(got.Hidden[i].Rows.Row(t)) != string(w.Rows.Row(t)) {
				return fmt.Sprintf("%s row %d differs", w.State.Column(), t)
			}
		}
	}
	return ""
}
