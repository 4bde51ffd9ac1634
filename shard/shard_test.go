package shard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

func field() []format.Layer { return []format.Layer{2, 30, 58} }

func write(t testing.TB, dir string, opt shard.Options, samples ...*format.Sample) {
	t.Helper()
	w, err := shard.OpenWriter(dir, opt)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range samples {
		if err := w.Put(context.Background(), s); err != nil {
			t.Fatalf("Put(%s): %v", s.ID, err)
		}
	}
	if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, dir string) *shard.Dataset {
	t.Helper()
	ds, err := shard.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// verify returns what Verify reports.
func verify(t testing.TB, ds *shard.Dataset) []string {
	t.Helper()
	var found []string
	if err := ds.Verify(context.Background(), func(c *shard.CorruptError) { found = append(found, c.Error()) }, nil); err != nil {
		t.Fatal(err)
	}
	return found
}

// compare checks that a dataset holds exactly the samples, in their order.
func compare(t testing.TB, ds *shard.Dataset, want []*format.Sample) {
	t.Helper()
	i := 0
	for s, err := range ds.Samples(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if i >= len(want) {
			t.Fatalf("dataset holds more than %d samples", len(want))
		}
		if d := hsxtest.Equal(s, want[i]); d != "" {
			t.Errorf("sample %d: %s", i, d)
		}
		i++
	}
	if i != len(want) {
		t.Errorf("dataset holds %d samples, want %d", i, len(want))
	}
}

// checkDataset checks that a dataset is sound and holds exactly the samples, in their
// order.
func checkDataset(t testing.TB, dir string, want []*format.Sample) {
	t.Helper()
	ds := open(t, dir)
	if d := want[0].Layout().Diff(ds.Manifest().Layout()); d != "" {
		t.Errorf("manifest's layout: %s", d)
	}
	if found := verify(t, ds); len(found) > 0 {
		t.Errorf("Verify reports %q", found)
	}
	compare(t, ds, want)
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		for _, spec := range []hsxtest.Spec{
			{Hidden: 1, Layers: field()},
			{Hidden: 5, Layers: field(), Final: true, Norm: format.NormPost, Concat: true},
			{Hidden: 64, Layers: []format.Layer{format.Embedding, 0, 7}, NoMask: true, Concat: true},
			{Hidden: 3, Final: true, Norm: format.NormPre},
			{Hidden: 3, Final: true},
		} {
			spec.DType = d
			t.Run(fmt.Sprintf("%s/%d/%d", d, spec.Hidden, len(spec.Layers)), func(t *testing.T) {
				t.Parallel()
				var samples []*format.Sample
				for i, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
					samples = append(samples, hsxtest.Sample(spec, i, n))
				}
				dir := filepath.Join(t.TempDir(), "ds")
				write(t, dir, shard.Options{BatchBytes: 4000, ShardBytes: 50000}, samples...)
				checkDataset(t, dir, samples)
			})
		}
	}
}

func TestMaskOfSomeRows(t *testing.T) {
	t.Parallel()
	var samples []*format.Sample
	for i := range 20 {
		samples = append(samples, hsxtest.Sample(hsxtest.Spec{Hidden: 2, Layers: field(), NoMask: i%3 == 0}, i, 1+i))
	}
	dir := t.TempDir()
	write(t, dir, shard.Options{}, samples...)
	compare(t, open(t, dir), samples)
}

