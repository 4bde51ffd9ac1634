package validate_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/validate"
)

func TestParseConfigPlaces(t *testing.T) {
	t.Parallel()
	post, boundary := format.PostLayer, format.Boundary
	tests := map[string]struct {
		json string
		want []validate.IDList
	}{
		"nested":          {`{"eagle_config":{"eagle_aux_hidden_state_layer_ids":[2,30,58]}}`, []validate.IDList{{Key: "eagle_config.eagle_aux_hidden_state_layer_ids", Place: "nested", Convention: post, IDs: []int{2, 30, 58}}}},
		"top level":       {`{"eagle_aux_hidden_state_layer_ids":[3,31,59]}`, []validate.IDList{{Key: "eagle_aux_hidden_state_layer_ids", Place: "top level", Convention: boundary, IDs: []int{3, 31, 59}}}},
		"speculators":     {`{"aux_hidden_state_layer_ids":[1]}`, []validate.IDList{{Key: "aux_hidden_state_layer_ids", Place: "speculators", Convention: boundary, IDs: []int{1}}}},
		"angelslim":       {`{"aux_hidden_states_layer_ids":[1]}`, []validate.IDList{{Key: "aux_hidden_states_layer_ids", Place: "angelslim", Convention: post, IDs: []int{1}}}},
		"dflash":          {`{"dflash_config":{"target_layer_ids":[1]}}`, []validate.IDList{{Key: "dflash_config.target_layer_ids", Place: "dflash", Convention: post, IDs: []int{1}}}},
		"dspark":          {`{"dspark_target_layer_ids":[1]}`, []validate.IDList{{Key: "dspark_target_layer_ids", Place: "dspark", Convention: post, IDs: []int{1}}}},
		"target ids":      {`{"target_layer_ids":[-1,3]}`, []validate.IDList{{Key: "target_layer_ids", Place: "target ids", Convention: post, IDs: []int{-1, 3}}}},
		"dflash ids":      {`{"dflash_config":{"layer_ids":[1]}}`, []validate.IDList{{Key: "dflash_config.layer_ids", Place: "dflash ids", Convention: boundary, IDs: []int{1}}}},
		"eagle layer ids": {`{"eagle_config":{"layer_ids":[1]}}`, []validate.IDList{{Key: "eagle_config.layer_ids", Place: "eagle layer ids", Convention: boundary, IDs: []int{1}}}},
		"silly ids stay":  {`{"aux_hidden_states_layer_ids":[58,-7,58]}`, []validate.IDList{{Key: "aux_hidden_states_layer_ids", Place: "angelslim", Convention: post, IDs: []int{58, -7, 58}}}},
		"empty":           {`{"eagle_aux_hidden_state_layer_ids":[]}`, []validate.IDList{{Key: "eagle_aux_hidden_state_layer_ids", Place: "top level", Convention: boundary, IDs: []int{}}}},
		"two, nested first": {`{"eagle_aux_hidden_state_layer_ids":[2],"eagle_config":{"eagle_aux_hidden_state_layer_ids":[1]}}`, []validate.IDList{
			{Key: "eagle_config.eagle_aux_hidden_state_layer_ids", Place: "nested", Convention: post, IDs: []int{1}},
			{Key: "eagle_aux_hidden_state_layer_ids", Place: "top level", Convention: boundary, IDs: []int{2}},
		}},
		"semantics stated": {`{"eagle_aux_layer_semantics":"vllm","eagle_config":{"eagle_aux_hidden_state_layer_ids":[1]}}`, []validate.IDList{{Key: "eagle_config.eagle_aux_hidden_state_layer_ids", Place: "nested", Convention: boundary, IDs: []int{1}}}},
		"semantics nested": {`{"eagle_config":{"eagle_aux_layer_semantics":"sglang"},"eagle_aux_hidden_state_layer_ids":[1]}`, []validate.IDList{{Key: "eagle_aux_hidden_state_layer_ids", Place: "top level", Convention: post, IDs: []int{1}}}},
		"absent":           {`{}`, nil},
		"null is absent":   {`{"eagle_config":null,"eagle_aux_hidden_state_layer_ids":null}`, nil},
		"another case":     {`{"Eagle_Aux_Hidden_State_Layer_Ids":[1]}`, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := validate.ParseConfig([]byte(tc.json))
			if err != nil {
				t.Fatalf("ParseConfig(%s): got error %v", tc.json, err)
			}
			if diff := cmp.Diff(tc.want, c.Lists); diff != "" {
				t.Errorf("ParseConfig(%s) (-want +got):\n%s", tc.json, diff)
			}
		})
	}
}

