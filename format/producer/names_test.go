package producer_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
)

func mappings(t testing.TB, specs ...string) []producer.Mapping {
	t.Helper()
	var out []producer.Mapping
	for _, s := range specs {
		m, err := producer.ParseMapping(s)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
	}
	return out
}

func TestParseMapping(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"layer_2=*.aux0.npy": "", "layer_-1=emb": "", "final=last_*": "", "input_ids=*": "", "loss_mask=m": "", "attention_mask=a": "",
		"layer_2":    `mapping "layer_2" is not column=name, such as layer_2=*.aux0.npy`,
		"layer_2=":   `mapping "layer_2=" is not column=name, such as layer_2=*.aux0.npy`,
		"layer_-2=x": `mapping "layer_-2=x" is for column "layer_-2", want layer_<k>, final, input_ids, loss_mask or attention_mask`,
		"layer_02=x": `mapping "layer_02=x" is for column "layer_02", want layer_<k>, final, input_ids, loss_mask or attention_mask`,
		"block_0=x":  `mapping "block_0=x" is for column "block_0", want layer_<k>, final, input_ids, loss_mask or attention_mask`,
		"final=*a*":  `mapping "final=*a*" has 2 stars, want at most one`,
	} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			m, err := producer.ParseMapping(in)
			got := ""
			if err != nil {
				got = err.Error()
			} else if m.String() != in {
				t.Errorf("String() = %q, want %q", m.String(), in)
			}
			if got != want {
				t.Errorf("ParseMapping(%q): got error %q, want %q", in, got, want)
			}
		})
	}
}

