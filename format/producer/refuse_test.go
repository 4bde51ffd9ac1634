package producer_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"hsx/format"
	"hsx/format/producer"
)

func TestRefusals(t *testing.T) {
	t.Parallel()
	sf := eagle3(97)
	short := eagle3(64)
	slots4 := rec("hidden_states", bf16(9, 4, 64), "token_ids", ids(9))
	eagle := rec("input_ids", ids(9), "hidden_state", bf16(9, 192), "loss_mask", mask(9))
	dflash := rec("input_ids", ids(9), "loss_mask", mask(9), "hidden_states", bf16(1, 9, 128))
	torchspec := rec("input_ids", ids(9), "loss_mask", mask(9), "aux_hidden_states", bf16(9, 192), "hidden_states", bf16(9, 64))
	wrongRow := &producer.Row{Index: 1, Tokens: []int32{1, 2, 3, 4, 5, 6, 70, 8, 9}}
	shortRow := &producer.Row{Index: 1, Tokens: []int32{1, 2}}
	shortMask := &producer.Row{Index: 1, Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}, LossMask: []byte{1}}
	v1 := producer.Dump{
		Value:    rec("input_ids", ids(9), "hidden_states", v1List(4), "loss_mask", mask(9)),
		Siblings: producer.Siblings{V1: &producer.V1Config{LayerIDs: []int{0, 2, 3, 4}, HiddenSize: 64}},
	}
	badV1 := v1
	badV1.Siblings = producer.Siblings{V1: &producer.V1Config{LayerIDs: []int{0, 3, 2, 4}}}
	wideV1 := v1
	wideV1.Siblings = producer.Siblings{V1: &producer.V1Config{LayerIDs: []int{0, 2, 3, 4}, HiddenSize: 32}}
	vllmFinal, vllmAux := stacked(9)
	aux3 := producer.Facts{Layers: layers(t, "0,2,3")}
	all4 := producer.Facts{Layers: layers(t, "0,2,3,4")}
	withTarget := func(f producer.Facts) producer.Facts { f.Target = target(); return f }
	final := func(f producer.Facts, x producer.Final) producer.Facts { f.Final = x; return f }
	repeated := &format.Tensor{DType: format.BFloat16, Shape: []int64{1, 97, 192}, Strides: []int64{0, 0, 1}, Data: make([]byte, 384)}
	transposed := &format.Tensor{DType: format.BFloat16, Shape: []int64{97, 64}, Strides: []int64{1, 97}, Data: make([]byte, 97*64*2)}
	cut := bf16(1, 97, 64)
	cut.Data = cut.Data[:100]
	v1bad := v1List(4)
	v1bad[2] = bf16(9, 32)

	for name, tt := range map[string]struct {
		dump   producer.Dump
		facts  producer.Facts
		want   string
		tensor string
		kind   error
	}{
		"rows are a suffix":   {torch(with(sf, "aux_hidden_state", bf16(1, 65, 192))), aux3, "aux_hidden_state has 65 rows for 97 tokens (a prefix-cache hit leaves only a suffix)", "aux_hidden_state", format.ErrCorrupt},
		"too many rows":       {torch(with(sf, "hidden_state", bf16(1, 98, 64))), aux3, "hidden_state has 98 rows for 97 tokens", "hidden_state", format.ErrCorrupt},
		"mask too short":      {torch(with(short, "loss_mask", mask(63))), aux3, "loss_mask has 63 values for 64 tokens", "loss_mask", format.ErrCorrupt},
		"mask too long":       {torch(with(short, "loss_mask", mask(65))), aux3, "loss_mask has 65 values for 64 tokens", "loss_mask", format.ErrCorrupt},
		"two blocks":          {torch(with(short, "aux_hidden_state", bf16(1, 64, 128))), aux3, "aux_hidden_state is 128 wide: 2 states of hidden size 64, but 3 layers are named (width 192)", "aux_hidden_state", format.ErrUnsupported},
		"no multiple":         {torch(with(short, "aux_hidden_state", bf16(1, 64, 130))), aux3, "aux_hidden_state is 130 wide, not a multiple of the width of hidden_state, 64", "aux_hidden_state", format.ErrUnsupported},
		"final of other size": {torch(with(short, "hidden_state", bf16(1, 64, 192))), withTarget(aux3), "hidden_state is 192 wide, want the target's hidden size 64", "hidden_state", format.ErrUnsupported},
		"layer out of range":  {torch(sf), withTarget(producer.Facts{Layers: layers(t, "0,2,5")}), "layer P_5 (5 post, 6 boundary) is out of range: the target has 5 layers, so the last is P_4", "", format.ErrUnsupported},
		"layers for a final":  {torch(with(sf, "aux_hidden_state", nil)), aux3, "dump holds 0 aux states, but 3 layers are named: P_0 P_2 P_3 (post 0,2,3; boundary 1,3,4)", "", format.ErrUnsupported},
		"nothing left":        {torch(with(sf, "aux_hidden_state", nil)), producer.Facts{Final: producer.FinalNone}, "dump holds no state but the final, which --final none leaves out", "", format.ErrUnsupported},
		"final said, none":    {torch(dflash), final(producer.Facts{Layers: layers(t, "1,2")}, producer.FinalPost), "dump holds no final state, but --final post says that it does", "", format.ErrUnsupported},
		"dflash, no size":     {torch(dflash), producer.Facts{}, "hidden_states is 128 wide, and nothing says how many states that is: name the layers (--layers) or the target (--target)", "hidden_states", format.ErrUnsupported},
		"dflash, three":       {torch(dflash), aux3, "hidden_states is 128 wide, not a multiple of the 3 layers named", "hidden_states", format.ErrUnsupported},
		"integer states":      {torch(with(sf, "hidden_state", integers(format.Int16, []int64{1, 97, 64}, make([]int64, 97*64)...))), aux3, "hidden_state is int16, want bfloat16, float16 or float32", "hidden_state", format.ErrUnsupported},
		"double states":       {torch(with(sf, "hidden_state", states(format.Float64, 0, 1, 97, 64))), aux3, "hidden_state is float64, want bfloat16, float16 or float32", "hidden_state", format.ErrUnsupported},
		"untyped states":      {torch(with(sf, "hidden_state", states(format.Uint16, 0, 1, 97, 64))), aux3, "hidden_state is uint16, want bfloat16, float16 or float32 (if these are bit patterns of bfloat16, --dtype bf16 says so)", "hidden_state", format.ErrUnsupported},
		"batch of two":        {torch(with(sf, "hidden_state", bf16(2, 97, 64))), aux3, "hidden_state has shape [2 97 64], want a first dimension of 1: one sample", "hidden_state", format.ErrUnsupported},
		"rank 1":              {torch(with(sf, "hidden_state", bf16(64))), aux3, "hidden_state has shape [64], want [tokens, width] or [1, tokens, width]", "hidden_state", format.ErrUnsupported},
		"rank 0":              {torch(with(sf, "hidden_state", bf16())), aux3, "hidden_state has shape [], want [tokens, width] or [1, tokens, width]", "hidden_state", format.ErrUnsupported},
		"rank 4":              {torch(with(sf, "hidden_state", bf16(1, 1, 97, 64))), aux3, "hidden_state has shape [1 1 97 64], want [tokens, width] or [1, tokens, width]", "hidden_state", format.ErrUnsupported},
		"no width":            {torch(with(sf, "hidden_state", bf16(1, 97, 0))), aux3, "hidden_state has shape [1 97 0], which holds nothing", "hidden_state", format.ErrUnsupported},
		"no tokens":           {torch(with(sf, "input_ids", i64())), aux3, "input_ids has shape [0]: no tokens", "input_ids", format.ErrUnsupported},
		"ids of rank 3":       {torch(with(sf, "input_ids", batched(batched(ids(97))))), aux3, "input_ids has shape [1 1 97], want [tokens] or [1, tokens]", "input_ids", format.ErrUnsupported},
		"ids are floats":      {torch(with(sf, "input_ids", bf16(97))), aux3, "input_ids is bfloat16, want integers", "input_ids", format.ErrUnsupported},
		"ids are a string":    {torch(with(sf, "input_ids", "1 2 3")), aux3, "input_ids is a string, want a tensor", "input_ids", format.ErrUnsupported},
		"a typed nil":         {torch(with(sf, "hidden_state", (*format.Tensor)(nil))), aux3, "hidden_state is None, want a tensor", "hidden_state", format.ErrUnsupported},
		"repeated rows":       {torch(with(sf, "aux_hidden_state", repeated)), aux3, "aux_hidden_state is a view of shape [1 97 192] and strides [0 0 1], want rows that follow one another", "aux_hidden_state", format.ErrUnsupported},
		"transposed":          {torch(with(sf, "hidden_state", transposed)), aux3, "hidden_state is a view of shape [97 64] and strides [1 97], want rows that follow one another", "hidden_state", format.ErrUnsupported},
		"bytes missing":       {torch(with(sf, "hidden_state", cut)), aux3, `tensor "hidden_state" of shape [1 97 64] and type bfloat16 needs 12416 bytes, has 100`, "hidden_state", format.ErrCorrupt},
		"prenorm is a number": {torch(with(modelOpt("a"), "hidden_states_prenorm", int64(1))), aux3, "hidden_states_prenorm is an integer, want a bool", "hidden_states_prenorm", format.ErrUnsupported},
		"prenorm contrary":    {torch(with(modelOpt("a"), "hidden_states_prenorm", true)), final(aux3, producer.FinalPost), "hidden_states_prenorm is true, but --final post says the contrary", "hidden_states_prenorm", format.ErrUnsupported},
		"id with a newline":   {torch(modelOpt("a\nb")), aux3, "conversation_id holds the control character U+000A", "conversation_id", format.ErrUnsupported},
		"id with a zero byte": {torch(modelOpt("a\x00")), aux3, "conversation_id holds the control character U+0000", "conversation_id", format.ErrUnsupported},
		"id too long":         {torch(modelOpt(strings.Repeat("x", 4097))), aux3, "conversation_id has 4097 bytes, want at most 4096", "conversation_id", format.ErrUnsupported},
		"id not UTF-8":        {torch(modelOpt("\xff")), aux3, "conversation_id is not valid UTF-8", "conversation_id", format.ErrUnsupported},
		"id is a float":       {torch(modelOpt(1.5)), aux3, "conversation_id is a number, want a string or an integer", "conversation_id", format.ErrUnsupported},

		"row of other tokens":    {producer.Dump{Value: slots4, Row: wrongRow}, aux3, "token_ids differs from row 1 of the dataset at position 6: 7, want 70", "token_ids", format.ErrCorrupt},
		"row of other length":    {producer.Dump{Value: slots4, Row: shortRow}, aux3, "token_ids has 9 values, row 1 of the dataset has 2 tokens", "token_ids", format.ErrCorrupt},
		"row of other mask":      {producer.Dump{Value: slots4, Row: shortMask}, aux3, "loss_mask of row 1 has 1 values for 9 tokens", "loss_mask", format.ErrCorrupt},
		"slots of rank 2":        {torch(with(slots4, "hidden_states", bf16(9, 64))), aux3, "hidden_states has shape [9 64], want [tokens, slots, hidden size]", "hidden_states", format.ErrUnsupported},
		"slots, a suffix":        {torch(with(slots4, "hidden_states", bf16(8, 4, 64))), aux3, "hidden_states has 8 rows for 9 tokens (a prefix-cache hit leaves only a suffix)", "hidden_states", format.ErrCorrupt},
		"slots of other size":    {torch(slots4), producer.Facts{Target: format.Target{Layers: 5, HiddenSize: 32}}, "hidden_states is 64 wide, want the target's hidden size 32", "hidden_states", format.ErrUnsupported},
		"slots without numbers":  {torch(with(slots4, "hidden_states", integers(format.Int8, []int64{9, 1, 1}, make([]int64, 9)...))), producer.Facts{}, "hidden_states is int8, want bfloat16, float16 or float32", "hidden_states", format.ErrUnsupported},
		"vllm, one too few":      {torch(slots4), aux3, "dump has 4 slots, but 3 layers are named (if the last slot is the final, --final pre says so)", "", format.ErrUnsupported},
		"vllm, two too few":      {torch(slots4), producer.Facts{Layers: layers(t, "0,2")}, "dump has 4 slots, but 2 layers are named: P_0 P_2 (post 0,2; boundary 1,3)", "", format.ErrUnsupported},
		"vllm, all and final":    {torch(slots4), final(all4, producer.FinalPre), "all 4 slots are named as layers, and --final pre says that one is the final: the target's config (--target) says whether it is P_4, or leave it out of the list", "", format.ErrUnsupported},
		"vllm, last is no final": {torch(slots4), final(withTarget(producer.Facts{Layers: layers(t, "0,1,2,3")}), producer.FinalPre), "all 4 slots are named and the last is P_3, so none is the final (P_4) that --final pre says is there", "", format.ErrUnsupported},
		"last layer twice":       {producer.Dump{Value: slots4, Row: &producer.Row{Tokens: []int32{1, 2, 3, 4, 5, 6, 7, 8, 9}}}, withTarget(producer.Facts{Layers: layers(t, "2,3,4")}), "P_4 is the target's last layer, but one more slot follows it: 3 layers are named for 4 slots", "", format.ErrUnsupported},
		"none said, one too few": {torch(slots4), final(aux3, producer.FinalNone), "dump holds 4 aux states, but 3 layers are named: P_0 P_2 P_3 (post 0,2,3; boundary 1,3,4)", "", format.ErrUnsupported},
		"v1 of unequal widths":   {torch(rec("input_ids", ids(9), "hidden_states", v1bad, "loss_mask", mask(9))), producer.Facts{}, "hidden_states[2] is 32 wide, hidden_states[0] is 64: want one hidden size", "hidden_states[2]", format.ErrUnsupported},
		"v1, empty list":         {torch(rec("input_ids", ids(9), "hidden_states", []format.Value{}, "loss_mask", mask(9))), producer.Facts{}, "hidden_states is a list of 0, want a list of states", "hidden_states", format.ErrUnsupported},
		"v1, list of None":       {torch(rec("input_ids", ids(9), "hidden_states", []format.Value{nil}, "loss_mask", mask(9))), producer.Facts{}, "hidden_states[0] is None, want a tensor", "hidden_states[0]", format.ErrUnsupported},
		"v1, config says other":  {v1, producer.Facts{Layers: layers(t, "1,3,4")}, "layers were named as P_1 P_3 P_4 (post 1,3,4; boundary 2,4,5), but data_config.json says P_0 P_2 P_3 P_4 (post 0,2,3,4; boundary 1,3,4,5): leave one of the two out", "", format.ErrUnsupported},
		"v1, config not sorted":  {badV1, producer.Facts{}, "data_config.json: layer list is not increasing: 2 follows 3, and engines concatenate in ascending order whatever the list says", "", format.ErrUnsupported},
		"v1, config of 32":       {wideV1, producer.Facts{}, "hidden_states[0] is 64 wide, but data_config.json says hidden_size 32", "hidden_states[0]", format.ErrUnsupported},
		"a state per element":    {torch(rec("hidden_states", bf16(1, 1025, 1), "token_ids", ids(1))), producer.Facts{}, "hidden_states holds 1025 states, want at most 1024", "hidden_states", format.ErrLimit},
		"a state per column":     {torch(rec("input_ids", ids(1), "loss_mask", mask(1), "aux_hidden_state", bf16(1, 1025), "hidden_state", bf16(1, 1))), producer.Facts{}, "aux_hidden_state holds 1025 states, want at most 1024", "aux_hidden_state", format.ErrLimit},

		"eagle or aux":         {torch(eagle), producer.Facts{}, "dump may be eagle (a final state 192 wide), or aux states alone (3 × 64): the target's config (--target), the layers (--layers) or --final decides", "", format.ErrUnsupported},
		"sglang, no facts":     {producer.Dump{Container: producer.JSON, Value: sgl(64)}, producer.Facts{}, "dump may be one final state (hidden_states is 64 wide), or aux states side by side: the target's config (--target), the layers (--layers) or --final decides", "", format.ErrUnsupported},
		"sglang, none said":    {producer.Dump{Container: producer.JSON, Value: sgl(192)}, producer.Facts{Final: producer.FinalNone}, "hidden_states is 192 wide, and nothing says how many aux states that is: name the layers (--layers) or the target (--target)", "hidden_states", format.ErrUnsupported},
		"sglang, aux or both":  {producer.Dump{Container: producer.JSON, Value: sgl(192)}, withTarget(producer.Facts{Final: producer.FinalPost}), "dump may be 3 aux states, or 2 aux states and the final: the layers (--layers) decides", "", format.ErrUnsupported},
		"sglang, no multiple":  {producer.Dump{Container: producer.JSON, Value: sgl(100)}, withTarget(producer.Facts{}), "hidden_states is 100 wide, not a multiple of the target's hidden size 64", "hidden_states", format.ErrUnsupported},
		"sglang, one more":     {producer.Dump{Container: producer.JSON, Value: sgl(256)}, withTarget(aux3), "hidden_states is 256 wide: 4 states of hidden size 64, but 3 layers are named (if the last is the final, --final says so)", "hidden_states", format.ErrUnsupported},
		"sglang, a final":      {producer.Dump{Container: producer.JSON, Value: sgl(64)}, withTarget(aux3), "hidden_states is 64 wide: 1 states of hidden size 64, but 3 layers are named", "hidden_states", format.ErrUnsupported},
		"sglang, no final":     {producer.Dump{Container: producer.JSON, Value: sgl(192)}, withTarget(final(aux3, producer.FinalPost)), "hidden_states is 192 wide: 3 states of hidden size 64, all 3 of them named as layers, so none is left for the final that --final says is there", "hidden_states", format.ErrUnsupported},
		"views without an id":  {torch(with(with(torchspec, "hidden_states", vllmFinal), "aux_hidden_states", vllmAux)), aux3, "dump may be modelopt-vllm, or torchspec: naming the producer (--producer) decides", "", format.ErrUnsupported},
		"views without a mask": {torch(without(with(with(modelOpt("a"), "hidden_states", vllmFinal), "aux_hidden_states", vllmAux), "loss_mask")), aux3, "dump may be modelopt-vllm, or modelopt-trtllm: naming the producer (--producer) decides", "", format.ErrUnsupported},

		"unknown keys":      {torch(rec("foo", bf16(2, 2), "bar\n", "x")), producer.Facts{}, `dump is of no known producer (it holds foo, "bar\n")`, "", format.ErrUnsupported},
		"one key more":      {torch(with(sf, "extra", bf16(1, 97, 64))), producer.Facts{}, "dump is of no known producer (it holds input_ids, loss_mask, aux_hidden_state, hidden_state, extra)", "", format.ErrUnsupported},
		"a lone tensor":     {torch(bf16(2, 2)), producer.Facts{}, "dump is of no known producer: it is a bfloat16 tensor of shape [2 2], want named tensors", "", format.ErrUnsupported},
		"nothing":           {torch(nil), producer.Facts{}, "dump is of no known producer: it is None, want named tensors", "", format.ErrUnsupported},
		"an empty list":     {torch([]format.Value{}), producer.Facts{}, "dump is of no known producer: it is a list of 0, want named tensors", "", format.ErrUnsupported},
		"producer unknown":  {torch(sf), producer.Facts{Producer: "nobody"}, "dump cannot be read as nobody: no such producer, want one of " + strings.Join(producer.Names(), ", ") + " (it holds input_ids, loss_mask, aux_hidden_state, hidden_state)", "", format.ErrUnsupported},
		"producer of other": {torch(sf), producer.Facts{Producer: "vllm"}, "dump cannot be read as vllm: it needs token_ids, hidden_states, and token_ids is missing or of another kind (it holds input_ids, loss_mask, aux_hidden_state, hidden_state)", "", format.ErrUnsupported},
		"producer of lists": {torch([]format.Value{sf}), producer.Facts{Producer: "specforge-dflash"}, "dump cannot be read as specforge-dflash: it is a list, want a single record (it holds input_ids, loss_mask, aux_hidden_state, hidden_state)", "", format.ErrUnsupported},
		"map for another":   {torch(sf), producer.Facts{Producer: "vllm", Map: []producer.Mapping{{Column: "final", Glob: "x"}}}, "dump cannot be read as vllm: names are mapped (--map), which is for arrays alone", "", format.ErrUnsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := read(t, tt.dump, tt.facts)
			if err == nil {
				t.Fatalf("got no error, want %q", tt.want)
			}
			if err.Error() != tt.want {
				t.Errorf("got error\n%s\nwant\n%s", err, tt.want)
			}
			if !errors.Is(err, tt.kind) {
				t.Errorf("errors.Is(%v, %v) = false", err, tt.kind)
			}
			var fe *producer.FieldError
			if errors.As(err, &fe) && fe.Tensor != tt.tensor {
				t.Errorf("Tensor = %q, want %q", fe.Tensor, tt.tensor)
			}
		})
	}
}

