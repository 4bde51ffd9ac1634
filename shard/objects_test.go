package shard_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// stored is a dataset of the given samples in a fake store.
func stored(tb testing.TB, opt shard.Options, samples ...*format.Sample) *hsxtest.Memory {
	tb.Helper()
	dir := tb.TempDir()
	w, err := shard.OpenWriter(dir, opt)
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range samples {
		if err := w.Put(context.Background(), s); err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
		tb.Fatal(err)
	}
	store := &hsxtest.Memory{}
	if err := store.Load(dir); err != nil {
		tb.Fatal(err)
	}
	return store
}

func openObjects(tb testing.TB, store *hsxtest.Memory) *shard.Dataset {
	tb.Helper()
	ds, err := shard.OpenObjects(context.Background(), store)
	if err != nil {
		tb.Fatal(err)
	}
	return ds
}

// A dataset in a store reads as one in a directory.
func TestObjectsRead(t *testing.T) {
	t.Parallel()
	samples := samplesOf(story())
	store := stored(t, small(), samples...)
	ds := openObjects(t, store)
	i := 0
	for s, err := range ds.Samples(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		if diff := hsxtest.Equal(s, samples[i]); diff != "" {
			t.Errorf("sample %d: %s", i, diff)
		}
		i++
	}
	if i != len(samples) {
		t.Errorf("read %d samples, want %d", i, len(samples))
	}
	report := func(c *shard.CorruptError) { t.Errorf("damage: %v", c) }
	if err := ds.Verify(context.Background(), report, nil); err != nil {
		t.Error(err)
	}
	if _, err := shard.OpenObjects(context.Background(), &hsxtest.Memory{}); !errors.Is(err, shard.ErrNotDataset) {
		t.Errorf("OpenObjects of an empty store: got error %v, want %v", err, shard.ErrNotDataset)
	}
}

// Of a shard nothing is fetched but what describes it, the ids and masks, and the
// rows that are asked for.
func TestObjectsReadLittle(t *testing.T) {
	t.Parallel()
	spec := hsxtest.Spec{Hidden: 2048, Layers: []format.Layer{2, 16, 30}, DType: format.BFloat16}
	var samples []*format.Sample
	for i := range 24 {
		samples = append(samples, hsxtest.Sample(spec, i, 128)) // 512 KiB for each state
	}
	store := stored(t, shard.Options{BatchBytes: 16 << 20}, samples...)
	ds := openObjects(t, store)
	step := store.Read()
	read := func(what string, least, most int64) {
		t.Helper()
		got := store.Read() - step
		if step += got; got < least || got > most {
			t.Errorf("%s read %d bytes, want %d to %d", what, got, least, most)
		}
	}
	s, err := ds.Shard(0)
	if err != nil {
		t.Fatal(err)
	}
	const piece, batches, state = 256 << 10, 3, 128 * 2048 * 2
	read("opening", 0, (2*batches+2)*piece)
	for _, row := range []int{13, 2} {
		if _, err := s.Sample(row); err != nil {
			t.Fatal(err)
		}
		read(fmt.Sprintf("row %d", row), 3*(state-2*piece), 3*(state+3*piece))
	}
	if _, err := s.Sample(2); err != nil {
		t.Fatal(err)
	}
	read("a row that was read", 0, 0)
	if _, err := s.Head(20); err != nil {
		t.Fatal(err)
	}
	read("a head", 0, 0)
	s.Ahead([]int{3, 20})
	for _, row := range []int{3, 20} {
		if _, err := s.Sample(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	read("two rows ahead", 2*3*(state-2*piece), 2*3*(state+3*piece))
	for _, err := range openObjects(t, store).Samples(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
	}
	read("everything", ds.Manifest().Shards[0].Bytes, ds.Manifest().Shards[0].Bytes+int64(len(store.Bytes("manifest.json"))))
}

// That a store does not answer says nothing of the data; that an object is missing or
// has other bytes does.
func TestObjectsFail(t *testing.T) {
	t.Parallel()
	down := errors.New("503 Slow Down")
	const file = "shards/000000.arrow"
	for name, c := range map[string]struct {
		op      string // that fails
		change  func(*hsxtest.Memory)
		damaged string
	}{
		"size is refused":  {op: "size"},
		"range is refused": {op: "range"},
		"missing":          {change: func(m *hsxtest.Memory) { m.Delete(file) }, damaged: "is missing"},
		"short":            {change: func(m *hsxtest.Memory) { m.Set(file, m.Bytes(file)[1:]) }, damaged: "bytes, the manifest calls for"},
		"long":             {change: func(m *hsxtest.Memory) { m.Set(file, append(m.Bytes(file), 0)) }, damaged: "bytes, the manifest calls for"},
		"other bytes": {change: func(m *hsxtest.Memory) {
			data := m.Bytes(file)
			data[len(data)/2] ^= 1
			m.Set(file, data)
		}, damaged: "XXH3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := stored(t, small(), samplesOf(story())...)
			ds := openObjects(t, store)
			if c.change != nil {
				c.change(store)
			}
			store.Before = func(op, name string) error {
				if op == c.op && name == file {
					return down
				}
				return nil
			}
			var damage []string
			verr := ds.Verify(context.Background(), func(c *shard.CorruptError) { damage = append(damage, c.Error()) }, nil)
			var rerr error
			for _, err := range ds.Samples(context.Background()) {
				if err != nil {
					rerr = err
					break
				}
			}
			if c.damaged == "" {
				if !errors.Is(verr, down) || len(damage) > 0 || !errors.Is(rerr, down) || shard.IsCorrupt(rerr) {
					t.Errorf("got %v and damage %q from Verify, %v from Samples, want %v from both", verr, damage, rerr, down)
				}
				return
			}
			if all := strings.Join(damage, "\n"); verr != nil || !strings.Contains(all, c.damaged) || !shard.IsCorrupt(rerr) {
				t.Errorf("got error %v and damage %q from Verify, %v from Samples, want damage: %s", verr, all, rerr, c.damaged)
			}
		})
	}
}

// farStore is a fake of a store that is far away: each request takes its time.
type farStore struct{ *hsxtest.Memory }

func (f farStore) ReadRange(ctx context.Context, name string, p []byte, off int64) error {
	const first, perByte = 30 * time.Millisecond, 10 * time.Nanosecond
	time.Sleep(first + time.Duration(len(p))*perByte)
	return f.Memory.ReadRange(ctx, name, p, off)
}

// BenchmarkFarStore reads from a store that answers after 30 ms, and each request by 100 MB/s.
func BenchmarkFarStore(b *testing.B) {
	spec := hsxtest.Spec{Hidden: 4096, Layers: []format.Layer{2, 16, 30}, DType: format.BFloat16}
	var samples []*format.Sample
	for i := range 90 {
		samples = append(samples, hsxtest.Sample(spec, i, 128)) // 3 MiB
	}
	ds, err := shard.OpenObjects(b.Context(), farStore{stored(b, shard.Options{}, samples...)})
	if err != nil {
		b.Fatal(err)
	}
	bench := func(name string, read func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(ds.Manifest().Shards[0].Bytes)
			for b.Loop() {
				if err := read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	bench("verify", func() error { return ds.Verify(b.Context(), func(c *shard.CorruptError) { b.Error(c) }, nil) })
	bench("samples", func() error {
		for _, err := range ds.Samples(b.Context()) {
			if err != nil {
				return err
			}
		}
		return nil
	})
}
