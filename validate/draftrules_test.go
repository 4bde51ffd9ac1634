package validate_test

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"

	"hsx/format"
	"hsx/validate"
)

// draftTensors are those of a sound draft of hidden size 8 for a target of 16, three
// blocks, with 4 of 10 tokens.
func draftTensors() map[string]*format.Tensor {
	return map[string]*format.Tensor{
		"fc.weight": draftMatrix(8, 48), "norm.weight": draftMatrix(8), "lm_head.weight": draftMatrix(4, 8),
		"midlayer.self_attn.q_proj.weight": draftMatrix(8, 16), "midlayer.self_attn.k_proj.weight": draftMatrix(4, 16),
		"midlayer.self_attn.v_proj.weight": draftMatrix(4, 16), "midlayer.self_attn.o_proj.weight": draftMatrix(8, 8),
		"midlayer.mlp.down_proj.weight": draftMatrix(8, 8), "midlayer.input_layernorm.weight": draftMatrix(8),
		"midlayer.hidden_norm.weight": draftMatrix(8), "midlayer.post_attention_layernorm.weight": draftMatrix(8),
		"d2t": draftInts(1, 2, 3, 6), "t2d": draftBools(0, 1, 0, 1, 0, 1, 0, 0, 0, 1),
	}
}

func draftMatrix(shape ...int64) *format.Tensor {
	n, _ := format.Elems(shape)
	return &format.Tensor{DType: format.BFloat16, Shape: shape, Data: make([]byte, 2*n)}
}

func draftInts(v ...int64) *format.Tensor {
	t := &format.Tensor{DType: format.Int64, Shape: []int64{int64(len(v))}}
	for _, x := range v {
		t.Data = binary.LittleEndian.AppendUint64(t.Data, uint64(x))
	}
	return t
}

func draftBools(v ...byte) *format.Tensor {
	return &format.Tensor{DType: format.Bool, Shape: []int64{int64(len(v))}, Data: v}
}

// draftRecord is the tensors in the order of their names.
func draftRecord(tensors map[string]*format.Tensor) *format.Record {
	rec := &format.Record{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		rec.Fields = append(rec.Fields, format.Field{Key: name, Value: tensors[name]})
	}
	return rec
}

type draftRuleCase struct {
	config string // without its braces, after the sizes
	change func(m map[string]*format.Tensor)
	in     validate.DraftInput
	want   []string
	parts  []string
}

