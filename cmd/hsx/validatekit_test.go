package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hsx/internal/hsxtest"
	"hsx/validate"
)

// knowledge is what a dataset of the kit is held against.
type knowledge struct {
	name string
	args []string
	met  []string // the needs of rules that it meets
}

// knowledges are, by name, what can be known of a kit's model: its config and how its
// layers look, and with the full kit also its weights.
func knowledges(t *testing.T, name, kit string) []knowledge {
	t.Helper()
	model := filepath.Join(kit, "model")
	all := []knowledge{
		{name: "data", met: []string{"data"}},
		{name: "config", args: []string{"--target", filepath.Join(model, "config.json")}, met: []string{"data"}},
	}
	ref := []string{"--reference", reference(t, name, kit)}
	if name == "small" {
		return append(all, knowledge{name: "reference", args: ref, met: []string{"data", "reference"}})
	}
	weights := []string{"--target", model}
	return append(all,
		knowledge{name: "weights", args: weights, met: []string{"data", "target"}},
		knowledge{name: "weights and reference", args: append(weights, ref...), met: []string{"data", "target", "reference"}})
}

// reference makes one of all layers of texts that are hardly in the dumps.
func reference(t *testing.T, name, kit string) string {
	t.Helper()
	texts, dir := []string{"s06", "s09", "s10", "s11", "s12"}, filepath.Join(kit, "expected")
	if name == "small" {
		texts, dir = []string{"s04", "s07"}, "../../validate/testdata/layers"
	}
	work := t.TempDir()
	ds, file := filepath.Join(work, "ds"), filepath.Join(work, "reference.json")
	args := []string{"ingest", "--out", ds, "--target", filepath.Join(kit, "model/config.json"), "--dtype", "bf16", "--final", "post",
		"--map", "input_ids=tokens.npy", "--map", "loss_mask=loss_mask.npy", "--map", "final=N.bf16.npy"}
	for k := -1; k < 5; k++ {
		args = append(args, "--map", fmt.Sprintf("layer_%d=P%d.bf16.npy", k, k))
	}
	for _, text := range texts {
		args = append(args, filepath.Join(dir, text))
	}
	if code, out, talk := hsx(args...); code != exitDone {
		t.Fatalf("%v: exit %d\n%s%s", args, code, out, talk)
	}
	if code, out, talk := hsx("fingerprint", "--out", file, ds); code != exitDone || !strings.Contains(out, "7 states of llama") {
		t.Fatalf("fingerprint: exit %d\n%s%s", code, out, talk)
	}
	return file
}

// validated is what hsx validate says of a whole dataset.
func validated(t *testing.T, ds string, args ...string) (code int, r validate.Report) {
	t.Helper()
	code, out, talk := hsx(append([]string{"validate", "--all", "--json", "--keep", "100", ds}, args...)...)
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("validate %v: exit %d: %v\n%s", args, code, err, talk)
	}
	return code, r
}

// rulesOf are the rules by what they need.
func rulesOf() map[string]string {
	needs := map[string]string{}
	for _, r := range validate.Rules() {
		needs[r.Name] = r.Needs
	}
	return needs
}

// checkRan wants all rules to have run that know what they need.
func checkRan(t *testing.T, k knowledge, r validate.Report) {
	t.Helper()
	for name, needs := range rulesOf() {
		if slices.Contains(k.met, needs) && !slices.Contains(r.Rules, name) {
			t.Errorf("with %s: rule %s did not run, want it: %q", k.name, name, r.CouldNotRun)
		}
	}
}

// TestValidateGood holds every dump of the kit against all that can be known: no rule
// may warn.
func TestValidateGood(t *testing.T) {
	t.Parallel()
	eachKit(t, func(t *testing.T, name, kit string) {
		known := knowledges(t, name, kit)
		var index dumpIndex
		hsxtest.ReadJSON(t, filepath.Join(kit, "dumps/INDEX.json"), &index)
		for _, d := range index.Dumps {
			if d.Container == "torch-legacy" {
				continue // refused as a whole
			}
			t.Run(d.ID, func(t *testing.T) {
				t.Parallel()
				ds := filepath.Join(t.TempDir(), "ds")
				if code, out, talk := hsx(ingestDump(kit, ds, d)...); code != exitDone {
					t.Fatalf("ingest: exit %d\n%s%s", code, out, talk)
				}
				for _, k := range known {
					args := append([]string{"--strict"}, k.args...)
					if len(d.Aux) > 0 {
						args = append(args, "--layers", strings.ReplaceAll(strings.Join(d.Aux, ","), "P", ""))
						k.met = append(slices.Clone(k.met), "config")
					}
					code, r := validated(t, ds, args...)
					if code != exitDone || r.Verdict != validate.Sound || r.NotRead != "" {
						t.Errorf("with %s: exit %d, %s, want it sound: %+v", k.name, code, r.Verdict, r.Groups)
					}
					checkRan(t, k, r)
				}
			})
		}
	})
}

