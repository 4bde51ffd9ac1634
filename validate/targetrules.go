package validate

import (
	"fmt"
	"math"
	"slices"

	"hsx/format"
)

// The names of the rules that a few weights of the target decide.
const (
	ruleEmbeddingRows = "embedding-rows"
	ruleTokenShift    = "token-shift"
	ruleOtherSample   = "states-of-another-sample"
	ruleFinalNorm     = "final-norm"
	ruleFinalLayer    = "final-layer"
	ruleNextToken     = "next-token"
)

func targetRules() []Rule {
	return []Rule{
		{
			Name: ruleEmbeddingRows, Needs: "target", Severity: Error,
			Doc:  "a state is P_-1 exactly if its rows are the embedding's rows of their tokens, up to one scale",
			Cost: "a few embedding rows per sample",
		},
		{
			Name: ruleTokenShift, Needs: "target", Severity: Error,
			Doc:  "the states of a shallow layer lie nearest to the embedding row of their own token, not of a neighbour's",
			Cost: "a few embedding rows per sample",
		},
		{
			Name: ruleOtherSample, Needs: "target", Severity: Error,
			Doc:  "the states of a shallow layer know the tokens of their own sample, as those of other samples do",
			Cost: "a few embedding rows per sample",
		},
		{
			Name: ruleFinalNorm, Needs: "target", Severity: Error,
			Doc:  "a state went through the final norm exactly if its rows, divided by the norm's weight, have RMS 1",
			Cost: "the norm's weight and a few rows per sample",
		},
		{
			Name: ruleFinalLayer, Needs: "target", Severity: Error,
			Doc:  "the final state is not a captured earlier layer, as it is or after the final norm",
			Cost: "the norm's weight and a few rows per sample",
		},
		{
			Name: ruleNextToken, Needs: "target", Severity: Error,
			Doc:  "of the readings of the final state (position, norm, layer) the declared one ranks the true next token best",
			Cost: "a few hundred head rows, and a few per sample",
		},
	}
}

// targetScans are the scans for the data of a layout, with what w has; none without w.
func targetScans(l format.Layout, w *Weights) []scan {
	if w == nil || len(l.States) == 0 {
		return nil
	}
	if l.HiddenSize != w.Target.HiddenSize {
		return []scan{&targetMisfit{layout: l, w: w}}
	}
	var out []scan
	if w.Embed != nil {
		out = append(out, &targetRowScan{layout: l, w: w}, &identityScan{layout: l, w: w})
	}
	if w.gain != nil {
		out = append(out, newNormScan(l, w))
	}
	if w.Head != nil {
		out = append(out, newNextScan(l, w))
	}
	return out
}

// targetMisfit stands for all scans when the weights are of another model.
type targetMisfit struct {
	layout format.Layout
	w      *Weights
}

func (m *targetMisfit) sample(*sampleFacts, *Collector) {}
func (m *targetMisfit) add(scan)                        {}
func (m *targetMisfit) finish(_ opener, out *Collector) {
	out.Add(Finding{
		Rule: ruleFinalNorm, Severity: Error, Token: -1,
		Message: fmt.Sprintf("the target's hidden size is %d, the dataset's %d", m.w.Target.HiddenSize, m.layout.HiddenSize),
		Do:      "name the target that the states were captured from",
	})
}

// The least cosine of a state with the embedding row that it is. Rounding to bf16
// leaves more than 0.99999; the next layer has 0.02 to 0.9.
const targetRowCosine = 0.9995

// targetRowScan compares states with the embedding rows of their tokens.
type targetRowScan struct {
	layout format.Layout
	w      *Weights
}

func (e *targetRowScan) add(scan)                  {}
func (e *targetRowScan) finish(opener, *Collector) {}

func (e *targetRowScan) sample(f *sampleFacts, out *Collector) {
	if !out.Enabled(ruleEmbeddingRows) {
		return
	}
	for i, st := range e.layout.States {
		if st.Role == format.RoleFinal {
			continue
		}
		rows, equal, first := e.compare(f, i)
		declared := st.Role == format.RoleLayer && st.Layer == format.Embedding
		col := st.Column()
		switch {
		case rows < 4:
		case equal == rows && st.Role == format.RoleBlock:
			out.Add(Finding{
				Rule: ruleEmbeddingRows, Severity: Info, Sample: f.Sample.ID, Column: col, Token: -1,
				Message: fmt.Sprintf("%s is the embedding: all %d rows looked at are the embedding's rows of their tokens", col, rows),
				Do:      "ingest again with --layers that name it -1 (post)",
			})
		case equal == rows && !declared:
			out.Add(Finding{
				Rule: ruleEmbeddingRows, Severity: Error, Sample: f.Sample.ID, Column: col, Token: -1,
				Message: fmt.Sprintf("%s is declared %s and is the embedding: all %d rows looked at are the embedding's rows of their tokens", col, st.Layer, rows),
				Do:      fmt.Sprintf("capture again with %s, the output of layer %d", st.Layer, int(st.Layer)),
			})
		case declared && !e.w.MixedEmbedding && 2*equal < rows:
			out.Add(Finding{
				Rule: ruleEmbeddingRows, Severity: Error, Sample: f.Sample.ID, Column: col, Token: first,
				Message: fmt.Sprintf("%s is declared the embedding, but %d of the %d rows looked at are not the embedding's row of their token", col, rows-equal, rows),
				Do:      "find out whether the block is a later layer, the tokens are another sample's, or the target another model",
			})
		}
	}
}

// compare counts the rows of a state that are the embedding's, up to the one scale
// that most rows have. first is the first row that is not.
func (e *targetRowScan) compare(f *sampleFacts, state int) (rows, equal, first int) {
	h := e.layout.HiddenSize
	x, row := make([]float32, h), make([]float32, h)
	var scales []float64
	var at []int
	first = -1
	for _, t := range identityRows(f, state, 16) {
		id, _ := tokenOf(f.Sample, t)
		if !weightsRow(row, e.w.Embed, id) {
			continue
		}
		f.Sample.Hidden[state].Rows.DType.Floats(x, f.Sample.Hidden[state].Rows.Row(t))
		inv := weightsInverse(row)
		if inv == 0 {
			continue
		}
		rows++
		scale := float64(weightsDot(x, row)) * float64(inv) * float64(inv)
		if cos := weightsDot(x, row) * inv * weightsInverse(x); cos < targetRowCosine {
			if first < 0 {
				first = t
			}
			continue
		}
		scales, at = append(scales, scale), append(at, t)
	}
	if len(scales) == 0 {
		return rows, 0, first
	}
	median := targetMedian(scales)
	for i, s := range scales {
		if math.Abs(s-median) <= 0.02*median {
			equal++
		} else if first < 0 || at[i] < first {
			first = at[i]
		}
	}
	return rows, equal, first
}

// targetMedian is the upper median of some numbers.
func targetMedian(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	return s[len(s)/2]
}
