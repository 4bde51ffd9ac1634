package validate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"hsx/format"
)

// dataRules need the data alone, and look at one sample at a time but for
// duplicate-sample.
func dataRules() []Rule {
	const states, ids = "reads states once", "reads ids and masks"
	return []Rule{
		{"damaged", "every sample read is as it was written: ids and states have the digest of their row", states, "data", Error},
		{"lengths", "each state has one row for each token, all of one width", ids, "data", Error},
		{"mask-length", "the loss mask has one value for each token", ids, "data", Error},
		{"token-range", "every token id is one of the target's vocabulary", ids, "data", Error},
		{"mask-values", "the loss mask holds only 0 and 1", ids, "data", Warning},
		{"mask-empty", "some position of each sample is supervised", ids, "data", Warning},
		{"near-empty", "each sample has a next token to predict", ids, "data", Warning},
		{"padded-tail", "no sample ends in padding that was kept", ids, "data", Warning},
		{"non-finite", "no state holds NaN or Inf", states, "data", Error},
		{"huge-values", "no state holds a value that no model computes, 2^30 or more", states, "data", Error},
		{"saturated-fp16", "no fp16 state holds ±65504, which is where conversion clips", states, "data", Warning},
		{"zero-rows", "no row of a state is all zeros", states, "data", Error},
		{"constant-rows", "no row of a state repeats a single value", states, "data", Error},
		{"duplicate-blocks", "no two blocks of a sample are equal bit for bit", states, "data", Error},
		{"final-equals-block", "the final state is not a copy of a block", states, "data", Error},
		{"dtype-label", "the values are spread as those of the type that they are labelled with", "reads 4 rows of a sample", "data", Warning},
		{"duplicate-sample", "no two samples have the same ids and the same states", states, "data", Warning},
	}
}

// dataScans are the scans of dataRules. A target's sizes are 0 when unknown.
func dataScans(t format.Target) []scan {
	return []scan{&dataScan{Vocab: t.VocabSize, Layers: t.Layers}, &duplicateScan{}}
}

// dataScan holds the rules that look at one sample at a time; it keeps nothing.
type dataScan struct {
	Vocab  int // ids are below it; 0 when unknown
	Layers int // of the target, 0 when unknown
}

func (d *dataScan) add(scan) {}

func (d *dataScan) finish(opener, *Collector) {}

func (d *dataScan) sample(f *sampleFacts, out *Collector) {
	a := dataAt{s: f.Sample, out: out}
	real := a.padding()
	a.tokens(d.Vocab)
	a.mask()
	a.emptiness()
	for i, h := range f.Sample.Hidden {
		a.values(h, f.States[i])
		if out.Enabled("dtype-label") {
			checkDType(&a, h, f.States[i])
		}
	}
	// Rows of padding are somebody's zeros, and reported as padding.
	a.rows(f.States, real, "zero-rows", "zero", func(r *rowFacts) bool { return r.Zero })
	a.rows(f.States, real, "constant-rows", "the same", func(r *rowFacts) bool { return r.Constant && !r.Zero })
	a.equalStates(f.States, d.Layers)
}

// checkLengths reports a sample whose parts do not fit together, of which nothing else
// can be said.
func checkLengths(s *format.Sample, out *Collector) bool {
	if t := len(s.Tokens); s.LossMask != nil && len(s.LossMask) != t {
		out.Add(Finding{Rule: "mask-length", Severity: Error, Sample: s.ID, Token: -1,
			Message: fmt.Sprintf("loss_mask has %d values, want one for each of %d tokens", len(s.LossMask), t),
			Do:      "capture the sample again: which tokens are supervised cannot be told"})
		return false
	}
	if err := s.Check(); err != nil {
		out.Add(Finding{Rule: "lengths", Severity: Error, Sample: s.ID, Token: -1, Message: err.Error(), Do: "capture the sample again"})
		return false
	}
	return true
}

// dataAt is the sample that is looked at.
type dataAt struct {
	s   *format.Sample
	out *Collector
}

func (a *dataAt) find(rule string, sev Severity, column string, token int, do, msg string, args ...any) {
	a.out.Add(Finding{Rule: rule, Severity: sev, Sample: a.s.ID, Column: column, Token: token, Message: fmt.Sprintf(msg, args...), Do: do})
}

