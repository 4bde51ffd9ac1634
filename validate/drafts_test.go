package validate_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/safetensors"
	"hsx/internal/hsxtest"
	"hsx/validate"
)

// draftCase is one draft of the kit.
type draftCase struct {
	dir, kind          string
	layers             format.Layers
	expect             []string // names of the kit's findings
	config, checkpoint []byte
}

// configKit reads the small kit that is kept with the tests, and with HSX_FIXTURES the
// whole one.
func configKit(tb testing.TB) []draftCase {
	tb.Helper()
	var cases []draftCase
	for _, kit := range hsxtest.Kits(tb, "testdata") {
		cases = append(cases, draftCases(tb, filepath.Join(kit, "drafts"))...)
	}
	return cases
}

func draftCases(tb testing.TB, root string) []draftCase {
	tb.Helper()
	var index struct {
		Drafts []struct {
			Dir, Kind string
			Layers    []string
			Expect    []struct{ Finding string }
		}
	}
	hsxtest.ReadJSON(tb, filepath.Join(root, "INDEX.json"), &index)
	var out []draftCase
	for _, d := range index.Drafts {
		c := draftCase{dir: filepath.Join(root, d.Dir), kind: d.Kind, config: hsxtest.Read(tb, filepath.Join(root, d.Dir, "config.json"))}
		for _, e := range d.Expect {
			c.expect = append(c.expect, e.Finding)
		}
		for _, name := range d.Layers {
			var l format.Layer
			if _, err := fmt.Sscanf(name, "P%d", &l); err != nil {
				tb.Fatalf("%s: layer %q: %v", c.dir, name, err)
			}
			c.layers = append(c.layers, l)
		}
		name := filepath.Join(c.dir, "model.safetensors")
		if _, err := os.Stat(name); err == nil {
			c.checkpoint = hsxtest.Read(tb, name)
		} else {
			zr, err := gzip.NewReader(bytes.NewReader(hsxtest.Read(tb, name+".gz")))
			if err == nil {
				c.checkpoint, err = io.ReadAll(zr)
			}
			if err != nil {
				tb.Fatalf("unpack %s.gz: %v", name, err)
			}
		}
		out = append(out, c)
	}
	if len(out) != 31 {
		tb.Fatalf("%s: got %d drafts, want 31", root, len(out))
	}
	return out
}

// draftRuleOf maps the kit's names of findings to rules.
func draftRuleOf(kit string) string {
	return map[string]string{
		"default_ids_degenerate":  "default-degenerate",
		"d2t_all_zero":            "d2t-unfilled",
		"t2d_all_true":            "t2d-unfilled",
		"fc_width":                "fc-width",
		"draft_vocab_size":        "draft-vocab-size",
		"lm_head_rows":            "lm-head-shape",
		"ids_not_increasing":      "ids-not-increasing",
		"ids_duplicate":           "ids-duplicate",
		"ids_negative":            "ids-negative",
		"ids_out_of_range":        "ids-out-of-range",
		"ids_count":               "ids-count",
		"places_disagree":         "places-disagree",
		"layers_differ_from_data": "layers-differ",
		"ids_empty":               "ids-empty",
		"vocab_map_missing":       "vocab-map-missing",
		"d2t_t2d_disagree":        "vocab-maps-disagree",
		"attention_input_width":   "attention-input-width",
	}[kit]
}

// TestDraftKit wants the listed errors and no others, and of good drafts no warning
// either, with the data and (where the data does not decide) without it.
func TestDraftKit(t *testing.T) {
	t.Parallel()
	target := format.Target{Name: "llama", Layers: 5, HiddenSize: 64, VocabSize: 512}
	for _, c := range configKit(t) {
		for _, withData := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/data=%t", c.dir, withData), func(t *testing.T) {
				t.Parallel()
				var data format.Layout
				if withData {
					data = configLayout(format.NormPost, 0, 2, 3)
					if filepath.Base(c.dir) == "dflash" {
						data = configLayout(format.NormPost, c.layers...)
					}
				}
				want := []string{}
				for _, e := range c.expect {
					rule := draftRuleOf(e)
					if rule == "" {
						t.Fatalf("finding %q of the kit has no rule", e)
					}
					if rule != "layers-differ" || withData {
						want = append(want, rule)
					}
				}
				slices.Sort(want)
				errs, warnings := draftFindings(t, c, data, target)
				if diff := cmp.Diff(want, errs); diff != "" {
					t.Errorf("errors (-want +got):\n%s", diff)
				}
				if c.kind == "good" && len(warnings) > 0 {
					t.Errorf("got warnings %v, want none", warnings)
				}
			})
		}
	}
}