func TestPutRefuses(t *testing.T) {
	t.Parallel()
	spec := hsxtest.Spec{Hidden: 4, Layers: field(), Final: true, Norm: format.NormPost}
	other := func(change func(*hsxtest.Spec)) *format.Sample {
		s := spec
		change(&s)
		return hsxtest.Sample(s, 1, 5)
	}
	short := hsxtest.Sample(spec, 1, 5)
	short.LossMask = short.LossMask[:4]
	same := hsxtest.Sample(spec, 1, 5)
	same.ID = "sample-0"
	producer := hsxtest.Sample(spec, 1, 5)
	producer.Producer = "modelopt-hf"
	for name, c := range map[string]struct {
		sample *format.Sample
		want   string
	}{
		"other layers":   {other(func(s *hsxtest.Spec) { s.Layers = []format.Layer{1, 29, 57} }), "state 0 is P_1 float32, want P_2 float32"},
		"fewer layers":   {other(func(s *hsxtest.Spec) { s.Layers = field()[:2] }), "states are"},
		"other norm":     {other(func(s *hsxtest.Spec) { s.Norm = format.NormPre }), "final (pre)"},
		"other dtype":    {other(func(s *hsxtest.Spec) { s.DType = format.Float16 }), "float16"},
		"other width":    {other(func(s *hsxtest.Spec) { s.Hidden = 5 }), "hidden size is 5, want 4"},
		"other producer": {producer, "modelopt-hf"},
		"mask length":    {short, "loss_mask has 4 values for 5 tokens"},
		"same id":        {same, `id "sample-0" is taken already by a sample of rows_0-2000/data_0.ckpt`},
		"no tokens":      {hsxtest.Sample(spec, 1, 0), "no tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := shard.OpenWriter(t.TempDir(), shard.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = w.Close() }()
			if err := w.Put(context.Background(), hsxtest.Sample(spec, 0, 5)); err != nil {
				t.Fatal(err)
			}
			err = w.Put(context.Background(), c.sample)
			if !errors.Is(err, format.ErrRefused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Put: got error %v, want one that refuses with %q", err, c.want)
			}
			if err := w.Put(context.Background(), hsxtest.Sample(spec, 2, 5)); err != nil {
				t.Errorf("Put after a refusal: %v", err)
			}
		})
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	spec := hsxtest.Spec{Hidden: 4, Layers: field()}
	var samples []*format.Sample
	for i := range 10 {
		samples = append(samples, hsxtest.Sample(spec, i, 5+i))
	}
	// One input with three samples, of which the first commit holds two.
	for _, s := range samples[3:6] {
		s.Input, s.Last = samples[3].Input, s == samples[5]
	}
	dir := t.TempDir()
	write(t, dir, shard.Options{}, samples[:5]...)

	w, err := shard.OpenWriter(dir, shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, true, true, false, false, false, false} {
		if got, err := w.Has(samples[i].Input); got != want || err != nil {
			t.Errorf("Has(%s) = %v, %v, want %v", samples[i].Input.Path, got, err, want)
		}
	}
	changed := samples[0].Input
	changed.Bytes++
	if _, err := w.Has(changed); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("Has of a changed input: got error %v, want one that says so", err)
	}
	for i, s := range samples[3:] {
		err := w.Put(context.Background(), s)
		if known := i < 2; known != errors.Is(err, format.ErrKnown) || !known && err != nil {
			t.Errorf("Put(%s) again: got error %v", s.ID, err)
		}
	}
	if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
		t.Fatal(err)
	}
	compare(t, open(t, dir), samples)
}

