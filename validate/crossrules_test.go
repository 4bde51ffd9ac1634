package validate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"hsx/format"
)

// crossWant is a finding that a mutation has to give.
type crossWant struct {
	rule, sample string
	severity     Severity
	column, text string
}

// crossCase damages a sound dataset and says what has to be found. Samples 0 to 3 have
// 24 tokens in common, 4 and 5, 6 and 7, 8 and 9 have 20, all have the first.
type crossCase struct {
	damage func(m *crossModel, s []*format.Sample)
	want   []crossWant
	exact  bool // needs bit-equal rows, which noise takes away
}

func crossCases() map[string]crossCase {
	every := func(rule string, severity Severity, text string) (want []crossWant) {
		for i := range 8 {
			want = append(want, crossWant{rule, fmt.Sprintf("s%d", i), severity, "", text})
		}
		return want
	}
	columns := func(m *crossModel, s []*format.Sample, columns ...int) {
		for i := range s {
			*s[i] = *m.sample(s[i].ID, s[i].Tokens, crossTriple(), columns...)
		}
	}
	return map[string]crossCase{
		"permuted":    {damage: func(m *crossModel, s []*format.Sample) { columns(m, s, 4, 1, 3, 6) }, want: every(ruleOrder, Error, "look like P_3 P_0 P_2")},
		"reversed":    {damage: func(m *crossModel, s []*format.Sample) { columns(m, s, 4, 3, 1, 6) }, want: every(ruleOrder, Error, "look like P_3 P_2 P_0")},
		"one swapped": {damage: func(m *crossModel, s []*format.Sample) { columns(m, s[3:4], 3, 1, 4, 6) }, want: []crossWant{{ruleOrder, "s3", Warning, "", "P_2 P_0 P_3"}, {rulePrefix, "s3", Error, "", "layer_0, layer_2 differ"}}},
		"embedding": {damage: func(m *crossModel, s []*format.Sample) { columns(m, s, 0, 3, 4, 6) }, exact: true,
			want: []crossWant{{ruleEmbedding, "s0", Error, "layer_0", "P_-1, not P_0"}, {ruleEmbedding, "s9", Error, "layer_0", "P_-1"}}},
		"embedding in one": {damage: func(m *crossModel, s []*format.Sample) { columns(m, s[5:6], 0, 3, 4, 6) }, exact: true,
			want: []crossWant{{ruleEmbedding, "s5", Error, "layer_0", "bit-identical"}, {rulePrefix, "s5", Error, "layer_0", "these blocks are of other layers"}}},
		"other layers in some": {damage: func(m *crossModel, s []*format.Sample) { columns(m, s[4:6], 2, 4, 5, 6) },
			want: []crossWant{{rulePrefix, "s4", Error, "", "layer_0, layer_2, layer_3 differ from token 0"}, {rulePrefix, "s5", Error, "", "other layers"}}},
		"other final": {damage: func(m *crossModel, s []*format.Sample) { columns(m, s[7:8], 1, 3, 4, 5) },
			want: []crossWant{{rulePrefix, "s7", Error, "final", "another norm state"}}},
		"early": {damage: func(_ *crossModel, s []*format.Sample) { crossShift(s[2], 1) }, exact: true,
			want: []crossWant{{ruleSelfShift, "s2", Error, "", "one token early"}, {rulePrefix, "s2", Error, "", "one token early"}}},
		"late": {damage: func(_ *crossModel, s []*format.Sample) { crossShift(s[6], -1) }, exact: true,
			want: []crossWant{{ruleSelfShift, "s6", Error, "", "one token late"}, {rulePrefix, "s6", Error, "", "one token late"}}},
		"early in all": {damage: func(_ *crossModel, s []*format.Sample) {
			for i := range s[:10] {
				crossShift(s[i], 1)
			}
		}, exact: true, want: append(every(ruleSelfShift, Error, "one token early"), crossWant{rulePrefix, "s0", Error, "", `of sample "s1`})},
		"swapped": {damage: func(_ *crossModel, s []*format.Sample) { crossSwap(s[0], s[4]) },
			want: []crossWant{{rulePrefix, "s0", Error, "", "other tokens"}}},
		"negated": {damage: func(m *crossModel, s []*format.Sample) { crossNegate(s[1], 1) },
			want: []crossWant{{rulePrefix, "s1", Error, "layer_2", "layer_2 differs from token 0"}}},
		"duplicated block": {damage: func(m *crossModel, s []*format.Sample) { columns(m, s[8:9], 1, 3, 3, 6) },
			want: []crossWant{{rulePrefix, "s8", Error, "layer_3", "layer_3 differs"}}},
		"leak": {damage: func(m *crossModel, s []*format.Sample) {
			other := slices.Clone(s[1].Tokens)
			other[12]++
			*s[1] = func() format.Sample { l := *m.good(s[1].ID, other); l.Tokens = s[1].Tokens; return l }()
		}, want: []crossWant{{rulePrefix, "s1", Error, "", "saw other tokens before"}}},
	}
}

