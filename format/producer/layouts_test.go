package producer_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/producer"
)

// stacked is [n, 4, 64] and the two strided views of it that ModelOpt's vLLM script
// stores.
func stacked(n int64) (final, aux *format.Tensor) {
	all := bf16(n, 4, 64)
	aux = &format.Tensor{DType: format.BFloat16, Shape: []int64{n, 192}, Strides: []int64{256, 1}, Data: all.Data, Storage: "0"}
	final = &format.Tensor{DType: format.BFloat16, Shape: []int64{n, 64}, Strides: []int64{256, 1}, Data: all.Data[192*2:], Storage: "0"}
	return final, aux
}

func modelOpt(id format.Value) *format.Record {
	return rec("input_ids", ids(9), "hidden_states", bf16(9, 64), "aux_hidden_states", bf16(9, 192), "loss_mask", mask(9), "conversation_id", id)
}

func v1List(slots int) []format.Value {
	var l []format.Value
	for range slots {
		l = append(l, bf16(9, 64))
	}
	return l
}

func sgl(w int64) *format.Record {
	return rec("input_ids", ids(9), "hidden_states", states(format.Float32, 3, 9, w))
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	vllmFinal, vllmAux := stacked(9)
	oneFinal, oneAux := stacked(1)
	slots4 := rec("hidden_states", bf16(9, 4, 64), "token_ids", ids(9))
	row := &producer.Row{Index: 3, Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, LossMask: make([]byte, 9)}
	v1 := rec("input_ids", ids(9), "hidden_states", v1List(4), "loss_mask", mask(9))
	eagle := rec("input_ids", ids(9), "hidden_state", states(format.Float16, 1, 9, 64), "loss_mask", mask(9))
	aux3 := producer.Facts{Layers: layers(t, "0,2,3")}
	all4 := producer.Facts{Layers: layers(t, "0,2,3,4")}
	withTarget := func(f producer.Facts) producer.Facts { f.Target = target(); return f }
	final := func(f producer.Facts, x producer.Final) producer.Facts { f.Final = x; return f }
	named := []string{"layer_0", "layer_2", "layer_3"}
	blocks := []string{"block_0", "block_1", "block_2"}
	and := func(c []string, more ...string) []string { return append(slices.Clone(c), more...) }

	for name, tt := range map[string]struct {
		dump     producer.Dump
		facts    producer.Facts
		producer string
		columns  []string
		id       string
		noMask   bool
	}{
		"specforge eagle3":            {torch(eagle3(9)), aux3, "specforge-eagle3", and(named, "final post"), "", false},
		"specforge eagle3, no layers": {torch(eagle3(9)), producer.Facts{}, "specforge-eagle3", and(blocks, "final post"), "", false},
		"specforge eagle3, pre said":  {torch(eagle3(9)), final(aux3, producer.FinalPre), "specforge-eagle3", and(named, "final pre"), "", false},
		"specforge eagle3, none said": {torch(eagle3(9)), final(aux3, producer.FinalNone), "specforge-eagle3", named, "", false},
		"specforge eagle3, one token": {torch(eagle3(1)), aux3, "specforge-eagle3", and(named, "final post"), "", false},
		"specforge eagle3, squeezed": {torch(rec("input_ids", ids(9), "loss_mask", mask(9), "aux_hidden_state", bf16(9, 192), "hidden_state", bf16(9, 64))),
			aux3, "specforge-eagle3", and(named, "final post"), "", false},
		"specforge, aux is None": {torch(rec("input_ids", ids(9), "loss_mask", mask(9), "hidden_state", bf16(1, 9, 63), "aux_hidden_state", nil)),
			producer.Facts{}, "specforge-eagle3", []string{"final post"}, "", false},
		"specforge stream": {torch(rec("input_ids", batched(ids(9)), "loss_mask", batched(mask(9)), "hidden_state", bf16(1, 9, 192), "target", bf16(1, 9, 64))),
			aux3, "specforge-eagle3", and(named, "final post"), "", false},
		"specforge dflash": {torch(rec("input_ids", ids(9), "loss_mask", mask(9), "hidden_states", bf16(1, 9, 128))),
			producer.Facts{Layers: layers(t, "1,2")}, "specforge-dflash", []string{"layer_1", "layer_2"}, "", false},
		"specforge dflash, by target": {torch(rec("input_ids", ids(9), "loss_mask", mask(9), "hidden_states", bf16(9, 128))),
			withTarget(producer.Facts{}), "specforge-dflash", []string{"block_0", "block_1"}, "", false},
		"specforge dspark": {torch(rec("input_ids", ids(9), "loss_mask", mask(9), "hidden_states", bf16(1, 9, 192), "target_last_hidden_states", bf16(1, 9, 64))),
			aux3, "specforge-dspark", and(named, "final post"), "", false},
		"speculators":              {producer.Dump{Container: producer.Safetensors, Value: slots4, Row: row}, aux3, "speculators", and(named, "final pre"), "", false},
		"speculators, all named":   {producer.Dump{Value: slots4, Row: row}, all4, "speculators", and(named, "final pre"), "", false},
		"speculators, no layers":   {producer.Dump{Value: slots4, Row: row}, producer.Facts{}, "speculators", and(blocks, "final pre"), "", false},
		"speculators, post said":   {producer.Dump{Value: slots4, Row: row}, final(aux3, producer.FinalPost), "speculators", and(named, "final post"), "", false},
		"speculators, none said":   {producer.Dump{Value: slots4, Row: row}, final(all4, producer.FinalNone), "speculators", and(named, "layer_4"), "", false},
		"speculators, no last":     {producer.Dump{Value: slots4, Row: row}, withTarget(producer.Facts{Layers: layers(t, "0,1,2,3")}), "speculators", []string{"layer_0", "layer_1", "layer_2", "layer_3"}, "", false},
		"speculators, forced":      {torch(slots4), producer.Facts{Producer: "speculators"}, "speculators", and(blocks, "final pre"), "", true},
		"speculators v1":           {torch(v1), producer.Facts{}, "speculators-v1", and(blocks, "final pre"), "", false},
		"speculators v1, config":   {producer.Dump{Value: v1, Siblings: producer.Siblings{V1: &producer.V1Config{LayerIDs: []int{0, 2, 3, 4}, HiddenSize: 64}}}, producer.Facts{}, "speculators-v1", and(named, "final pre"), "", false},
		"speculators v0":           {torch(rec("input_ids", ids(9), "loss_mask", mask(9), "hidden_state", bf16(9, 192), "target", bf16(9, 64))), aux3, "speculators-v0", and(named, "final post"), "", false},
		"vllm":                     {torch(slots4), producer.Facts{}, "vllm", and(blocks, "block_3"), "", true},
		"vllm, last is the target": {torch(slots4), withTarget(all4), "vllm", and(named, "final pre"), "", true},
		"vllm, depth unknown":      {torch(slots4), all4, "vllm", and(named, "layer_4"), "", true},
		"vllm, final said":         {torch(slots4), final(aux3, producer.FinalPre), "vllm", and(named, "final pre"), "", true},
		"vllm, final said alone":   {torch(slots4), final(producer.Facts{}, producer.FinalPre), "vllm", and(blocks, "final pre"), "", true},
		"vllm, no last":            {torch(rec("hidden_states", bf16(9, 3, 64), "token_ids", ids(9))), withTarget(aux3), "vllm", named, "", true},
		"sglang final":             {producer.Dump{Container: producer.JSON, Value: sgl(64)}, withTarget(producer.Facts{}), "sglang", []string{"final post"}, "", true},
		"sglang final said":        {producer.Dump{Container: producer.JSON, Value: sgl(64)}, producer.Facts{Final: producer.FinalPost}, "sglang", []string{"final post"}, "", true},
		"sglang aux":               {producer.Dump{Container: producer.JSON, Value: sgl(192)}, aux3, "sglang", named, "", true},
		"sglang aux, by target":    {producer.Dump{Container: producer.JSON, Value: sgl(192)}, withTarget(producer.Facts{}), "sglang", blocks, "", true},
		"sglang aux and final":     {producer.Dump{Container: producer.JSON, Value: sgl(256)}, final(aux3, producer.FinalPost), "sglang", and(named, "final post"), "", true},
		"sglang both, by target":   {producer.Dump{Container: producer.JSON, Value: sgl(256)}, withTarget(final(aux3, producer.FinalPost)), "sglang", and(named, "final post"), "", true},
		"sglang batch":             {producer.Dump{Container: producer.JSON, Value: []format.Value{sgl(64)}}, withTarget(producer.Facts{}), "sglang", []string{"final post"}, "", true},
		"modelopt hf":              {torch(modelOpt("conv-0003")), aux3, "modelopt-hf", and(named, "final post"), "conv-0003", false},
		"modelopt hf, integer id":  {torch(modelOpt(int64(5))), aux3, "modelopt-hf", and(named, "final post"), "5", false},
		"modelopt hf, path as id":  {torch(modelOpt("../a/b")), aux3, "modelopt-hf", and(named, "final post"), "../a/b", false},
		"modelopt hf, prenorm":     {torch(with(modelOpt("a"), "hidden_states_prenorm", true)), aux3, "modelopt-hf", and(named, "final pre"), "a", false},
		"modelopt vllm":            {torch(with(with(modelOpt("a"), "hidden_states", vllmFinal), "aux_hidden_states", vllmAux)), aux3, "modelopt-vllm", and(named, "final pre"), "a", false},
		"modelopt vllm, prenorm":   {torch(with(with(with(modelOpt("a"), "hidden_states", vllmFinal), "aux_hidden_states", vllmAux), "hidden_states_prenorm", false)), aux3, "modelopt-vllm", and(named, "final post"), "a", false},
		"modelopt vllm, one token": {torch(rec("input_ids", ids(1), "hidden_states", oneFinal, "aux_hidden_states", oneAux, "loss_mask", mask(1), "conversation_id", "a")), aux3, "modelopt-vllm", and(named, "final pre"), "a", false},
		"modelopt trtllm":          {torch(without(modelOpt("a"), "loss_mask")), aux3, "modelopt-trtllm", and(named, "final post"), "a", true},
		"modelopt trtllm raw": {torch([]format.Value{rec("id", int64(0), "input_ids", ids(9), "hidden_state", bf16(9, 64), "aux_hidden_states", bf16(9, 192))}),
			aux3, "modelopt-trtllm", and(named, "final post"), "0", true},
		"angelslim eagle3": {torch(rec("input_ids", batched(ids(9)), "loss_mask", batched(mask(9)), "hidden_states", bf16(1, 9, 192), "target_hiddens", bf16(1, 9, 64),
			"inputs_embeds", bf16(1, 9, 64), "position_ids", nil)), aux3, "angelslim-eagle3", and(named, "final post"), "", false},
		"angelslim dflash": {torch(rec("input_ids", batched(ids(9)), "hidden_states", bf16(1, 9, 128), "loss_mask", batched(mask(9)), "attention_mask", batched(mask(9)))),
			producer.Facts{Layers: layers(t, "1,2")}, "angelslim-dflash", []string{"layer_1", "layer_2"}, "", false},
		"torchspec": {torch(rec("input_ids", ids(9), "loss_mask", mask(9), "aux_hidden_states", bf16(1, 9, 192), "hidden_states", bf16(1, 9, 64))),
			aux3, "torchspec", and(named, "final post"), "", false},
		"eagle":                {torch(eagle), producer.Facts{}, "eagle", []string{"final post"}, "", false},
		"eagle, by target":     {torch(with(eagle, "hidden_state", bf16(9, 192))), producer.Facts{Target: format.Target{HiddenSize: 192, Layers: 5}}, "eagle", []string{"final post"}, "", false},
		"eagle, final said":    {torch(with(eagle, "hidden_state", bf16(9, 192))), producer.Facts{Final: producer.FinalPost}, "eagle", []string{"final post"}, "", false},
		"eagle, forced":        {torch(with(eagle, "hidden_state", bf16(9, 192))), producer.Facts{Producer: "eagle"}, "eagle", []string{"final post"}, "", false},
		"aux under eagle name": {torch(with(eagle, "hidden_state", bf16(9, 192))), withTarget(producer.Facts{}), "arrays", blocks, "", false},
		"aux only, by layers":  {torch(with(eagle, "hidden_state", bf16(9, 192))), aux3, "arrays", named, "", false},
		"arrays":               {plain(rec("input_ids", ids(9), "loss_mask", integers(format.Uint8, []int64{9}, upTo(9)...), "aux_hidden_states", bf16(9, 192), "last_hidden_states", bf16(9, 64))), aux3, "arrays", and(named, "final unknown"), "", false},
		"arrays, norm said":    {plain(rec("input_ids", ids(9), "aux_hidden_states", bf16(9, 192), "hidden_states", bf16(9, 64))), final(aux3, producer.FinalPost), "arrays", and(named, "final post"), "", true},
		"arrays by layer":      {plain(rec("layer_3", bf16(9, 64), "layer_-1", bf16(9, 64), "input_ids", ids(9), "final", bf16(9, 64))), producer.Facts{}, "arrays", []string{"layer_-1", "layer_3", "final unknown"}, "", true},
		"arrays of slots":      {plain(rec("hidden_states", bf16(9, 4, 64), "token_ids", ids(9))), withTarget(all4), "arrays", and(named, "final unknown"), "", true},
		"arrays of a bare":     {plain(rec("hidden_states", bf16(9, 64), "token_ids", ids(9))), withTarget(producer.Facts{}), "arrays", []string{"final unknown"}, "", true},
		"arrays of one token":  {plain(rec("hidden_states", bf16(1, 3, 64), "token_ids", ids(1))), aux3, "arrays", named, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, samples, err := read(t, tt.dump, tt.facts)
			if err != nil {
				t.Fatal(err)
			}
			if len(samples) != 1 {
				t.Fatalf("Samples() gave %d, want 1", len(samples))
			}
			s := samples[0]
			if m.Producer != tt.producer {
				t.Errorf("Recognise() = %s (%s), want %s", m.Producer, m.Why, tt.producer)
			}
			if d := cmp.Diff(tt.columns, columns(s)); d != "" {
				t.Errorf("columns (-want +got):\n%s", d)
			}
			if s.ID != tt.id {
				t.Errorf("ID = %q, want %q", s.ID, tt.id)
			}
			if (s.LossMask == nil) != tt.noMask {
				t.Errorf("LossMask = %v, want nil: %t", s.LossMask, tt.noMask)
			}
			if !slices.Contains(producer.Names(), m.Producer) {
				t.Errorf("Names() lacks %s", m.Producer)
			}
			if m.Why == "" || m.Title == "" {
				t.Errorf("Why = %q, Title = %q, want both", m.Why, m.Title)
			}
			s.ID = "x"
			if err := s.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestViews holds the bytes of every state against those of the tensor it came from,
// over all state types and the sizes around which loops go wrong.
func TestViews(t *testing.T) {
	t.Parallel()
	for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		for _, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
			t.Run(fmt.Sprintf("%s-%d", d, n), func(t *testing.T) {
				t.Parallel()
				const h = 5
				aux, final := states(d, 1, 1, int64(n), 3*h), states(d, 2, 1, int64(n), h)
				_, ss, err := read(t, torch(rec("input_ids", ids(n), "loss_mask", mask(n), "aux_hidden_state", aux, "hidden_state", final)), producer.Facts{})
				if err != nil {
					t.Fatal(err)
				}
				for i := range 3 {
					got := ss[0].Hidden[i].Rows
					if d := cmp.Diff(block(aux, i*h, h), rows(got)); d != "" {
						t.Errorf("block %d (-want +got):\n%s", i, d)
					}
					if &got.Data[0] != &aux.Data[i*h*d.Size()] {
						t.Errorf("block %d is a copy, want a view", i)
					}
				}
				if d := cmp.Diff(final.Data, rows(ss[0].Hidden[3].Rows)); d != "" {
					t.Errorf("final (-want +got):\n%s", d)
				}

				slots := states(d, 3, int64(n), 3, h)
				if _, ss, err = read(t, torch(rec("hidden_states", slots, "token_ids", ids(n))), producer.Facts{}); err != nil {
					t.Fatal(err)
				}
				flat := *slots
				flat.Shape = []int64{int64(n), 3 * h}
				for i := range 3 {
					got := ss[0].Hidden[i].Rows
					if d := cmp.Diff(block(&flat, i*h, h), rows(got)); d != "" {
						t.Errorf("slot %d (-want +got):\n%s", i, d)
					}
					if &got.Data[0] != &slots.Data[i*h*d.Size()] {
						t.Errorf("slot %d is a copy, want a view", i)
					}
				}
			})
		}
	}
}

func TestStridedViews(t *testing.T) {
	t.Parallel()
	final, aux := stacked(9)
	_, ss, err := read(t, torch(with(with(modelOpt("a"), "hidden_states", final), "aux_hidden_states", aux)), producer.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	whole := &format.Tensor{DType: format.BFloat16, Shape: []int64{9, 256}, Data: aux.Data}
	for i, h := range ss[0].Hidden {
		if d := cmp.Diff(block(whole, i*64, 64), rows(h.Rows)); d != "" {
			t.Errorf("%s (-want +got):\n%s", h.State, d)
		}
	}
}

func TestSpeculatorsV1Views(t *testing.T) {
	t.Parallel()
	list := []format.Value{states(format.BFloat16, 1, 9, 64), states(format.BFloat16, 2, 9, 64)}
	// The mask is one row of a batch, so it is a view into a bigger storage.
	batch := i64(append(slices.Repeat([]int64{0}, 9), slices.Repeat([]int64{1}, 9)...)...)
	view := &format.Tensor{DType: format.Int64, Shape: []int64{9}, Strides: []int64{1}, Data: batch.Data[72:]}
	_, ss, err := read(t, torch(rec("input_ids", ids(9), "hidden_states", list, "loss_mask", view)), producer.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range ss[0].Hidden {
		if d := cmp.Diff(list[i].(*format.Tensor).Data, rows(h.Rows)); d != "" {
			t.Errorf("%s (-want +got):\n%s", h.State, d)
		}
	}
	if d := cmp.Diff(slices.Repeat([]byte{1}, 9), ss[0].LossMask); d != "" {
		t.Errorf("mask (-want +got):\n%s", d)
	}
}

func TestMixedDTypes(t *testing.T) {
	t.Parallel()
	_, ss, err := read(t, torch(with(eagle3(9), "hidden_state", states(format.Float32, 1, 1, 9, 64))), producer.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ss[0].Layout().String(), "block 0 (layer unknown) bfloat16, block 1 (layer unknown) bfloat16, block 2 (layer unknown) bfloat16, final (post) float32"; got != want {
		t.Errorf("Layout() = %s, want %s", got, want)
	}
}
