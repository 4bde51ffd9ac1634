package validate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"hsx/format"
)

const (
	// prefixTolerance is the relative L2 deviation up to which two states of the same
	// prefix are the same. Measured noise is 0 in bf16 and fp16 on a CPU and 2.4e-7 in
	// fp32; other batch shapes and kernels on GPUs change low bits, a few per cent of
	// the norm after many layers of bf16. The next layer's state is 20 to 70 % away.
	prefixTolerance = 0.05
	// prefixKeys bounds the prefixes that are kept. Beyond it the long ones go first,
	// see prefixRank.
	prefixKeys = 1 << 16
	// prefixVariants bounds the different states that are kept for one prefix, and
	// prefixMembers the samples that are named of each.
	prefixVariants = 16
	prefixMembers  = 8
	// prefixBuckets is the size of a sketch. The deviation that two of them show is
	// within a factor of two of the true one but for one pair in thousands.
	prefixBuckets = 16
	prefixUnit    = 1 << 14 // the integer that stands for 1 in a sketch
)

// prefixScan holds that causal states depend on nothing but the tokens up to theirs:
// two samples with the same first n tokens have the same states at position n-1. It
// keeps, for prefixes of lengths 1, 2, 3, 4, 6, 8, 12 and so on of each sample, what
// the last row of the prefix looks like in every state; so a dataset in which every
// sample begins with the same token is tied together by that alone.
//
// Only prefixes are left out when they are too many, never samples: those that remain
// are still compared over all samples.
type prefixScan struct {
	States []format.State
	Keys   map[uint64]*prefixKey // by the hash of the prefix
	Limit  float64               // prefixes of this rank and above are not kept

	bound  int // of Keys, prefixKeys but in tests
	values []float32
	hashes []uint64
	sketch []byte
	norms  []float32
	draws  []uint8
}

// prefixKey is one prefix that samples begin with.
type prefixKey struct {
	N        int // tokens
	Variants []*prefixVariant
	More     int // samples whose states are of yet another variant
}

// prefixVariant is samples with the same states at the last token of a prefix.
type prefixVariant struct {
	Hashes  []uint64  // by state: of the first sample's row
	Norms   []float32 // by state
	Sketch  []byte    // by state: prefixBuckets int16, of the row divided by its norm
	Samples int
	Members []prefixMember // the first few
}

// prefixMember is a sample that can be read again.
type prefixMember struct {
	Ref      Ref
	ID       string
	Repeated bool // it shows a shift by itself, so it has no voice
}

func newPrefixScan(l format.Layout) *prefixScan {
	return &prefixScan{States: l.States, Keys: map[uint64]*prefixKey{}, Limit: math.MaxFloat64, bound: prefixKeys}
}

// UnmarshalJSON reads what was stored of a scan and refuses what does not fit together.
func (p *prefixScan) UnmarshalJSON(data []byte) error {
	type plain prefixScan
	if err := json.Unmarshal(data, (*plain)(p)); err != nil {
		return err
	}
	if p.Keys == nil {
		p.Keys = map[uint64]*prefixKey{}
	}
	n := len(p.States)
	for hash, k := range p.Keys {
		if k == nil || k.N < 1 || len(k.Variants) == 0 || len(k.Variants) > prefixVariants {
			return fmt.Errorf("prefix %d of %s has no tokens, or not 1 to %d variants", hash, rulePrefix, prefixVariants)
		}
		for _, v := range k.Variants {
			if v == nil || len(v.Hashes) != n || len(v.Norms) != n || len(v.Sketch) != 2*prefixBuckets*n || len(v.Members) == 0 || len(v.Members) > prefixMembers {
				return fmt.Errorf("prefix %d of %s does not describe %d states of 1 to %d samples", hash, rulePrefix, n, prefixMembers)
			}
		}
	}
	return nil
}

// prefixNext is the length that is looked at after n: 1, 2, 3, 4, 6, 8, 12, 16, 24 ….
func prefixNext(n int) int {
	if n&(n-1) == 0 {
		return n + max(1, n/2)
	}
	return n + n/3
}

// prefixRank orders prefixes by how soon they are given up: a hash decides, and a
// prefix of n tokens is n times likelier to go, since long ones are seldom shared. A
// prefix of one token always stays. What is kept depends only on the prefixes, so
// scans of parts add up to the scan of the whole.
func prefixRank(hash uint64, n int) float64 {
	if n <= 1 {
		return -1
	}
	return float64(crossHash(hash, 1)>>11) * float64(n)
}

func (p *prefixScan) sample(f *sampleFacts, out *Collector) {
	s := f.Sample
	if len(f.States) != len(p.States) || !crossWhole(f) || len(s.Tokens) == 0 || !out.Enabled(rulePrefix) {
		return
	}
	member := prefixMember{Ref: f.Ref, ID: strings.Clone(s.ID), Repeated: len(s.Tokens) > 1 && (repeatsRow(f, len(s.Tokens)-1) || repeatsRow(f, 1))}
	hash, next := uint64(0), 1
	if s.Shifted {
		// The first token is not known. Samples with equal first rows began with the
		// same one.
		for _, rows := range f.States {
			hash = crossHash(hash, rows[0].Hash)
		}
		next = 2
	}
	for t := range s.Tokens {
		if token, known := tokenOf(s, t); known {
			hash = crossHash(hash, uint64(uint32(token)))
		}
		if t+1 != next {
			continue
		}
		if prefixRank(hash, next) < p.Limit && orderSound(f, t) {
			p.see(f, t, hash, member)
		}
		next = prefixNext(next)
	}
	p.trim()
}

