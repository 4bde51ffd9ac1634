package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/shard"
)

// dataKits are the fixture kits at hand: the small one, and that of HSX_FIXTURES.
func dataKits(t *testing.T) []string {
	t.Helper()
	kits := []string{"../cmd/hsx/testdata/kit"}
	if full := os.Getenv("HSX_FIXTURES"); full != "" {
		kits = append(kits, full)
	}
	return kits
}

func readKit(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

// ingestKit makes a dataset of a directory of the kit, whose target has 5 layers, 64
// channels and 512 tokens.
func ingestKit(t *testing.T, path string, ids []int, c format.Convention, d format.DType) *shard.Dataset {
	t.Helper()
	facts := producer.Facts{Convention: c, DType: d, Target: format.Target{Layers: 5, HiddenSize: 64, VocabSize: 512}}
	if ids != nil {
		layers, err := format.NewLayers(ids, c)
		if err != nil {
			t.Fatal(err)
		}
		facts.Layers = layers
	}
	dir := filepath.Join(t.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.Options{Target: facts.Target})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := capture.NewPlan(t.Context(), []string{path}, capture.Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Run(t.Context(), w)
	if err := errors.Join(err, w.Commit(t.Context()), w.Close()); err != nil {
		t.Fatalf("ingest %s: %v", path, err)
	}
	return openDataset(t, dir)
}

// runData runs the rules of this area over all of a dataset.
func runData(t *testing.T, ds *shard.Dataset) *Report {
	t.Helper()
	opt := Options{All: true}
	for _, r := range dataRules() {
		opt.Only = append(opt.Only, r.Name)
	}
	r, err := Run(t.Context(), ds, Input{}, opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestDataRulesOnGoodDumps(t *testing.T) {
	t.Parallel()
	for _, kit := range dataKits(t) {
		var index struct {
			Dumps []struct {
				ID, Dir, DType, Container string
				Convention                format.Convention
				Aux                       []string `json:"aux_layers"`
				IDs                       []int    `json:"ids_as_configured"`
			}
		}
		readKit(t, filepath.Join(kit, "dumps/INDEX.json"), &index)
		for _, d := range index.Dumps {
			if d.Container == "torch-legacy" {
				continue // the format is refused
			}
			t.Run(d.ID, func(t *testing.T) {
				t.Parallel()
				ids := d.IDs
				for _, a := range d.Aux {
					var k int
					if _, err := fmt.Sscanf(a, "P%d", &k); d.IDs == nil && err == nil {
						ids = append(ids, k)
					}
				}
				dtype := format.InvalidDType
				if d.Container == "json" || d.ID == "npy_bf16_as_uint16" {
					dtype, _ = format.ParseDType(d.DType)
				}
				r := runData(t, ingestKit(t, filepath.Join(kit, "dumps", d.Dir), ids, d.Convention, dtype))
				if r.Verdict != Sound || r.Samples == 0 || len(r.CouldNotRun) > 0 {
					t.Errorf("%s: got %+v, want no warning and all rules run", d.Dir, r)
				}
			})
		}
	}
}

// dataAnswers are the findings of this area in the kit's faulty directories, as
// "rule severity sample column token"; what is wrong in directories that are not named
// is for other rules, or for ingest.
func dataAnswers(name string) []string {
	switch name {
	case "nan_one_value":
		return []string{"non-finite error s05 layer_2 17"}
	case "inf_values":
		return []string{"non-finite error s08 final 40", "non-finite error s08 layer_3 96"}
	case "zero_rows":
		return []string{"zero-rows error s07  20", "zero-rows error s08 layer_2 50"}
	case "token_out_of_vocab":
		return []string{"token-range error s05  9", "token-range error s07  11"}
	case "mask_all_zero":
		return []string{"mask-empty warning s05  -1"}
	case "mask_value":
		return []string{"mask-values warning s05  40"}
	case "padded_tail":
		return []string{"padded-tail warning s03  16"}
	case "duplicate_samples":
		return []string{"duplicate-sample warning s05  -1"}
	}
	return nil
}

func TestDataRulesOnFaultyDumps(t *testing.T) {
	t.Parallel()
	for _, kit := range dataKits(t) {
		var index struct {
			Cases []struct {
				Case, Path, What string
				Declared         struct {
					IDs        []int
					Convention format.Convention
				}
				Samples []struct{ ID, File string }
				Expect  []struct {
					Finding, Sample string
					Block           int
					Blocks          []int
				}
			}
		}
		readKit(t, filepath.Join(kit, "faulty/INDEX.json"), &index)
		for _, c := range index.Cases {
			if len(c.Samples) == 0 || c.Declared.IDs == nil {
				continue
			}
			path := filepath.Join(kit, "faulty", c.Path)
			if _, err := os.Stat(path); err != nil {
				continue // the small kit has some of the cases
			}
			t.Run(c.Case, func(t *testing.T) {
				t.Parallel()
				want := dataAnswers(c.Case)
				name := map[string]string{} // of the kit's sample, by the id that ingest gives it
				for _, s := range c.Samples {
					name[s.File] = s.ID
				}
				for _, e := range c.Expect {
					switch e.Finding {
					case "duplicate_block":
						want = append(want, fmt.Sprintf("duplicate-blocks error %s layer_%d -1", e.Sample, c.Declared.IDs[e.Blocks[1]]))
					case "block_equals_final":
						want = append(want, fmt.Sprintf("final-equals-block error %s final -1", e.Sample))
					}
				}
				r := runData(t, ingestKit(t, path, c.Declared.IDs, c.Declared.Convention, format.InvalidDType))
				var got []string
				for _, g := range r.Groups {
					for _, f := range g.Findings {
						got = append(got, fmt.Sprintf("%s %s %s %s %d", f.Rule, f.Severity, name[f.Sample], f.Column, f.Token))
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%s (-want +got):\n%s", c.What, d)
				}
				if strings.Contains(c.Case, "duplicate_samples") && !strings.Contains(r.Groups[0].Findings[0].Message, "data_1.ckpt") {
					t.Errorf("message: got %q, want the other sample in it", r.Groups[0].Findings[0].Message)
				}
			})
		}
	}
}

// TestDataRulesOnLabel reads bf16 states that a safetensors header calls fp16.
func TestDataRulesOnLabel(t *testing.T) {
	t.Parallel()
	for _, kit := range dataKits(t) {
		for name, want := range map[string]int{"st_f16_label": 1, "st_handmade_good": 0} {
			path := filepath.Join(kit, "faulty/containers", name+".safetensors")
			if _, err := os.Stat(path); err != nil {
				continue // the small kit has some of the cases
			}
			r := runData(t, ingestKit(t, path, nil, format.PostLayer, format.InvalidDType))
			if len(r.Groups) != want || want == 1 && (r.Groups[0].Rule != "dtype-label" || r.Groups[0].Severity != Warning) {
				t.Errorf("%s: got %+v, want %d groups", name, r.Groups, want)
			}
		}
	}
}