// padding reports a tail of at least two positions of id 0 that nothing supervises,
// and returns how many positions stand before it.
func (a *dataAt) padding() (real int) {
	n := len(a.s.Tokens)
	if a.s.LossMask == nil {
		return n
	}
	real = n
	for real > 0 && a.s.Tokens[real-1] == 0 && a.s.LossMask[real-1] == 0 {
		real--
	}
	// One such position is how ids shifted to the left end.
	if n-real < 2 {
		return n
	}
	a.find("padded-tail", Warning, "", real, "ingest the dump again: hsx cuts padding off dumps whose masks say where it begins",
		"%d rows, of which the last %d have id 0 and mask 0, want the %d real ones", n, n-real, real)
	return real
}

// tokens reports ids outside of the vocabulary.
func (a *dataAt) tokens(vocab int) {
	first, count := -1, 0
	for t, id := range a.s.Tokens {
		if id < 0 || vocab > 0 && int(id) >= vocab {
			if count++; first < 0 {
				first = t
			}
		}
	}
	if count == 0 {
		return
	}
	want := "0 or more"
	if vocab > 0 {
		want = fmt.Sprintf("0 to %d", vocab-1)
	}
	a.find("token-range", Error, "", first, "check that the dump was made with this target's tokenizer",
		"token id %d, want %s%s", a.s.Tokens[first], want, dataMore(count, "id"))
}

// mask reports values other than 0 and 1, and a mask without a 1.
func (a *dataAt) mask() {
	first, count, supervised := -1, 0, 0
	for t, v := range a.s.LossMask {
		if v != 0 {
			supervised++
		}
		if v > 1 {
			if count++; first < 0 {
				first = t
			}
		}
	}
	if count > 0 {
		a.find("mask-values", Warning, "", first, "find out what the value meant to the producer: hsx and trainers take it for 1",
			"loss_mask is %d, want 0 or 1%s", a.s.LossMask[first], dataMore(count, "value"))
	}
	// Where there is nothing to predict, near-empty says so.
	if a.s.LossMask != nil && supervised == 0 && len(a.s.Tokens) > 1 {
		a.find("mask-empty", Warning, "", -1, "leave the sample out, or mend the chat template that found no answer in it",
			"none of %d positions is supervised, want at least 1", len(a.s.Tokens))
	}
}

func (a *dataAt) emptiness() {
	switch n := len(a.s.Tokens); n {
	case 0:
		a.find("near-empty", Warning, "", -1, "leave the sample out", "no tokens, want at least 2")
	case 1:
		a.find("near-empty", Info, "", -1, "leave the sample out: a draft learns nothing from it", "1 token, want at least 2")
	}
}

// hugeValue is beyond the states of models by a factor of 1,500: of 27 checkpoints of eight
// families the largest reached 7e5 (Gemma 3 27B). What was never written, or is of
// another type, reaches 1e30 soon.
const hugeValue = 1 << 30

// tally counts the values of one kind, and the rows that hold some.
type tally struct{ values, rows, first int }

func (c *tally) add(row, values int) {
	if values == 0 {
		return
	}
	if c.rows == 0 {
		c.first = row
	}
	c.rows++
	c.values += values
}

// values reports rows with non-finite, huge and clipped values.
func (a *dataAt) values(h format.Hidden, facts []rowFacts) {
	var nonFinite, huge, clipped tally
	for t := range facts {
		nonFinite.add(t, int(facts[t].NonFinite))
		clipped.add(t, int(facts[t].Saturated))
		if facts[t].MaxAbs >= hugeValue {
			huge.add(t, 1)
		}
	}
	col := h.State.Column()
	if nonFinite.rows > 0 {
		channel, value := firstNonFinite(h.Rows.Row(nonFinite.first), h.Rows.DType)
		a.find("non-finite", Error, col, nonFinite.first, "leave the sample out, and look for overflow in the capture (fp16 ends at 65504)",
			"%s at channel %d, want finite values (%s in %d of %d rows)", dataName(value), channel, dataCount(nonFinite.values, "such value"), nonFinite.rows, len(facts))
	}
	if huge.rows > 0 {
		a.find("huge-values", Error, col, huge.first, "leave the sample out, and look for a buffer that was read before it was written, or bytes of another type",
			"a value of %.1e, want less than 2^30, which no states of models come near (in %d of %d rows)", facts[huge.first].MaxAbs, huge.rows, len(facts))
	}
	if clipped.rows > 0 {
		a.find("saturated-fp16", Warning, col, clipped.first, "capture in bf16: values above 65504 were clipped",
			"%s of ±65504 in %d of %d rows, want values that fp16 can hold", dataCount(clipped.values, "value"), clipped.rows, len(facts))
	}
}