// TestRenamed finds inputs that were named relative to another directory.
func TestRenamed(t *testing.T) {
	t.Parallel()
	spec := hsxtest.Spec{Hidden: 4, Layers: field()}
	dir := t.TempDir()
	in := func(path string, bytes, modTime int64) format.Input {
		return format.Input{Path: path, Bytes: bytes, ModTime: modTime}
	}
	sample := func(i int, in format.Input) *format.Sample {
		s := hsxtest.Sample(spec, i, 5)
		s.Input, s.Last = in, true
		return s
	}
	write(t, dir, shard.Options{}, sample(0, in("day1/a.pt", 10, 100)), sample(1, in("b.pt", 20, 200)))
	w, err := shard.OpenWriter(dir, shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check := func(in format.Input, want string) {
		t.Helper()
		if got := w.Renamed(in); got != want {
			t.Errorf("Renamed(%+v): got %q, want %q", in, got, want)
		}
	}
	check(in("a.pt", 10, 100), "day1/a.pt")
	check(in("all/day1/a.pt", 10, 100), "day1/a.pt")
	check(in("day1/b.pt", 20, 200), "b.pt")
	check(in("day1/a.pt", 10, 100), "") // it is that one
	check(in("a.pt", 11, 100), "")
	check(in("a.pt", 10, 101), "")
	check(in("day2/a.pt", 10, 100), "") // beside the other, not above or below
	check(in("1/a.pt", 10, 100), "")    // half a name
	check(in("day1/c.pt", 20, 200), "")
	if err := w.Put(t.Context(), sample(2, in("day1/c.pt", 30, 300))); err != nil {
		t.Fatal(err)
	}
	check(in("c.pt", 30, 300), "day1/c.pt") // put by this writer
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLock(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := shard.OpenWriter(dir, shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shard.OpenWriter(dir, shard.Options{}); !errors.Is(err, shard.ErrLocked) {
		t.Errorf("second OpenWriter: got error %v, want %v", err, shard.ErrLocked)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w, err = shard.OpenWriter(dir, shard.Options{})
	if err != nil {
		t.Fatalf("OpenWriter after Close: %v", err)
	}
	_ = w.Close()
}

func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := shard.OpenWriter(dir, shard.Options{}); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("OpenWriter: got error %v, want one that names the file", err)
	}
	if _, err := shard.Open(dir); !errors.Is(err, shard.ErrNotDataset) {
		t.Errorf("Open: got error %v, want %v", err, shard.ErrNotDataset)
	}
}

// A manifest.json of another program is not damage, and nothing is written beside it.
func TestForeignManifest(t *testing.T) {
	t.Parallel()
	dirs, _ := parts(t, 1)
	source, err := shard.Open(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	dir, ctx := t.TempDir(), context.Background()
	for _, data := range []string{`{"model": "a/model", "shards": []}`, `{"version": "2.0", "format": "npy"}`, `{"version": "2.0"}`, `{"format": 3, "version": 1}`, "[1, 2]", "null"} {
		if m, err := shard.DecodeManifest([]byte(data)); m != nil || !errors.Is(err, shard.ErrForeign) || shard.IsCorrupt(err) {
			t.Errorf("decode %s: got %v and error %v, want %q", data, m, err, shard.ErrForeign)
		}
	}
	for _, data := range []string{"", "{", `{"format": "hsx"}`, `{"format": "hsx", "version": "1"}`, `{"version": "1", "format": "hsx"}`} {
		if m, err := shard.DecodeManifest([]byte(data)); m != nil || !shard.IsCorrupt(err) {
			t.Errorf("decode %s: got %v and error %v, want damage", data, m, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "manifest.json"), []byte(`{"model": "a/model", "shards": []}`), 0o600); err != nil {
		t.Fatal(err)
	}
	store := &hsxtest.Memory{}
	if err := store.Load(dir); err != nil {
		t.Fatal(err)
	}
	store.Before = func(op, name string) error {
		if op != "get" && op != "list" && op != "uploads" {
			t.Errorf("the store is asked to %s %s", op, name)
		}
		return nil
	}
	for name, do := range map[string]func() error{
		"Open":        func() error { _, err := shard.Open(dir); return err },
		"OpenWriter":  func() error { _, err := shard.OpenWriter(dir, shard.Options{}); return err },
		"Merge":       func() error { _, err := shard.Merge(dir, []*shard.Dataset{source}, swift()); return err },
		"OpenObjects": func() error { _, err := shard.OpenObjects(ctx, store); return err },
		"OpenObjectsWriter": func() error {
			_, err := shard.OpenObjectsWriter(ctx, store, shard.Options{})
			return err
		},
		"MergeObjects": func() error { _, err := shard.MergeObjects(ctx, store, []*shard.Dataset{source}, swift()); return err },
		"SweepDir":     func() error { _, err := shard.SweepDir(dir, time.Now(), true); return err },
		"FindGarbage":  func() error { _, err := shard.FindGarbage(ctx, store, time.Now()); return err },
	} {
		if err := do(); !errors.Is(err, shard.ErrForeign) || shard.IsCorrupt(err) {
			t.Errorf("%s: got error %v, want %q", name, err, shard.ErrForeign)
		}
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("%s: after the refusal the directory holds %v (error %v), want manifest.json alone", name, entries, err)
		}
	}
}

func BenchmarkPut(b *testing.B) {
	spec := hsxtest.Spec{Hidden: 7168, Layers: field(), Final: true, DType: format.BFloat16, Concat: true}
	s := hsxtest.Sample(spec, 0, 1024)
	b.Run("bf16-4x1024x7168", func(b *testing.B) {
		dir := b.TempDir()
		w, err := shard.OpenWriter(dir, shard.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(1024 * 4 * 7168 * 2)
		b.ReportAllocs()
		n := 0
		for b.Loop() {
			s.ID = fmt.Sprint(n)
			n++
			if err := w.Put(context.Background(), s); err != nil {
				b.Fatal(err)
			}
		}
		if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
			b.Fatal(err)
		}
	})
}
