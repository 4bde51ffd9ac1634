package validate

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"hsx/format"
)

// Names of the rules that compare rows, states and samples with each other.
const (
	ruleEmbedding = "embedding-captured"
	ruleOrder     = "block-order"
	rulePrefix    = "prefix-consistency"
	ruleSelfShift = "self-shift"
	ruleDrift     = "shard-drift"
)

// crossRules are the rules that need the data and nothing else, and compare parts of
// it with each other.
func crossRules() []Rule {
	return []Rule{
		{ruleEmbedding, "a block that is not declared P_-1 is not the embedding, and one that is, is: only an embedding gives equal tokens identical vectors", "row hashes", "data", Error},
		{ruleOrder, "the blocks stand in ascending depth, by the vote of RMS, dispersion within equal tokens and cosine to the final", "row sums; 64 rows a sample", "data", Error},
		{rulePrefix, "samples that begin with the same tokens have the same states there, as causal states must", "row hashes; about 20 rows a sample; both samples of a mismatch again", "data", Error},
		{ruleSelfShift, "no sample's first or last row of states is there twice, as a shift against the tokens leaves it", "row hashes", "data", Error},
		{ruleDrift, "no shard's states are of another size than those of the others", "manifest", "data", Warning},
	}
}

// crossScans are the scans of these rules but shard-drift, which needs the manifest
// alone: see checkDrift.
func crossScans(l format.Layout) []scan {
	return []scan{newEmbeddingScan(l), newOrderScan(l), newPrefixScan(l), &selfShiftScan{}}
}

// crossWhole reports whether there are facts of every row of every state.
func crossWhole(f *sampleFacts) bool {
	for _, rows := range f.States {
		if len(rows) != len(f.Sample.Tokens) {
			return false
		}
	}
	return len(f.States) > 0 && len(f.States) == len(f.Sample.Hidden)
}

// crossHash takes one more value into a running hash. It is a folded multiplication,
// as wyhash has it: a step a token is all that the prefix hash may cost.
func crossHash(h, v uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e37_79b9_7f4a_7c15, v^0xe703_7ed1_a0b4_28db)
	return hi ^ lo ^ h<<1
}

// crossValues is the values of a row, in the memory of dst when that is enough.
func crossValues(dst []float32, row []byte, d format.DType) []float32 {
	n := 0
	if d.IsState() {
		n = len(row) / d.Size()
	}
	dst = slices.Grow(dst[:0], n)[:n]
	d.Floats(dst, row)
	return dst
}

// crossPair compares pairs of rows, with memory of its own for their values.
type crossPair struct{ x, y []float32 }

// distance is the relative L2 deviation of two rows: the norm of their difference by
// the greater of their norms. It is NaN when a row holds NaN or Inf, 0 for two rows of
// zeros.
func (p *crossPair) distance(a, b []byte, d format.DType) float64 {
	p.x, p.y = crossValues(p.x, a, d), crossValues(p.y, b, d)
	var diff, xx, yy float64
	for i, x := range p.x {
		x, y := float64(x), float64(p.y[i])
		diff += (x - y) * (x - y)
		xx += x * x
		yy += y * y
	}
	if most := max(xx, yy); most != 0 {
		return math.Sqrt(diff / most)
	}
	return 0
}

// dispersion is the norm of the difference of two rows by that of their sum: how far
// each is from their mean, relative to the mean.
func (p *crossPair) dispersion(a, b []byte, d format.DType) float64 {
	p.x, p.y = crossValues(p.x, a, d), crossValues(p.y, b, d)
	var diff, sum float64
	for i, x := range p.x {
		x, y := float64(x), float64(p.y[i])
		diff += (x - y) * (x - y)
		sum += (x + y) * (x + y)
	}
	return math.Sqrt(diff / sum)
}

// crossDot is the inner product of two rows of equal length. Four sums of their own keep
// the additions from waiting for each other.
func crossDot(x, y []float32) float64 {
	var s0, s1, s2, s3 float64
	for len(x) >= 4 && len(y) >= 4 {
		s0 += float64(float64(x[0]) * float64(y[0]))
		s1 += float64(float64(x[1]) * float64(y[1]))
		s2 += float64(float64(x[2]) * float64(y[2]))
		s3 += float64(float64(x[3]) * float64(y[3]))
		x, y = x[4:], y[4:]
	}
	for i := range min(len(x), len(y)) {
		s0 += float64(float64(x[i]) * float64(y[i]))
	}
	return s0 + s1 + (s2 + s3)
}

// crossSound reports whether a row has finite values, not all zero: of another, other
// rules tell.
func crossSound(f *rowFacts) bool { return !f.Zero && f.NonFinite == 0 && f.SumSq > 0 }

// selfShiftScan finds rows that a shift of the states against the tokens leaves twice:
// the last one, when they moved up, or the first, when they moved down. Two different
// tokens in a row cannot have equal states, in any layer; a run of the same token can,
// nearly, and is passed over.
type selfShiftScan struct{}

func (*selfShiftScan) sample(f *sampleFacts, out *Collector) {
	n := len(f.Sample.Tokens)
	if n < 2 || !crossWhole(f) || !out.Enabled(ruleSelfShift) {
		return
	}
	finding := Finding{Rule: ruleSelfShift, Severity: Error, Sample: f.Sample.ID,
		Do: "capture this sample again; row t must be the state of token t"}
	switch {
	case repeatsRow(f, n-1):
		finding.Token = n - 1
		finding.Message = fmt.Sprintf("the last two rows, of different tokens, are bit-equal in all %d states: the states look one token early (row t holds the state of token t+1), want one state a token", len(f.States))
	case repeatsRow(f, 1):
		finding.Token = 1
		finding.Message = fmt.Sprintf("the first two rows, of different tokens, are bit-equal in all %d states: the states look one token late (row t holds the state of token t-1), want one state a token", len(f.States))
	default:
		return
	}
	out.Add(finding)
}

// repeatsRow reports whether row t is the row before it in every state, though the
// tokens differ.
func repeatsRow(f *sampleFacts, t int) bool {
	a, known := tokenOf(f.Sample, t-1)
	b, _ := tokenOf(f.Sample, t)
	if !known || a == b {
		return false
	}
	for _, rows := range f.States {
		if rows[t].Hash != rows[t-1].Hash || !crossSound(&rows[t]) {
			return false
		}
	}
	return true
}

func (*selfShiftScan) add(scan) {}

func (*selfShiftScan) finish(opener, *Collector) {}
