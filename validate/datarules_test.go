package validate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

// dataLayout is P_0, P_2, P_3 and the final, after the norm.
func dataLayout(d format.DType) []format.State {
	return []format.State{
		{Layer: 0, DType: d}, {Layer: 2, DType: d}, {Layer: 3, DType: d},
		{Role: format.RoleFinal, Norm: format.NormPost, DType: d},
	}
}

// dataSample makes a sample with normally distributed states, tokens 1 to 400 and a
// mask of ones after the first. Equal n and tokens give equal samples.
func dataSample(states []format.State, n, tokens, hidden int) *format.Sample {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(tokens)))
	s := &format.Sample{
		ID: fmt.Sprintf("s%d", n), Input: format.Input{Path: fmt.Sprintf("data_%d.ckpt", n)}, Last: true,
		Origin: format.Origin{Producer: "specforge-eagle3"}, Tokens: make([]int32, tokens), LossMask: make([]byte, tokens),
	}
	for t := range s.Tokens {
		s.Tokens[t] = 1 + int32(rng.IntN(400))
		s.LossMask[t] = byte(min(t, 1))
	}
	for _, st := range states {
		r := format.Rows{DType: st.DType, N: tokens, Width: hidden, Stride: hidden * st.DType.Size()}
		for range tokens {
			r.Data = append(r.Data, randomRow(rng, st.DType, hidden, "normal")...)
		}
		s.Hidden = append(s.Hidden, format.Hidden{State: st, Rows: r})
	}
	return s
}

// setValue sets a value of a 16-bit state.
func setValue(s *format.Sample, state, token, channel int, bits uint16) {
	binary.LittleEndian.PutUint16(s.Hidden[state].Rows.Row(token)[2*channel:], bits)
}

// findAll is what scans report of samples, which are rows of one shard.
func findAll(scans []scan, samples ...*format.Sample) []Finding {
	out := NewCollector(100, nil)
	for i, s := range samples {
		scanSample(&sampleFacts{Ref: Ref{0, i}, Sample: s, States: factsOf(s)}, scans, out)
	}
	for _, s := range scans {
		s.finish(func(ref Ref, use func(*format.Sample)) error { use(samples[ref.Row]); return nil }, out)
	}
	var all []Finding
	for _, r := range dataRules() {
		if g := out.groups[r.Name]; g != nil {
			all = append(all, g.Findings...)
		}
	}
	for i := range all {
		if all[i].Do == "" {
			all[i].Message += " (without a word of what to do)"
		}
		all[i].Do = ""
	}
	return all
}

