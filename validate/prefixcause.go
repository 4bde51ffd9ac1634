package validate

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hsx/format"
)

const (
	// prefixReads bounds the mismatches whose samples are read again, for what they
	// mean; those beyond it are reported by their sketches.
	prefixReads = 32
	// prefixRows bounds the rows that are compared of two samples.
	prefixRows = 256
)

// prefixVerdict is one sample whose states are not those of another sample with the
// same prefix.
type prefixVerdict struct {
	bad, norm prefixMember
	n         int // the longest prefix that was compared
	like      int // samples that the norm stands for at the prefix that decided
	with      int // samples that have the bad sample's states there
	all       int // samples that begin with that prefix
	key       *prefixKey
	a, b      *prefixVariant
}

// verdicts names the samples that disagree. The prefixes with the most samples decide
// first: there the largest variant is taken for right. A sample found bad has no voice
// afterwards.
func (p *prefixScan) verdicts() []*prefixVerdict {
	var keys []uint64
	votes := map[uint64]int{}
	for hash, k := range p.Keys {
		if len(k.Variants) < 2 {
			continue
		}
		keys = append(keys, hash)
		votes[hash] = k.More
		for _, v := range k.Variants {
			votes[hash] += v.Samples
		}
	}
	slices.SortFunc(keys, func(a, b uint64) int {
		return cmp.Or(votes[b]-votes[a], p.Keys[a].N-p.Keys[b].N, cmp.Compare(a, b))
	})
	found := map[Ref]*prefixVerdict{}
	for _, hash := range keys {
		k := p.Keys[hash]
		sound := func(m prefixMember) bool { return found[m.Ref] == nil && !m.Repeated }
		var norm *prefixVariant
		for _, v := range k.Variants {
			if slices.ContainsFunc(v.Members, sound) && (norm == nil || v.Samples > norm.Samples) {
				norm = v
			}
		}
		if norm == nil {
			continue
		}
		first := norm.Members[slices.IndexFunc(norm.Members, sound)]
		for _, v := range k.Variants {
			if v == norm {
				continue
			}
			for _, m := range v.Members {
				if f := found[m.Ref]; f == nil {
					found[m.Ref] = &prefixVerdict{bad: m, norm: first, n: k.N, like: norm.Samples, with: v.Samples, all: votes[hash], key: k, a: norm, b: v}
				} else if k.N > f.n && k.N <= prefixRows && first.Ref != m.Ref {
					f.n, f.norm, f.key, f.a, f.b = k.N, first, k, norm, v
				}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(x, y *prefixVerdict) int {
		return cmp.Or(cmp.Compare(x.bad.Ref.Shard, y.bad.Ref.Shard), cmp.Compare(x.bad.Ref.Row, y.bad.Ref.Row))
	})
}

func (p *prefixScan) finish(open opener, out *Collector) {
	if !out.Enabled(rulePrefix) {
		return
	}
	reads := 0
	for _, v := range p.verdicts() {
		if reads < prefixReads {
			reads++
			d, err := v.compare(open)
			if err == nil {
				d.report(v, out)
				continue
			}
		}
		// Damage, or enough read: a sketch is trusted when it shows twice the tolerance.
		d := &prefixDiff{prefix: v.key.N, rows: 1, sketched: true}
		for i, s := range p.States {
			c := prefixColumn{state: s, worst: v.a.apart(v.b, i)}
			if c.worst > 2*prefixTolerance {
				c.bad, c.first = 1, v.key.N-1
			}
			d.columns = append(d.columns, c)
		}
		d.report(v, out)
	}
}

// prefixDiff is how the states of two samples differ over their common prefix.
type prefixDiff struct {
	prefix   int // tokens that both samples begin with
	rows     int // that were compared
	columns  []prefixColumn
	noise    bool // rows differ by less than the tolerance, so equality means nothing here
	shift    int  // 1: row t of the bad sample is row t+1 of the other, -1: t-1
	sketched bool // only the last row was compared
}

// prefixColumn is the difference in one state.
type prefixColumn struct {
	state format.State
	bad   int     // rows that differ by more than the tolerance
	first int     // the first of them
	worst float64 // the greatest relative L2 deviation
}

// compare reads both samples again, one after the other: an opener lends the memory of
// one sample at a time. Of a long prefix the last rows are compared: all shorter ones
// were equal.
func (v *prefixVerdict) compare(open opener) (*prefixDiff, error) {
	var a *prefixWindow
	if err := open(v.norm.Ref, func(s *format.Sample) { a = cutWindow(s, max(0, v.n-prefixRows)) }); err != nil {
		return nil, err
	}
	var d *prefixDiff
	err := open(v.bad.Ref, func(s *format.Sample) { d = a.compare(s) })
	if err != nil {
		return nil, err
	}
	return d, nil
}

// prefixWindow is a copy of the rows of a sample that are compared.
type prefixWindow struct {
	tokens []int32 // of the whole sample
	from   int     // the row that hidden begins with
	hidden []format.Rows
}

func cutWindow(s *format.Sample, from int) *prefixWindow {
	w := &prefixWindow{tokens: slices.Clone(s.Tokens), from: from}
	to := min(len(s.Tokens), from+prefixRows)
	for _, h := range s.Hidden {
		rows := format.Rows{DType: h.Rows.DType, N: max(0, to-from), Width: h.Rows.Width, Stride: h.Rows.RowBytes()}
		for t := from; t < to; t++ {
			rows.Data = append(rows.Data, h.Rows.Row(t)...)
		}
		w.hidden = append(w.hidden, rows)
	}
	return w
}

// compare compares sample b with the window, which is taken for right.
func (w *prefixWindow) compare(b *format.Sample) *prefixDiff {
	common := 0
	for common < min(len(w.tokens), len(b.Tokens)) && w.tokens[common] == b.Tokens[common] {
		common++
	}
	if b.Shifted { // the token of row t is at t-1, and that of row 0 was equal by the key
		common = min(common+1, len(w.tokens), len(b.Tokens))
	}
	d := &prefixDiff{prefix: common, rows: common - w.from}
	if len(w.hidden) != len(b.Hidden) || d.rows < 1 {
		return d
	}
	d.rows = min(d.rows, w.hidden[0].N)
	var pair crossPair
	for i, h := range b.Hidden {
		c := prefixColumn{state: h.State}
		for t := range d.rows {
			ra, rb := w.hidden[i].Row(t), h.Rows.Row(w.from+t)
			if bytes.Equal(ra, rb) {
				continue
			}
			away := pair.distance(ra, rb, h.Rows.DType)
			if !(away > prefixTolerance) { // NaN is for other rules
				d.noise = d.noise || away > 0
				continue
			}
			if c.bad == 0 {
				c.first = w.from + t
			}
			c.bad++
			c.worst = max(c.worst, away)
		}
		d.columns = append(d.columns, c)
	}
	switch {
	case w.shifted(&pair, b, d.rows-1, 1, 0):
		d.shift = 1
	case w.shifted(&pair, b, min(d.rows, len(b.Tokens)-w.from-1), 0, 1):
		d.shift = -1
	}
	return d
}

// shifted reports whether rows t+at of the window are rows t+atB of b in every state,
// for n rows, all but one in ten.
func (w *prefixWindow) shifted(pair *crossPair, b *format.Sample, n, at, atB int) bool {
	if n < 1 {
		return false
	}
	for i, h := range b.Hidden {
		same := 0
		for t := range n {
			ra, rb := w.hidden[i].Row(t+at), h.Rows.Row(w.from+t+atB)
			if bytes.Equal(ra, rb) || pair.distance(ra, rb, h.Rows.DType) <= prefixTolerance {
				same++
			}
		}
		if same*10 < n*9 {
			return false
		}
	}
	return true
}

// report adds a finding, unless the difference turns out to be noise.
func (d *prefixDiff) report(v *prefixVerdict, out *Collector) {
	var bad []prefixColumn
	for _, c := range d.columns {
		if c.bad > 0 {
			bad = append(bad, c)
		}
	}
	if len(bad) == 0 {
		return
	}
	f := Finding{Rule: rulePrefix, Severity: Error, Sample: v.bad.ID, Token: bad[0].first}
	names, worst, most := make([]string, len(bad)), 0.0, 0
	for i, c := range bad {
		names[i] = c.state.Column()
		f.Token = min(f.Token, c.first)
		worst, most = max(worst, c.worst), max(most, c.bad)
	}
	if len(bad) == 1 {
		f.Column = names[0]
	}
	// Where kernels are noisy, one row far off can be an expert that was chosen by a
	// hair: at least half of the rows have to be, row 0 apart.
	if d.noise && 2*most < max(1, d.rows-1) {
		f.Severity = Warning
	}
	where := strings.Join(names, ", ") + " differ"
	switch {
	case len(bad) == 1:
		where = names[0] + " differs"
	case len(bad) == len(d.columns):
		where = fmt.Sprintf("all %d states differ", len(bad))
	}
	from := fmt.Sprintf("from token %d on", f.Token)
	if d.sketched {
		from = fmt.Sprintf("at token %d", f.Token)
	}
	meaning, do := d.meaning(bad, f.Token)
	begins := "the first token is that"
	if d.prefix > 1 {
		begins = fmt.Sprintf("the first %d tokens are those", d.prefix)
	}
	f.Message = fmt.Sprintf("%s of sample %q, yet %s %s (by %.2g of the norm, want at most %.2g): %s; %s",
		begins, v.norm.ID, where, from, worst, prefixTolerance, meaning, v.majority())
	f.Do = do
	out.Add(f)
}

// majority says which of the two is likelier to be right.
func (v *prefixVerdict) majority() string {
	agree := fmt.Sprintf("%d of %d samples that begin so have the states of that one", v.like, v.all)
	if v.like == v.with && !v.bad.Repeated {
		agree += fmt.Sprintf(" and %d those of this, so either may be wrong", v.with)
	}
	return agree
}

// meaning says what the difference in some columns comes from.
func (d *prefixDiff) meaning(bad []prefixColumn, first int) (what, do string) {
	again := "capture this sample again, and those of the same run"
	switch {
	case d.shift > 0:
		return "its states are one token early, row t holds the state of token t+1", again
	case d.shift < 0:
		return "its states are one token late, row t holds the state of token t-1", again
	case len(bad) < len(d.columns) && len(bad) == 1 && bad[0].state.Role == format.RoleFinal:
		return "its final is of another norm state, or of another layer", "find the files of the other norm state, and capture one of the two again"
	case len(bad) < len(d.columns):
		return "these blocks are of other layers", "find the files that another list of layers was captured with, and capture them again"
	case d.sketched || first <= 1:
		return "its states belong to other tokens, or to other layers", again
	}
	return "its states saw other tokens before, as a cut prefix or a leak between batch rows leaves them", again
}
