package validate

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/shard"
)

// An audit in parts, each through its file, is that of a single run: the figures to
// the last bit, and the findings in their order.
func TestAuditInParts(t *testing.T) {
	t.Parallel()
	l := statLayout(format.BFloat16, 64)
	var samples []*format.Sample
	for _, p := range statRandom(l, 40, 1, 3) {
		p.sample.Last = true
		samples = append(samples, p.sample)
	}
	dir, ds := writeDataset(t, 64<<10, samples...)
	if n := len(ds.Manifest().Shards); n < 7 {
		t.Fatalf("dataset has %d shards, want several", n)
	}
	mk := func() []scan { return []scan{newStatScan(l, 0, nil), &noteScan{}} }

	whole := NewCollector(5, nil)
	e := &engine{ds: ds, workers: 2, make: mk, out: whole}
	scans, err := e.run(t.Context(), jobsOf(ds, nil))
	if err != nil {
		t.Fatal(err)
	}
	want := scans[0].(*StatScan)
	for _, n := range []int{1, 2, 3, 7} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			var parts []*Partial
			for i := 1; i <= n; i++ {
				parts = append(parts, runPart(t, ds, dir, mk, i, n))
			}
			out := NewCollector(5, nil)
			states, err := MergePartials(parts, out)
			if err != nil {
				t.Fatalf("MergePartials: got error %v", err)
			}
			if diff := cmp.Diff(whole.groups, out.groups); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			got := newStatScan(l, 0, nil)
			for _, state := range states["stats"] {
				later := newStatScan(l, 0, nil)
				if err := json.Unmarshal(state, later); err != nil {
					t.Fatalf("Unmarshal: got error %v", err)
				}
				got.add(later)
			}
			if diff := cmp.Diff(want.Stats(), got.Stats()); diff != "" {
				t.Errorf("statistics (-want +got):\n%s", diff)
			}
		})
	}
}

// runPart reads one part and takes its report through JSON.
func runPart(t *testing.T, ds *shard.Dataset, dir string, mk scanSet, i, n int) *Partial {
	t.Helper()
	p, err := NewPartial(ds, dir, "v1", "all rules", i, n)
	if err != nil {
		t.Fatalf("NewPartial: got error %v", err)
	}
	var jobs []shardJob
	for _, j := range jobsOf(ds, nil) {
		if p.Holds(j.shard) {
			jobs = append(jobs, j)
		}
	}
	e := &engine{ds: ds, workers: 1 + i%3, make: mk, out: NewCollector(5, nil), each: p.AddShard}
	scans, err := e.run(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.SetScan("stats", scans[0]); err != nil {
		t.Fatalf("SetScan: got error %v", err)
	}
	var read Partial
	if err := json.Unmarshal([]byte(statJSON(t, p)), &read); err != nil {
		t.Fatalf("Unmarshal: got error %v", err)
	}
	return &read
}

func TestNewPartialRefuses(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 1<<20, manySamples(1)...)
	for _, p := range [][2]int{{0, 0}, {0, 3}, {4, 3}, {-1, -1}, {1, 0}} {
		if got, err := NewPartial(ds, "ds", "v1", "", p[0], p[1]); err == nil {
			t.Errorf("NewPartial(%d/%d): got %+v, want an error", p[0], p[1], got)
		}
	}
}
