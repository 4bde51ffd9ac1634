package producer_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/producer"
)

func TestTrimPadding(t *testing.T) {
	t.Parallel()
	padded := func(tokens, mask []int64) *format.Record {
		r := eagle3(len(tokens))
		return with(with(r, "input_ids", i64(tokens...)), "loss_mask", i64(mask...))
	}
	for name, tt := range map[string]struct {
		rec  *format.Record
		want int
	}{
		"none":              {padded([]int64{1, 2, 3}, []int64{0, 1, 1}), 3},
		"two":               {padded([]int64{1, 2, 0, 0}, []int64{0, 1, 0, 0}), 2},
		"id 0 is meant":     {padded([]int64{1, 2, 0, 0}, []int64{0, 1, 1, 0}), 3},
		"a masked id stays": {padded([]int64{1, 2, 3, 0}, []int64{0, 1, 0, 0}), 3},
		"one row is kept":   {padded([]int64{0, 0, 0}, []int64{0, 0, 0}), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, trim := range []bool{false, true} {
				_, ss, err := read(t, torch(tt.rec), producer.Facts{TrimPadding: trim})
				if err != nil {
					t.Fatal(err)
				}
				want := tt.want
				if !trim {
					want = len(tt.rec.Tensor("input_ids").Data) / 8
				}
				s := ss[0]
				if len(s.Tokens) != want || len(s.LossMask) != want || s.Hidden[0].Rows.N != want {
					t.Errorf("trim %t: %d tokens, %d mask values, %d rows, want %d", trim, len(s.Tokens), len(s.LossMask), s.Hidden[0].Rows.N, want)
				}
				s.ID = "x"
				if err := s.Check(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestAttentionMask(t *testing.T) {
	t.Parallel()
	dflash := rec("input_ids", batched(i64(5, 6, 7, 0, 0)), "hidden_states", bf16(1, 5, 128), "loss_mask", batched(i64(0, 1, 1, 0, 0)))
	for name, tt := range map[string]struct {
		attention []int64
		rows      int
		want      string
	}{
		"padding at the end": {[]int64{1, 1, 1, 0, 0}, 3, ""},
		"no padding":         {[]int64{1, 1, 1, 1, 1}, 5, ""},
		"padding in front":   {[]int64{0, 0, 1, 1, 1}, 0, "attention_mask is 0 at position 0 and 1 at 2, want padding at the end only"},
		"a hole":             {[]int64{1, 0, 1, 1, 0}, 0, "attention_mask is 0 at position 1 and 1 at 2, want padding at the end only"},
		"all padding":        {[]int64{0, 0, 0, 0, 0}, 0, "attention_mask marks none of 5 positions: no tokens"},
		"too short":          {[]int64{1, 1, 1}, 0, "attention_mask has 3 values for 5 tokens"},
		"a two":              {[]int64{1, 2, 1, 0, 0}, 0, "attention_mask holds 2 at position 1, want 0 or 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ss, err := read(t, torch(with(dflash, "attention_mask", batched(i64(tt.attention...)))), producer.Facts{Layers: layers(t, "1,2")})
			if tt.want != "" {
				if err == nil || err.Error() != tt.want {
					t.Fatalf("got error %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := ss[0]; len(s.Tokens) != tt.rows || s.Hidden[1].Rows.N != tt.rows || len(s.LossMask) != tt.rows {
				t.Errorf("%d tokens, %d rows, want %d", len(s.Tokens), s.Hidden[1].Rows.N, tt.rows)
			}
		})
	}
}

func automodel() *format.Record {
	two := []int64{2, 4}
	return rec(
		"input_ids", integers(format.Int64, two, 11, 12, 0, 0, 21, 22, 23, 0),
		"attention_mask", integers(format.Int64, two, 1, 1, 1, 0, 1, 1, 1, 1),
		"loss_mask", integers(format.Int64, two, 0, 1, 0, 0, 1, 1, 1, 0),
		"aux_hidden_states", bf16(2, 4, 6),
		"position_mask", integers(format.Bool, []int64{2, 4, 1}, make([]int64, 8)...),
		"target_probs", bf16(2, 4, 8))
}

func TestAutomodel(t *testing.T) {
	t.Parallel()
	manifest := &producer.AutomodelManifest{LayerIDs: []int{0, 2, 3}, AuxHiddenDim: 6, FormatVersion: 2}
	r := automodel()
	d := producer.Dump{Container: producer.Safetensors, Value: r, Siblings: producer.Siblings{Automodel: manifest}}
	m, ss, err := read(t, d, producer.Facts{TrimPadding: true})
	if err != nil {
		t.Fatal(err)
	}
	if !m.Shifted || m.LayersFrom != "manifest.json" || m.Producer != "automodel" || m.Convention != format.PostLayer {
		t.Errorf("Match = %s, shifted %t, layers from %q (%s)", m.Producer, m.Shifted, m.LayersFrom, m.Convention)
	}
	if len(ss) != 2 {
		t.Fatalf("Samples() gave %d, want 2", len(ss))
	}
	// Stored as shifted: the last id and mask are fabricated, and no padding.
	if d := cmp.Diff([]int32{11, 12, 0}, ss[0].Tokens); d != "" {
		t.Errorf("tokens (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]byte{1, 1, 1, 0}, ss[1].LossMask); d != "" {
		t.Errorf("mask (-want +got):\n%s", d)
	}
	aux := r.Tensor("aux_hidden_states")
	for i, s := range ss {
		item := *aux
		item.Data = aux.Data[i*4*12 : i*4*12+len(s.Tokens)*12]
		for j, h := range s.Hidden {
			if d := cmp.Diff(block(&item, j*2, 2), rows(h.Rows)); d != "" {
				t.Errorf("sample %d %s (-want +got):\n%s", i, h.State, d)
			}
		}
		if d := cmp.Diff([]string{"layer_0", "layer_2", "layer_3"}, columns(s)); d != "" {
			t.Errorf("columns (-want +got):\n%s", d)
		}
		s.ID = "x"
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}

	wide := *manifest
	wide.AuxHiddenDim = 9
	for name, tt := range map[string]struct {
		rec    *format.Record
		beside *producer.AutomodelManifest
		facts  producer.Facts
		want   string
	}{
		"other width":           {r, &wide, producer.Facts{}, "item 0: aux_hidden_states is 6 wide, but manifest.json says aux_hidden_dim 9"},
		"other layers":          {r, manifest, producer.Facts{Layers: layers(t, "1,2,3")}, "layers were named as P_1 P_2 P_3 (post 1,2,3; boundary 2,3,4), but manifest.json says P_0 P_2 P_3 (post 0,2,3; boundary 1,3,4): leave one of the two out"},
		"sample is all padding": {with(r, "attention_mask", integers(format.Int64, []int64{2, 4}, 1, 1, 1, 0, 0, 0, 0, 0)), manifest, producer.Facts{}, "item 1: attention_mask marks none of 4 positions: no tokens"},
		"other number":          {with(r, "aux_hidden_states", bf16(3, 4, 6)), manifest, producer.Facts{}, "aux_hidden_states has 3 samples, input_ids has 2"},
		"one dimension":         {with(r, "input_ids", ids(4)), manifest, producer.Facts{}, "input_ids has shape [4], want a first dimension that counts samples"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := read(t, producer.Dump{Value: tt.rec, Siblings: producer.Siblings{Automodel: tt.beside}}, tt.facts)
			if err == nil || err.Error() != tt.want {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

func floats(values ...float32) *format.Tensor {
	t := &format.Tensor{DType: format.Float32, Shape: []int64{int64(len(values)), 1}}
	for _, v := range values {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
	}
	return t
}

func TestUntypedNumbers(t *testing.T) {
	t.Parallel()
	small := float32(math.Ldexp(1, -24)) // the smallest half
	for name, tt := range map[string]struct {
		values []float32
		to     format.DType
		bits   []uint16
		want   string
	}{
		"bfloat16":              {[]float32{1, -2, 0, 1.0078125}, format.BFloat16, []uint16{0x3f80, 0xc000, 0, 0x3f81}, ""},
		"no bfloat16":           {[]float32{1, 1.001}, format.BFloat16, nil, "hidden_states holds 1.001 at row 1 column 0, which is no bfloat16 value"},
		"float16":               {[]float32{1, -2, 0, 65504, float32(math.Copysign(0, -1))}, format.Float16, []uint16{0x3c00, 0xc000, 0, 0x7bff, 0x8000}, ""},
		"float16, subnormal":    {[]float32{small, 3 * small, 1023 * small, 1024 * small}, format.Float16, []uint16{1, 3, 0x3ff, 0x400}, ""},
		"float16, too small":    {[]float32{small / 2}, format.Float16, nil, "hidden_states holds 2.9802322e-08 at row 0 column 0, which is no float16 value"},
		"float16, too large":    {[]float32{65536}, format.Float16, nil, "hidden_states holds 65536 at row 0 column 0, which is no float16 value"},
		"float16, between":      {[]float32{1.5 * small}, format.Float16, nil, "hidden_states holds 8.940697e-08 at row 0 column 0, which is no float16 value"},
		"float16, too fine":     {[]float32{1.0001}, format.Float16, nil, "hidden_states holds 1.0001 at row 0 column 0, which is no float16 value"},
		"float16, infinite":     {[]float32{float32(math.Inf(-1))}, format.Float16, []uint16{0xfc00}, ""},
		"float16, no subnormal": {[]float32{math.SmallestNonzeroFloat32}, format.Float16, nil, "hidden_states holds 1e-45 at row 0 column 0, which is no float16 value"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := producer.Dump{Container: producer.JSON, Value: rec("input_ids", ids(len(tt.values)), "hidden_states", floats(tt.values...))}
			_, ss, err := read(t, d, producer.Facts{DType: tt.to, Final: producer.FinalPost})
			if err != nil || tt.want != "" {
				if err == nil || err.Error() != tt.want {
					t.Fatalf("got error %v, want %q", err, tt.want)
				}
				return
			}
			h := ss[0].Hidden[0]
			var got []uint16
			for i := range h.Rows.N {
				got = append(got, binary.LittleEndian.Uint16(h.Rows.Row(i)))
			}
			if h.State.DType != tt.to || !slices.Equal(got, tt.bits) {
				t.Errorf("%s %#04x, want %s %#04x", h.State.DType, got, tt.to, tt.bits)
			}
		})
	}

	t.Run("every half", func(t *testing.T) {
		t.Parallel()
		var values []float32
		for h := range 1 << 16 {
			exp, frac := h>>10&31, h&0x3ff
			v := math.Ldexp(float64(frac), -24)
			switch {
			case exp == 31 && frac != 0:
				continue // the payload of a NaN is not a number to compare
			case exp == 31:
				v = math.Inf(1)
			case exp > 0:
				v = math.Ldexp(float64(frac|0x400), exp-25)
			}
			if h>>15 == 1 {
				v = math.Copysign(v, -1)
			}
			values = append(values, float32(v))
		}
		d := producer.Dump{Container: producer.JSON, Value: rec("input_ids", ids(len(values)), "hidden_states", floats(values...))}
		_, ss, err := read(t, d, producer.Facts{DType: format.Float16, Final: producer.FinalPost})
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for h := range 1 << 16 {
			if h>>10&31 == 31 && h&0x3ff != 0 {
				continue
			}
			if got := binary.LittleEndian.Uint16(ss[0].Hidden[0].Rows.Row(i)); got != uint16(h) {
				t.Fatalf("%v became %#04x, want %#04x", values[i], got, h)
			}
			i++
		}
	})

	t.Run("uint16 as bfloat16", func(t *testing.T) {
		t.Parallel()
		a := states(format.Uint16, 1, 9, 192)
		d := plain(rec("input_ids", ids(9), "aux_hidden_states", a))
		_, ss, err := read(t, d, producer.Facts{DType: format.BFloat16, Layers: layers(t, "0,2,3")})
		if err != nil {
			t.Fatal(err)
		}
		if r := ss[0].Hidden[1].Rows; r.DType != format.BFloat16 || &r.Data[0] != &a.Data[128] {
			t.Errorf("block 1 is %s, want a bfloat16 view", r.DType)
		}
	})
}
