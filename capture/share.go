package capture

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/fnv"
	"math/bits"
	"slices"
)

// Share is one part of a plan's inputs: a run of them, in their order.
type Share struct {
	Inputs      int
	Bytes       int64
	First, Last string // names of inputs, empty when there are none
}

// Split says what each of n parts holds. The plan must be of all inputs.
func (p *Plan) Split(n int) []Share {
	shares := make([]Share, n)
	for i, part := range partsOf(p.units, n) {
		s, in := &shares[part], p.units[i].input
		if s.Inputs == 0 {
			s.First = in.Path
		}
		s.Last = in.Path
		s.Inputs++
		s.Bytes += in.Bytes
	}
	return shares
}

// Digest is a SHA-256, in hexadecimal, of what decides who takes what: the facts, and
// the name and size of every input in their order, also of those that other parts
// take. Runs that list the same files have the same.
func (p *Plan) Digest() string { return p.digest }

// FollowDigest is what Plan.Digest is to runs that follow directories: their inputs are
// not known, so that it is of the facts alone.
func (o Options) FollowDigest() string { return hex.EncodeToString(o.factsHash().Sum(nil)) }

func (o Options) factsHash() hash.Hash {
	f := o.Facts
	h := sha256.New()
	t := f.Target
	_, _ = fmt.Fprintf(h, "%q %q %q %q %q %q %t %q %d %d %d\n", f.Producer, f.Layers, f.Convention, f.Final, f.DType, f.Map, f.TrimPadding,
		t.Name, t.Layers, t.HiddenSize, t.VocabSize) // never fails
	return h
}

// seal notes the digest while all inputs are there.
func (p *Plan) seal() {
	h := p.opt.factsHash()
	for _, u := range p.units {
		_, _ = fmt.Fprintf(h, "%d %s\x00", u.input.Bytes, u.input.Path) // never fails
	}
	p.digest = hex.EncodeToString(h.Sum(nil))
}

// share keeps this run's part of a listing that is complete.
func (p *Plan) share() {
	if p.opt.Parts <= 1 {
		return
	}
	of := partsOf(p.units, p.opt.Parts)
	var mine []unit
	for i, u := range p.units {
		if of[i] == p.opt.Part-1 {
			mine = append(mine, u)
		}
	}
	p.units = mine
}

// partsOf is the part, from 0, that each input belongs to: the one that its middle falls
// into when all inputs lie end to end and are cut into n equal lengths. So the parts are
// runs of inputs that make the whole one after the other, and none has more than its
// length and two halves of an input. An input is one longer than its bytes, so that
// empty ones are shared too.
func partsOf(units []unit, n int) []int {
	total := uint64(0)
	for _, u := range units {
		total += uint64(u.input.Bytes) + 1
	}
	of := make([]int, len(units))
	begin := uint64(0)
	for i, u := range units {
		size := uint64(u.input.Bytes) + 1
		hi, lo := bits.Mul64(begin+size/2, uint64(n))
		part, _ := bits.Div64(hi, lo, total) // below n, since the middle is below total
		of[i] = int(part)
		begin += size
	}
	return of
}

// shareByName keeps this run's part of a listing that grows: it goes by the hash of the
// name, so that it does not depend on what else is there.
func (p *Plan) shareByName() {
	if p.opt.Parts <= 1 {
		return
	}
	p.units = slices.DeleteFunc(p.units, func(u unit) bool {
		h := fnv.New64a()
		_, _ = h.Write([]byte(u.input.Path)) // never fails
		return int(h.Sum64()%uint64(p.opt.Parts)) != p.opt.Part-1
	})
}
