package validate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/validate"
)

func TestFamily(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "", "kimi_k25": "deepseek", "moonshotai/Kimi-K2.5": "deepseek", "deepseek-ai/DeepSeek-V3-0324": "deepseek", "deepseek_v2": "deepseek",
		"DeepSeek-R1": "deepseek", "DeepSeek-R1-Distill-Llama-8B": "other", "KimiK25ForConditionalGeneration": "deepseek",
		"openai/gpt-oss-120b": "gpt-oss", "gpt_oss": "gpt-oss", "llama": "other", "deepseek-ai/deepseek-llm-7b-chat": "other",
	} {
		if got := validate.Family(name); got != want {
			t.Errorf("Family(%q): got %q, want %q", name, got, want)
		}
	}
}

func TestReaders(t *testing.T) {
	t.Parallel()
	current := map[string]bool{}
	for _, r := range validate.Readers() {
		if r.Name == "" || r.Engine == "" || r.Source == "" || r.Top < 1 || r.First < format.Embedding || (r.Trainer && r.Final == format.NormUnknown) {
			t.Errorf("row %+v is not complete", r)
		}
		if key := r.Engine + "/" + r.Family; !r.Old {
			if current[key] {
				t.Errorf("%s has two current rows for family %q, want one", r.Engine, r.Family)
			}
			current[key] = true
		}
	}
	want := []string{"sglang", "sglang<25454", "sglang>=25454", "sglang<32334", "sglang>=32334", "sglang older", "vllm", "vllm legacy", "trtllm"}
	if diff := cmp.Diff(want, validate.Servers()); diff != "" {
		t.Errorf("Servers() (-want +got):\n%s", diff)
	}
}

// resolveLayers is what one reader makes of a config, as "P_1 P_29 P_57".
func resolveLayers(t *testing.T, config, family, reader string, depth int) (layers string, notes []string) {
	t.Helper()
	c, err := validate.ParseConfig([]byte(config))
	if err != nil {
		t.Fatalf("ParseConfig(%s): got error %v", config, err)
	}
	for _, s := range validate.Resolve(c, format.Target{Layers: depth}, family) {
		if s.Name == reader {
			var names []string
			for _, l := range s.Layers {
				names = append(names, l.String())
			}
			return strings.Join(names, " "), s.Notes
		}
	}
	t.Fatalf("Resolve(%s): got no side %q", config, reader)
	return "", nil
}