// TestOneBadItem reads the good items of a list around a damaged one.
func TestOneBadItem(t *testing.T) {
	t.Parallel()
	good := rec("id", int64(0), "input_ids", ids(9), "hidden_state", bf16(9, 64), "aux_hidden_states", bf16(9, 192))
	d := torch([]format.Value{"junk", good, with(good, "hidden_state", bf16(8, 64)), without(good, "input_ids"), with(good, "id", "last")})
	m, err := producer.Recognise(d, producer.Facts{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for s, err := range m.Samples() {
		if err != nil {
			got = append(got, err.Error())
			continue
		}
		got = append(got, s.ID)
	}
	want := []string{
		"item 0: dump is a string, want named tensors", "0",
		"item 2: hidden_state has 8 rows for 9 tokens (a prefix-cache hit leaves only a suffix)",
		"item 3: input_ids is missing from the record, which holds id, hidden_state, aux_hidden_states", "last",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Samples() gave\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, err := range m.Samples() {
		_ = err // whatever it is
		break   // an early stop must not be taken for a wish for more
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		key    string
		tensor *format.Tensor
		last   int64  // the value of the last token or mask entry
		want   string // an error instead
	}{
		"int32":            {"input_ids", integers(format.Int32, []int64{9}, -1, 2, 3, 4, 5, 6, 7, 8, 512), 512, ""},
		"uint32":           {"input_ids", integers(format.Uint32, []int64{9}, 1, 2, 3, 4, 5, 6, 7, 8, 9), 9, ""},
		"uint16":           {"input_ids", integers(format.Uint16, []int64{9}, 1, 2, 3, 4, 5, 6, 7, 8, 65535), 65535, ""},
		"int16":            {"input_ids", integers(format.Int16, []int64{9}, 1, 2, 3, 4, 5, 6, 7, 8, -9), -9, ""},
		"uint8":            {"input_ids", integers(format.Uint8, []int64{9}, 1, 2, 3, 4, 5, 6, 7, 8, 255), 255, ""},
		"int8":             {"input_ids", integers(format.Int8, []int64{9}, 1, 2, 3, 4, 5, 6, 7, 8, -1), -1, ""},
		"uint64":           {"input_ids", integers(format.Uint64, []int64{9}, 1, 2, 3, 4, 5, 6, 7, 8, 9), 9, ""},
		"negative":         {"input_ids", i64(1, 2, 3, 4, 5, 6, 7, 8, math.MinInt32), math.MinInt32, ""},
		"beyond int32":     {"input_ids", i64(1, 2, 3, 4, 5, 6, 7, 8, 1<<31), 0, "input_ids holds 2147483648 at position 8, which is beyond int32"},
		"below int32":      {"input_ids", i64(1, 2, -1<<31-1, 4, 5, 6, 7, 8, 9), 0, "input_ids holds -2147483649 at position 2, which is beyond int32"},
		"uint64 near 2^64": {"input_ids", integers(format.Uint64, []int64{9}, -1, 2, 3, 4, 5, 6, 7, 8, 9), 0, "input_ids holds a number above 2^63 at position 0, which is beyond int32"},
		"bool ids":         {"input_ids", integers(format.Bool, []int64{9}, upTo(9)...), 0, "input_ids is bool, want integers"},
		"strided ids":      {"input_ids", &format.Tensor{DType: format.Int64, Shape: []int64{9}, Strides: []int64{2}, Data: i64(upTo(17)...).Data}, 17, ""},

		"mask of bool":      {"loss_mask", integers(format.Bool, []int64{9}, 0, 0, 0, 0, 0, 0, 0, 0, 1), 1, ""},
		"mask of uint8":     {"loss_mask", integers(format.Uint8, []int64{9}, 0, 0, 0, 0, 0, 0, 0, 0, 2), 2, ""},
		"mask of 255":       {"loss_mask", i64(0, 0, 0, 0, 0, 0, 0, 0, 255), 255, ""},
		"mask of 256":       {"loss_mask", i64(0, 0, 0, 0, 0, 0, 0, 0, 256), 0, "loss_mask holds 256 at position 8, want 0 or 1"},
		"mask below 0":      {"loss_mask", i64(0, 0, 0, 0, 0, 0, 0, 0, -1), 0, "loss_mask holds -1 at position 8, want 0 or 1"},
		"mask of float32":   {"loss_mask", integers(format.Float32, []int64{9}, 0, 0, 0, 0, 0, 0, 0, 0, 0x3f800000), 1, ""},
		"mask of float64":   {"loss_mask", integers(format.Float64, []int64{9}, 0, 0, 0, 0, 0, 0, 0, 0, 0x3ff0000000000000), 1, ""},
		"mask of float16":   {"loss_mask", integers(format.Float16, []int64{9}, 0, 0, 0, 0, 0, 0, 0, 0, 0x3c00), 1, ""},
		"mask of bfloat16":  {"loss_mask", integers(format.BFloat16, []int64{9}, 0, 0, 0, 0, 0, 0, 0, 0, 0x3f80), 1, ""},
		"mask of one half":  {"loss_mask", integers(format.BFloat16, []int64{9}, 0, 0, 0, 0, 0, 0, 0, 0, 0x3f00), 0, "loss_mask holds a bfloat16 other than 0 and 1 at position 8"},
		"mask of rank zero": {"loss_mask", integers(format.Int64, nil, 1), 0, "loss_mask has shape [], want [tokens] or [1, tokens]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ss, err := read(t, torch(with(eagle3(9), tt.key, tt.tensor)), producer.Facts{})
			if err != nil || tt.want != "" {
				if err == nil || err.Error() != tt.want {
					t.Fatalf("got error %v, want %q", err, tt.want)
				}
				return
			}
			got := int64(ss[0].Tokens[8])
			if tt.key == "loss_mask" {
				got = int64(ss[0].LossMask[8])
			}
			if got != tt.last {
				t.Errorf("last value = %d, want %d", got, tt.last)
			}
		})
	}
}
