package validate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/shard"
)

// auditSamples are samples that begin alike, with something wrong for every few.
func auditSamples() []*format.Sample {
	samples := manySamples(60)
	for i, s := range samples {
		s.Input.Path = fmt.Sprintf("set%d/%s", i%3, s.Input.Path)
		s.Tokens[0], s.Tokens[1] = 1, int32(100+i)
		for j, h := range s.Hidden {
			copy(h.Rows.Row(0), samples[0].Hidden[j].Rows.Row(0))
		}
		switch i % 11 {
		case 2:
			setValue(s, 1, 2, 5, 0x7fc0)
		case 3:
			copy(s.Hidden[2].Rows.Row(0), s.Hidden[1].Rows.Row(0))
		case 4:
			clear(s.Hidden[3].Rows.Row(1))
		case 6:
			s.LossMask[1] = 3
		case 8:
			c := *samples[i-3]
			c.ID, c.Input = s.ID, s.Input
			samples[i] = &c
		}
	}
	return samples
}

// TestAuditPartition merges parts of an audit, which gives that of a single run.
func TestAuditPartition(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 16<<10, auditSamples()...)
	in := Input{Target: format.Target{Layers: 5, HiddenSize: 64, VocabSize: 512}}
	opt := Options{Keep: 4, spanBytes: 4 << 10}
	whole, err := RunAudit(t.Context(), ds, in, opt, "ds", "v1")
	if err != nil {
		t.Fatal(err)
	}
	if whole.Report.Verdict != Unfit || whole.Report.Samples != 60 || whole.Stats.Total.Samples != 60 || whole.Stats.Duplicates == 0 {
		t.Fatalf("RunAudit: got %+v, want 60 samples, an unfit dataset and duplicates", whole.Report)
	}
	whole.Report.Seconds = 0
	for _, n := range []int{1, 2, 3, 7, len(ds.Manifest().Shards) + 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			var parts []*Partial
			for i := range n {
				p, err := RunPartial(t.Context(), ds, in, opt, "ds", "v1", i+1, n)
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(p)
				if err != nil {
					t.Fatal(err)
				}
				stored := &Partial{}
				if err := json.Unmarshal(text, stored); err != nil {
					t.Fatal(err)
				}
				parts = append(parts, stored)
			}
			slices.Reverse(parts)
			merged, err := MergeAudit(t.Context(), ds, in, opt, parts)
			if err != nil {
				t.Fatal(err)
			}
			merged.Report.Seconds = 0
			if d := cmp.Diff(auditText(t, whole), auditText(t, merged)); d != "" {
				t.Errorf("merged audit (-whole +merged):\n%s", d)
			}
		})
	}
}

// TestAuditWorkers: an audit says the same whoever reads which span, of made samples and of
// the dumps and faults of the kit.
func TestAuditWorkers(t *testing.T) {
	t.Parallel()
	_, made := writeDataset(t, 64<<10, auditSamples()...)
	sets := map[string]*shard.Dataset{"made": made}
	for name, kit := range kits(t) {
		for _, c := range slices.Concat(kitDumps(t, kit), kitFaults(t, kit)) {
			if ds := ingestKit(t, kit, c.path(), c.asConfigured(t), 1<<20); len(ds.Manifest().Shards) > 0 {
				sets[name+"/"+c.path()] = ds
			}
		}
	}
	for name, ds := range sets {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want string
			for _, workers := range []int{1, 2, 7} {
				a, err := RunAudit(t.Context(), ds, Input{}, Options{Workers: workers, spanBytes: 8 << 10}, "ds", "v1")
				if err != nil {
					t.Fatal(err)
				}
				a.Report.Seconds = 0
				got := auditText(t, a)
				if want == "" {
					want = got
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("%d workers (-1 worker +got):\n%s", workers, d)
				}
			}
		})
	}
}

func auditText(t *testing.T, a *Audit) string {
	t.Helper()
	b, err := json.MarshalIndent(a, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMergeAuditRefusals(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 16<<10, manySamples(20)...)
	_, other := writeDataset(t, 16<<10, manySamples(21)...)
	part := func(opt Options, i, n int) *Partial {
		p, err := RunPartial(t.Context(), ds, Input{}, opt, "ds", "v1", i, n)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one, two := part(Options{}, 1, 2), part(Options{}, 2, 2)
	broken := *two
	broken.Scans = map[string]json.RawMessage{}
	for name := range two.Scans {
		broken.Scans[name] = json.RawMessage(`[]`)
	}
	for want, parts := range map[string][]*Partial{
		"there are no partial reports": nil,
		"want all 2 parts":             {one},
		"want the same for all parts":  {one, part(Options{Skip: []string{"non-finite"}}, 2, 2)},
		"state of the scan":            {one, &broken},
	} {
		if _, err := MergeAudit(t.Context(), ds, Input{}, Options{}, parts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("MergeAudit: got error %v, want %q", err, want)
		}
	}
	if _, err := MergeAudit(t.Context(), other, Input{}, Options{}, []*Partial{one, two}); err == nil || !strings.Contains(err.Error(), "it has changed since") {
		t.Errorf("MergeAudit of another dataset: got error %v", err)
	}
	if _, err := MergeAudit(t.Context(), ds, Input{}, Options{Keep: 3}, []*Partial{one, two}); err == nil || !strings.Contains(err.Error(), "parts were made with") {
		t.Errorf("MergeAudit with other settings: got error %v", err)
	}
	for _, p := range [][2]int{{0, 2}, {3, 2}, {1, 0}} {
		if _, err := RunPartial(t.Context(), ds, Input{}, Options{}, "ds", "v1", p[0], p[1]); err == nil {
			t.Errorf("RunPartial of %v: got no error", p)
		}
	}
}