// ruling is how hsx says what the kit calls a finding.
type ruling struct {
	rule   string
	column string   // that it names, "*" when the kit does not say
	beside []string // rules that show another side of the same fault
}

// byIngest is the rule of what ingest refuses already, so that no dataset holds it.
const byIngest = "ingest"

// kitRuling translates a finding of the kit's directories and drafts.
func kitRuling(t *testing.T, c faultyCase, f finding) ruling {
	t.Helper()
	block := func(i int) string { return "layer_" + strings.TrimPrefix(c.Declared.Layers[i], "P") }
	named := "*"
	switch {
	case f.Block != nil:
		named = block(*f.Block)
	case f.Layer == "all":
		named = ""
	case f.Layer != "":
		named = column(f.Layer, f.Layer == "N")
	}
	switch f.Finding {
	case "embedding_block":
		return ruling{"embedding-captured", named, []string{"embedding-rows", "reference-layer"}}
	case "block_order":
		return ruling{"block-order", "", []string{"reference-layer"}}
	case "duplicate_block":
		return ruling{"duplicate-blocks", block(f.Blocks[1]), []string{"reference-layer"}}
	case "block_equals_final":
		return ruling{"final-equals-block", "final", []string{"final-norm", "final-layer", "reference-layer"}}
	case "wrong_layer":
		// Off by one, the block that is declared P_3 is P_4, and the final is its norm.
		return ruling{"reference-layer", named, []string{"final-layer"}}
	case "mixed_layers":
		return ruling{"prefix-consistency", "*", nil}
	case "final_norm_state":
		return ruling{"final-norm", "final", []string{"prefix-consistency", "next-token", "reference-layer"}}
	case "final_not_last_layer":
		switch string(f.Found) {
		case `"norm(P3)"`:
			return ruling{"final-layer", "final", nil}
		case `"norm(N)"`:
			return ruling{"next-token", "final", nil}
		}
		return ruling{"reference-layer", "final", nil}
	case "states_do_not_match_tokens":
		return ruling{"states-of-another-sample", "*", nil}
	case "token_shift":
		return ruling{"token-shift", "*", []string{"self-shift", "prefix-consistency", "next-token"}}
	case "non_finite":
		return ruling{"non-finite", named, nil}
	case "zero_rows":
		return ruling{"zero-rows", named, nil}
	case "token_out_of_range":
		return ruling{"token-range", "", nil}
	case "loss_mask_empty":
		return ruling{"mask-empty", "", nil}
	case "loss_mask_value":
		return ruling{"mask-values", "", nil}
	case "padded_tail":
		return ruling{"padded-tail", "", nil}
	case "duplicate_sample":
		return ruling{"duplicate-sample", "", nil}
	case "token_ids_mismatch", "missing_file", "row_count", "loss_mask_length", "duplicate_id", "mixed_dtype", "aux_width", "truncated":
		return ruling{rule: byIngest}
	}
	t.Fatalf("%s: no rule for the kit's finding %q", c.Case, f.Finding)
	return ruling{}
}

// decidedBy reports whether what the kit says that a case needs has what a rule needs.
func decidedBy(c faultyCase, f finding, ruleNeeds string) bool {
	if c.Case == "final_one_early" && f.Finding == "final_not_last_layer" {
		// The kit wants lm_head to decide it. No state of the dump predicts the next token
		// better than its final, so that ranks have nothing to compare it with: the weights
		// show the norm that is missing, and a reference the layer.
		return ruleNeeds == "reference"
	}
	for need, words := range map[string][]string{
		"data":      {"data", "files"},
		"target":    {"weight", "lm_head", "embed_tokens"},
		"reference": {"reference"},
	} {
		for _, w := range words {
			if need == ruleNeeds && strings.Contains(c.Needs, w) {
				return true
			}
		}
	}
	return false
}

// TestValidateFaulty validates every damaged directory of the kit with what its case
// needs, with less and with more: what is wrong is found where it is, and nothing else.
func TestValidateFaulty(t *testing.T) {
	t.Parallel()
	eachKit(t, func(t *testing.T, name, kit string) {
		known := knowledges(t, name, kit)
		for _, c := range faultyCases(t, kit) {
			if len(c.Samples) > 0 {
				t.Run(c.Case, func(t *testing.T) {
					t.Parallel()
					ds := ingestDeclared(t, kit, c)
					if len(samples(t, ds)) == 0 {
						if code, _, talk := hsx("validate", ds); code != exitFailed || !strings.Contains(talk, "no samples") {
							t.Errorf("validate of a dataset whose inputs were all refused: exit %d, %q", code, talk)
						}
						return
					}
					for _, k := range known {
						_, r := validated(t, ds, k.args...)
						checkRan(t, k, r)
						checkFound(t, c, k, kitNames(t, ds, c), r)
					}
				})
			}
		}
	})
}

