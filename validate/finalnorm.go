package validate

import (
	"fmt"
	"math"

	"hsx/format"
)

// normTolerance is how far a row that went through the norm may be from RMS 1 after
// dividing by the weight. Rounding to bf16 gave at most 0.0024 on a real model; rows of
// the last layer before the norm reach 0.57 to 1.57.
const normTolerance = 0.01

// normProof is the number of rows that have to agree before a state that is not
// declared so is called normed.
const normProof = 8

// normScan proves by the norm's weight which states went through the final norm, and
// compares the final state with the captured layers.
type normScan struct {
	layout  format.Layout
	w       *Weights
	inverse [2][]float32 // 1/w and 1/(1+w): a config may not tell which it is
}

func newNormScan(l format.Layout, w *Weights) *normScan {
	n := &normScan{layout: l, w: w}
	for i := range n.inverse {
		n.inverse[i] = make([]float32, len(w.gain))
		for c, g := range w.gain {
			if w.UnitOffset {
				g--
			}
			if g += float32(i); g != 0 { // a channel that the norm removes tells nothing
				n.inverse[i][c] = 1 / g
			}
		}
	}
	return n
}

func (n *normScan) add(scan)                  {}
func (n *normScan) finish(opener, *Collector) {}

func (n *normScan) sample(f *sampleFacts, out *Collector) {
	if !out.Enabled(ruleFinalNorm) && !out.Enabled(ruleFinalLayer) {
		return
	}
	normed := make([]normVerdict, len(n.layout.States))
	for i, st := range n.layout.States {
		normed[i] = n.judge(f, i)
		v, col := normed[i], st.Column()
		finding := Finding{Rule: ruleFinalNorm, Severity: Error, Sample: f.Sample.ID, Column: col, Token: -1}
		seen := fmt.Sprintf("rms(y/w) is %.4g in the median of %d rows, %.4g to %.4g", v.median, v.rows, v.low, v.high)
		switch {
		case v.rows == 0:
			continue
		case st.Role == format.RoleFinal && st.Norm == format.NormPost && v.never:
			finding.Message = fmt.Sprintf("%s is declared after the final norm, and did not go through it: %s, wanted 1", col, seen)
			finding.Do = "apply the norm when training, or capture after it; a trainer that expects it learns another target"
		case st.Role == format.RoleFinal && st.Norm == format.NormPre && v.proved:
			finding.Message = fmt.Sprintf("%s is declared before the final norm, and went through it: %s", col, seen)
			finding.Do = "declare it post, or capture before the norm; a trainer that norms it would do so twice"
		case st.Role == format.RoleFinal && st.Norm == format.NormUnknown && (v.proved || v.never):
			finding.Severity = Info
			finding.Message = fmt.Sprintf("%s is of unknown norm state, and went through the final norm: %s", col, seen)
			if v.never {
				finding.Message = fmt.Sprintf("%s is of unknown norm state, and did not go through the final norm: %s", col, seen)
			}
			finding.Do = "ingest again with its norm state"
		case st.Role != format.RoleFinal && v.proved:
			finding.Message = fmt.Sprintf("%s went through the final norm, which no layer's output does: %s", col, seen)
			finding.Do = "it is the final state N: capture the layer that was meant"
		default:
			continue
		}
		out.Add(finding)
	}
	if out.Enabled(ruleFinalLayer) {
		n.early(f, normed, out)
	}
}

// normVerdict is what the rows of one state of one sample say.
type normVerdict struct {
	rows              int
	median, low, high float64
	proved            bool // enough rows, all of them RMS 1
	never             bool // most rows are far from it
}

// judge looks at up to 32 rows, position 0 among them: it is the farthest off when
// there was no norm.
func (n *normScan) judge(f *sampleFacts, state int) normVerdict {
	r := f.Sample.Hidden[state].Rows
	var usable []int
	for t := range r.N {
		if weightsUsable(f, state, t) {
			usable = append(usable, t)
		}
	}
	x := make([]float32, r.Width)
	var seen [2][]float64
	for _, t := range weightsSpread(usable, 32) {
		r.DType.Floats(x, r.Row(t))
		for i, inverse := range n.inverse {
			seen[i] = append(seen[i], normRMS(x, inverse))
		}
	}
	v, other := normOf(seen[0]), normOf(seen[1])
	if n.w.UnitOffset && !v.proved || other.proved {
		v, other = other, v
	}
	v.never = v.never && other.never
	return v
}

