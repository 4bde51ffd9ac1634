package main

import (
	"slices"
	"strings"
	"testing"

	"hsx/export"
	"hsx/format"
	"hsx/validate"
)

func listsFor(t *testing.T, to, server, family string) exportLists {
	t.Helper()
	for _, d := range export.Targets() {
		if d.Name == to {
			return exportLists{layers: format.Layers{2, 30, 58}, trainer: d, target: format.Target{Layers: 61}, server: server, family: family}
		}
	}
	t.Fatalf("no target %q", to)
	return exportLists{}
}

func TestDraftConfig(t *testing.T) {
	t.Parallel()
	const nested = `{"eagle_config":{"eagle_aux_hidden_state_layer_ids":[2,30,58]}}`
	const both = `{"eagle_aux_hidden_state_layer_ids":[3,31,59],"eagle_config":{"eagle_aux_hidden_state_layer_ids":[2,30,58]}}`
	tests := map[string]struct {
		to, server, family string
		want               string // without spaces
		err                string
	}{
		"SpecForge alone":          {"specforge-eagle3", "", "", nested, ""},
		"SpecForge, SGLang":        {"specforge-eagle3", "sglang", "other", nested, ""},
		"SpecForge, vLLM":          {"specforge-eagle3", "vllm", "", both, ""},
		"SpecForge, TensorRT-LLM":  {"specforge-eagle3", "trtllm", "", nested, ""},
		"SpecForge, old vLLM":      {"specforge-eagle3", "vllm legacy", "", "", "no config suits both: specforge wants eagle_config.eagle_aux_hidden_state_layer_ids: [2,30,58], and vllm legacy [3,31,59]"},
		"SpecForge, Kimi":          {"specforge-eagle3", "sglang", "deepseek", "", "and sglang>=25454 [3,31,59]"},
		"SpecForge, family?":       {"specforge-eagle3", "sglang", "", "", "--family"},
		"SpecForge, gpt-oss":       {"specforge-eagle3", "sglang", "gpt-oss", "", "and sglang>=32334 [3,31,59]"},
		"DFlash, SGLang":           {"specforge-dflash", "sglang", "other", `{"dflash_config":{"target_layer_ids":[2,30,58]}}`, ""},
		"DFlash, vLLM":             {"specforge-dflash", "vllm", "", `{"dflash_config":{"target_layer_ids":[2,30,58]}}`, ""},
		"DSpark alone":             {"specforge-dspark", "", "", `{"dflash_config":{"target_layer_ids":[2,30,58]}}`, ""},
		"speculators alone":        {"speculators", "", "", `{"eagle_aux_hidden_state_layer_ids":[3,31,59]}`, ""},
		"speculators, vLLM":        {"speculators", "vllm", "", `{"eagle_aux_hidden_state_layer_ids":[3,31,59]}`, ""},
		"speculators, SGLang":      {"speculators", "sglang", "other", both, ""},
		"AngelSlim, vLLM":          {"angelslim", "vllm", "", `{"aux_hidden_states_layer_ids":[2,30,58],"eagle_aux_hidden_state_layer_ids":[3,31,59]}`, ""},
		"ModelOpt, SGLang":         {"modelopt", "sglang", "other", nested, ""},
		"TorchSpec, vLLM":          {"torchspec", "vllm", "", both, ""},
		"plain files, vLLM":        {"safetensors", "vllm", "", `{"eagle_aux_hidden_state_layer_ids":[3,31,59]}`, ""},
		"plain files, no server":   {"safetensors", "", "", "", "choose a --server"},
		"plain files, TensorRT":    {"npy", "trtllm", "", "", "choose a --server"},
		"datasets, SGLang, Family": {"datasets", "sglang", "other", nested, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lists := listsFor(t, tt.to, tt.server, tt.family)
			got, err := lists.draftConfig()
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %s and error %v, want %q", got, err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if s := strings.Join(strings.Fields(string(got)), ""); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
		})
	}
}

// TestDraftConfigs asks the table of readers itself: what is written makes the trainer and
// the server read the exported layers, whoever they are.
func TestDraftConfigs(t *testing.T) {
	t.Parallel()
	written := 0
	for _, d := range export.Targets() {
		for _, server := range append(validate.Servers(), "") {
			for _, family := range append(validate.Families(), "") {
				lists := listsFor(t, d.Name, server, family)
				for _, depth := range []int{0, 61} {
					lists.target.Layers = depth
					text, err := lists.draftConfig()
					if err != nil {
						continue
					}
					written++
					c, err := validate.ParseConfig(text)
					if err != nil {
						t.Fatalf("%s, %s: %v", d.Name, server, err)
					}
					for _, s := range validate.Resolve(c, lists.target, family) {
						i := slices.IndexFunc(validate.Readers(), func(r validate.Reader) bool { return r.Name == s.Name })
						if i < 0 {
							continue // the config itself
						}
						r := validate.Readers()[i]
						meant := r.Trainer && r.Engine == d.Engine || server != "" && (r.Name == server || r.Engine == server && !r.Old)
						if meant && r.Argument == "" && !slices.Equal(s.Layers, []format.Layer{2, 30, 58}) {
							t.Errorf("%s for %s %s of %d layers: %s reads %v from\n%s", d.Name, server, family, depth, s.Name, s.Layers, text)
						}
					}
				}
			}
		}
	}
	if written < 100 {
		t.Errorf("%d combinations have a config, want at least 100", written)
	}
}