func TestMapping(t *testing.T) {
	t.Parallel()
	a, b, f := states(format.BFloat16, 1, 9, 4), states(format.BFloat16, 2, 9, 4), states(format.BFloat16, 3, 9, 4)
	flat := rec("x.aux1", b, "x.aux0", a, "x.ids", ids(9), "y.aux0", a, "y.aux1", b, "y.ids", ids(9), "z.ids", ids(9), "other", bf16(3, 3))
	three := mappings(t, "layer_2=*.aux0.npy", "layer_30=*.aux1.npy", "input_ids=*.ids.npy")
	for name, tt := range map[string]struct {
		dump  producer.Dump
		facts producer.Facts
		want  [][]string
		err   string
	}{
		"one sample": {plain(rec("s3.aux1", b, "s3.aux0", a, "input_ids", ids(9), "loss_mask", mask(9), "last", f, "junk", bf16(2, 2))),
			producer.Facts{Map: mappings(t, "layer_2=*.aux0.npy", "layer_30=*.aux1.npy", "final=last.npy")}, [][]string{{"layer_2", "layer_30", "final unknown"}}, ""},
		"a torch archive": {torch(rec("a", a, "b", b, "tok", ids(9))),
			producer.Facts{Map: mappings(t, "layer_2=a", "layer_30=b", "input_ids=tok")}, [][]string{{"layer_2", "layer_30"}}, ""},
		"three samples": {plain(flat), producer.Facts{Map: three}, [][]string{{"layer_2", "layer_30"}, {"layer_2", "layer_30"}}, "item 2: no tensor holds states"},
		"layers agree": {plain(rec("a", a, "b", b, "input_ids", ids(9))),
			producer.Facts{Layers: layers(t, "2,30"), Map: mappings(t, "layer_2=a", "layer_30=b")}, [][]string{{"layer_2", "layer_30"}}, ""},
		"layers disagree": {plain(rec("a", a, "b", b, "input_ids", ids(9))),
			producer.Facts{Layers: layers(t, "2,31"), Map: mappings(t, "layer_2=a", "layer_30=b")}, nil, "tensors are named after the layers P_2 P_30 (post 2,30; boundary 3,31), but flag says P_2 P_31 (post 2,31; boundary 3,32)"},
		"no match": {plain(rec("a", a, "input_ids", ids(9))), producer.Facts{Map: mappings(t, "layer_2=b*")}, nil,
			"dump is of no known producer: --map layer_2=b* matches none of the names (it holds a, input_ids)"},
		"two for one column": {plain(rec("a", a, "b", b, "input_ids", ids(9))), producer.Facts{Map: mappings(t, "layer_2=a", "layer_2=b")}, nil,
			"dump may be a as layer_2, or b as layer_2: mapping one of them (--map) decides"},
		"nameless":        {plain(rec("foo", a, "input_ids", ids(9))), producer.Facts{}, nil, "dump is of no known producer: nothing says what foo is, and --map can (it holds foo, input_ids)"},
		"two ids":         {plain(rec("layer_2", a, "input_ids", ids(9), "token_ids", ids(9))), producer.Facts{}, nil, "dump may be input_ids as input_ids, or token_ids as input_ids: mapping one of them (--map) decides"},
		"no ids":          {plain(rec("layer_2", a)), producer.Facts{}, nil, "dump is of no known producer: no tensor holds the token ids (input_ids) (it holds layer_2)"},
		"no states":       {plain(rec("input_ids", ids(9))), producer.Facts{}, nil, "dump is of no known producer: no tensor holds states (it holds input_ids)"},
		"aux and layers":  {plain(rec("layer_2", a, "aux_hidden_states", b, "input_ids", ids(9))), producer.Facts{}, nil, "dump is of no known producer: aux_hidden_states stands beside layer_2: want the aux states in one tensor or one per layer, not both (it holds layer_2, aux_hidden_states, input_ids)"},
		"three of states": {plain(rec("aux_hidden_states", a, "final", b, "hidden_states", f, "input_ids", ids(9))), producer.Facts{}, nil, "dump is of no known producer: hidden_states is neither the aux states nor the final, which other tensors are (it holds aux_hidden_states, final, hidden_states, input_ids)"},
		"unequal widths":  {plain(rec("layer_2", a, "layer_3", bf16(9, 5), "input_ids", ids(9))), producer.Facts{}, nil, "layer_3 is 5 wide, layer_2 is 4: want one hidden size"},
		"bare, no facts":  {plain(rec("hidden_states", a, "input_ids", ids(9))), producer.Facts{}, nil, "dump may be one final state (hidden_states is 4 wide), or aux states side by side: the target's config (--target), the layers (--layers) or --final decides"},
		"bare is the aux": {plain(rec("hidden_states", bf16(9, 8), "final", f, "input_ids", ids(9))), producer.Facts{}, [][]string{{"block_0", "block_1", "final unknown"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ss, err := read(t, tt.dump, tt.facts)
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.err {
				t.Errorf("got error\n%s\nwant\n%s", got, tt.err)
			}
			var cols [][]string
			for _, s := range ss {
				cols = append(cols, columns(s))
				if h := s.Hidden; h[0].State.Layer == 2 && !cmp.Equal(rows(h[0].Rows), a.Data) {
					t.Error("layer_2 is not the tensor mapped to it")
				}
			}
			if d := cmp.Diff(tt.want, cols); d != "" {
				t.Errorf("columns (-want +got):\n%s", d)
			}
		})
	}
}

func TestSideFile(t *testing.T) {
	t.Parallel()
	vocab := rec("d2t", ids(9), "t2d", integers(format.Bool, []int64{9}, upTo(9)...))
	for name, tt := range map[string]struct {
		value format.Value
		want  string
	}{
		"vocabulary map":    {vocab, "vocabulary map"},
		"embeddings":        {rec("weight", bf16(4, 4)), "target embeddings"},
		"frequencies":       {ids(512), "token frequencies"},
		"evaluation cache":  {[]format.Value{rec("input_ids", ids(9), "loss_mask", mask(9), "hidden_states", bf16(9, 4))}, "evaluation cache of a trainer"},
		"a sample":          {eagle3(9), ""},
		"a list of samples": {[]format.Value{rec("id", int64(0), "input_ids", ids(9), "hidden_state", bf16(9, 4))}, ""},
		"SGLang's answers":  {[]format.Value{rec("input_ids", ids(9), "hidden_states", bf16(9, 4))}, ""},
		"more than a map":   {with(vocab, "hidden_state", bf16(9, 4)), ""},
		"a lone state":      {bf16(9, 4), ""},
		"an empty list":     {[]format.Value{}, ""},
		"None":              {nil, ""},
		"a typed nil":       {(*format.Record)(nil), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, ok := producer.SideFile(tt.value); got != tt.want || ok != (tt.want != "") {
				t.Errorf("SideFile() = %q, %t, want %q", got, ok, tt.want)
			}
		})
	}
}

