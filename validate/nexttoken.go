package validate

import (
	"fmt"
	"math"
	"strings"

	"hsx/format"
)

const (
	nextRows    = 64      // rows that a verdict needs, over all samples
	nextSamples = 3       // and samples
	nextTop     = 0.01    // mean rank over the table's size: text that the target wrote ranks 0.003
	nextFirst   = 0.4     // share of rows whose next token ranks first, of such text
	nextFactor  = 1.25    // a clear win of one form over another: measured 1.45
	nextShift   = 8       // a clear win of one shift over another: measured 36
	nextSigma   = 2.5     // of the paired ranks: a norm applied twice had 2.8 in 119 rows, right states at most 0.3
	nextFixed   = 1 << 16 // of logarithms that are kept as integers, whose sum has no order
)

// nextForm is a reading of the final state or of the deepest block. Only the order of
// the scores counts, so that the length of a state does not matter, and the norm comes
// down to its weight.
type nextForm struct {
	name  string
	block bool // the deepest block, not the final
	power int  // how often the weight is multiplied in
}

// nextForms are the candidates: as it is, after the norm, with one norm undone.
func nextForms() [5]nextForm {
	return [5]nextForm{
		{"final as it is", false, 0}, {"final after the norm", false, 1}, {"final with a norm undone", false, -1},
		{"deepest block", true, 0}, {"deepest block after the norm", true, 1},
	}
}

// nextTally counts how the true next token ranks for one form.
type nextTally struct {
	Rows  int64 `json:"rows"`
	First int64 `json:"first"`
	Ranks int64 `json:"ranks"`
	Gain  int64 `json:"gain"`    // sum of log((r+1)/(q+1)), in 1/nextFixed, of the declared form's rank r and this one's q
	Gain2 int64 `json:"gain_sq"` // of its squares, in 1/nextFixed
}

func (t *nextTally) mean() float64 {
	if t.Rows == 0 {
		return math.Inf(1)
	}
	return float64(t.Ranks) / float64(t.Rows)
}

func (t *nextTally) add(o *nextTally) {
	t.Rows += o.Rows
	t.First += o.First
	t.Ranks += o.Ranks
	t.Gain += o.Gain
	t.Gain2 += o.Gain2
}

// nextScan ranks the true next token among others by the head's scores, for every
// reading of the final state.
type nextScan struct {
	layout      format.Layout
	w           *Weights
	forms       [5]nextForm
	final, deep int // states, -1 when there is none
	declared    int // form, -1 when the norm state is unknown

	Samples int64        `json:"samples"`
	Forms   [5]nextTally `json:"forms"`  // of the token after the state's
	Shifts  [3]nextTally `json:"shifts"` // of the tokens 0, 1 and 2 places on, in the declared form or as it is
}

func newNextScan(l format.Layout, w *Weights) *nextScan {
	n := &nextScan{layout: l, w: w, forms: nextForms(), final: -1, deep: -1, declared: -1}
	for i, st := range l.States {
		switch st.Role {
		case format.RoleFinal:
			n.final = i
			switch {
			case st.Norm == format.NormPost:
				n.declared = 0
			case st.Norm == format.NormPre && w.gain != nil:
				n.declared = 1
			}
		case format.RoleLayer:
			n.deep = i
		}
	}
	return n
}

func (n *nextScan) sample(f *sampleFacts, out *Collector) {
	if n.final < 0 || !out.Enabled(ruleNextToken) {
		return
	}
	rows := n.rows(f)
	if len(rows) == 0 {
		return
	}
	h := n.layout.HiddenSize
	buf := make([]float32, 6*h)
	token := buf[5*h:]
	var x [5][]float32
	var scores [5][]float32
	for i := range x {
		x[i], scores[i] = buf[i*h:(i+1)*h], make([]float32, len(n.w.ids))
	}
	used := false
	for _, t := range rows {
		have := n.read(f, t, &x)
		for i, neg := range n.w.head.rows {
			for k := range x {
				if have[k] {
					scores[k][i] = weightsDot(x[k], neg)
				}
			}
		}
		for s := range n.Shifts {
			id, ok := tokenOf(f.Sample, t+s)
			if !ok || !weightsRow(token, n.w.Head, id) {
				continue
			}
			ref := max(n.declared, 0)
			base := weightsRank(scores[ref], n.w.ids, id, weightsDot(x[ref], token))
			n.Shifts[s].count(base, base)
			if s != 1 {
				continue
			}
			used = true
			for k := range x {
				if have[k] {
					n.Forms[k].count(weightsRank(scores[k], n.w.ids, id, weightsDot(x[k], token)), base)
				}
			}
		}
	}
	if used {
		n.Samples++
	}
}

func (t *nextTally) count(rank, declared int) {
	t.Rows++
	t.Ranks += int64(rank)
	if rank == 0 {
		t.First++
	}
	g := math.Log(float64(declared+1) / float64(rank+1))
	t.Gain += int64(math.Round(g * nextFixed))
	t.Gain2 += int64(math.Round(g * g * nextFixed))
}

// rows are those whose next token is supervised, which the target is likely to have
// written; all of them when there is no mask.
func (n *nextScan) rows(f *sampleFacts) []int {
	s := f.Sample
	var out []int
	for t := 1; t < s.Hidden[n.final].Rows.N; t++ {
		next := t + 1
		if s.Shifted {
			next = t
		}
		if next < len(s.Tokens) && (s.LossMask == nil || s.LossMask[next] != 0) && weightsUsable(f, n.final, t) {
			out = append(out, t)
		}
	}
	return weightsSpread(out, min(max(1<<13/n.layout.HiddenSize, 4), 64))
}

