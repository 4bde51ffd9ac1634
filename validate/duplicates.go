package validate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"hsx/format"
)

// duplicateScan finds samples that are equal in ids and states. It keeps 24 bytes of
// each sample.
type duplicateScan struct {
	Seen []seenSample

	buf []byte // scratch
}

// seenSample is one sample and the hash of its ids and states. Of ten million
// different samples, two have the same hash once in 300,000 datasets.
type seenSample struct {
	Hash uint64 `json:"h"`
	Ref
}

func (d *duplicateScan) sample(f *sampleFacts, out *Collector) {
	if !out.Enabled("duplicate-sample") {
		return
	}
	b := d.buf[:0]
	for t, id := range f.Sample.Tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
		for _, facts := range f.States {
			b = binary.LittleEndian.AppendUint64(b, facts[t].Hash)
		}
	}
	d.buf = b
	d.Seen = append(d.Seen, seenSample{xxh3.Hash(b), f.Ref})
}

func (d *duplicateScan) add(later scan) {
	d.Seen = append(d.Seen, later.(*duplicateScan).Seen...)
}

// finish names both samples of a pair, as far as findings are kept.
func (d *duplicateScan) finish(open opener, out *Collector) {
	byHash := slices.Clone(d.Seen)
	slices.SortFunc(byHash, func(a, b seenSample) int {
		return cmp.Or(cmp.Compare(a.Hash, b.Hash), compareRefs(a.Ref, b.Ref))
	})
	var pairs [][2]Ref // a sample, and the first one that is equal to it
	first := 0
	for i := 1; i < len(byHash); i++ {
		if byHash[i].Hash != byHash[first].Hash {
			first = i
			continue
		}
		pairs = append(pairs, [2]Ref{byHash[i].Ref, byHash[first].Ref})
	}
	slices.SortFunc(pairs, func(a, b [2]Ref) int { return compareRefs(a[0], b[0]) })
	for n, p := range pairs {
		f := Finding{Rule: "duplicate-sample", Severity: Warning, Token: -1, Do: "keep one of them: a sample that is there twice weighs twice"}
		if n < out.keep {
			f.Sample, f.Message = nameOf(open, p[0]), fmt.Sprintf("has the ids and states of %s, want each sample once", nameOf(open, p[1]))
		}
		out.Add(f)
	}
}

// nameOf is a sample's id, and its source when that is another name, or its place when
// it cannot be read.
func nameOf(open opener, ref Ref) string {
	name := fmt.Sprintf("shard %d, row %d", ref.Shard, ref.Row)
	// Damage was reported when the sample was scanned.
	_ = open(ref, func(s *format.Sample) { name = s.ID })
	return name
}