func draftRuleCases() map[string]draftRuleCase {
	type tensors = map[string]*format.Tensor
	set := func(name string, t *format.Tensor) func(tensors) {
		return func(m tensors) { m[name] = t }
	}
	drop := func(names ...string) func(tensors) {
		return func(m tensors) {
			for _, n := range names {
				delete(m, n)
			}
		}
	}
	rename := func(from, to string) func(tensors) {
		return func(m tensors) {
			for name, t := range maps.Clone(m) {
				if rest, ok := strings.CutPrefix(name, from); ok {
					delete(m, name)
					m[to+rest] = t
				}
			}
		}
	}
	mla := func(in int64) func(tensors) {
		return func(m tensors) {
			drop("midlayer.self_attn.q_proj.weight", "midlayer.self_attn.k_proj.weight", "midlayer.self_attn.v_proj.weight")(m)
			m["midlayer.self_attn.q_a_proj.weight"], m["midlayer.self_attn.kv_a_proj_with_mqa.weight"] = draftMatrix(6, in), draftMatrix(6, in)
			m["midlayer.self_attn.q_b_proj.weight"] = draftMatrix(8, 6)
		}
	}
	full := func(m tensors) {
		m["lm_head.weight"] = draftMatrix(10, 8)
		drop("d2t", "t2d")(m)
	}
	counts := []int64{0, 90, 0, 4, 0, 2, 3, 0, 0, 0}
	return map[string]draftRuleCase{
		"sound":                  {},
		"sound, as ModelOpt":     {change: rename("midlayer.", "layers.0.")},
		"sound, as Automodel":    {change: rename("", "model.")},
		"sound, MLA":             {change: mla(16)},
		"sound, no map":          {config: `,"draft_vocab_size":10`, change: full},
		"sound, d2t alone":       {change: drop("t2d")},
		"sound, int32 and bytes": {change: func(m tensors) { m["t2d"].DType = format.Uint8 }},
		"sound, long enough":     {config: `,"max_position_embeddings":100`, in: validate.DraftInput{Longest: 100}},
		"sound, all covered":     {in: validate.DraftInput{Supervised: []int64{0, 9, 0, 4, 0, 2, 0, 0, 0, 3}}},
		"sound, first tokens":    {change: func(m tensors) { m["d2t"], m["t2d"] = draftInts(0, 0, 0, 0), draftBools(1, 1, 1, 1, 0, 0, 0, 0, 0, 0) }},
		"sound, by a flag":       {config: `,"eh_proj_before_attn":true`, change: set("midlayer.self_attn.q_proj.weight", draftMatrix(8, 8))},
		"sound, norms": {config: `,"fc_norm":true,"norm_before_fc":true`, change: func(m tensors) {
			m["fc_norm.0.weight"], m["fc_norm.1.weight"], m["fc_norm.2.weight"], m["input_norm.weight"] = draftMatrix(16), draftMatrix(16), draftMatrix(16), draftMatrix(48)
		}},
		"sound, four by the data":  {change: set("fc.weight", draftMatrix(8, 64)), in: validate.DraftInput{Data: configData(4)}},
		"sound, the final is last": {config: `,"aux_hidden_states_layer_ids":[0,2,4,29]`, change: set("fc.weight", draftMatrix(8, 64)), in: validate.DraftInput{Data: configLayout(format.NormPre, 0, 2, 4)}},

		"no fc":              {change: drop("fc.weight"), want: []string{"error tensor-missing"}, parts: []string{"fc.weight is not among"}},
		"no attention":       {change: rename("midlayer.self_attn.", "midlayer.mlp.x"), want: []string{"error tensor-missing"}},
		"no head":            {change: drop("lm_head.weight"), want: []string{"error tensor-missing"}},
		"unknown name":       {change: set("eh_proj.weight", draftMatrix(8)), want: []string{"warning tensor-skipped"}, parts: []string{"eh_proj.weight"}},
		"unknown part":       {change: set("midlayer.conv.weight", draftMatrix(8)), want: []string{"warning tensor-skipped"}},
		"unknown layer":      {change: set("layers.x.mlp.weight", draftMatrix(8)), want: []string{"warning tensor-skipped"}},
		"a trainer's name":   {change: rename("fc.", "context_proj."), want: []string{"warning tensor-skipped"}, parts: []string{"context_proj.weight"}},
		"layers.0 in sglang": {change: rename("midlayer.", "layers.0."), in: validate.DraftInput{Server: "sglang"}, want: []string{"warning tensor-skipped"}},
		"layers.0 of MLA":    {change: func(m tensors) { mla(16)(m); rename("midlayer.", "layers.0.")(m) }, in: validate.DraftInput{Server: "sglang"}},

		"fc of another target": {change: set("fc.weight", draftMatrix(8, 36)), want: []string{"error fc-width"}, parts: []string{"36 values (not a multiple of 16), want 3 × 16 = 48"}},
		"fc of two":            {change: set("fc.weight", draftMatrix(8, 32)), want: []string{"error fc-width"}, parts: []string{"32 values (2 × 16), want 3 × 16"}},
		"fc against the data":  {in: validate.DraftInput{Data: configData(2)}, want: []string{"error fc-width"}},
		"fc's output":          {change: set("fc.weight", draftMatrix(9, 48)), want: []string{"error fc-width"}, parts: []string{"gives 9 values, want 8"}},
		"fc no matrix":         {change: set("fc.weight", draftMatrix(8)), want: []string{"error fc-width"}},
		"fc skipped":           {change: set("embed_tokens.weight", draftMatrix(2, 48)), want: []string{"warning fc-skipped"}, parts: []string{"48"}},
		"fc not skipped":       {change: set("embed_tokens.weight", draftMatrix(2, 48)), in: validate.DraftInput{Server: "vllm"}},
		"attention":            {change: set("midlayer.self_attn.q_proj.weight", draftMatrix(8, 8)), want: []string{"error attention-input-width"}, parts: []string{"q_proj.weight takes 8 values, want 2 × 8"}},
		"attention, MLA":       {change: mla(8), want: []string{"error attention-input-width"}, parts: []string{"q_a_proj"}},
		"head":                 {change: set("lm_head.weight", draftMatrix(3, 8)), want: []string{"error lm-head-shape"}, parts: []string{"3 rows, want 4"}},
		"head's input":         {change: set("lm_head.weight", draftMatrix(4, 9)), want: []string{"error lm-head-shape"}},
		"vocabulary size":      {config: `,"draft_vocab_size":5`, want: []string{"error draft-vocab-size"}, parts: []string{"5, want 4"}},
		"three sizes":          {config: `,"draft_vocab_size":5`, change: set("lm_head.weight", draftMatrix(3, 8)), want: []string{"error draft-vocab-size"}},
		"d2t's length":         {change: func(m tensors) { m["d2t"] = draftInts(1, 2, 3); delete(m, "t2d") }, want: []string{"error vocab-map-shape"}},
		"t2d's length":         {change: set("t2d", draftBools(1, 1, 1, 1)), want: []string{"error vocab-map-shape"}, parts: []string{"4 entries, want 10"}},
		"d2t of floats":        {change: set("d2t", draftMatrix(4)), want: []string{"error vocab-map-shape"}, parts: []string{"bfloat16"}},
		"d2t a matrix":         {change: func(m tensors) { m["d2t"].Shape = []int64{2, 2} }, want: []string{"error vocab-map-shape"}},
		"d2t cut":              {change: func(m tensors) { m["d2t"].Data = m["d2t"].Data[:8] }, want: []string{"error vocab-map-shape"}},
		"d2t strided":          {change: func(m tensors) { m["d2t"].Strides = []int64{2} }, want: []string{"error vocab-map-shape"}},

		"norm without flag":      {change: set("input_norm.weight", draftMatrix(48)), want: []string{"warning norm-flags"}},
		"norm against flag":      {config: `,"norm_before_fc":false`, change: set("input_norm.weight", draftMatrix(48)), want: []string{"error norm-flags"}},
		"flag without norm":      {config: `,"fc_norm":true`, want: []string{"error norm-flags"}, parts: []string{"fc_norm is true"}},
		"norm's width":           {config: `,"norm_before_fc":true`, change: set("input_norm.weight", draftMatrix(16)), want: []string{"error norm-flags"}},
		"one norm of three":      {config: `,"fc_norm":true`, change: set("fc_norm.0.weight", draftMatrix(16)), want: []string{"error norm-flags"}, parts: []string{"fc_norm.1.weight"}},
		"long samples":           {config: `,"max_position_embeddings":100`, in: validate.DraftInput{Longest: 101}, want: []string{"warning max-positions"}, parts: []string{"100, and the longest sample has 101"}},
		"no map":                 {change: drop("d2t", "t2d"), want: []string{"error vocab-map-missing"}, parts: []string{"4 tokens of the target's 10"}},
		"no d2t":                 {change: drop("d2t"), want: []string{"error vocab-map-missing"}},
		"d2t of zeros":           {change: set("d2t", draftInts(0, 0, 0, 0)), want: []string{"error d2t-unfilled"}},
		"d2t of zeros alone":     {change: func(m tensors) { m["d2t"] = draftInts(0, 0, 0, 0); delete(m, "t2d") }, want: []string{"error d2t-unfilled"}},
		"t2d of ones":            {change: set("t2d", draftBools(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)), want: []string{"error t2d-unfilled"}},
		"t2d marks fewer":        {change: set("t2d", draftBools(0, 1, 0, 1, 0, 1, 0, 0, 0, 0)), want: []string{"error vocab-maps-disagree"}, parts: []string{"3 tokens of the target, want 4"}},
		"t2d marks others":       {change: set("t2d", draftBools(0, 1, 0, 1, 0, 1, 0, 0, 1, 0)), want: []string{"error vocab-maps-disagree"}, parts: []string{"differ in 1 of 4 tokens: draft token 3 is 9 by d2t and 8 by t2d"}},
		"d2t of ids":             {change: set("d2t", draftInts(1, 3, 5, 9)), want: []string{"error vocab-maps-disagree"}, parts: []string{"target's ids themselves"}},
		"d2t of ids alone":       {change: func(m tensors) { m["d2t"] = draftInts(1, 3, 5, 9); delete(m, "t2d") }, want: []string{"error d2t-range"}, parts: []string{"1 of 4 entries of d2t lead outside of the target's 10 tokens, first entry 3 to 12"}},
		"d2t below":              {change: func(m tensors) { m["d2t"] = draftInts(-1, 2, 3, 6); delete(m, "t2d") }, want: []string{"error d2t-range"}},
		"d2t twice":              {change: func(m tensors) { m["d2t"] = draftInts(1, 0, 3, 6); delete(m, "t2d") }, want: []string{"error d2t-range"}, parts: []string{"entries 0 and 1 of d2t both lead to token 1"}},
		"d2t falls":              {change: func(m tensors) { m["d2t"] = draftInts(3, 0, 3, 6); delete(m, "t2d") }, want: []string{"warning d2t-range"}},
		"overflow":               {change: func(m tensors) { m["d2t"] = draftInts(1, 2, 3, 1<<63-1); delete(m, "t2d") }, want: []string{"error d2t-range"}},
		"coverage poor":          {in: validate.DraftInput{Supervised: []int64{0, 90, 6}}, want: []string{"warning vocab-coverage"}, parts: []string{"93.8 % of the 96"}},
		"coverage useless":       {in: validate.DraftInput{Supervised: []int64{50, 50}}, want: []string{"error vocab-coverage"}},
		"coverage nearly all":    {in: validate.DraftInput{Supervised: counts}},
		"coverage of no tokens":  {in: validate.DraftInput{Supervised: []int64{0, 0}}},
		"final state alone":      {config: `,"use_aux_hidden_state":false`, change: drop("fc.weight")},
		"final state and triple": {config: `,"use_aux_hidden_state":false`, want: []string{"error fc-width"}},
	}
}