// see takes the rows at position t, the last of a prefix.
func (p *prefixScan) see(f *sampleFacts, t int, hash uint64, m prefixMember) {
	p.hashes = p.hashes[:0]
	for _, rows := range f.States {
		p.hashes = append(p.hashes, rows[t].Hash)
	}
	k := p.Keys[hash]
	if k == nil {
		k = &prefixKey{N: t + 1}
		p.Keys[hash] = k
	}
	for _, v := range k.Variants {
		if slices.Equal(v.Hashes, p.hashes) {
			v.join(1, m)
			return
		}
	}
	p.sketch, p.norms = p.sketch[:0], p.norms[:0]
	for i, h := range f.Sample.Hidden {
		norm := math.Sqrt(f.States[i][t].SumSq)
		p.values = crossValues(p.values, h.Rows.Row(t), h.Rows.DType)
		p.draws = sketchDraws(p.draws, len(p.values))
		p.sketch = appendSketch(p.sketch, p.values, p.draws, norm)
		p.norms = append(p.norms, float32(min(norm, math.MaxFloat32)))
	}
	k.take(&prefixVariant{Hashes: p.hashes, Norms: p.norms, Sketch: p.sketch, Samples: 1, Members: []prefixMember{m}}, true)
}

// join counts samples that have the variant's states.
func (v *prefixVariant) join(samples int, members ...prefixMember) {
	v.Samples += samples
	v.Members = append(v.Members, members[:min(len(members), prefixMembers-len(v.Members))]...)
}

// take adds samples of one variant, in memory of their own if copied.
func (k *prefixKey) take(n *prefixVariant, copied bool) {
	for _, v := range k.Variants {
		if slices.Equal(v.Hashes, n.Hashes) || v.near(n) {
			v.join(n.Samples, n.Members...)
			return
		}
	}
	if len(k.Variants) == prefixVariants {
		k.More += n.Samples
		return
	}
	if copied {
		n.Hashes, n.Norms, n.Sketch = slices.Clone(n.Hashes), slices.Clone(n.Norms), slices.Clone(n.Sketch)
	}
	k.Variants = append(k.Variants, n)
}

// near reports whether two variants look the same but for noise.
func (v *prefixVariant) near(o *prefixVariant) bool {
	for i := range v.Hashes {
		if v.apart(o, i) > prefixTolerance {
			return false
		}
	}
	return true
}

// apart estimates the relative L2 deviation of state i.
func (v *prefixVariant) apart(o *prefixVariant, i int) float64 {
	if v.Hashes[i] == o.Hashes[i] {
		return 0
	}
	a, b := v.Sketch[2*prefixBuckets*i:], o.Sketch[2*prefixBuckets*i:]
	na, nb := float64(v.Norms[i]), float64(o.Norms[i])
	var sum float64
	for j := range prefixBuckets {
		x := na * float64(int16(binary.LittleEndian.Uint16(a[2*j:])))
		y := nb * float64(int16(binary.LittleEndian.Uint16(b[2*j:])))
		sum += (x - y) * (x - y)
	}
	return math.Sqrt(sum) / prefixUnit / max(na, nb)
}

// sketchDraws makes draws those of n channels: a bucket, and prefixBuckets where the
// channel's sign is turned. They are drawn by hash.
func sketchDraws(draws []uint8, n int) []uint8 {
	for i := len(draws); i < n; i++ {
		h := uint32(i+1) * 0x9e37_79b1
		h = (h ^ h>>15) * 0x85eb_ca6b
		h ^= h >> 13
		draws = append(draws, uint8(h%prefixBuckets|(h>>8&1^1)*prefixBuckets))
	}
	return draws
}

// appendSketch appends the sketch of a row: its channels, divided by the norm and with
// signs drawn by hash, added up in buckets drawn by hash. The squared distance of two
// sketches is, on average, that of the rows.
func appendSketch(dst []byte, row []float32, draws []uint8, norm float64) []byte {
	var sums [prefixBuckets]float64
	for i, draw := range draws[:len(row)] {
		v := math.Float32frombits(math.Float32bits(row[i]) ^ uint32(draw/prefixBuckets)<<31)
		sums[draw%prefixBuckets] += float64(v)
	}
	for _, v := range sums {
		unit := v / norm * prefixUnit
		dst = binary.LittleEndian.AppendUint16(dst, uint16(int16(max(math.MinInt16, min(math.MaxInt16, math.Round(unit))))))
	}
	return dst
}

// trim gives up prefixes until there is room.
func (p *prefixScan) trim() {
	bound := p.bound
	if bound == 0 {
		bound = prefixKeys // after decoding
	}
	for len(p.Keys) > bound && p.Limit > 1 {
		ranks := make([]float64, 0, len(p.Keys))
		for hash, k := range p.Keys {
			ranks = append(ranks, prefixRank(hash, k.N))
		}
		slices.Sort(ranks)
		// A power of two, so that the limit depends on the set alone and not on how often
		// there was no room. At 1, only prefixes of one token are left: as many as there
		// are ids.
		p.Limit = math.Ldexp(1, math.Ilogb(max(1, ranks[bound])))
		p.drop()
	}
}

// drop removes what the limit no longer lets in.
func (p *prefixScan) drop() {
	maps.DeleteFunc(p.Keys, func(hash uint64, k *prefixKey) bool { return prefixRank(hash, k.N) >= p.Limit })
}

func (p *prefixScan) add(later scan) {
	l, ok := later.(*prefixScan)
	if !ok || len(l.States) != len(p.States) {
		return
	}
	p.Limit = min(p.Limit, l.Limit)
	p.drop()
	for hash, n := range l.Keys {
		if prefixRank(hash, n.N) >= p.Limit {
			continue
		}
		k := p.Keys[hash]
		if k == nil {
			p.Keys[hash] = n
			continue
		}
		for _, v := range n.Variants {
			k.take(v, false)
		}
		k.More += n.More
	}
	p.trim()
}