// read makes the forms of row t, and says which of them there are.
func (n *nextScan) read(f *sampleFacts, t int, x *[5][]float32) (have [5]bool) {
	for k, form := range n.forms {
		state := n.final
		if form.block {
			state = n.deep
		}
		if state < 0 || form.power != 0 && n.w.gain == nil || !weightsUsable(f, state, t) {
			continue
		}
		have[k] = true
		r := f.Sample.Hidden[state].Rows
		r.DType.Floats(x[k], r.Row(t))
		switch form.power {
		case 1:
			for c, g := range n.w.gain {
				x[k][c] *= g
			}
		case -1:
			for c, g := range n.w.gain {
				if g != 0 {
					x[k][c] /= g
				}
			}
		}
	}
	return have
}

func (n *nextScan) add(later scan) {
	o, ok := later.(*nextScan)
	if !ok {
		return
	}
	n.Samples += o.Samples
	for i := range n.Forms {
		n.Forms[i].add(&o.Forms[i])
	}
	for i := range n.Shifts {
		n.Shifts[i].add(&o.Shifts[i])
	}
}

// finish compares the candidates. It judges only when the best of them ranks so well
// that the target must have written the text: of any other text right states fail.
func (n *nextScan) finish(_ opener, out *Collector) {
	if n.Samples == 0 {
		return
	}
	out.Add(Finding{Rule: ruleNextToken, Severity: Info, Column: "final", Token: -1, Message: n.table()})
	if n.Samples < nextSamples {
		return
	}
	if s := n.shift(); s != 1 {
		out.Add(Finding{
			Rule: ruleNextToken, Severity: Error, Column: "final", Token: -1,
			Message: fmt.Sprintf("the final state foretells the token %d places on, wanted 1: its mean rank is %.2g of %d, that of the next token %.2g",
				s, n.Shifts[s].mean(), len(n.w.ids), n.Shifts[1].mean()),
			Do: "the states are shifted against the tokens, or the final is an early layer: see token-shift, or capture again",
		})
		return
	}
	n.form(out)
}

// shift is the one that wins clearly, 1 when none does.
func (n *nextScan) shift() int {
	for _, s := range []int{0, 2} {
		if n.top(&n.Shifts[s]) && nextShift*(n.Shifts[s].mean()+0.1) < n.Shifts[1].mean() {
			return s
		}
	}
	return 1
}

// top reports whether ranks are as good as on text that the target wrote.
func (n *nextScan) top(t *nextTally) bool {
	return t.Rows >= nextRows && t.mean() <= nextTop*float64(len(n.w.ids)) && float64(t.First) >= nextFirst*float64(t.Rows)
}

func (n *nextScan) form(out *Collector) {
	if n.declared < 0 {
		return
	}
	best, declared := -1, &n.Forms[n.declared]
	for k := range n.Forms {
		t := &n.Forms[k]
		if k != n.declared && t.Rows == declared.Rows && n.top(t) && t.mean()*nextFactor <= declared.mean() && t.sigma() >= nextSigma &&
			(best < 0 || t.mean() < n.Forms[best].mean()) {
			best = k
		}
	}
	if best < 0 {
		return
	}
	seen := fmt.Sprintf("the true next token ranks %.2g of %d in the mean for the %s, %.2g for the %s, which is what is declared (%d rows, %.1f sigma)",
		n.Forms[best].mean(), len(n.w.ids), n.forms[best].name, declared.mean(), n.forms[n.declared].name, declared.Rows, n.Forms[best].sigma())
	do := "capture again: the final state is not the one that is declared"
	switch {
	case n.forms[best].block:
		do = "capture again: the final state is of an earlier layer than the deepest block"
	case n.forms[best].power < n.forms[n.declared].power && n.declared == 1:
		do = "declare the final post, or capture before the norm"
	case n.forms[best].power < 0:
		do = "the final norm was applied twice: apply it once"
	case n.forms[best].power > 0:
		do = "the final norm is missing: apply it, or declare the final pre"
	}
	out.Add(Finding{Rule: ruleNextToken, Severity: Error, Column: "final", Token: -1, Message: seen, Do: do})
}

// sigma is how many standard errors the mean gain over the declared form is above 0.
func (t *nextTally) sigma() float64 {
	if t.Rows < 2 {
		return 0
	}
	rows := float64(t.Rows)
	mean := float64(t.Gain) / nextFixed / rows
	variance := float64(t.Gain2)/nextFixed/rows - mean*mean
	if variance <= 0 {
		return 0
	}
	return mean / math.Sqrt(variance/rows)
}

// table is the comparison in one clause.
func (n *nextScan) table() string {
	var parts []string
	for k, t := range n.Forms {
		if t.Rows > 0 {
			parts = append(parts, fmt.Sprintf("%.2g for the %s", t.mean(), n.forms[k].name))
		}
	}
	for s, t := range n.Shifts {
		if s != 1 && t.Rows > 0 {
			parts = append(parts, fmt.Sprintf("%.2g for the token %d places on", t.mean(), s))
		}
	}
	return fmt.Sprintf("mean rank of the true next token of %d: %s (%d rows of %d samples; a comparison, near 0 only on text that the target wrote)",
		len(n.w.ids), strings.Join(parts, ", "), n.Forms[0].Rows, n.Samples)
}