func normOf(seen []float64) normVerdict {
	if len(seen) == 0 {
		return normVerdict{}
	}
	v := normVerdict{rows: len(seen), median: targetMedian(seen), low: seen[0], high: seen[0]}
	far := 0
	for _, x := range seen {
		v.low, v.high = min(v.low, x), max(v.high, x)
		if math.Abs(x-1) > 3*normTolerance {
			far++
		}
	}
	v.proved = v.rows >= normProof && v.low >= 1-normTolerance && v.high <= 1+normTolerance
	v.never = 2*far > v.rows
	return v
}

func normRMS(x, inverse []float32) float64 {
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a, b := x[i]*inverse[i], x[i+1]*inverse[i+1]
		c, d := x[i+2]*inverse[i+2], x[i+3]*inverse[i+3]
		s0 += float64(a) * float64(a)
		s1 += float64(b) * float64(b)
		s2 += float64(c) * float64(c)
		s3 += float64(d) * float64(d)
	}
	for ; i < len(x); i++ {
		a := float64(x[i] * inverse[i])
		s0 += a * a
	}
	return math.Sqrt((s0 + s1 + s2 + s3) / float64(len(x)))
}

// The largest relative distance of two rows that are the same state, one of them
// normed here. Rounding to bf16 leaves 0.004; neighbouring layers are 0.2 apart.
const earlyTolerance = 0.02

// early reports a final state that is the output of a captured layer other than the
// last, raw or normed. Blocks that went through the norm themselves say nothing here.
func (n *normScan) early(f *sampleFacts, normed []normVerdict, out *Collector) {
	last := len(n.layout.States) - 1
	if last < 0 || n.layout.States[last].Role != format.RoleFinal {
		return
	}
	for i, st := range n.layout.States[:last] {
		if st.Role != format.RoleLayer || int(st.Layer) >= n.w.Target.Layers-1 || normed[i].proved {
			continue
		}
		how, rows := n.same(f, i, last)
		if how == "" {
			continue
		}
		out.Add(Finding{
			Rule: ruleFinalLayer, Severity: Error, Sample: f.Sample.ID, Column: "final", Token: -1,
			Message: fmt.Sprintf("final is %s%s in all %d rows looked at, wanted that of P_%d: one of the two is not the layer that it is declared",
				how, st.Column(), rows, n.w.Target.Layers-1),
			Do: fmt.Sprintf("capture both again: either the final was taken after layer %d, or %s is P_%d", int(st.Layer), st.Column(), n.w.Target.Layers-1),
		})
	}
}

// same says how the final is made of a block's rows, "" if it is not.
func (n *normScan) same(f *sampleFacts, block, final int) (how string, rows int) {
	b, y := f.Sample.Hidden[block].Rows, f.Sample.Hidden[final].Rows
	var usable []int
	for t := 1; t < b.N; t++ {
		if weightsUsable(f, block, t) && weightsUsable(f, final, t) {
			usable = append(usable, t)
		}
	}
	at := weightsSpread(usable, 8)
	if len(at) < 4 {
		return "", 0
	}
	p, q, g := make([]float32, b.Width), make([]float32, b.Width), make([]float32, b.Width)
	raw, norm := true, true
	for _, t := range at {
		b.DType.Floats(p, b.Row(t))
		y.DType.Floats(q, y.Row(t))
		scale := float32(1 / math.Sqrt(float64(weightsDot(p, p))/float64(len(p))+n.w.Eps))
		for c := range g {
			g[c] = p[c] * scale * n.w.gain[c]
		}
		raw = raw && normDistance(p, q) < earlyTolerance
		norm = norm && normDistance(g, q) < earlyTolerance
		if !raw && !norm {
			return "", 0
		}
	}
	if norm {
		return "the norm of ", len(at)
	}
	return "the same as ", len(at)
}

// normDistance is the length of a-b over that of b.
func normDistance(a, b []float32) float64 {
	var d, s float64
	for i := range b {
		e := float64(a[i]) - float64(b[i])
		d += e * e
		s += float64(b[i]) * float64(b[i])
	}
	return math.Sqrt(d / s)
}
