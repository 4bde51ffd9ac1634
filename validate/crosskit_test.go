package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/shard"
)

// crossKits are the fixture kits at hand: the small one is always there, the full one
// where HSX_FIXTURES says.
func crossKits(t *testing.T) map[string]string {
	t.Helper()
	kits := map[string]string{"small": filepath.Join("..", "cmd", "hsx", "testdata", "kit")}
	if full := os.Getenv("HSX_FIXTURES"); full != "" {
		kits["full"] = full
	} else if os.Getenv("CI") == "true" {
		t.Error("HSX_FIXTURES is empty, want the directory of the full fixture kit: CI runs on all of it")
	}
	return kits
}

func crossReadJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatal(err)
	}
}

// crossIngest makes a dataset of a directory of a kit.
func crossIngest(t *testing.T, kit, dir string, facts producer.Facts, shardBytes int64) *shard.Dataset {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(kit, "model", "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if facts.Target, err = format.ParseTarget(data); err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	w, err := shard.OpenWriter(out, shard.Options{ShardBytes: shardBytes, BatchBytes: shardBytes, Target: facts.Target})
	if err != nil {
		t.Fatal(err)
	}
	p, err := capture.NewPlan(t.Context(), []string{filepath.Join(kit, dir)}, capture.Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ds, err := shard.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

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
	if err := runScans(context.Background(), ds, nil, 2, set, out, nil); err != nil {
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
	for name, kit := range crossKits(t) {
		var index struct {
			Dumps []struct {
				ID, Dir, DType, Convention, Container string
				Aux                                   []string `json:"aux_layers"`
				IDs                                   []int    `json:"ids_as_configured"`
			}
		}
		crossReadJSON(t, filepath.Join(kit, "dumps", "INDEX.json"), &index)
		for _, d := range index.Dumps {
			t.Run(name+"/"+d.ID, func(t *testing.T) {
				t.Parallel()
				var facts producer.Facts
				list, convention := strings.ReplaceAll(strings.Join(d.Aux, ","), "P", ""), format.PostLayer
				if d.IDs != nil {
					list = strings.Trim(strings.ReplaceAll(fmt.Sprint(d.IDs), " ", ","), "[]")
					if d.Convention == "boundary" {
						convention = format.Boundary
					}
				}
				if list != "" {
					layers, err := format.ParseLayers(list, convention)
					if err != nil {
						t.Fatal(err)
					}
					facts.Layers, facts.Convention = layers, convention
				}
				if d.Container == "json" || d.ID == "npy_bf16_as_uint16" {
					facts.DType = format.BFloat16
				}
				size := int64(1 << 20)
				if name == "small" {
					size = 1
				}
				if found := crossDataset(t, crossIngest(t, kit, filepath.Join("dumps", d.Dir), facts, size)); len(found) > 0 {
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
	for name, kit := range crossKits(t) {
		var index struct {
			Cases []struct {
				Case, Path, Format string
				Expect             []struct {
					Finding, Sample, Severity string
					Block                     *int
					Found                     json.RawMessage
				}
				Declared *struct{ Layers []string }
				Samples  []struct{ ID, File string }
			}
		}
		crossReadJSON(t, filepath.Join(kit, "faulty", "INDEX.json"), &index)
		for _, c := range index.Cases {
			if c.Declared == nil {
				continue
			}
			t.Run(name+"/"+c.Case, func(t *testing.T) {
				t.Parallel()
				facts := producer.Facts{Layers: format.Layers{0, 2, 3}}
				if c.Format == "speculators" {
					facts = producer.Facts{Layers: format.Layers{0, 2, 3, 4}, Convention: format.Boundary}
				}
				ds := crossIngest(t, kit, filepath.Join("faulty", c.Path), facts, 1<<20)
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
	for name, kit := range crossKits(t) {
		ds := crossIngest(t, kit, filepath.Join("dumps", "specforge_eagle3"), producer.Facts{Layers: format.Layers{0, 2, 3}}, 1<<20)
		var samples []*format.Sample
		for s, err := range ds.Samples(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, crossClone(s))
		}
		swapped := 0
		for i, a := range samples {
			for j, b := range samples {
				// A third sample begins with the same four tokens as a, and b does not.
				third := slices.ContainsFunc(samples, func(s *format.Sample) bool { return s != a && crossCommon(s, a) >= 4 })
				if swapped == 12 || i >= j || len(b.Tokens) < 4 || !third || crossCommon(a, b) > 1 {
					continue
				}
				damaged := slices.Clone(samples)
				damaged[i], damaged[j] = crossClone(a), crossClone(b)
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

// crossClone is a sample in memory of its own.
func crossClone(s *format.Sample) *format.Sample {
	c := *s
	c.Tokens, c.Hidden = slices.Clone(s.Tokens), slices.Clone(s.Hidden)
	for i := range c.Hidden {
		r := &c.Hidden[i].Rows
		r.Data = slices.Clone(r.Data)
	}
	return &c
}
