package validate

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"hsx/format"
)

func TestEmbedding(t *testing.T) {
	t.Parallel()
	withEmbedding := []format.Layer{format.Embedding, 2, 3}
	tests := map[string]struct {
		layers []format.Layer
		column int // of the model, in the first block
		texts  func(rng *rand.Rand) [][]int32
		want   string // part of the message of every finding, "" for silence
		sample bool   // the finding names a sample
	}{
		"declared and right": {withEmbedding, 0, crossTexts, "", false},
		"declared, is P_0":   {withEmbedding, 1, crossTexts, "declared the embedding output P_-1 and is not", true},
		"captured":           {crossTriple(), 0, crossTexts, "holds the embedding output P_-1, not P_0", true},
		"not captured":       {crossTriple(), 1, crossTexts, "", false},
		"captured, short samples": {crossTriple(), 0, func(*rand.Rand) [][]int32 {
			return [][]int32{{1, 5, 6}, {1, 6, 5}, {1, 7, 8}, {1, 8, 7}, {1, 5, 7}}
		}, "bit-identical vectors whatever stands before them (id 5 in several samples)", false},
		"declared, is P_0, short samples": {withEmbedding, 1, func(*rand.Rand) [][]int32 {
			return [][]int32{{1, 5, 6}, {1, 6, 5}, {1, 7, 8}, {1, 8, 7}, {1, 5, 7}}
		}, "in several samples", false},
		"too little": {crossTriple(), 0, func(*rand.Rand) [][]int32 {
			return [][]int32{{1, 5, 6, 5}, {1, 6, 5}}
		}, "", false},
		"equal prefixes": {crossTriple(), 1, func(*rand.Rand) [][]int32 {
			return [][]int32{{1, 5, 6, 7, 8, 9}, {1, 5, 6, 7, 8, 9}, {1, 5, 6, 7, 8, 9}}
		}, "", false},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(1, 8))
			m := &crossModel{width: 32, dtype: format.BFloat16, rng: rng}
			var samples []*format.Sample
			for i, text := range tc.texts(rng) {
				samples = append(samples, m.sample(fmt.Sprintf("s%d", i), text, tc.layers, tc.column, 3, 4, crossDepth))
			}
			found := crossFound(runCross(t, samples, 2), ruleEmbedding)
			if (len(found) > 0) != (tc.want != "") {
				t.Errorf("got %+v, want %q", found, tc.want)
			}
			for _, f := range found {
				if !strings.Contains(f.Message, tc.want) || f.Column != samples[0].Hidden[0].State.Column() || (f.Sample != "") != tc.sample || (f.Token >= 0) != tc.sample {
					t.Errorf("got %+v, want %q", f, tc.want)
				}
			}
		})
	}
}

// TestEmbeddingStuck has a block that is the same vector everywhere, which is no
// embedding, and one of zeros.
func TestEmbeddingStuck(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 8))
	m := &crossModel{width: 32, dtype: format.BFloat16, rng: rng}
	s := m.good("s", crossText(rng, 80))
	for row := range len(s.Tokens) {
		copy(s.Hidden[0].Rows.Row(row), s.Hidden[0].Rows.Row(0))
		clear(s.Hidden[1].Rows.Row(row))
	}
	if found := crossFound(runCross(t, []*format.Sample{s}, 1), ruleEmbedding); len(found) > 0 {
		t.Errorf("got %+v, want nothing", found)
	}
}
