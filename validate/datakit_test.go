package validate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format/producer"
	"hsx/shard"
)

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
	for name, kit := range kits(t) {
		for _, c := range kitDumps(t, kit) {
			if c.refused() {
				continue
			}
			t.Run(name+"/"+c.ID, func(t *testing.T) {
				t.Parallel()
				r := runData(t, ingestKit(t, kit, c.path(), c.asConfigured(t), 0))
				if r.Verdict != Sound || r.Samples == 0 || len(r.CouldNotRun) > 0 {
					t.Errorf("%s: got %+v, want no warning and all rules run", c.Dir, r)
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
	for name, kit := range kits(t) {
		for _, c := range kitFaults(t, kit) {
			t.Run(name+"/"+c.Case, func(t *testing.T) {
				t.Parallel()
				want := dataAnswers(c.Case)
				for _, e := range c.Expect {
					switch e.Finding {
					case "duplicate_block":
						want = append(want, fmt.Sprintf("duplicate-blocks error %s layer_%d -1", e.Sample, c.Declared.IDs[e.Blocks[1]]))
					case "block_equals_final":
						want = append(want, fmt.Sprintf("final-equals-block error %s final -1", e.Sample))
					}
				}
				ds := ingestKit(t, kit, c.path(), c.asConfigured(t), 0)
				if ds.Manifest().Rows == 0 && len(want) == 0 {
					return // ingest refused all of it
				}
				r := runData(t, ds)
				var got []string
				for _, g := range r.Groups {
					for _, f := range g.Findings {
						got = append(got, fmt.Sprintf("%s %s %s %s %d", f.Rule, f.Severity, c.sampleName(f.Sample), f.Column, f.Token))
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
	for _, kit := range kits(t) {
		for name, want := range map[string]int{"st_f16_label": 1, "st_handmade_good": 0} {
			path := "faulty/containers/" + name + ".safetensors"
			r := runData(t, ingestKit(t, kit, path, producer.Facts{}, 0))
			if len(r.Groups) != want || want == 1 && (r.Groups[0].Rule != "dtype-label" || r.Groups[0].Severity != Warning) {
				t.Errorf("%s: got %+v, want %d groups", name, r.Groups, want)
			}
		}
	}
}
