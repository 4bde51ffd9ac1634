package main

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/internal/hsxtest"
	"hsx/validate"
)

// draftRule is the rule of what the kit calls a finding in a draft, "" when none is.
func draftRule(finding string) string {
	switch finding {
	case "default_ids_degenerate":
		return "default-degenerate"
	case "d2t_all_zero":
		return "d2t-unfilled"
	case "t2d_all_true":
		return "t2d-unfilled"
	case "fc_width":
		return "fc-width"
	case "draft_vocab_size":
		return "draft-vocab-size"
	case "lm_head_rows":
		return "lm-head-shape"
	case "ids_not_increasing":
		return "ids-not-increasing"
	case "ids_duplicate":
		return "ids-duplicate"
	case "ids_negative":
		return "ids-negative"
	case "ids_out_of_range":
		return "ids-out-of-range"
	case "ids_count":
		return "ids-count"
	case "places_disagree":
		return "places-disagree"
	case "layers_differ_from_data":
		return "layers-differ"
	case "ids_empty":
		return "ids-empty"
	case "vocab_map_missing":
		return "vocab-map-missing"
	case "d2t_t2d_disagree":
		return "vocab-maps-disagree"
	case "attention_input_width":
		return "attention-input-width"
	}
	return ""
}

// draftKit is where the drafts of a kit are. The small kit's are with the tests of the
// rules, their checkpoints compressed.
func draftKit(t *testing.T, name, kit string) string {
	t.Helper()
	if name != "small" {
		return filepath.Join(kit, "drafts")
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("../../validate/testdata/drafts")); err != nil {
		t.Fatal(err)
	}
	packed, err := filepath.Glob(filepath.Join(dir, "*/model.safetensors.gz"))
	if err != nil || len(packed) == 0 {
		t.Fatalf("no compressed checkpoints in %s: %v", dir, err)
	}
	for _, path := range packed {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		zr, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(zr)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path[:len(path)-len(".gz")], data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestValidateDrafts holds every draft of the kit against data of the layers that it
// should read: the good ones pass, the others have the listed errors and no others.
func TestValidateDrafts(t *testing.T) {
	t.Parallel()
	eachKit(t, func(t *testing.T, name, kit string) {
		drafts := draftKit(t, name, kit)
		var index struct {
			Drafts []struct {
				Dir, Kind string
				Expect    []finding
			}
		}
		hsxtest.ReadJSON(t, filepath.Join(drafts, "INDEX.json"), &index)
		if len(index.Drafts) < 31 {
			t.Fatalf("the kit has %d drafts, want 31", len(index.Drafts))
		}
		data := map[bool]string{true: ingested(t, kit, "specforge_dflash"), false: ingested(t, kit, "specforge_eagle3")}
		for _, d := range index.Drafts {
			t.Run(d.Dir, func(t *testing.T) {
				t.Parallel()
				want := []string{}
				for _, e := range d.Expect {
					rule := draftRule(e.Finding)
					if rule == "" || e.Severity != "error" {
						t.Fatalf("no rule for the kit's finding %q of severity %s", e.Finding, e.Severity)
					}
					want = append(want, rule)
				}
				slices.Sort(want)
				code, r := validated(t, data[d.Dir == "dflash"], "--strict", "--target", filepath.Join(kit, "model/config.json"), "--draft", filepath.Join(drafts, d.Dir))
				got := []string{}
				for _, g := range r.Groups {
					if g.Severity == validate.Error {
						got = append(got, g.Rule)
					}
					if d.Kind == "good" && g.Severity == validate.Warning {
						t.Errorf("got a warning of a good draft: %+v", g)
					}
				}
				slices.Sort(got)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("errors (-want +got):\n%s", diff)
				}
				if wantCode := map[bool]int{true: exitDone, false: exitBadData}[len(want) == 0]; code != wantCode {
					t.Errorf("exit %d, want %d", code, wantCode)
				}
				checkRan(t, knowledge{name: "a draft", met: []string{"data", "config", "draft"}}, r)
			})
		}
	})
}

// ingested is a dataset of one of the kit's dumps.
func ingested(t *testing.T, kit, id string) string {
	t.Helper()
	var index dumpIndex
	hsxtest.ReadJSON(t, filepath.Join(kit, "dumps/INDEX.json"), &index)
	for _, d := range index.Dumps {
		if d.ID == id {
			ds := filepath.Join(t.TempDir(), "ds")
			if code, out, talk := hsx(ingestDump(kit, ds, d)...); code != exitDone {
				t.Fatalf("ingest %s: exit %d\n%s%s", id, code, out, talk)
			}
			return ds
		}
	}
	t.Fatalf("the kit has no dump %s", id)
	return ""
}
