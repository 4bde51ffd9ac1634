package format_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func layer(k format.Layer) format.State {
	return format.State{Role: format.RoleLayer, Layer: k, DType: format.BFloat16}
}

func block(i int) format.State {
	return format.State{Role: format.RoleBlock, Block: i, DType: format.BFloat16}
}

func final(n format.Norm) format.State {
	return format.State{Role: format.RoleFinal, Norm: n, DType: format.BFloat16}
}

// sample has three tokens, two values a row, and these states.
func sample(states ...format.State) *format.Sample {
	s := &format.Sample{ID: "a", Tokens: []int32{1, 2, 3}, LossMask: []byte{0, 1, 1}}
	for _, st := range states {
		w := 2 * st.DType.Size()
		s.Hidden = append(s.Hidden, format.Hidden{
			State: st,
			Rows:  format.Rows{DType: st.DType, N: 3, Width: 2, Stride: w, Data: make([]byte, 3*w)},
		})
	}
	return s
}

func TestStateNames(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		state        format.State
		column, text string
	}{
		"layer":     {layer(30), "layer_30", "P_30 bfloat16"},
		"embedding": {layer(format.Embedding), "layer_-1", "P_-1 bfloat16"},
		"block":     {block(2), "block_2", "block 2 (layer unknown) bfloat16"},
		"final":     {final(format.NormPost), "final", "final (post) bfloat16"},
		"unknown":   {final(format.NormUnknown), "final", "final (unknown) bfloat16"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tc.state.Column(); got != tc.column {
				t.Errorf("Column(): got %q, want %q", got, tc.column)
			}
			if got := tc.state.String(); got != tc.text {
				t.Errorf("String(): got %q, want %q", got, tc.text)
			}
		})
	}
}

func TestSampleCheck(t *testing.T) {
	t.Parallel()
	full := func() *format.Sample { return sample(layer(-1), layer(0), layer(30), final(format.NormPost)) }
	tests := map[string]struct {
		sample       *format.Sample
		change       func(s *format.Sample)
		wantErrParts []string
	}{
		"layers and final":  {sample: full()},
		"blocks and final":  {sample: sample(block(0), block(1), final(format.NormUnknown))},
		"final alone":       {sample: sample(final(format.NormPre))},
		"no mask":           {sample: full(), change: func(s *format.Sample) { s.LossMask = nil }},
		"no tokens at all":  {sample: &format.Sample{ID: "a", Hidden: []format.Hidden{{State: layer(0), Rows: format.Rows{DType: format.BFloat16, Width: 2}}}}},
		"view of a block":   {sample: full(), change: func(s *format.Sample) { s.Hidden[0].Rows.Stride, s.Hidden[0].Rows.Data = 8, make([]byte, 20) }},
		"no id":             {sample: full(), change: func(s *format.Sample) { s.ID = "" }, wantErrParts: []string{"no id"}},
		"no states":         {sample: sample(), wantErrParts: []string{`"a" has no states`}},
		"short mask":        {sample: full(), change: func(s *format.Sample) { s.LossMask = s.LossMask[:2] }, wantErrParts: []string{"2 values for 3 tokens"}},
		"empty mask":        {sample: full(), change: func(s *format.Sample) { s.LossMask = []byte{} }, wantErrParts: []string{"0 values for 3 tokens"}},
		"rows missing":      {sample: full(), change: func(s *format.Sample) { s.Hidden[1].Rows.N = 2 }, wantErrParts: []string{"layer_0 has 2 rows for 3 tokens"}},
		"bytes missing":     {sample: full(), change: func(s *format.Sample) { s.Hidden[2].Rows.Data = make([]byte, 11) }, wantErrParts: []string{"layer_30 has 11 bytes", "3 rows of 4 bytes"}},
		"view too short":    {sample: full(), change: func(s *format.Sample) { s.Hidden[0].Rows.Stride = 6 }, wantErrParts: []string{"layer_-1 has 12 bytes"}},
		"negative stride":   {sample: full(), change: func(s *format.Sample) { s.Hidden[0].Rows.Stride = -4 }, wantErrParts: []string{"layer_-1"}},
		"no width":          {sample: full(), change: func(s *format.Sample) { s.Hidden[0].Rows.Width = 0 }, wantErrParts: []string{"layer_-1 is 0 wide"}},
		"widths differ":     {sample: full(), change: func(s *format.Sample) { s.Hidden[3].Rows.Width = 1 }, wantErrParts: []string{"final is 1 wide, want 2"}},
		"integer states":    {sample: full(), change: func(s *format.Sample) { s.Hidden[0].State.DType, s.Hidden[0].Rows.DType = format.Int16, format.Int16 }, wantErrParts: []string{"layer_-1 is int16"}},
		"dtypes disagree":   {sample: full(), change: func(s *format.Sample) { s.Hidden[0].Rows.DType = format.Float16 }, wantErrParts: []string{"layer_-1 is float16"}},
		"layers descending": {sample: sample(layer(30), layer(2)), wantErrParts: []string{"layer_2 follows layer_30"}},
		"layer repeated":    {sample: sample(layer(2), layer(2)), wantErrParts: []string{"layer_2 follows layer_2"}},
		"block repeated":    {sample: sample(block(0), block(0)), wantErrParts: []string{"block_0 follows block_0"}},
		"final not last":    {sample: sample(final(format.NormPost), layer(2)), wantErrParts: []string{"layer_2 follows final"}},
		"two finals":        {sample: sample(layer(2), final(format.NormPre), final(format.NormPost)), wantErrParts: []string{"final follows final"}},
		"layers and blocks": {sample: sample(layer(2), block(1)), wantErrParts: []string{"block_1 follows layer_2"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tc.change != nil {
				tc.change(tc.sample)
			}
			checkErr(t, tc.sample.Check(), tc.wantErrParts)
		})
	}
}

func TestLayoutDiff(t *testing.T) {
	t.Parallel()
	want := sample(layer(2), layer(30), layer(58), final(format.NormPost)).Layout()
	tests := map[string]struct {
		got  format.Layout
		diff string
	}{
		"same":   {sample(layer(2), layer(30), layer(58), final(format.NormPost)).Layout(), ""},
		"width":  {format.Layout{HiddenSize: 4, States: want.States}, "hidden size is 4, want 2"},
		"fewer":  {sample(layer(2), layer(30), layer(58)).Layout(), "states are P_2 bfloat16, P_30 bfloat16, P_58 bfloat16, want P_2 bfloat16, P_30 bfloat16, P_58 bfloat16, final (post) bfloat16"},
		"layer":  {sample(layer(2), layer(29), layer(58), final(format.NormPost)).Layout(), "state 1 is P_29 bfloat16, want P_30 bfloat16"},
		"norm":   {sample(layer(2), layer(30), layer(58), final(format.NormPre)).Layout(), "state 3 is final (pre) bfloat16, want final (post) bfloat16"},
		"dtype":  {sample(layer(2), layer(30), layer(58), format.State{Role: format.RoleFinal, Norm: format.NormPost, DType: format.Float32}).Layout(), "state 3 is final (post) float32, want final (post) bfloat16"},
		"nobody": {(&format.Sample{}).Layout(), "hidden size is 0, want 2"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.diff, want.Diff(tc.got)); diff != "" {
				t.Errorf("Diff (-want +got):\n%s", diff)
			}
		})
	}
}
