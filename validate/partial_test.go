package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

// partialOf is part i of n of an audit of 12 shards, each with what found adds for it.
func partialOf(t *testing.T, i, n int, found func(shard int, out *Collector)) *Partial {
	t.Helper()
	p := &Partial{Format: PartialVersion, Version: "v1", Dataset: "ds", Manifest: "m", Part: i, Of: n, Count: 12, Scans: map[string]json.RawMessage{}, Shards: []ShardGroups{}}
	for shard := range 12 {
		if p.Holds(shard) {
			out := NewCollector(3, nil)
			found(shard, out)
			p.AddShard(shard, out)
		}
	}
	if err := p.SetScan("stats", newStatScan(statLayout(format.BFloat16, 4), 10, nil)); err != nil {
		t.Fatalf("SetScan: got error %v", err)
	}
	return p
}

// findMany gives a shard none to four findings of two rules.
func findMany(shard int, out *Collector) {
	for k := range shard % 5 {
		out.Add(Finding{Rule: "non-finite", Severity: Error, Sample: fmt.Sprintf("s%d-%d", shard, k), Token: k})
		if shard > 6 {
			out.Add(Finding{Rule: "mask-empty", Severity: Severity(k % 2), Sample: fmt.Sprintf("s%d-%d", shard, k), Token: -1})
		}
	}
}

func TestMergePartials(t *testing.T) {
	t.Parallel()
	want := NewCollector(3, nil)
	for shard := range 12 {
		out := NewCollector(3, nil)
		findMany(shard, out)
		want.Merge(out)
	}
	for n := 1; n <= 13; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			var parts []*Partial
			for i := n; i >= 1; i-- {
				var p Partial // as it comes from a file
				text := statJSON(t, partialOf(t, i, n, findMany))
				if err := json.Unmarshal([]byte(text), &p); err != nil {
					t.Fatalf("Unmarshal: got error %v", err)
				}
				if diff := cmp.Diff(text, statJSON(t, p)); diff != "" {
					t.Errorf("partial report changes through JSON (-want +got):\n%s", diff)
				}
				parts = append(parts, &p)
			}
			got := NewCollector(3, nil)
			states, err := MergePartials(parts, got)
			if err != nil {
				t.Fatalf("MergePartials: got error %v", err)
			}
			if diff := cmp.Diff(want.groups, got.groups); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if len(states) != 1 || len(states["stats"]) != n {
				t.Errorf("states: got %d scans, %d of stats, want 1 and %d", len(states), len(states["stats"]), n)
			}
			for _, p := range parts {
				kept := map[string]int{}
				for _, e := range p.Shards {
					for _, g := range e.Groups {
						kept[g.Rule] += len(g.Findings)
					}
				}
				for rule, k := range kept {
					if k > 3 {
						t.Errorf("part %d/%d keeps %d findings of %s, want at most 3", p.Part, p.Of, k, rule)
					}
				}
			}
		})
	}
}

func TestMergePartialsRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(parts []*Partial) []*Partial
		want   string
	}{
		"none":           {func([]*Partial) []*Partial { return nil }, "no partial reports"},
		"missing last":   {func(p []*Partial) []*Partial { return p[:2] }, "2 partial reports, want all 3"},
		"missing first":  {func(p []*Partial) []*Partial { return p[1:] }, "2/3 is given where part 1"},
		"twice":          {func(p []*Partial) []*Partial { p[1].Part = 1; return p }, "1/3 is given where part 2"},
		"version":        {func(p []*Partial) []*Partial { p[0].Format = 2; return p }, "version 2, want 1"},
		"other dataset":  {func(p []*Partial) []*Partial { p[1].Manifest = "n"; return p }, "manifest n"},
		"other settings": {func(p []*Partial) []*Partial { p[1].Settings = "only x"; return p }, `with "only x"`},
		"other hsx":      {func(p []*Partial) []*Partial { p[2].Version = "v2"; return p }, "hsx v2"},
		"other division": {func(p []*Partial) []*Partial { p[2].Of = 4; return p }, "3/4 is beside part 1/3"},
		"other scans":    {func(p []*Partial) []*Partial { p[2].Scans = nil; return p }, "states of 0 scans"},
		"scan renamed": {func(p []*Partial) []*Partial {
			p[2].Scans = map[string]json.RawMessage{"x": nil}
			return p
		}, `no state of the scan "stats"`},
		"foreign shard": {func(p []*Partial) []*Partial { p[1].Shards = p[2].Shards; return p }, "which is not in it"},
		"count": {func(p []*Partial) []*Partial {
			p[1].Shards[0].Groups[0].Count = 0
			return p
		}, "counts 0 findings"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var parts []*Partial
			for i := range 3 {
				parts = append(parts, partialOf(t, i+1, 3, findMany))
			}
			if _, err := MergePartials(tc.change(parts), NewCollector(3, nil)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("MergePartials: got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestStatScanRefuses(t *testing.T) {
	t.Parallel()
	fresh := func() *StatScan {
		return newStatScan(statLayout(format.BFloat16, 4), 10, func(int32) bool { return true })
	}
	tests := map[string]struct {
		change func(s *StatScan)
		want   string
	}{
		"width":      {func(s *StatScan) { s.HiddenSize = 5 }, "hidden size 5, want"},
		"columns":    {func(s *StatScan) { s.Columns[0] = "layer_3" }, "layer_3"},
		"states":     {func(s *StatScan) { s.States = s.States[:1] }, "statistics are of"},
		"vocabulary": {func(s *StatScan) { s.Vocab = 11 }, "11 token ids"},
		"draft":      {func(s *StatScan) { s.Draft[0] = 1 }, "of the same ids"},
		"counts":     {func(s *StatScan) { s.All = make([]int64, 11) }, "11 token ids"},
		"other":      {func(s *StatScan) { s.Other = nil }, "rest"},
		"channels":   {func(s *StatScan) { s.States[1].Channels = nil }, "0 channels"},
		"positions":  {func(s *StatScan) { s.States[0].Positions = make([]statMean, 99) }, "99 position bins"},
		"group":      {func(s *StatScan) { s.Groups["x"] = nil }, `group "x"`},
		"lengths":    {func(s *StatScan) { s.Groups["x"] = &statGroup{Lengths: make(statLengths, 5000)} }, `group "x"`},
		"shard":      {func(s *StatScan) { s.Shards = []statShard{{Shard: 3}} }, "shard 3"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fresh()
			tc.change(s)
			if err := json.Unmarshal([]byte(statJSON(t, s)), fresh()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Unmarshal: got %v, want an error with %q", err, tc.want)
			}
		})
	}
	var syntax *json.SyntaxError
	if err := json.Unmarshal([]byte("{"), fresh()); !errors.As(err, &syntax) {
		t.Errorf("Unmarshal of no JSON: got %v, want a syntax error", err)
	}
}

// A state from elsewhere is refused, or its figures can be written.
func FuzzStatScan(f *testing.F) {
	l := statLayout(format.BFloat16, 3)
	s := statScanOf(l, 20, nil, statRandom(l, 3, 2, 1)...)
	text, err := json.Marshal(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"hidden_size":3,"columns":["layer_2","final"],"vocab":20,"other":{"samples":-1},"all":[-5,9223372036854775807],"states":[{"channels":[[1,2],[0,0],[18446744073709551615,1]],"channel_rows":1},{"channels":[[0,0],[0,0],[0,0]],"positions":[{"n":-1}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, later := newStatScan(l, 20, nil), newStatScan(l, 20, nil)
		if json.Unmarshal(text, later) != nil {
			return
		}
		s.add(later)
		if _, err := json.Marshal(s.Stats()); err != nil {
			t.Errorf("statistics of %s cannot be written: %v", text, err)
		}
	})
}

func BenchmarkStatScan(b *testing.B) {
	for _, tokens := range []int{8, 1024} {
		b.Run(fmt.Sprintf("bf16-4x%dx7168", tokens), func(b *testing.B) {
			l := format.Layout{HiddenSize: 7168}
			for k := range 4 {
				l.States = append(l.States, format.State{Role: format.RoleLayer, Layer: format.Layer(k), DType: format.BFloat16})
			}
			sample := statSampleOf("x", "a/x", make([]int32, tokens), make([]byte, tokens), l, 1, nil)
			f := &sampleFacts{Sample: sample, States: factsOf(sample)}
			s := newStatScan(l, 163840, nil)
			b.SetBytes(int64(4 * tokens * 7168 * 2))
			b.ReportAllocs()
			for b.Loop() {
				s.sample(f, nil)
			}
		})
	}
}

// Partial reports from elsewhere are refused, or their findings add up.
func FuzzMergePartials(f *testing.F) {
	part := &Partial{Format: PartialVersion, Part: 1, Of: 1, Scans: map[string]json.RawMessage{"stats": []byte("{}")}}
	out := NewCollector(3, nil)
	findMany(9, out)
	part.AddShard(9, out)
	text, err := json.Marshal([]*Partial{part})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`[{"partial_version":1,"part":2,"of":2,"shards":[{"shard":1,"groups":[{"rule":"x","count":1}]}]},{"partial_version":1,"part":1,"of":2}]`))
	f.Add([]byte(`[{"partial_version":1}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var parts []Partial
		if json.Unmarshal(text, &parts) != nil {
			return
		}
		var given []*Partial
		for i := range parts {
			given = append(given, &parts[i])
		}
		out := NewCollector(3, nil)
		if _, err := MergePartials(given, out); err != nil {
			return
		}
		for rule, g := range out.groups {
			if g.Count < len(g.Findings) || len(g.Findings) > 3 {
				t.Errorf("%s: %d findings are kept of %d, want at most 3 of no fewer", rule, len(g.Findings), g.Count)
			}
		}
	})
}