func draftFindings(t *testing.T, c draftCase, data format.Layout, target format.Target) (errs, warnings []string) {
	t.Helper()
	config, err := validate.ParseConfig(c.config)
	if err != nil {
		t.Fatalf("ParseConfig: got error %v", err)
	}
	file, err := safetensors.Decode(c.checkpoint)
	if err != nil {
		t.Fatalf("Decode: got error %v", err)
	}
	cp := validate.NewCheckpoint(file.Record)
	out := validate.NewCollector(10, nil)
	validate.CheckConfig(validate.ConfigInput{Data: data, Target: target, Config: config, FCWidth: cp.FCWidth()}, out)
	validate.CheckDraft(validate.DraftInput{Checkpoint: cp, Config: config, Target: target, Data: data, Longest: 300}, out)
	errs = []string{}
	for _, g := range out.Groups() {
		switch g.Severity {
		case validate.Error:
			errs = append(errs, g.Rule)
		case validate.Warning:
			warnings = append(warnings, fmt.Sprint(g.Rule, ": ", g.Findings[0].Message))
		}
		for _, f := range g.Findings {
			t.Logf("%s %s: %s; %s", f.Severity, f.Rule, f.Message, f.Do)
		}
	}
	slices.Sort(errs)
	return errs, warnings
}

// FuzzCheckDraft reads checkpoints whose headers are damaged: whatever the codec takes
// must be judged without a panic, in findings of known rules.
func FuzzCheckDraft(f *testing.F) {
	for _, c := range draftCases(f, filepath.Join("testdata", "drafts")) {
		// Weights are not read, and would slow the fuzzer down: the header alone, with tensors
		// of no elements, says as much. The maps stay.
		file, err := safetensors.Decode(c.checkpoint)
		if err != nil {
			f.Fatalf("Decode of %s: got error %v", c.dir, err)
		}
		var small []*format.Tensor
		for _, field := range file.Record.Fields {
			t := *file.Record.Tensor(field.Key)
			if len(t.Shape) == 2 {
				t.Shape, t.Data = []int64{0, t.Shape[1]}, nil
			}
			small = append(small, &t)
		}
		var b bytes.Buffer
		if err := safetensors.Encode(&b, small, nil); err != nil {
			f.Fatalf("Encode of %s: got error %v", c.dir, err)
		}
		f.Add(b.Bytes(), c.config)
	}
	names := map[string]bool{}
	for _, r := range validate.Rules() {
		names[r.Name] = true
	}
	f.Fuzz(func(t *testing.T, checkpoint, config []byte) {
		file, err := safetensors.Decode(checkpoint)
		if err != nil {
			return
		}
		c, err := validate.ParseConfig(config)
		if err != nil {
			return
		}
		var out *validate.Collector
		var cp *validate.Checkpoint
		used := hsxtest.Allocated(func() {
			out, cp = validate.NewCollector(3, nil), validate.NewCheckpoint(file.Record)
			for _, server := range []string{"", "sglang", "vllm"} {
				validate.CheckDraft(validate.DraftInput{
					Checkpoint: cp, Config: c, Server: server, Target: format.Target{Layers: 5, HiddenSize: 64, VocabSize: 512},
					Longest: 600, Supervised: make([]int64, 512),
				}, out)
			}
		})
		if most := uint64(len(checkpoint))*64 + 1<<20; used > most {
			t.Fatalf("CheckDraft of %d bytes allocated %d bytes, want at most %d", len(checkpoint), used, most)
		}
		for _, g := range out.Groups() {
			for _, fi := range g.Findings {
				if !names[fi.Rule] || fi.Message == "" || fi.Do == "" {
					t.Fatalf("CheckDraft: got finding %+v", fi)
				}
			}
		}
		if cp.FCWidth() < 0 {
			t.Fatalf("FCWidth(): got %d", cp.FCWidth())
		}
	})
}