func TestCheckDraft(t *testing.T) {
	t.Parallel()
	fired := map[string]bool{}
	for name, tc := range draftRuleCases() {
		for _, w := range tc.want {
			_, rule, _ := strings.Cut(w, " ")
			fired[rule] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := `{"hidden_size":8,"vocab_size":10`
			if !strings.Contains(tc.config, "draft_vocab_size") {
				head += `,"draft_vocab_size":4`
			}
			config, err := validate.ParseConfig([]byte(head + tc.config + "}"))
			if err != nil {
				t.Fatalf("ParseConfig: got error %v", err)
			}
			tensors := draftTensors()
			if tc.change != nil {
				tc.change(tensors)
			}
			in := tc.in
			in.Config, in.Checkpoint = config, validate.NewCheckpoint(draftRecord(tensors))
			in.Target = format.Target{Layers: 30, HiddenSize: 16, VocabSize: 10}
			out := validate.NewCollector(20, nil)
			validate.CheckDraft(in, out)
			checkGroups(t, out, tc.want, tc.parts)
		})
	}
	checkAllFire(t, "draft", fired)
}

// TestCheckpointNested finds the tensors where torch checkpoints keep them.
func TestCheckpointNested(t *testing.T) {
	t.Parallel()
	rec := draftRecord(draftTensors())
	for _, keys := range [][]string{{}, {"model"}, {"state_dict"}, {"state_dict", "module"}} {
		r := rec
		for _, key := range keys {
			r = &format.Record{Fields: []format.Field{{Key: "epoch", Value: int64(3)}, {Key: key, Value: r}}}
		}
		if got := validate.NewCheckpoint(r).FCWidth(); got != 48 {
			t.Errorf("NewCheckpoint under %v: FCWidth() got %d, want 48", keys, got)
		}
	}
	loop := &format.Record{}
	loop.Fields = []format.Field{{Key: "model", Value: loop}}
	if got := validate.NewCheckpoint(loop).FCWidth(); got != 0 {
		t.Errorf("NewCheckpoint of a record in itself: FCWidth() got %d, want 0", got)
	}
}