// dataName is how a non-finite value is written.
func dataName(v float32) string {
	switch {
	case math.IsInf(float64(v), 1):
		return "+inf"
	case math.IsInf(float64(v), -1):
		return "-inf"
	}
	return "nan"
}

// rows reports the rows before real of which is is true: once when they are the same
// in every state, else for each state.
func (a *dataAt) rows(states [][]rowFacts, real int, rule, what string, is func(*rowFacts) bool) {
	const do = "capture these tokens again, or leave the sample out"
	if !slices.ContainsFunc(states, func(facts []rowFacts) bool { return dataAny(facts[:real], is) }) {
		return
	}
	found := make([][]int, len(states))
	same := true
	for i, facts := range states {
		for t := range facts[:real] {
			if is(&facts[t]) {
				found[i] = append(found[i], t)
			}
		}
		same = same && slices.Equal(found[i], found[0])
	}
	if same && len(states) > 1 && len(found[0]) > 0 {
		a.find(rule, Error, "", found[0][0], do, "all values are %s in %s of all states, want states of these tokens", what, dataRanges(found[0]))
		return
	}
	for i, at := range found {
		if len(at) > 0 {
			col := a.s.Hidden[i].State.Column()
			a.find(rule, Error, col, at[0], do, "all values are %s in %s of %s, want states of these tokens", what, dataRanges(at), col)
		}
	}
}

func dataAny(facts []rowFacts, is func(*rowFacts) bool) bool {
	for t := range facts {
		if is(&facts[t]) {
			return true
		}
	}
	return false
}

// dataRanges writes ascending numbers as "rows 20-23, 50", the first three ranges of
// them.
func dataRanges(at []int) string {
	var parts []string
	rest := 0
	for i := 0; i < len(at); {
		j := i
		for j+1 < len(at) && at[j+1] == at[j]+1 {
			j++
		}
		switch {
		case len(parts) == 3:
			rest += j - i + 1
		case i == j:
			parts = append(parts, fmt.Sprint(at[i]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", at[i], at[j]))
		}
		i = j + 1
	}
	s := "rows " + strings.Join(parts, ", ")
	if len(at) == 1 {
		s = "row " + parts[0]
	}
	if rest > 0 {
		s += fmt.Sprintf(" and %d more", rest)
	}
	return s
}

// equalStates reports states that are equal bit for bit in every row.
func (a *dataAt) equalStates(states [][]rowFacts, layers int) {
	for j := range states {
		for i := range j {
			if !dataEqual(states[i], states[j]) {
				continue
			}
			lo, hi := a.s.Hidden[i].State, a.s.Hidden[j].State
			if hi.Role != format.RoleFinal {
				a.find("duplicate-blocks", Error, hi.Column(), -1, "check the capture's layer list for a repeated id, and capture again",
					"%s is equal to %s bit for bit, want two layers", hi.Column(), lo.Column())
				continue
			}
			// The last layer's output is the final before the norm.
			if last := lo.Role == format.RoleLayer && hi.Norm != format.NormPost; last && int(lo.Layer) == layers-1 {
				continue
			} else if last && layers == 0 && i == j-1 {
				a.find("final-equals-block", Warning, hi.Column(), -1, "give the target's config, which says how many layers it has",
					"final is equal to %s bit for bit, want that only of a target of %d layers", lo.Column(), int(lo.Layer)+1)
				continue
			}
			a.find("final-equals-block", Error, hi.Column(), -1, "check which of the two is what its name says, and capture the other again",
				"final (%s) is equal to %s bit for bit, want the last layer's output", hi.Norm, lo.Column())
		}
	}
}

// dataEqual reports whether two states are equal, and hold more than zeros, which
// another rule reports.
func dataEqual(a, b []rowFacts) bool {
	values := false
	for t := range a {
		if a[t].Hash != b[t].Hash {
			return false
		}
		values = values || !a[t].Zero
	}
	return values
}

// dataMore is the end of a message about the first of count things.
func dataMore(count int, what string) string {
	if count == 1 {
		return ""
	}
	return fmt.Sprintf(" (the first of %s)", dataCount(count, "such "+what))
}

func dataCount(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