// crossShift moves states by one row against the tokens and repeats the row at the end.
func crossShift(s *format.Sample, by int) {
	for i, h := range s.Hidden {
		var data []byte
		for t := range h.Rows.N {
			data = append(data, h.Rows.Row(min(max(t+by, 0), h.Rows.N-1))...)
		}
		s.Hidden[i].Rows.Data = data
	}
}

// crossSwap exchanges the states of two samples, as far as they go.
func crossSwap(a, b *format.Sample) {
	n := min(len(a.Tokens), len(b.Tokens))
	a.Tokens, b.Tokens, a.LossMask, b.LossMask = a.Tokens[:n], b.Tokens[:n], nil, nil
	for i := range a.Hidden {
		a.Hidden[i].Rows, b.Hidden[i].Rows = b.Hidden[i].Rows.Slice(n), a.Hidden[i].Rows.Slice(n)
	}
}

func crossNegate(s *format.Sample, state int) {
	r := s.Hidden[state].Rows
	for i := r.DType.Size() - 1; i < len(r.Data); i += r.DType.Size() {
		r.Data[i] ^= 0x80
	}
}

func TestCrossDamage(t *testing.T) {
	t.Parallel()
	for name, c := range crossCases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(6) {
				rng := rand.New(rand.NewPCG(seed, 1))
				m := &crossModel{width: 32, dtype: []format.DType{format.BFloat16, format.Float32}[seed%2], rng: rng}
				if !c.exact && seed%3 == 2 {
					m.noise = 0.015
				}
				var samples []*format.Sample
				for i, text := range crossTexts(rng) {
					samples = append(samples, m.good(fmt.Sprintf("s%d", i), text))
				}
				c.damage(m, samples)
				found := runCross(t, samples, 1+int(seed%5))
				rules := map[string]bool{}
				for _, w := range c.want {
					rules[w.rule] = true
					f, ok := crossFound(found, w.rule)[w.sample]
					if !ok || f.Severity != w.severity || w.column != "" && f.Column != w.column || !strings.Contains(f.Message, w.text) {
						t.Errorf("seed %d: got %+v, want %+v", seed, f, w)
					}
				}
				for _, f := range found {
					if !rules[f.Rule] {
						t.Errorf("seed %d: got %+v, want none of its rule", seed, f)
					}
				}
			}
		})
	}
}

// TestCrossPlaces requires that a fault in one sample is never put on another.
func TestCrossPlaces(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one swapped", "embedding in one", "other final", "early", "late", "negated", "duplicated block", "leak"} {
		c := crossCases()[name]
		for seed := range uint64(2) {
			rng := rand.New(rand.NewPCG(seed, 2))
			m := &crossModel{width: 32, dtype: format.BFloat16, rng: rng}
			var samples []*format.Sample
			for i, text := range crossTexts(rng) {
				samples = append(samples, m.good(fmt.Sprintf("s%d", i), text))
			}
			c.damage(m, samples)
			for _, f := range runCross(t, samples, 3) {
				if f.Sample != c.want[0].sample {
					t.Errorf("%s, seed %d: got %+v, want findings of %s alone", name, seed, f, c.want[0].sample)
				}
			}
		}
	}
}

