package validate

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func TestTokenScan(t *testing.T) {
	t.Parallel()
	a, b := dataSample(dataLayout(format.BFloat16), 1, 4, 64), dataSample(dataLayout(format.BFloat16), 2, 3, 64)
	copy(a.Tokens, []int32{5, 2, 2, 7}) // the first is not supervised
	copy(b.Tokens, []int32{-1, 9, 3})
	b.LossMask = nil
	tests := map[string]struct {
		in   Input
		want []int64
	}{
		"no draft":             {Input{}, nil},
		"vocabulary":           {Input{Draft: &Checkpoint{}, Target: format.Target{VocabSize: 9}}, []int64{2: 2, 3: 1, 7: 1}},
		"unknown vocabulary":   {Input{Draft: &Checkpoint{}}, []int64{2: 2, 3: 1, 7: 1, 9: 1}},
		"absurd vocabulary":    {Input{Draft: &Checkpoint{}, Target: format.Target{VocabSize: 1 << 62}}, []int64{2: 2, 3: 1, 7: 1, 9: 1}},
		"vocabulary too small": {Input{Draft: &Checkpoint{}, Target: format.Target{VocabSize: 3}}, []int64{2: 2}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, later := newTokenScan(tc.in), newTokenScan(tc.in)
			first.sample(&sampleFacts{Sample: a}, nil)
			later.sample(&sampleFacts{Sample: b}, nil)
			text, err := json.Marshal(later)
			if err != nil {
				t.Fatal(err)
			}
			stored := newTokenScan(tc.in)
			if err := json.Unmarshal(text, stored); err != nil {
				t.Fatal(err)
			}
			first.add(stored)
			if first.Longest != 4 || first.Read != (Read{2, 7, 7 * 4 * 128}) {
				t.Errorf("got %+v, want 2 samples, 7 tokens, the longest of 4", first)
			}
			if d := cmp.Diff(tc.want, first.Supervised); d != "" {
				t.Errorf("Supervised (-want +got):\n%s", d)
			}
		})
	}
}