func TestParseConfigFields(t *testing.T) {
	t.Parallel()
	no, yes, vocab := false, true, -1
	got, err := validate.ParseConfig([]byte(`{"architectures":["Eagle3Speculator"],"model_type":"llama","target_hidden_size":7168,
		"transformer_layer_config":{"hidden_size":2048,"vocab_size":163840,"max_position_embeddings":4096},"draft_vocab_size":-1,
		"num_target_layers":61,"num_aux_hidden_states":3,"norm_before_fc":false,"fc_norm":true,"norm_output":true,
		"norm_before_residual":false,"eh_proj_before_attn":false,"eagle_config":{"use_aux_hidden_state":true}}`))
	if err != nil {
		t.Fatalf("ParseConfig: got error %v", err)
	}
	want := &validate.Config{
		Architectures: []string{"Eagle3Speculator"}, ModelType: "llama", HiddenSize: 2048, TargetHiddenSize: 7168, VocabSize: 163840,
		DraftVocabSize: &vocab, MaxPositions: 4096, NumTargetLayers: 61, NumAux: 3,
		UseAux: &yes, NormBeforeFC: &no, FCNorm: &yes, NormOutput: &yes, NormBeforeResidual: &no, EHProjBeforeAttn: &no,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseConfig (-want +got):\n%s", diff)
	}
}

func TestParseConfigFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ json, want string }{
		"no JSON":       {`{`, "not a JSON object"},
		"empty":         {``, "not a JSON object"},
		"a list":        {`[]`, "not a JSON object"},
		"null":          {`null`, "null"},
		"ids a number":  {`{"eagle_aux_hidden_state_layer_ids":3}`, `eagle_aux_hidden_state_layer_ids is "3", want a list of integers`},
		"ids of text":   {`{"eagle_config":{"layer_ids":["1"]}}`, `eagle_config.layer_ids is "[\"1\"]", want a list`},
		"id null":       {`{"dflash_config":{"target_layer_ids":[1,null]}}`, `dflash_config.target_layer_ids is "[1,null]"`},
		"id too high":   {`{"target_layer_ids":[2147483648]}`, "at most 2147483647"},
		"half an id":    {`{"target_layer_ids":[1.5]}`, `[1.5]`},
		"config a list": {`{"eagle_config":[]}`, `eagle_config is "[]", want an object`},
		"no width":      {`{"hidden_size":0}`, "hidden_size is 0, want above 0"},
		"inner width":   {`{"transformer_layer_config":{"hidden_size":-4}}`, "transformer_layer_config.hidden_size is -4"},
		"flag":          {`{"fc_norm":1}`, `fc_norm is "1", want true or false`},
		"architectures": {`{"architectures":"x"}`, "want a list of strings"},
		"long":          {`{"eagle_config":"` + strings.Repeat("a", 200) + `"}`, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := validate.ParseConfig([]byte(tc.json))
			if err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 300 {
				t.Errorf("ParseConfig(%s): got %v, error %v, want a short one with %q", tc.json, c, err, tc.want)
			}
		})
	}
}

