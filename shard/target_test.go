package shard_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// TestTargetOfSamples has samples say of which target they are: what is known grows, is
// durable with them, and what contradicts it is refused.
func TestTargetOfSamples(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ds")
	n := 0
	put := func(w *shard.Writer, target format.Target) error {
		s := hsxtest.Sample(hsxtest.Spec{Hidden: 4, Layers: field()}, n, 5)
		n++
		s.Target = target
		return w.Put(t.Context(), s)
	}
	steps := []struct {
		user    format.Target
		samples []format.Target
		refused []string // for each sample, "" when it is taken
		want    format.Target
	}{
		{format.Target{}, []format.Target{{}, {Name: "org/model"}, {Layers: 61}, {}},
			[]string{"", "", "", ""}, format.Target{Name: "org/model", Layers: 61}},
		{format.Target{VocabSize: 100}, []format.Target{{Layers: 60}, {Name: "/mnt/model"}, {Name: "other"}, {VocabSize: 101}, {HiddenSize: 4}},
			[]string{"layers 60, the dataset's has 61", "", `target is "other", the dataset's is "org/model"`, "vocabulary 101, the dataset's has 100", ""},
			format.Target{Name: "org/model", Layers: 61, HiddenSize: 4, VocabSize: 100}},
		// The user's name counts, also where the dataset has another.
		{format.Target{Name: "mine"}, []format.Target{{Name: "mine"}, {Name: "org/model"}},
			[]string{"", `the dataset's is "mine"`}, format.Target{Name: "org/model", Layers: 61, HiddenSize: 4, VocabSize: 100}},
	}
	for i, step := range steps {
		w, err := shard.OpenWriter(dir, shard.Options{Target: step.user})
		if err != nil {
			t.Fatal(err)
		}
		for k, target := range step.samples {
			err := put(w, target)
			if want := step.refused[k]; want == "" && err != nil || want != "" && (!errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), want)) {
				t.Errorf("step %d, sample %d: got error %v, want %q", i, k, err, want)
			}
		}
		if err := errors.Join(w.Commit(t.Context()), w.Close()); err != nil {
			t.Fatal(err)
		}
		ds, err := shard.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := ds.Manifest().Target; got != step.want {
			t.Errorf("step %d: target is %+v, want %+v", i, got, step.want)
		}
	}
	if _, err := shard.OpenWriter(dir, shard.Options{Target: format.Target{Layers: 60}}); !errors.Is(err, shard.ErrMismatch) {
		t.Errorf("user's target of 60 layers: got error %v, want %v", err, shard.ErrMismatch)
	}
}
