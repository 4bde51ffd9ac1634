package validate_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/validate"
)

// fieldCase is a dataset of P_2, P_30 and P_58 of a Kimi-K2.5, with its --layers.
func fieldCase(config *validate.Config) validate.ConfigInput {
	data := configLayout(format.NormPost, 2, 30, 58)
	data.HiddenSize = 7168
	return validate.ConfigInput{
		Wanted: format.Layers{2, 30, 58}, Data: data, Config: config,
		Target: format.Target{Name: "kimi_k25", Layers: 61, HiddenSize: 7168, VocabSize: 163840},
	}
}

func fieldConfig(tb testing.TB, key, ids string) *validate.Config {
	tb.Helper()
	text := fmt.Sprintf(`{%q:%s}`, key, ids)
	if outer, inner, nested := strings.Cut(key, "."); nested {
		text = fmt.Sprintf(`{%q:{%q:%s}}`, outer, inner, ids)
	}
	c, err := validate.ParseConfig([]byte(text))
	if err != nil {
		tb.Fatalf("ParseConfig(%s): got error %v", text, err)
	}
	return c
}

// TestFieldCase compares the table and the findings of each list in each place with
// testdata/fieldcase.txt; HSX_UPDATE=1 writes it anew.
func TestFieldCase(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	write := func(title string, config *validate.Config) {
		in := fieldCase(config)
		out := validate.NewCollector(10, nil)
		validate.CheckConfig(in, out)
		table := validate.NewResolution(in).Table()
		for line := range strings.Lines(table) {
			if len(strings.TrimSuffix(line, "\n")) > 100 {
				t.Errorf("%s: line of %d columns, want at most 100: %s", title, len(line)-1, line)
			}
		}
		fmt.Fprintf(&b, "== %s\n%s", title, table)
		for _, g := range out.Groups() {
			for _, f := range g.Findings {
				fmt.Fprintf(&b, "%s %s: %s\n    %s\n", f.Severity, f.Rule, f.Message, f.Do)
			}
		}
		b.WriteString("\n")
	}
	write("no config", nil)
	write("no ids", &validate.Config{})
	for _, key := range []string{
		"eagle_config.eagle_aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids", "aux_hidden_state_layer_ids", "aux_hidden_states_layer_ids",
		"dflash_config.target_layer_ids", "dspark_target_layer_ids", "target_layer_ids", "dflash_config.layer_ids", "eagle_config.layer_ids",
	} {
		for _, ids := range []string{"[2,30,58]", "[1,29,57]", "[3,31,59]", "[-1,30,58]"} {
			write(key+": "+ids, fieldConfig(t, key, ids))
		}
	}
	golden := filepath.Join("testdata", "fieldcase.txt")
	if os.Getenv("HSX_UPDATE") != "" {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(hsxtest.Read(t, golden)), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", golden, diff)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	unknown := format.Layout{HiddenSize: 64, States: []format.State{{Role: format.RoleBlock}, {Role: format.RoleBlock, Block: 1}}}
	tests := map[string]struct {
		in   validate.ConfigInput
		want []string // in the table
		not  []string
	}{
		"layers unknown":        {validate.ConfigInput{Data: unknown}, []string{"data  ", "2 unknown", "ingested without --layers"}, []string{"MISMATCH", "write", "--layers  "}},
		"nothing known":         {validate.ConfigInput{}, []string{"not given"}, []string{"MISMATCH", "final"}},
		"config alone":          {validate.ConfigInput{Config: fieldConfig(t, "eagle_aux_hidden_state_layer_ids", "[3,5]")}, []string{"config  ", "P_2 P_4"}, []string{"data  manifest"}},
		"data against --layers": {validate.ConfigInput{Wanted: format.Layers{1, 3}, Data: configData(2)}, []string{"MISMATCH", "block 1: --layers wants P_1, the data holds P_0"}, nil},
		"all families":          {validate.ConfigInput{Wanted: format.Layers{1, 3}, Config: fieldConfig(t, "target_layer_ids", "[1,3]")}, []string{"sglang>=32334", "sglang>=25454", "sglang older", "for gpt-oss targets"}, nil},
		"one family":            {validate.ConfigInput{Family: "gpt-oss", Config: &validate.Config{}}, []string{"sglang>=32334"}, []string{"25454", "older"}},
		"family of the draft":   {validate.ConfigInput{Config: &validate.Config{Architectures: []string{"Eagle3DeepseekV2ForCausalLM"}}}, []string{"25454"}, []string{"32334"}},
		"unreachable": {validate.ConfigInput{Family: "deepseek", Target: format.Target{Layers: 5}, Data: configData(2), Config: fieldConfig(t, "eagle_config.eagle_aux_hidden_state_layer_ids", "[0,2]")},
			[]string{"no list makes it read P_0 P_2"}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := validate.NewResolution(tc.in).Table()
			for _, s := range tc.want {
				if !strings.Contains(got, s) {
					t.Errorf("Table(): want %q in\n%s", s, got)
				}
			}
			for _, s := range tc.not {
				if strings.Contains(got, s) {
					t.Errorf("Table(): want no %q in\n%s", s, got)
				}
			}
		})
	}
}

func TestResolutionJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(validate.NewResolution(fieldCase(fieldConfig(t, "eagle_config.eagle_aux_hidden_state_layer_ids", "[2,30,58]"))))
	if err != nil {
		t.Fatalf("Marshal: got error %v", err)
	}
	for _, want := range []string{
		`"wanted":[2,30,58],"convention":"post","data":[2,30,58],"final":"post","against":"data","target_layers":61,"family":"deepseek"`,
		`{"name":"config","role":"config","key":"eagle_config.eagle_aux_hidden_state_layer_ids","place":"nested","convention":"post","ids":[2,30,58],"layers":[2,30,58],"verdict":"ok"}`,
		`"verdict":"MISMATCH","write":"write eagle_config.eagle_aux_hidden_state_layer_ids: [3,31,59]"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("Marshal: want %s in\n%s", want, text)
		}
	}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	unknown := format.Layout{States: []format.State{{Role: format.RoleBlock}}}
	for name, tc := range map[string]struct {
		have format.Layout
		want format.Layers
		text string
	}{
		"equal":   {configData(2), format.Layers{0, 2}, ""},
		"other":   {configData(2), format.Layers{0, 3}, "block 1 is P_2, want P_3"},
		"fewer":   {configData(2), format.Layers{0, 2, 3}, "block 2 is absent, want P_3"},
		"more":    {configData(2), format.Layers{0}, "block 1 is P_2, want none"},
		"unknown": {unknown, format.Layers{0}, "the dataset does not know its layers: it was ingested without --layers"},
	} {
		if got := validate.Diff(tc.have, tc.want); got != tc.text {
			t.Errorf("%s: Diff: got %q, want %q", name, got, tc.text)
		}
	}
}

func BenchmarkNewResolution(b *testing.B) {
	config := fieldConfig(b, "eagle_config.eagle_aux_hidden_state_layer_ids", "[2,30,58]")
	b.ReportAllocs()
	for b.Loop() {
		if validate.NewResolution(fieldCase(config)).Table() == "" {
			b.Fatal("empty table")
		}
	}
}