func TestConfigLayers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		json, key, err string
		want           format.Layers
	}{
		"none":        {json: `{}`},
		"one":         {json: `{"eagle_aux_hidden_state_layer_ids":[1,3,4]}`, key: "eagle_aux_hidden_state_layer_ids", want: format.Layers{0, 2, 3}},
		"two agree":   {json: `{"eagle_aux_hidden_state_layer_ids":[1,3],"eagle_config":{"eagle_aux_hidden_state_layer_ids":[0,2]}}`, key: "eagle_config.eagle_aux_hidden_state_layer_ids", want: format.Layers{0, 2}},
		"two differ":  {json: `{"eagle_aux_hidden_state_layer_ids":[1,3],"aux_hidden_states_layer_ids":[1,3]}`, err: "draft config contradicts itself: eagle_aux_hidden_state_layer_ids names P_0 P_2 "},
		"not rising":  {json: `{"aux_hidden_states_layer_ids":[3,1]}`, err: "aux_hidden_states_layer_ids: layer list is not increasing"},
		"empty":       {json: `{"aux_hidden_states_layer_ids":[]}`, err: "layer list is empty"},
		"below start": {json: `{"eagle_aux_hidden_state_layer_ids":[-1]}`, err: "out of range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := validate.ParseConfig([]byte(tc.json))
			if err != nil {
				t.Fatalf("ParseConfig(%s): got error %v", tc.json, err)
			}
			got, from, err := c.Layers()
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Fatalf("Layers() of %s: got error %v, want %q", tc.json, err, tc.err)
			}
			if err == nil && (!cmp.Equal(got, tc.want) || from.Key != tc.key) {
				t.Errorf("Layers() of %s: got %v from %q, want %v from %q", tc.json, got, from.Key, tc.want, tc.key)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, c := range configKit(f) {
		f.Add(c.config, 61, 3)
	}
	f.Add([]byte(`{"eagle_config":{"eagle_aux_hidden_state_layer_ids":[2147483647,-2147483648]},"num_target_layers":1}`), 7, 2)
	f.Add([]byte(`{"dflash_config":{"target_layer_ids":[],"layer_ids":[0]},"draft_vocab_size":0}`), 0, 0)
	names := map[string]bool{}
	for _, r := range validate.Rules() {
		names[r.Name] = true
	}
	f.Fuzz(func(t *testing.T, data []byte, depth, blocks int) {
		var c *validate.Config
		var err error
		used := hsxtest.Allocated(func() { c, err = validate.ParseConfig(data) })
		// Keys and raw values are copied once for each level of objects that is read.
		if most := uint64(len(data))*64 + 1<<20; used > most {
			t.Fatalf("ParseConfig of %d bytes allocated %d bytes, want at most %d", len(data), used, most)
		}
		if err != nil {
			if c != nil || err.Error() == "" {
				t.Fatalf("ParseConfig(%q): got %v with error %v", data, c, err)
			}
			return
		}
		total := 0
		for _, l := range c.Lists {
			total += len(l.IDs)
			if l.IDs == nil || !strings.HasSuffix(l.Key, "layer_ids") {
				t.Fatalf("ParseConfig(%q): got list %+v", data, l)
			}
		}
		if total > len(data) {
			t.Fatalf("ParseConfig of %d bytes: got %d ids", len(data), total)
		}
		in := validate.ConfigInput{Config: c, Data: configData(blocks & 7), Target: format.Target{Layers: depth & 127, HiddenSize: 64}}
		table := validate.NewResolution(in).Table()
		if !strings.HasSuffix(table, "\n") || strings.ContainsAny(table, "\x00\r") || !bytes.Contains([]byte(table), []byte("data ")) {
			t.Fatalf("Table(): got %q", table)
		}
		for _, server := range append(validate.Servers(), "") {
			in.Server = server
			out := validate.NewCollector(100, nil)
			validate.CheckConfig(in, out)
			for _, g := range out.Groups() {
				for _, fi := range g.Findings {
					if !names[fi.Rule] || fi.Message == "" || fi.Do == "" || fi.Token != -1 {
						t.Fatalf("CheckConfig(%q): got finding %+v", data, fi)
					}
				}
			}
		}
	})
}

// configData is a layout that holds n layers from P_0 on, each the next but one.
func configData(n int) format.Layout {
	layers := make([]format.Layer, n)
	for i := range layers {
		layers[i] = format.Layer(2 * i)
	}
	return configLayout(format.NormPost, layers...)
}

func configLayout(final format.Norm, layers ...format.Layer) format.Layout {
	l := format.Layout{HiddenSize: 64}
	for _, k := range layers {
		l.States = append(l.States, format.State{Layer: k, DType: format.BFloat16})
	}
	l.States = append(l.States, format.State{Role: format.RoleFinal, Norm: final, DType: format.BFloat16})
	return l
}
