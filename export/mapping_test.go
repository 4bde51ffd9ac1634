package export_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/export"
	"hsx/format"
	"hsx/internal/hsxtest"
)

// TestMapping compares what lies beside the data.
func TestMapping(t *testing.T) {
	t.Parallel()
	ds := dataset(t, full(format.NormPre), 2, 3)
	plan := planned(t, ds, export.Options{To: "speculators", WrittenBy: "hsx test", Target: format.Target{Name: "m", Layers: 61}, Limit: 1})
	plan.SetReaders([]export.Reader{{Name: "vllm", Write: "write x: [1]"}})
	dir := written(t, plan)
	var got map[string]any
	hsxtest.ReadJSON(t, filepath.Join(dir, export.MappingName), &got)
	if s, _ := got["dataset"].(string); len(s) != 32 {
		t.Errorf("dataset is %v, want the digest of its manifest", got["dataset"])
	}
	delete(got, "dataset")
	num := func(ns ...float64) (out []any) {
		for _, n := range ns {
			out = append(out, n)
		}
		return out
	}
	want := map[string]any{
		"format": "hsx-export", "version": 1.0, "written_by": "hsx test", "to": "speculators",
		"layers": num(2, 30, 58), "boundary": num(3, 31, 59), "convention": "boundary", "ids": num(3, 31, 59),
		"final": "pre", "norm": "", "select": "", "min_tokens": 0.0, "max_tokens": 0.0, "limit": 1.0, "shuffle": false, "seed": 0.0, "split": []any{},
		"producer": "specforge-eagle3", "target": map[string]any{"name": "m", "layers": 61.0}, "hidden_size": 8.0,
		"dtypes":  []any{"bfloat16", "bfloat16", "bfloat16", "bfloat16"},
		"readers": []any{map[string]any{"name": "vllm", "write": "write x: [1]"}},
		"samples": 1.0, "tokens": 2.0, "splits": []any{map[string]any{"name": "", "samples": 1.0, "tokens": 2.0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", export.MappingName, diff)
	}
	lines := journal(t, dir)
	if len(lines) != 3 || !strings.HasPrefix(lines[0], `{"to":"speculators",`) || !strings.Contains(lines[2], `"file":"hidden_states/hs_0.safetensors"`) || !strings.Contains(lines[2], `"id":"sample-0"`) {
		t.Errorf("journal is %q", lines)
	}
}

// TestVocabMap writes the map of a draft's vocabulary where each reader looks for it.
func TestVocabMap(t *testing.T) {
	t.Parallel()
	vocab := func(d2t ...byte) *format.Record {
		wide := make([]byte, 8*len(d2t))
		for i, v := range d2t {
			wide[8*i] = v
		}
		return &format.Record{Fields: []format.Field{
			{Key: "d2t", Value: &format.Tensor{Name: "d2t", DType: format.Int64, Shape: []int64{int64(len(d2t))}, Data: wide}},
			{Key: "t2d", Value: &format.Tensor{Name: "t2d", DType: format.Bool, Shape: []int64{5}, Data: []byte{0, 1, 0, 1, 0}}},
		}}
	}
	for to, want := range map[string][]string{
		"specforge": {"vocab_mapping/vocab_mapping.pt"}, "specforge-dspark": {"vocab_mapping/vocab_mapping.pt"},
		"angelslim": {"vocab_mapping.pt"}, "speculators": {"d2t.npy", "t2d.npy"},
	} {
		final := format.NormPost
		if to == "speculators" {
			final = format.NormPre
		}
		files := tree(t, written(t, planned(t, dataset(t, full(final), 3), export.Options{To: to, VocabMap: vocab(1, 2)})))
		for _, name := range want {
			if _, ok := files[name]; !ok {
				t.Errorf("%s: files are %q, want %s too", to, names(files), name)
			}
		}
	}
	for name, tt := range map[string]struct {
		rec  *format.Record
		want string
	}{
		"absolute":  {vocab(1, 3), "d2t[1] is 3, an offset that makes id 4, and t2d has no such id"},
		"beyond":    {vocab(1, 200), "makes id 201"},
		"twice":     {vocab(1, 0), "makes id 1, and t2d has no such id, or d2t has it twice"},
		"more":      {vocab(1), "t2d has 1 ids that d2t, of 1, has not"},
		"nothing":   {&format.Record{}, "draft has no vocabulary map"},
		"half":      {&format.Record{Fields: vocab(1, 2).Fields[:1]}, "draft has no vocabulary map"},
		"of floats": {&format.Record{Fields: []format.Field{vocab(1).Fields[1], {Key: "d2t", Value: &format.Tensor{DType: format.Float32, Shape: []int64{1}, Data: make([]byte, 4)}}}}, "want int64 and bool"},
	} {
		_, err := export.NewPlan(t.Context(), dataset(t, full(format.NormPost), 3), export.Options{To: "specforge", VocabMap: tt.rec})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got error %v, want %q", name, err, tt.want)
		}
	}
}