// TestCheckDraftWithoutConfig wants a checkpoint alone to be judged by the rest.
func TestCheckDraftWithoutConfig(t *testing.T) {
	t.Parallel()
	tensors := draftTensors()
	tensors["fc.weight"] = draftMatrix(8, 40)
	out := validate.NewCollector(20, nil)
	validate.CheckDraft(validate.DraftInput{Checkpoint: validate.NewCheckpoint(draftRecord(tensors)), Target: format.Target{HiddenSize: 16, VocabSize: 10}}, out)
	checkGroups(t, out, []string{"error fc-width"}, nil)
}

func BenchmarkCheckDraft(b *testing.B) {
	const vocab, draft = 163840, 32000
	tensors := draftTensors()
	marks, offsets := make([]byte, vocab), make([]int64, draft)
	for i := range draft {
		marks[5*i], offsets[i] = 1, int64(4*i)
	}
	tensors["d2t"], tensors["t2d"], tensors["lm_head.weight"] = draftInts(offsets...), draftBools(marks...), draftMatrix(draft, 8)
	config, err := validate.ParseConfig([]byte(`{"hidden_size":8,"draft_vocab_size":32000}`))
	if err != nil {
		b.Fatal(err)
	}
	in := validate.DraftInput{Checkpoint: validate.NewCheckpoint(draftRecord(tensors)), Config: config, Target: format.Target{HiddenSize: 16, VocabSize: vocab}}
	b.SetBytes(vocab + 8*draft)
	b.ReportAllocs()
	for b.Loop() {
		out := validate.NewCollector(3, nil)
		validate.CheckDraft(in, out)
		if worst, ok := out.Worst(); ok {
			b.Fatalf("got a finding of severity %s, want none", worst)
		}
	}
}