// ingestDeclared makes a dataset of a case as it is declared. What is wrong with files
// is for ingest to refuse: of the samples with such a finding, and no others.
func ingestDeclared(t *testing.T, kit string, c faultyCase) string {
	t.Helper()
	more := []string{"--layers", strings.Trim(strings.ReplaceAll(fmt.Sprint(c.Declared.IDs), " ", ","), "[]"), "--convention", c.Declared.Convention}
	if c.Declared.Final == "N" {
		more = append(more, "--final", "post")
	}
	ds, code, talk := ingestCase(t, kit, c, more...)
	want := []string{}
	for _, f := range c.Expect {
		switch {
		case kitRuling(t, c, f).rule != byIngest:
		case f.Finding == "missing_file":
			if !strings.Contains(talk, "warning: ") {
				t.Errorf("ingest does not warn of the missing file: %q", talk)
			}
		case f.Finding == "duplicate_id": // the second is refused
			want = append(want, c.Samples[1].ID)
		default:
			want = append(want, f.Sample)
		}
	}
	got := []string{}
	for _, r := range rejections(t, ds) {
		for _, s := range c.Samples {
			if s.File == r.Path {
				got = append(got, s.ID)
			}
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) || (code == exitDone) != (len(want) == 0) {
		t.Fatalf("%s: exit %d, refused %q, want %q\n%s", c.What, code, got, want, talk)
	}
	return ds
}

// kitNames are the kit's names of samples, by those of the dataset.
func kitNames(t *testing.T, ds string, c faultyCase) map[string]string {
	t.Helper()
	names := map[string]string{"": ""}
	for _, s := range samples(t, ds) {
		for _, k := range c.Samples {
			if k.File == s.Input.Path {
				names[s.ID] = k.ID
			}
		}
	}
	return names
}

// checkFound compares findings above info with what the kit expects.
func checkFound(t *testing.T, c faultyCase, k knowledge, name map[string]string, r validate.Report) {
	t.Helper()
	needs := rulesOf()
	rules, at := map[string]bool{}, map[string]bool{"": true}
	for _, f := range c.Expect {
		a := kitRuling(t, c, f)
		if a.rule == byIngest {
			continue
		}
		rules[a.rule] = true
		for _, b := range a.beside {
			rules[b] = true
		}
		if !decidedBy(c, f, needs[a.rule]) {
			t.Errorf("%s is found by %s, which needs %s; the kit says that %q decides it", f.Finding, a.rule, needs[a.rule], c.Needs)
		}
		for _, sample := range samplesOf(t, c, f) {
			at[sample] = true
			if slices.Contains(k.met, needs[a.rule]) && !found(r, name, f, a, sample) {
				t.Errorf("with %s: %s: no %s of %s at %s, token %s%s: got %+v", k.name, c.What, f.Severity, a.rule, sample, f.Token, f.Tokens, r.Groups)
			}
		}
	}
	for _, g := range r.Groups {
		for _, f := range g.Findings {
			if f.Severity > validate.Info && (!rules[f.Rule] || !at[name[f.Sample]]) {
				t.Errorf("with %s: %s: got %+v, want only %v at %v", k.name, c.What, f, slices.Sorted(maps.Keys(rules)), slices.Sorted(maps.Keys(at)))
			}
		}
	}
}

// samplesOf are the samples that a finding is of.
func samplesOf(t *testing.T, c faultyCase, f finding) []string {
	t.Helper()
	if f.Sample != "" {
		return []string{f.Sample}
	}
	var files []int
	if err := json.Unmarshal(f.Files, &files); err != nil {
		t.Fatalf("%s: %s names neither a sample nor files: %v", c.Case, f.Finding, err)
	}
	var out []string
	for _, i := range files {
		out = append(out, c.Samples[i].ID)
	}
	return out
}

// found reports whether a report has a finding where the kit expects it.
func found(r validate.Report, name map[string]string, want finding, a ruling, sample string) bool {
	severity := map[string]validate.Severity{"error": validate.Error, "warn": validate.Warning}[want.Severity]
	token := string(want.Token)
	var tokens []int
	if json.Unmarshal(want.Tokens, &tokens) == nil {
		token = fmt.Sprint(tokens[0])
	}
	for _, g := range r.Groups {
		for _, f := range g.Findings {
			of := name[f.Sample] == sample || a.rule == "next-token" && f.Sample == "" // a mean over the dataset
			if f.Rule == a.rule && f.Severity == severity && of && (a.column == "*" || f.Column == a.column) && (token == "" || fmt.Sprint(f.Token) == token) {
				return true
			}
		}
	}
	return false
}