func TestDataRules(t *testing.T) {
	t.Parallel()
	const tokens, hidden = 12, 64
	bf16, fp16 := dataLayout(format.BFloat16), dataLayout(format.Float16)
	pre := slices.Clone(bf16)
	pre[3].Norm = format.NormPre
	zero := func(s *format.Sample, state int, rows ...int) {
		for _, r := range rows {
			clear(s.Hidden[state].Rows.Row(r))
		}
	}
	tests := map[string]struct {
		states []format.State // bf16 when nil
		target format.Target
		damage func(s *format.Sample)
		want   []Finding
	}{
		"sound":                {damage: func(*format.Sample) {}, target: format.Target{VocabSize: 401, Layers: 5}},
		"sound without mask":   {damage: func(s *format.Sample) { s.LossMask = nil }},
		"sound fp16":           {states: fp16, damage: func(*format.Sample) {}},
		"sound fp32":           {states: dataLayout(format.Float32), damage: func(*format.Sample) {}},
		"vocabulary one short": {target: format.Target{VocabSize: 9}, damage: func(s *format.Sample) { fill(s.Tokens, 8); s.Tokens[9] = 9 }, want: []Finding{{Rule: "token-range", Severity: Error, Token: 9, Message: "token id 9, want 0 to 8"}}},
		"negative ids": {damage: func(s *format.Sample) { s.Tokens[3], s.Tokens[5] = -1, -7 },
			want: []Finding{{Rule: "token-range", Severity: Error, Token: 3, Message: "token id -1, want 0 or more (the first of 2 such ids)"}}},
		"mask short": {damage: func(s *format.Sample) { s.LossMask = s.LossMask[1:] },
			want: []Finding{{Rule: "mask-length", Severity: Error, Token: -1, Message: "loss_mask has 11 values, want one for each of 12 tokens"}}},
		"rows short": {damage: func(s *format.Sample) { s.Hidden[1].Rows.N-- },
			want: []Finding{{Rule: "lengths", Severity: Error, Token: -1, Message: "layer_2 has 11 rows for 12 tokens"}}},
		"width": {damage: func(s *format.Sample) { s.Hidden[1].Rows.Width-- },
			want: []Finding{{Rule: "lengths", Severity: Error, Token: -1, Message: "layer_2 is 63 wide, want 64"}}},
		"mask value": {damage: func(s *format.Sample) { s.LossMask[7] = 2 },
			want: []Finding{{Rule: "mask-values", Severity: Warning, Token: 7, Message: "loss_mask is 2, want 0 or 1"}}},
		"mask empty": {damage: func(s *format.Sample) { clear(s.LossMask) },
			want: []Finding{{Rule: "mask-empty", Severity: Warning, Token: -1, Message: "none of 12 positions is supervised, want at least 1"}}},
		"padded": {damage: func(s *format.Sample) {
			clear(s.Tokens[9:])
			clear(s.LossMask[9:])
			zero(s, 0, 10, 11)
		}, want: []Finding{{Rule: "padded-tail", Severity: Warning, Token: 9, Message: "12 rows, of which the last 3 have id 0 and mask 0, want the 9 real ones"}}},
		"id 0 once at the end": {damage: func(s *format.Sample) { s.Tokens[11], s.LossMask[11] = 0, 0 }},
		"id 0 supervised":      {damage: func(s *format.Sample) { clear(s.Tokens[9:]) }},
		"nan": {damage: func(s *format.Sample) { setValue(s, 1, 7, 5, 0x7fc0) },
			want: []Finding{{Rule: "non-finite", Severity: Error, Column: "layer_2", Token: 7, Message: "nan at channel 5, want finite values (1 such value in 1 of 12 rows)"}}},
		"infs": {states: fp16, damage: func(s *format.Sample) {
			setValue(s, 3, 4, 63, 0xfc00)
			setValue(s, 3, 5, 0, 0x7c00)
			setValue(s, 3, 5, 1, 0x7c00)
		}, want: []Finding{{Rule: "non-finite", Severity: Error, Column: "final", Token: 4, Message: "-inf at channel 63, want finite values (3 such values in 2 of 12 rows)"}}},
		"saturated": {states: fp16, damage: func(s *format.Sample) { setValue(s, 0, 2, 3, 0xfbff) },
			want: []Finding{{Rule: "saturated-fp16", Severity: Warning, Column: "layer_0", Token: 2, Message: "1 value of ±65504 in 1 of 12 rows, want values that fp16 can hold"}}},
		"bits of fp16's 65504 in bf16": {damage: func(s *format.Sample) { setValue(s, 0, 2, 3, 0x7bff) },
			want: []Finding{{Rule: "huge-values", Severity: Error, Column: "layer_0", Token: 2, Message: "a value of 2.6e+36, want less than 2^30, which no states of models come near (in 1 of 12 rows)"}}},
		"huge fp32": {states: dataLayout(format.Float32), damage: func(s *format.Sample) {
			for _, t := range []int{5, 9} {
				binary.LittleEndian.PutUint32(s.Hidden[3].Rows.Row(t), math.Float32bits(-1e31))
			}
		}, want: []Finding{{Rule: "huge-values", Severity: Error, Column: "final", Token: 5, Message: "a value of 1.0e+31, want less than 2^30, which no states of models come near (in 2 of 12 rows)"}}},
		"as large as states get": {damage: func(s *format.Sample) { setValue(s, 0, 2, 3, 0x4e7f) }},
		"zero rows of all states": {damage: func(s *format.Sample) {
			for i := range s.Hidden {
				zero(s, i, 3, 4, 5, 8)
			}
		}, want: []Finding{{Rule: "zero-rows", Severity: Error, Token: 3, Message: "all values are zero in rows 3-5, 8 of all states, want states of these tokens"}}},
		"zero rows of some states": {damage: func(s *format.Sample) {
			zero(s, 1, 0, 2, 4, 6, 7, 9)
			zero(s, 3, 11)
			setValue(s, 3, 11, 8, 0x8000)
		}, want: []Finding{
			{Rule: "zero-rows", Severity: Error, Column: "layer_2", Token: 0, Message: "all values are zero in rows 0, 2, 4 and 3 more of layer_2, want states of these tokens"},
			{Rule: "zero-rows", Severity: Error, Column: "final", Token: 11, Message: "all values are zero in row 11 of final, want states of these tokens"},
		}},
		"constant row": {damage: func(s *format.Sample) {
			for c := range hidden {
				setValue(s, 2, 6, c, 0x3f80)
			}
		}, want: []Finding{{Rule: "constant-rows", Severity: Error, Column: "layer_3", Token: 6, Message: "all values are the same in row 6 of layer_3, want states of these tokens"}}},
		"blocks equal": {damage: func(s *format.Sample) { copy(s.Hidden[2].Rows.Data, s.Hidden[1].Rows.Data) },
			want: []Finding{{Rule: "duplicate-blocks", Severity: Error, Column: "layer_3", Token: -1, Message: "layer_3 is equal to layer_2 bit for bit, want two layers"}}},
		"all but one row equal": {damage: func(s *format.Sample) {
			copy(s.Hidden[2].Rows.Data, s.Hidden[1].Rows.Data)
			setValue(s, 2, 11, 63, 0)
		}},
		"final equals a block": {target: format.Target{Layers: 4}, damage: func(s *format.Sample) { copy(s.Hidden[3].Rows.Data, s.Hidden[2].Rows.Data) },
			want: []Finding{{Rule: "final-equals-block", Severity: Error, Column: "final", Token: -1, Message: "final (post) is equal to layer_3 bit for bit, want the last layer's output"}}},
		"final is the last block":            {states: pre, target: format.Target{Layers: 4}, damage: func(s *format.Sample) { copy(s.Hidden[3].Rows.Data, s.Hidden[2].Rows.Data) }},
		"final is the last block of unknown": {states: pre, damage: func(s *format.Sample) { copy(s.Hidden[3].Rows.Data, s.Hidden[2].Rows.Data) }, want: []Finding{{Rule: "final-equals-block", Severity: Warning, Column: "final", Token: -1, Message: "final is equal to layer_3 bit for bit, want that only of a target of 4 layers"}}},
		"final is not the last block": {states: pre, target: format.Target{Layers: 5}, damage: func(s *format.Sample) { copy(s.Hidden[3].Rows.Data, s.Hidden[2].Rows.Data) },
			want: []Finding{{Rule: "final-equals-block", Severity: Error, Column: "final", Token: -1, Message: "final (pre) is equal to layer_3 bit for bit, want the last layer's output"}}},
		"fp16 labelled bf16": {damage: func(s *format.Sample) {
			s.Hidden[1].Rows.Data = dataSample(fp16, 1, tokens, hidden).Hidden[1].Rows.Data
		},
			want: []Finding{{Rule: "dtype-label", Severity: Warning, Column: "layer_2", Token: -1, Message: "half of all magnitudes span 2^15, want about 2^2: these look like float16 values labelled bfloat16"}}},
		"bf16 labelled fp16": {states: fp16, damage: func(s *format.Sample) {
			s.Hidden[1].Rows.Data = dataSample(bf16, 1, tokens, hidden).Hidden[1].Rows.Data
		},
			want: []Finding{{Rule: "dtype-label", Severity: Warning, Column: "layer_2", Token: -1, Message: "half of all magnitudes span 2^0.25, want about 2^2: these look like bfloat16 values labelled float16"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.states == nil {
				tc.states = bf16
			}
			s := dataSample(tc.states, 1, tokens, hidden)
			tc.damage(s)
			for i := range tc.want {
				tc.want[i].Sample = "s1"
			}
			if d := cmp.Diff(tc.want, findAll(dataScans(tc.target), s)); d != "" {
				t.Errorf("findings (-want +got):\n%s", d)
			}
		})
	}
}

func fill(ids []int32, v int32) {
	for i := range ids {
		ids[i] = v
	}
}

func TestDataRulesNearEmpty(t *testing.T) {
	t.Parallel()
	for tokens, want := range map[int][]Finding{
		0: {{Rule: "near-empty", Severity: Warning, Sample: "s1", Token: -1, Message: "no tokens, want at least 2"}},
		1: {{Rule: "near-empty", Severity: Info, Sample: "s1", Token: -1, Message: "1 token, want at least 2"}},
		2: nil,
	} {
		if d := cmp.Diff(want, findAll(dataScans(format.Target{}), dataSample(dataLayout(format.BFloat16), 1, tokens, 64))); d != "" {
			t.Errorf("findings of %d tokens (-want +got):\n%s", tokens, d)
		}
	}
}

func TestDuplicateSamples(t *testing.T) {
	t.Parallel()
	states := dataLayout(format.BFloat16)
	named := func(n int, id string, change func(s *format.Sample)) *format.Sample {
		s := dataSample(states, n, 7, 64)
		s.ID = id
		if change != nil {
			change(s)
		}
		return s
	}
	samples := []*format.Sample{
		named(1, "a", nil), named(2, "b", nil), named(1, "c", nil),
		named(1, "other id", func(s *format.Sample) { s.Tokens[3]++ }),
		named(1, "other state", func(s *format.Sample) { setValue(s, 2, 6, 1, 0x3f81) }),
		named(1, "other mask", func(s *format.Sample) { s.LossMask[6] = 0 }),
		named(2, "d", nil),
	}
	want := []Finding{
		{Rule: "duplicate-sample", Severity: Warning, Sample: "c", Token: -1, Message: "has the ids and states of a, want each sample once"},
		{Rule: "duplicate-sample", Severity: Warning, Sample: "other mask", Token: -1, Message: "has the ids and states of a, want each sample once"},
		{Rule: "duplicate-sample", Severity: Warning, Sample: "d", Token: -1, Message: "has the ids and states of b, want each sample once"},
	}
	if d := cmp.Diff(want, findAll(dataScans(format.Target{}), samples...)); d != "" {
		t.Errorf("findings (-want +got):\n%s", d)
	}
}

// TestDataScansJSON stores half of a scan and goes on with it.
func TestDataScansJSON(t *testing.T) {
	t.Parallel()
	states := dataLayout(format.BFloat16)
	samples := []*format.Sample{dataSample(states, 1, 7, 64), dataSample(states, 2, 7, 64), dataSample(states, 1, 7, 64)}
	out := NewCollector(10, nil)
	parts := make([]*duplicateScan, 2)
	for i := range parts {
		parts[i] = &duplicateScan{}
	}
	for i, s := range samples {
		scanSample(&sampleFacts{Ref: Ref{0, i}, Sample: s, States: factsOf(s)}, []scan{parts[min(i, 1)]}, out)
	}
	var merged duplicateScan
	for _, p := range parts {
		text, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var got duplicateScan
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p.Seen, got.Seen); d != "" {
			t.Errorf("Unmarshal(%s) (-want +got):\n%s", text, d)
		}
		merged.add(&got)
	}
	merged.finish(func(ref Ref, use func(*format.Sample)) error { use(samples[ref.Row]); return nil }, out)
	if g := out.Groups(); len(g) != 1 || g[0].Count != 1 || g[0].Findings[0].Sample != "s1" {
		t.Errorf("finish: got %+v, want one duplicate", g)
	}
}

