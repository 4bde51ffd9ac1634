package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"hsx/export"
	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// TestExportKit exports every dump of the kit to every target and ingests that again: the
// tokens, masks and states are the same to the last bit, and so are the digests when all
// states were exported. Where a target refuses a dump, the dump lacks what it needs.
func TestExportKit(t *testing.T) {
	t.Parallel()
	eachKit(t, func(t *testing.T, _, kit string) {
		var index dumpIndex
		hsxtest.ReadJSON(t, filepath.Join(kit, "dumps/INDEX.json"), &index)
		for _, d := range index.Dumps {
			if d.Container == "torch-legacy" {
				continue // is not ingested
			}
			t.Run(d.ID, func(t *testing.T) {
				t.Parallel()
				ds := filepath.Join(t.TempDir(), "ds")
				args := ingestDump(kit, ds, d)
				if strings.HasPrefix(d.Dir, "np") { // arrays do not say it
					args = append(args, "--final", cmp.Or(finalNorm(d), "none"))
				}
				if code, out, talk := hsx(args...); code != exitDone {
					t.Fatalf("%v: exit %d\n%s%s", args, code, out, talk)
				}
				for _, target := range export.Targets() {
					exportAndBack(t, kit, ds, target.Name)
				}
			})
		}
	})
}

func finalNorm(d dumpEntry) string {
	if d.Final == nil {
		return ""
	}
	return d.Final.Norm
}

// exportAndBack exports a dataset, unless the target has a reason to refuse it, and
// compares what ingest reads of that with the dataset.
func exportAndBack(t *testing.T, kit, ds, to string) {
	t.Helper()
	m := opened(t, ds).Manifest()
	out, back := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "back")
	code, stdout, talk := hsx("export", "--to", to, "--out", out, ds)
	if want := refusal(m, to); want != "" {
		if code != exitFailed || !strings.Contains(talk, want) {
			t.Errorf("export to %s: exit %d, want a refusal with %q\n%s", to, code, want, talk)
		}
		return
	}
	switch {
	case code == exitBadData && strings.Contains(talk, "refused: "), code == exitDone: // a mask of one token
	case code == exitFailed && (strings.Contains(talk, "loss_mask is missing") || strings.Contains(talk, "no two tokens in a row")):
		return
	default:
		t.Errorf("export to %s: exit %d\n%s%s", to, code, stdout, talk)
		return
	}
	if to == "datasets" {
		return // ingest does not read it
	}
	var mapping struct {
		Layers []int
		Final  string
		DTypes []string
	}
	hsxtest.ReadJSON(t, filepath.Join(out, "hsx-export.json"), &mapping)
	args := []string{"ingest", "--out", back, "--target", filepath.Join(kit, "model/config.json")}
	if len(mapping.Layers) > 0 {
		args = append(args, "--layers", strings.Trim(strings.ReplaceAll(fmt.Sprint(mapping.Layers), " ", ","), "[]"))
	}
	if to == "npy" {
		args = append(args, "--final", mapping.Final)
		if mapping.Final == "unknown" {
			args = args[:len(args)-2]
		}
		if mapping.DTypes[0] == "bfloat16" {
			args = append(args, "--dtype", "bf16")
		}
	}
	if code, stdout, talk := hsx(append(args, out)...); code != exitDone {
		t.Errorf("%v: exit %d\n%s%s", args, code, stdout, talk)
		return
	}
	compareSamples(t, to, byTokens(t, ds), byTokens(t, back), code == exitDone)
}

// refusal is a part of the sentence in which a target refuses all of a dataset, "" when
// it takes it.
func refusal(m *shard.Manifest, to string) string {
	var layers, finals int
	norm := format.NormUnknown
	for _, s := range m.Layout().States {
		switch {
		case s.Role == format.RoleBlock:
			return "is of an unknown layer"
		case s.Role == format.RoleFinal:
			finals, norm = 1, s.Norm
		case s.Layer != format.Embedding:
			layers++
		}
	}
	i := slices.IndexFunc(export.Targets(), func(d producer.TargetDescription) bool { return d.Name == to })
	d := export.Targets()[i]
	plain := to == "safetensors" || to == "npy" || to == "datasets"
	switch {
	case m.Shifted:
		return "one position to the left"
	case finals == 1 && d.Final != nil && !slices.Contains(d.Final, norm) && norm == format.NormPre:
		return "needs the weight of the final norm (--target)"
	case layers == 0 && !plain:
		return "needs aux layers"
	case d.Layers > 0 && layers != d.Layers:
		return fmt.Sprintf("wants %d layers, not %d", d.Layers, layers)
	case finals == 0 && d.NeedFinal:
		return "final is missing"
	case finals == 1 && d.Final != nil && !slices.Contains(d.Final, norm) && norm == format.NormPost:
		return "nothing undoes the norm"
	case finals == 1 && d.Final != nil && !slices.Contains(d.Final, norm):
		return "unknown norm state"
	}
	return ""
}

// exportedRow is a sample as far as an export keeps it.
type exportedRow struct {
	mask   []byte
	states map[string]string // sha256 by column
	digest shard.Digest
}