func TestCrossSilent(t *testing.T) {
	t.Parallel()
	repeat := func(token int32, n int) []int32 { return slices.Repeat([]int32{token}, n) }
	cases := map[string]func(rng *rand.Rand) [][]int32{
		"texts": crossTexts,
		"reversed": func(rng *rand.Rand) [][]int32 {
			texts := crossTexts(rng)
			for _, x := range texts {
				slices.Reverse(x)
			}
			return texts
		},
		"one and two tokens": func(rng *rand.Rand) [][]int32 {
			return [][]int32{{1}, {1, 5}, {1, 5}, {1}, {2}, {2, 2}, {1, 6}}
		},
		"constant": func(rng *rand.Rand) [][]int32 {
			return [][]int32{repeat(3, 80), repeat(3, 40), repeat(4, 64), append([]int32{1}, repeat(3, 60)...)}
		},
		"long system prompt": func(rng *rand.Rand) [][]int32 {
			system := crossText(rng, 300)
			var texts [][]int32
			for range 6 {
				texts = append(texts, append(slices.Clone(system), crossText(rng, 10+rng.IntN(40))...))
			}
			return texts
		},
		"duplicates": func(rng *rand.Rand) [][]int32 {
			a := crossText(rng, 70)
			return [][]int32{a, a, a}
		},
	}
	for name, texts := range cases {
		for _, noise := range []float64{0, 0.002, 0.015} {
			t.Run(fmt.Sprintf("%s, noise %g", name, noise), func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(3) {
					rng := rand.New(rand.NewPCG(seed, 3))
					m := &crossModel{width: 32, dtype: []format.DType{format.BFloat16, format.Float32}[seed%2], noise: noise, rng: rng}
					var samples []*format.Sample
					for i, text := range texts(rng) {
						samples = append(samples, m.good(fmt.Sprintf("s%d", i), text))
					}
					if found := runCross(t, samples, 1+int(seed)); len(found) > 0 {
						t.Errorf("seed %d: got %+v, want nothing", seed, found)
					}
				}
			})
		}
	}
}

// TestCrossPartition requires the same findings however the samples are cut.
func TestCrossPartition(t *testing.T) {
	t.Parallel()
	for name, c := range crossCases() {
		rng := rand.New(rand.NewPCG(9, 4))
		m := &crossModel{width: 32, dtype: format.BFloat16, rng: rng}
		var samples []*format.Sample
		for i, text := range crossTexts(rng) {
			samples = append(samples, m.good(fmt.Sprintf("s%d", i), text))
		}
		c.damage(m, samples)
		want := runCross(t, samples, len(samples))
		for _, n := range []int{1, 5} {
			if got := runCross(t, samples, n); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%s in shards of %d: got\n%v\nwant\n%v", name, n, got, want)
			}
		}
	}
}

// TestCrossShifted has ids that are stored one to the left, the first one lost.
func TestCrossShifted(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	m := &crossModel{width: 32, dtype: format.BFloat16, rng: rng}
	var samples []*format.Sample
	for i, text := range crossTexts(rng)[:10] {
		s := m.good(fmt.Sprintf("s%d", i), text)
		s.Tokens, s.Shifted = append(slices.Clone(text[1:]), 0), true
		samples = append(samples, s)
	}
	if found := runCross(t, samples, 4); len(found) > 0 {
		t.Errorf("got %+v, want nothing", found)
	}
	crossNegate(samples[1], 2)
	for i := range samples[1].Hidden { // but for the first row, which stands for its token
		copy(samples[1].Hidden[i].Rows.Row(0), samples[0].Hidden[i].Rows.Row(0))
	}
	found := crossFound(runCross(t, samples, 4), rulePrefix)
	if f := found["s1"]; len(found) != 1 || f.Column != "layer_3" || f.Token != 1 {
		t.Errorf("got %+v, want layer_3 of s1 from token 1 on", found)
	}
}
