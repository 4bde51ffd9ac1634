package shard_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// TestDamage flips every byte and cuts at every length of a small dataset of two
// shards: verify must find it, and reading must give the right samples or an error.
func TestDamage(t *testing.T) {
	t.Parallel()
	spec := hsxtest.Spec{Hidden: 2, Layers: field()[:1], Final: true, Norm: format.NormPost, DType: format.BFloat16}
	testDamage(t, spec, shard.Options{BatchBytes: 40})
}

// The same of compressed shards, with states of which there is enough to be coded.
func TestDamageCompressed(t *testing.T) {
	t.Parallel()
	spec := hsxtest.Spec{Hidden: 48, Layers: field()[:1], Final: true, Norm: format.NormPost, DType: format.BFloat16, Skewed: true}
	testDamage(t, spec, shard.Options{BatchBytes: 1000, Compress: true})
}

func testDamage(t *testing.T, spec hsxtest.Spec, opt shard.Options) {
	t.Helper()
	samples := map[string]*format.Sample{}
	made := t.TempDir()
	w, err := shard.OpenWriter(made, opt)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		spec.NoMask = i == 1
		s := hsxtest.Sample(spec, i, 2+i%2)
		samples[s.ID] = s
		err := w.Put(context.Background(), s)
		if i == 0 {
			err = errors.Join(err, w.Reject(format.Rejection{Input: format.Input{Path: "bad"}, Reason: "cut"}), w.Commit(context.Background()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"manifest.json", "inputs.jsonl", "rejected.jsonl", "shards/000000.arrow", "shards/000001.arrow"} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
				t.Fatal(err)
			}
			d := damage{dir: dir, samples: samples}
			if name != "manifest.json" {
				d.ds = open(t, dir) // which reads nothing but the manifest
			}
			d.file(t, filepath.Join(dir, name))
		})
	}
}

// damage is what happens to one copy of a dataset.
type damage struct {
	dir     string
	ds      *shard.Dataset // nil: opened anew each time
	samples map[string]*format.Sample
}

// file flips each byte of a file, and then cuts it shorter and shorter. It changes
// the file in place: all else would take far longer than the reading.
func (d *damage) file(t *testing.T, path string) {
	t.Helper()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // nothing in it is kept
	for i, b := range good {
		if _, err := f.WriteAt([]byte{b ^ 1<<(i%8)}, int64(i)); err != nil {
			t.Fatal(err)
		}
		d.look(t, fmt.Sprintf("byte %d flipped", i))
		if _, err := f.WriteAt(good[i:i+1], int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := len(good) - 1; i >= 0; i-- {
		if err := f.Truncate(int64(i)); err != nil {
			t.Fatal(err)
		}
		d.look(t, fmt.Sprintf("cut to %d bytes", i))
	}
}

// look reads the damaged dataset.
func (d *damage) look(t *testing.T, what string) {
	t.Helper()
	ds := d.ds
	if ds == nil {
		var err error
		if ds, err = shard.Open(d.dir); err != nil {
			return // the manifest's damage
		}
	}
	if found := verify(t, ds); len(found) == 0 {
		t.Fatalf("%s: Verify reports nothing", what)
	}
	for s, err := range ds.Samples(context.Background()) {
		if err != nil {
			continue
		}
		if d.samples[s.ID] == nil {
			t.Fatalf("%s: read a sample %q that was never written", what, s.ID)
		}
		if diff := hsxtest.Equal(s, d.samples[s.ID]); diff != "" {
			t.Fatalf("%s: read wrong data: %s", what, diff)
		}
	}
}