func TestSideJSON(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]string{
		string(hsxtest.Golden(t, "data_config.json")):              "speculators v1 data_config.json",
		string(hsxtest.Golden(t, "sample_lengths.json")):           "sample lengths",
		string(hsxtest.Golden(t, "manifest.json")):                 "Automodel manifest",
		string(hsxtest.Golden(t, "state.json")):                    "Hugging Face dataset state",
		string(hsxtest.Golden(t, "dataset_info.json")):             "Hugging Face dataset description",
		string(hsxtest.Golden(t, "request.json")):                  "SGLang request",
		`{"schema_version":1,"refs":[]}`:                           "SpecForge reference manifest",
		`{"model_type":"llama","hidden_size":64}`:                  "model configuration",
		`{"meta_info":{"hidden_states":[[[1]]]},"output_ids":[1]}`: "",
		`{"hidden_states":{},"model":{}}`:                          "",
		`{"0":64,"1":-1}`:                                          "",
		`{"0":64,"x":1}`:                                           "",
		`{"input_ids":[1]}`:                                        "",
		`{}`:                                                       "", `[]`: "", `null`: "", `{`: "", ``: "",
	} {
		if got, ok := producer.SideJSON([]byte(doc)); got != want || ok != (want != "") {
			t.Errorf("SideJSON(%.60q) = %q, %t, want %q", doc, got, ok, want)
		}
	}
}

func TestSiblings(t *testing.T) {
	t.Parallel()
	v1, err := producer.ParseV1Config(hsxtest.Golden(t, "data_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&producer.V1Config{LayerIDs: []int{0, 2, 3, 4}, HiddenSize: 64, Target: "stories260K"}, v1); d != "" {
		t.Errorf("ParseV1Config (-want +got):\n%s", d)
	}
	am, err := producer.ParseAutomodelManifest(hsxtest.Golden(t, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(&producer.AutomodelManifest{
		LayerIDs: []int{0, 2, 3}, AuxHiddenDim: 192, FormatVersion: 2, DType: "bf16", SeqLength: 64,
		NumSamples: 4, ShardSize: 2, VocabSize: 512, Target: "stories260K",
	}, am); d != "" {
		t.Errorf("ParseAutomodelManifest (-want +got):\n%s", d)
	}
	for name, tt := range map[string]struct {
		v1   bool
		doc  string
		kind error
	}{
		"v1, not JSON":            {true, `{`, format.ErrCorrupt},
		"v1, no ids":              {true, `{"hidden_states":{"layer_ids":[]}}`, format.ErrCorrupt},
		"v1, ids of text":         {true, `{"hidden_states":{"layer_ids":["a"]}}`, format.ErrCorrupt},
		"automodel, not JSON":     {false, `[`, format.ErrCorrupt},
		"automodel, version 1":    {false, `{"format_version":1}`, format.ErrUnsupported},
		"automodel, bad width":    {false, `{"format_version":2,"aux_layer_ids":[1,2],"aux_hidden_dim":7}`, format.ErrCorrupt},
		"automodel, no layer ids": {false, `{"format_version":2,"aux_hidden_dim":7}`, format.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := producer.ParseAutomodelManifest([]byte(tt.doc))
			if tt.v1 {
				_, err = producer.ParseV1Config([]byte(tt.doc))
			}
			if !errors.Is(err, tt.kind) {
				t.Errorf("got error %v, want %v", err, tt.kind)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	want := []string{
		"specforge-eagle3", "specforge-dflash", "specforge-dspark", "speculators", "speculators-v1", "speculators-v0", "vllm", "sglang",
		"modelopt-hf", "modelopt-vllm", "modelopt-trtllm", "angelslim-eagle3", "angelslim-dflash", "torchspec", "automodel", "eagle", "hsx", "arrays",
	}
	if d := cmp.Diff(want, producer.Names()); d != "" {
		t.Errorf("Names() (-want +got):\n%s", d)
	}
	for _, d := range producer.Describe() {
		if d.What == "" || d.Keys == "" || d.Numbering == "" {
			t.Errorf("Describe() has a gap: %+v", d)
		}
	}
	for _, f := range []producer.Final{producer.FinalUnsaid, producer.FinalPre, producer.FinalPost, producer.FinalNone} {
		if got, err := producer.ParseFinal(f.String()); err != nil || got != f {
			t.Errorf("ParseFinal(%q) = %v, %v", f, got, err)
		}
	}
	if _, err := producer.ParseFinal("both"); err == nil {
		t.Error(`ParseFinal("both") gave no error`)
	}
}
