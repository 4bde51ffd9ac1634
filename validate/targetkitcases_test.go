package validate

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// targetAnswers are the samples of which each rule reports a warning or an error, by
// faulty case of the kit; "" is the whole dataset. Cases that are not here give none.
// final-layer in off_by_one is a contradiction that is there: the block that is
// declared P_3 is P_4, and the final its norm.
func targetAnswers(name string) map[string]string {
	const all = "s04 s05 s07"
	switch name {
	case "embedding_first":
		return map[string]string{ruleEmbeddingRows: all, ruleReferenceLayer: all}
	case "blocks_permuted", "blocks_reversed", "blocks_duplicated":
		return map[string]string{ruleReferenceLayer: all}
	case "off_by_one":
		return map[string]string{ruleReferenceLayer: all, ruleFinalLayer: all}
	case "last_block_is_final":
		return map[string]string{ruleReferenceLayer: all, ruleFinalNorm: all}
	case "final_equals_aux":
		return map[string]string{ruleReferenceLayer: all, ruleFinalNorm: all, ruleFinalLayer: all}
	case "final_prenorm", "speculators_final_postnorm":
		return map[string]string{ruleReferenceLayer: all, ruleFinalNorm: all, ruleNextToken: ""}
	case "final_one_early_normed":
		return map[string]string{ruleFinalLayer: all}
	case "final_one_early":
		return map[string]string{ruleReferenceLayer: all, ruleFinalNorm: all}
	case "final_normed_twice":
		return map[string]string{ruleNextToken: ""}
	case "mixed_layers":
		return map[string]string{ruleReferenceLayer: "s07 s08"}
	case "mixed_norm":
		return map[string]string{ruleReferenceLayer: "s05 s08", ruleFinalNorm: "s05 s08"}
	case "speculators_last_missing":
		return map[string]string{ruleReferenceLayer: all}
	case "modelopt_vllm_unshifted":
		return map[string]string{ruleEmbeddingRows: "s05 s07", ruleReferenceLayer: "s05 s07", ruleFinalNorm: "s05 s07"}
	case "states_swapped":
		return map[string]string{ruleOtherSample: "s05 s07"}
	case "shift_by_one":
		return map[string]string{ruleTokenShift: all, ruleNextToken: ""}
	case "shift_back_one_file":
		return map[string]string{ruleTokenShift: "s08"}
	}
	return map[string]string{}
}

func TestTargetRulesOnKit(t *testing.T) {
	t.Parallel()
	kit := fullKit(t)
	w, ref := targetKitWeights(t, kit), targetTestReference(t)
	for _, c := range slices.Concat(kitDumps(t, kit), kitFaults(t, kit)) {
		if c.refused() {
			continue
		}
		t.Run(c.path(), func(t *testing.T) {
			t.Parallel()
			ds := ingestKit(t, kit, c.path(), c.asNamed(t), 0)
			l := ds.Manifest().Layout()
			mk := func() []scan { return append(targetScans(l, w), referenceScans(l, ref)...) }
			groups := targetRun(t, readAll(t, ds), 2, mk)
			got := map[string]string{}
			for _, g := range groups {
				for _, f := range g.Findings {
					if f.Severity == Info {
						continue
					}
					id := c.sampleName(f.Sample)
					if had, ok := got[g.Rule]; !ok {
						got[g.Rule] = id
					} else if !strings.Contains(had, id) {
						got[g.Rule] += " " + id
					}
				}
			}
			if diff := cmp.Diff(targetAnswers(c.Case), got); diff != "" {
				t.Errorf("samples by rule (-want +got):\n%s\n%+v", diff, groups)
			}
		})
	}
}

// TestReferenceOnGoodDumps holds the small kit, which has no weights, against the
// reference.
func TestReferenceOnGoodDumps(t *testing.T) {
	t.Parallel()
	ref := targetTestReference(t)
	for _, c := range kitDumps(t, smallKit) {
		if c.refused() {
			continue
		}
		t.Run(c.Dir, func(t *testing.T) {
			t.Parallel()
			ds := ingestKit(t, smallKit, c.path(), c.asNamed(t), 0)
			l := ds.Manifest().Layout()
			groups := targetRun(t, readAll(t, ds), 2, func() []scan { return referenceScans(l, ref) })
			if got := targetText(groups, Warning); len(got) > 0 {
				t.Errorf("findings of a good dump: %q", got)
			}
		})
	}
}
