package validate

import (
	"context"
	"maps"
	"slices"
	"testing"

	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// crossDataset is what the rules of this area find in a dataset.
func crossDataset(t *testing.T, ds *shard.Dataset) []Finding {
	t.Helper()
	if len(ds.Manifest().Shards) == 0 {
		return nil
	}
	enabled := map[string]bool{}
	for _, r := range crossRules() {
		enabled[r.Name] = true
	}
	out := NewCollector(1000, enabled)
	set := func() []scan { return crossScans(ds.Manifest().Layout()) }
	if err := runScans(context.Background(), ds, nil, set, out, nil); err != nil {
		t.Fatal(err)
	}
	checkDrift(ds.Manifest(), out)
	var found []Finding
	for _, name := range slices.Sorted(maps.Keys(out.groups)) {
		found = append(found, out.groups[name].Findings...)
	}
	return found
}

// TestCrossKitDumps requires silence on every good dump, in one shard or, of the small
// kit, in one for each sample.
func TestCrossKitDumps(t *testing.T) {
	t.Parallel()
	for name, kit := range kits(t) {
		for _, c := range kitDumps(t, kit) {
			t.Run(name+"/"+c.ID, func(t *testing.T) {
				t.Parallel()
				size := int64(1 << 20)
				if name == "small" {
					size = 1
				}
				if found := crossDataset(t, ingestKit(t, kit, c.path(), c.asConfigured(t), size)); len(found) > 0 {
					t.Errorf("got %+v, want nothing", found)
				}
			})
		}
	}
}

// crossAnswer is the rule of this area that finds what the kit's index lists, "" when
// it takes other rules.
func crossAnswer(kase, finding string) string {
	switch {
	case finding == "embedding_block":
		return ruleEmbedding
	case finding == "block_order":
		return ruleOrder
	case finding == "token_shift":
		return ruleSelfShift
	case kase == "mixed_layers" && finding == "wrong_layer", kase == "mixed_norm" && finding == "final_norm_state":
		return rulePrefix
	}
	return ""
}

// crossBesides reports whether a rule may find more in a case than the index lists:
// the same fault by other means.
func crossBesides(kase, rule string) bool {
	switch kase {
	case "shift_by_one", "shift_back_one_file":
		return rule == rulePrefix
	}
	return false
}

func TestCrossKitFaulty(t *testing.T) {
	t.Parallel()
	for name, kit := range kits(t) {
		for _, c := range kitFaults(t, kit) {
			t.Run(name+"/"+c.Case, func(t *testing.T) {
				t.Parallel()
				ds := ingestKit(t, kit, c.path(), c.asConfigured(t), 1<<20)
				ids := map[string]string{} // of the kit, by those of the dataset
				for s, err := range ds.Samples(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
					for _, k := range c.Samples {
						if s.Input.Path == k.File {
							ids[s.ID] = k.ID
						}
					}
				}
				found := crossDataset(t, ds)
				got := map[string]bool{}
				for _, f := range found {
					got[f.Rule+" "+ids[f.Sample]+" "+f.Severity.String()] = true
				}
				allowed := map[string]bool{}
				for _, e := range c.Expect {
					rule := crossAnswer(c.Case, e.Finding)
					if rule == "" {
						continue
					}
					allowed[rule] = true
					if want := rule + " " + e.Sample + " " + e.Severity; !got[want] {
						t.Errorf("got %+v, want %s", found, want)
					}
				}
				for _, f := range found {
					if !allowed[f.Rule] && !crossBesides(c.Case, f.Rule) {
						t.Errorf("got %+v, which the index does not list", f)
					}
					t.Log(f.Rule, ids[f.Sample], f.Column, f.Token, f.Message)
				}
			})
		}
	}
}

// TestCrossKitSwapped exchanges the states of two real samples: the prefixes that a
// third sample has in common with one of them decide.
func TestCrossKitSwapped(t *testing.T) {
	t.Parallel()
	for name, kit := range kits(t) {
		samples := readAll(t, ingestKit(t, kit, "dumps/specforge_eagle3", producer.Facts{Layers: format.Layers{0, 2, 3}}, 1<<20))
		swapped := 0
		for i, a := range samples {
			for j, b := range samples {
				// A third sample begins with the same four tokens as a, and b does not.
				third := slices.ContainsFunc(samples, func(s *format.Sample) bool { return s != a && crossCommon(s, a) >= 4 })
				if swapped == 12 || i >= j || len(b.Tokens) < 4 || !third || crossCommon(a, b) > 1 {
					continue
				}
				damaged := slices.Clone(samples)
				damaged[i], damaged[j] = hsxtest.Clone(a), hsxtest.Clone(b)
				crossSwap(damaged[i], damaged[j])
				found := crossFound(runCross(t, damaged, 3), rulePrefix)
				if f := found[a.ID]; f.Severity != Error || f.Column != "" {
					t.Errorf("%s: states of %s and %s exchanged: got %+v, want an error of the first", name, a.ID, b.ID, found)
				}
				swapped++
			}
		}
		if name == "full" && swapped < 10 {
			t.Errorf("%d pairs of samples were exchanged, want 10 or more", swapped)
		}
	}
}

// crossCommon is the number of tokens that both samples begin with.
func crossCommon(a, b *format.Sample) int {
	n := 0
	for n < min(len(a.Tokens), len(b.Tokens)) && a.Tokens[n] == b.Tokens[n] {
		n++
	}
	return n
}