func TestResolve(t *testing.T) {
	t.Parallel()
	nested := func(ids string) string { return `{"eagle_config":{"eagle_aux_hidden_state_layer_ids":` + ids + `}}` }
	top := func(ids string) string { return `{"eagle_aux_hidden_state_layer_ids":` + ids + `}` }
	tests := map[string]struct {
		config, family, reader string
		depth                  int
		want, note             string
	}{
		// [2,30,58] and its kin for 61 layers, by place and server.
		"2,30,58 sglang before":    {nested("[2,30,58]"), "deepseek", "sglang<25454", 61, "P_2 P_30 P_58", ""},
		"2,30,58 sglang after":     {nested("[2,30,58]"), "deepseek", "sglang>=25454", 61, "P_1 P_29 P_57", "the first id is 2, not 1, so no +1"},
		"2,30,58 vllm top level":   {top("[2,30,58]"), "deepseek", "vllm", 61, "P_1 P_29 P_57", ""},
		"2,30,58 vllm nested":      {nested("[2,30,58]"), "deepseek", "vllm", 61, "P_1 P_29 P_57", "nested not read"},
		"2,30,58 trtllm":           {nested("[2,30,58]"), "deepseek", "trtllm", 61, "P_1 P_29 P_57", "eagle3_layers_to_capture not given"},
		"3,31,59 sglang after":     {nested("[3,31,59]"), "deepseek", "sglang>=25454", 61, "P_2 P_30 P_58", ""},
		"3,31,59 vllm top level":   {top("[3,31,59]"), "deepseek", "vllm", 61, "P_2 P_30 P_58", ""},
		"1,29,57 sglang before":    {nested("[1,29,57]"), "deepseek", "sglang<25454", 61, "P_1 P_29 P_57", ""},
		"1,29,57 sglang after":     {nested("[1,29,57]"), "deepseek", "sglang>=25454", 61, "P_1 P_29 P_57", ""},
		"1,29,57 trtllm":           {nested("[1,29,57]"), "deepseek", "trtllm", 61, "P_1 P_29 P_57", ""},
		"1,29,57 vllm legacy":      {nested("[1,29,57]"), "deepseek", "vllm legacy", 61, "P_0 P_28 P_56", ""},
		"-1,30,58 sglang before":   {nested("[-1,30,58]"), "deepseek", "sglang<25454", 61, "P_-1 P_30 P_58", ""},
		"-1,30,58 sglang after":    {nested("[-1,30,58]"), "deepseek", "sglang>=25454", 61, "P_29 P_57", "id -1 never fires"},
		"speculators by sglang":    {top("[3,31,59]"), "deepseek", "sglang<25454", 61, "P_1 P_29 P_57", "top level not read"},
		"other families add 1":     {nested("[2,30,58]"), "other", "sglang", 61, "P_2 P_30 P_58", ""},
		"top level, older":         {top("[2,30,58]"), "other", "sglang older", 61, "P_1 P_29 P_57", "top level not read"},
		"gpt-oss before":           {nested("[24,30,35]"), "gpt-oss", "sglang<32334", 36, "P_24 P_30", "id 35 never fires"},
		"gpt-oss after":            {nested("[24,30,36]"), "gpt-oss", "sglang>=32334", 36, "P_23 P_29 P_35", ""},
		"last layer in vllm":       {top("[2,30,58,61]"), "deepseek", "vllm", 61, "P_1 P_29 P_57 P_60", ""},
		"beyond it":                {top("[2,62]"), "deepseek", "vllm", 61, "P_1", "id 62 never fires"},
		"depth unknown":            {top("[2,62]"), "deepseek", "vllm", 0, "P_1 P_61", ""},
		"unsorted":                 {nested("[58,2,30]"), "other", "sglang", 61, "P_2 P_30 P_58", "taken in ascending order"},
		"repeated":                 {nested("[2,2,30]"), "other", "sglang", 61, "P_2 P_30", "a repeated layer is taken once"},
		"angelslim keeps order":    {`{"aux_hidden_states_layer_ids":[58,2,2]}`, "other", "angelslim", 61, "P_58 P_2 P_2", ""},
		"dflash vllm":              {`{"dflash_config":{"target_layer_ids":[1,2]}}`, "other", "vllm", 61, "P_1 P_2", ""},
		"dflash speculators vllm":  {`{"aux_hidden_state_layer_ids":[2,3]}`, "other", "vllm", 61, "P_1 P_2", ""},
		"dflash sglang, new kimi":  {`{"dflash_config":{"target_layer_ids":[5,9]}}`, "deepseek", "sglang>=25454", 61, "P_5 P_9", ""},
		"dspark vllm":              {`{"dspark_target_layer_ids":[1,2]}`, "other", "vllm", 61, "P_1 P_2", ""},
		"plain ids vllm":           {`{"eagle_config":{"layer_ids":[1,2]}}`, "other", "vllm", 61, "P_0 P_1", ""},
		"none, 48 layers":          {`{}`, "other", "vllm", 48, "P_1 P_23 P_44", "no ids in the config"},
		"none, 5 layers":           {`{}`, "other", "sglang", 5, "P_1", "a repeated layer is taken once"},
		"none, 5 layers, trtllm":   {`{}`, "other", "trtllm", 5, "", "refuses a target of 5 layers without it"},
		"none, depth unknown":      {`{}`, "other", "vllm", 0, "", "the default needs the target's depth"},
		"none needed":              {`{"use_aux_hidden_state":false}`, "other", "vllm", 61, "", "use_aux_hidden_state is false: the final state alone"},
		"automodel has no default": {`{}`, "other", "automodel", 61, "", "ids must be given"},
		"empty":                    {nested("[]"), "other", "sglang", 61, "", "the list is empty"},
		"family unknown":           {nested("[2,30,58]"), "", "sglang>=25454", 61, "P_1 P_29 P_57", "for deepseek targets"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, notes := resolveLayers(t, tc.config, tc.family, tc.reader, tc.depth)
			if got != tc.want || tc.note != "" && !slices.Contains(notes, tc.note) {
				t.Errorf("%s of %s: got %q with notes %q, want %q with %q", tc.reader, tc.config, got, notes, tc.want, tc.note)
			}
		})
	}
}

// TestWriteIsRight wants what the table says to write to do what it says.
func TestWriteIsRight(t *testing.T) {
	t.Parallel()
	for _, want := range []format.Layers{{2, 30, 58}, {1, 29, 57}, {-1, 30, 58}, {0, 2, 3}, {2, 30, 60}} {
		in := validate.ConfigInput{Wanted: want, Target: format.Target{Layers: 61}, Config: &validate.Config{}}
		for _, s := range validate.NewResolution(in).Sides {
			key, ids, ok := strings.Cut(strings.TrimPrefix(s.Write, "write "), ": ")
			if s.Role != "server" || !ok {
				continue
			}
			config := `{"` + key + `":` + ids + `}`
			if outer, inner, nested := strings.Cut(key, "."); nested {
				config = `{"` + outer + `":{"` + inner + `":` + ids + `}}`
			}
			var names []string
			for _, l := range want {
				names = append(names, l.String())
			}
			if got, _ := resolveLayers(t, config, "", s.Name, 61); got != strings.Join(names, " ") {
				t.Errorf("%s: %q makes it read %q, want %q", s.Name, s.Write, got, names)
			}
		}
	}
}