func TestDataRanges(t *testing.T) {
	t.Parallel()
	for want, at := range map[string][]int{
		"row 0": {0}, "rows 0-1": {0, 1}, "rows 20-23, 50": {20, 21, 22, 23, 50},
		"rows 1, 3, 5-6 and 4 more": {1, 3, 5, 6, 8, 10, 11, 12},
	} {
		if got := dataRanges(at); got != want {
			t.Errorf("dataRanges(%v): got %q, want %q", at, got, want)
		}
	}
}

// FuzzDataRules: whatever a sample holds, the rules take it, and say the same of it
// each time.
func FuzzDataRules(f *testing.F) {
	f.Add(uint8(12), uint8(64), []byte{1, 2, 3}, []byte{0, 1}, []byte{0x80, 0x7f})
	f.Add(uint8(0), uint8(1), []byte{}, []byte{}, []byte{})
	f.Fuzz(func(t *testing.T, tokens, hidden uint8, ids, mask, states []byte) {
		s := dataSample(dataLayout(format.BFloat16), 1, int(tokens), int(hidden))
		for i := range min(len(ids), len(s.Tokens)) {
			s.Tokens[i] = int32(int8(ids[i]))
		}
		if len(mask) > 0 {
			s.LossMask = mask
		}
		for i := range s.Hidden {
			copy(s.Hidden[i].Rows.Data, states)
		}
		scans := []scan{&dataScan{Vocab: 100, Layers: 4}, &duplicateScan{}}
		first, again := findAll(scans, s), findAll([]scan{&dataScan{Vocab: 100, Layers: 4}, &duplicateScan{}}, s)
		if d := cmp.Diff(first, again); d != "" {
			t.Errorf("findings differ (-first +again):\n%s", d)
		}
		for _, g := range first {
			if g.Token >= int(tokens) || g.Message == "" || g.Sample != s.ID {
				t.Errorf("got %+v, want a place in a sample of %d tokens", g, tokens)
			}
		}
	})
}

func BenchmarkDataRules(b *testing.B) {
	for name, dims := range map[string][2]int{"bf16-4x512x576": {512, 576}, "bf16-4x128x7168": {128, 7168}} {
		b.Run(name, func(b *testing.B) {
			s := dataSample(dataLayout(format.BFloat16), 1, dims[0], dims[1])
			f := sampleFacts{Sample: s}
			out := NewCollector(10, nil)
			b.SetBytes(4 * s.Hidden[0].Rows.Bytes())
			b.ReportAllocs()
			for b.Loop() {
				f.begin(len(s.Hidden))
				for i, h := range s.Hidden {
					f.see(i, h.Rows)
				}
				scanSample(&f, []scan{&dataScan{}}, out)
			}
		})
	}
}
