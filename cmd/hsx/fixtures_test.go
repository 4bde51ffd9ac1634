package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// kits are the fixture kits at hand, by name.
func kits(t *testing.T) map[string]string {
	t.Helper()
	small, err := filepath.Abs("testdata/kit")
	if err != nil {
		t.Fatal(err)
	}
	return hsxtest.Kits(t, small)
}

// eachKit runs a test on every kit at hand.
func eachKit(t *testing.T, test func(t *testing.T, name, kit string)) {
	t.Helper()
	for name, kit := range kits(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, name, kit)
		})
	}
}

// hsx runs a command line in this process.
func hsx(args ...string) (code int, stdout, stderr string) {
	var out, talk bytes.Buffer
	code = run(args, &out, &talk)
	return code, out.String(), talk.String()
}

// dumpIndex is the kit's dumps/INDEX.json.
type dumpIndex struct{ Dumps []dumpEntry }

type dumpEntry struct {
	ID, Dir, DType, Convention string
	Container                  string
	Aux                        []string `json:"aux_layers"`
	IDs                        []int    `json:"ids_as_configured"`
	Final                      *struct{ Norm string }
	LossMask                   string `json:"loss_mask"`
	Samples                    []struct {
		ID, File string
		Item     *int
		Rows     int
		SHA256   map[string]string
		Own      any   `json:"conversation_id"`
		Stored   []int `json:"tokens_stored"`
	}
}

// ingestDump is the command line for one of the kit's dumps, with what it does not say
// itself.
func ingestDump(kit, ds string, d dumpEntry) []string {
	args := []string{"ingest", "--out", ds, "--target", filepath.Join(kit, "model/config.json")}
	switch ids := d.IDs; {
	case ids != nil:
		args = append(args, "--layers", strings.Trim(strings.ReplaceAll(fmt.Sprint(ids), " ", ","), "[]"), "--convention", d.Convention)
	case len(d.Aux) > 0: // a format that has no config: the kit's layers are post-layer
		args = append(args, "--layers", strings.ReplaceAll(strings.Join(d.Aux, ","), "P", ""))
	}
	if d.Container == "json" || d.ID == "npy_bf16_as_uint16" {
		args = append(args, "--dtype", d.DType)
	}
	return append(args, filepath.Join(kit, "dumps", d.Dir))
}

// column is the name of the column that holds a layer of the kit ("P-1", "P3", "N").
func column(layer string, final bool) string {
	if final {
		return "final"
	}
	return "layer_" + layer[1:]
}

func sha(r format.Rows) string {
	h := sha256.New()
	for i := range r.N {
		h.Write(r.Row(i))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestFixtureDumps ingests every dump of the kit and compares every state of every
// sample with the answer.
func TestFixtureDumps(t *testing.T) {
	t.Parallel()
	eachKit(t, func(t *testing.T, _, kit string) {
		testDumps(t, kit)
	})
}

func testDumps(t *testing.T, kit string) {
	var index dumpIndex
	hsxtest.ReadJSON(t, filepath.Join(kit, "dumps/INDEX.json"), &index)
	if len(index.Dumps) < 33 {
		t.Fatalf("the kit has %d dumps, want 33", len(index.Dumps))
	}
	for _, d := range index.Dumps {
		t.Run(d.ID, func(t *testing.T) {
			t.Parallel()
			ds := filepath.Join(t.TempDir(), "ds")
			args := ingestDump(kit, ds, d)
			code, out, talk := hsx(args...)
			if d.Container == "torch-legacy" {
				if code != exitBadData || !strings.Contains(talk, "non-zip") {
					t.Errorf("got exit %d and %q, want a refusal that names the old format", code, talk)
				}
				return
			}
			if code != exitDone {
				t.Fatalf("%v: exit %d\n%s%s", args, code, out, talk)
			}
			got := samples(t, ds)
			if len(got) != len(d.Samples) {
				t.Errorf("dataset has %d samples, want %d", len(got), len(d.Samples))
			}
			for _, want := range d.Samples {
				item := 0
				if want.Item != nil {
					item = *want.Item
				}
				s := got[key(want.File, item)]
				if s == nil {
					t.Errorf("no sample of %s item %d", want.File, item)
					continue
				}
				if want.Own != nil && s.ID != fmt.Sprint(want.Own) {
					t.Errorf("%s: id is %q, want %v", want.File, s.ID, want.Own)
				}
				if len(s.Tokens) != want.Rows {
					t.Errorf("%s: %d tokens, want %d", want.File, len(s.Tokens), want.Rows)
				}
				for i, id := range want.Stored {
					if i < len(s.Tokens) && int(s.Tokens[i]) != id {
						t.Errorf("%s: token %d is %d, want %d as stored", want.File, i, s.Tokens[i], id)
						break
					}
				}
				if (s.LossMask == nil) != (d.LossMask == "absent") {
					t.Errorf("%s: loss mask is %v, the kit says %q", want.File, s.LossMask, d.LossMask)
				}
				if len(s.Hidden) != len(want.SHA256) {
					t.Errorf("%s: %d states, want %d", want.File, len(s.Hidden), len(want.SHA256))
				}
				for layer, sum := range want.SHA256 {
					final := layer == "N" || layer == "P4" && d.Final != nil
					found := false
					for _, h := range s.Hidden {
						if h.State.Column() != column(layer, final) {
							continue
						}
						found = true
						if g := sha(h.Rows); g != sum {
							t.Errorf("%s %s: sha256 %s, want %s", want.File, layer, g, sum)
						}
						if final && !strings.HasPrefix(d.Dir, "np") && h.State.Norm.String() != d.Final.Norm {
							t.Errorf("%s: final is %s, want %s", want.File, h.State.Norm, d.Final.Norm)
						}
					}
					if !found {
						t.Errorf("%s: no column %s", want.File, column(layer, final))
					}
				}
			}
			if code, _, talk := hsx("verify", ds); code != exitDone {
				t.Errorf("verify: exit %d\n%s", code, talk)
			}
		})
	}
}

// key names a sample by its input and its place in it.
func key(input string, item int) string { return fmt.Sprintf("%s#%d", input, item) }

// samples reads all of a dataset, by key.
func samples(t *testing.T, ds string) map[string]*format.Sample {
	t.Helper()
	data, err := shard.Open(ds)
	if err != nil {
		t.Fatal(err)
	}
	got, items := map[string]*format.Sample{}, map[string]int{}
	for s, err := range data.Samples(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		got[key(s.Input.Path, items[s.Input.Path])] = hsxtest.Clone(s)
		items[s.Input.Path]++
	}
	return got
}