func opened(t *testing.T, dir string) *shard.Dataset {
	t.Helper()
	ds, err := shard.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// byTokens is the samples of a dataset by their tokens. A dataset of several dumps of one
// text has the last.
func byTokens(t *testing.T, dir string) map[string]exportedRow {
	t.Helper()
	ds := opened(t, dir)
	var digests []shard.Digest
	for i := range ds.Manifest().Shards {
		s, err := ds.Shard(i)
		if err != nil {
			t.Fatal(err)
		}
		for row := range s.Rows() {
			h, err := s.Head(row)
			if err != nil {
				t.Fatal(err)
			}
			digests = append(digests, h.Digest)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	out := map[string]exportedRow{}
	i := 0
	for s, err := range ds.Samples(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		r := exportedRow{mask: slices.Clone(s.LossMask), states: map[string]string{}, digest: digests[i]}
		for _, h := range s.Hidden {
			r.states[h.State.Column()] = h.State.DType.String() + " " + h.State.Norm.String() + " " + sha(h.Rows)
		}
		out[fmt.Sprint(s.Tokens)] = r
		i++
	}
	return out
}

// compareSamples compares what an export gave with what it was made of.
func compareSamples(t *testing.T, to string, want, got map[string]exportedRow, all bool) {
	t.Helper()
	if len(got) == 0 || len(got) > len(want) || all && len(got) != len(want) {
		t.Errorf("%s: %d samples came back of %d", to, len(got), len(want))
	}
	for tokens, g := range got {
		w, ok := want[tokens]
		if !ok {
			t.Errorf("%s: tokens %.60s are of no sample", to, tokens)
			continue
		}
		if (g.mask == nil) != (w.mask == nil) || !slices.Equal(g.mask, w.mask) {
			t.Errorf("%s: mask of %.60s is %v, want %v", to, tokens, g.mask, w.mask)
		}
		if len(g.states) == len(w.states) && g.digest != w.digest {
			t.Errorf("%s: digest of %.60s is %s, want %s", to, tokens, g.digest, w.digest)
		}
		for column := range w.states {
			if _, ok := g.states[column]; !ok && (column == "final" || column == "layer_-1") {
				delete(w.states, column) // the target has no place for it, or it was not asked for
			}
		}
		if diff := gocmp.Diff(w.states, g.states); diff != "" {
			t.Errorf("%s: states of %.60s (-want +got):\n%s", to, tokens, diff)
		}
	}
}

// TestExportNorm writes the final after the norm from one before it, with the weights of
// the full kit's model: it is what the model itself made, to the last bit.
func TestExportNorm(t *testing.T) {
	t.Parallel()
	full := os.Getenv("HSX_FIXTURES")
	if full == "" {
		if os.Getenv("CI") == "true" {
			t.Error("HSX_FIXTURES is empty, want the directory of the full fixture kit")
		}
		return
	}
	pre, post, out, back := filepath.Join(t.TempDir(), "pre"), filepath.Join(t.TempDir(), "post"), filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "back")
	model := filepath.Join(full, "model")
	for _, args := range [][]string{
		{"ingest", "--out", pre, "--layers", "0,2,3", "--target", model, filepath.Join(full, "dumps/speculators")},
		{"ingest", "--out", post, "--layers", "0,2,3", "--target", model, filepath.Join(full, "dumps/specforge_eagle3")},
		{"export", "--to", "specforge", "--target", model, "--out", out, pre},
		{"ingest", "--out", back, "--layers", "0,2,3", "--target", model, out},
	} {
		if code, stdout, talk := hsx(args...); code != exitDone {
			t.Fatalf("%v: exit %d\n%s%s", args, code, stdout, talk)
		}
	}
	want, got := byTokens(t, post), byTokens(t, back)
	if len(got) != 5 {
		t.Errorf("%d samples came back, want 5", len(got))
	}
	for tokens, g := range got {
		if diff := gocmp.Diff(want[tokens].states, g.states); diff != "" {
			t.Errorf("states of %.60s (-want +got):\n%s", tokens, diff)
		}
	}
}

// TestExportNamesDataset wants an export to name its dataset as audit names it.
func TestExportNamesDataset(t *testing.T) {
	t.Parallel()
	ds := filepath.Join(t.TempDir(), "ds")
	if code, out, talk := hsx("ingest", "--out", ds, "--layers", "0,2,3", "testdata/kit/dumps/specforge_eagle3"); code != exitDone {
		t.Fatalf("ingest: exit %d\n%s%s", code, out, talk)
	}
	named := func(field string, args ...string) string {
		code, out, talk := hsx(append(args, "--json", ds)...)
		if code != exitDone {
			t.Fatalf("%v: exit %d\n%s", args, code, talk)
		}
		var doc map[string]any
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(doc[field])
	}
	got, want := named("dataset", "export", "--to", "npy", "--dry-run"), named("manifest", "audit", "--partition", "1/1")
	if got != want || len(got) != 32 {
		t.Errorf("export names its dataset %s, audit %s", got, want)
	}
}