// TestVocabMapTypes reads maps of every integer type and of many sizes: every second
// token of the target, which the offsets name when entry i is i.
func TestVocabMapTypes(t *testing.T) {
	t.Parallel()
	for dtype := format.Uint8; dtype <= format.Int64; dtype++ {
		for _, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
			if n > 128 && dtype.Size() == 1 {
				continue
			}
			d2t := &format.Tensor{DType: dtype, Shape: []int64{int64(n)}}
			t2d := &format.Tensor{DType: dtype, Shape: []int64{int64(2 * n)}}
			for i := range 2 * n {
				var word [8]byte
				if i < n {
					binary.LittleEndian.PutUint64(word[:], uint64(i))
					d2t.Data = append(d2t.Data, word[:dtype.Size()]...)
				}
				binary.LittleEndian.PutUint64(word[:], uint64(1-i%2))
				t2d.Data = append(t2d.Data, word[:dtype.Size()]...)
			}
			tensors := draftTensors()
			tensors["d2t"], tensors["t2d"], tensors["lm_head.weight"] = d2t, t2d, draftMatrix(int64(n), 8)
			config := &validate.Config{HiddenSize: 8, DraftVocabSize: &n}
			check := func(want []string) {
				t.Helper()
				out := validate.NewCollector(3, nil)
				validate.CheckDraft(validate.DraftInput{
					Checkpoint: validate.NewCheckpoint(draftRecord(tensors)), Config: config, Target: format.Target{HiddenSize: 16, VocabSize: 2 * n},
				}, out)
				checkGroups(t, out, want, nil)
			}
			if n > 1 { // of one token, offset 0 is no sign of anything
				check(nil)
			}
			t2d.Data[(2*n-1)*dtype.Size()] = 1
			t2d.Data[(2*n-2)*dtype.Size()] = 0
			check([]string{"error vocab-maps-disagree"})
		}
	}
}
