package shard_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// playInto is play for a dataset in a store.
func playInto(store shard.Store, steps []step) (acked int64, err error) {
	opt := small()
	var durable atomic.Int64
	opt.Committed = durable.Store
	w, err := shard.OpenObjectsWriter(context.Background(), store, opt)
	if err != nil {
		return 0, err
	}
	err = errors.Join(perform(w, steps), w.Close())
	return durable.Load(), err
}

// listed is the content of all objects that belong to the dataset in a store.
func listed(store *hsxtest.Memory) (map[string]string, error) {
	ds, err := shard.OpenObjects(context.Background(), store)
	if err != nil {
		return nil, err
	}
	m := ds.Manifest()
	names := []string{"manifest.json"}
	for _, s := range m.Shards {
		names = append(names, "shards/"+s.Name)
	}
	for _, p := range slices.Concat(m.Inputs.Parts, m.Rejected.Parts) {
		names = append(names, p.Name)
	}
	out := map[string]string{}
	for _, name := range names {
		out[name] = string(store.Bytes(name))
	}
	return out, nil
}

// whole says what is wrong with the dataset in a store that a writer was killed at.
func whole(store *hsxtest.Memory, all []*format.Sample, acked int64) error {
	ds, err := shard.OpenObjects(context.Background(), store)
	if errors.Is(err, shard.ErrNotDataset) && acked == 0 {
		return nil
	} else if err != nil {
		return err
	}
	return holdsFirst(ds, all, acked)
}

// mend lets operations on a store succeed again.
func mend(store *hsxtest.Memory) { store.Before, store.After = nil, nil }

func sameObjects(got, want map[string]string) error {
	if g, w := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(g, w) {
		return fmt.Errorf("objects are %q, want %q", g, w)
	}
	for name := range want {
		if got[name] != want[name] {
			return fmt.Errorf("%s differs from that of an undisturbed run", name)
		}
	}
	return nil
}

// TestStoreKill ends a run at each operation on the store in turn, or loses its
// answer. What is left is whole, and the next run completes it as if nothing had
// happened.
func TestStoreKill(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{"ingest": story(), "compact": trickle()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storeKill(t, steps)
		})
	}
}

func storeKill(t *testing.T, steps []step) {
	t.Helper()
	undisturbed := &hsxtest.Memory{}
	ops := 0
	undisturbed.Before = func(string, string) error { ops++; return nil }
	if _, err := playInto(undisturbed, steps); err != nil {
		t.Fatal(err)
	}
	mend(undisturbed)
	want, err := listed(undisturbed)
	if err != nil {
		t.Fatal(err)
	}
	if err := whole(undisturbed, samplesOf(steps), int64(len(samplesOf(steps)))); err != nil {
		t.Fatal(err)
	}
	down := errors.New("connection refused")
	for n := range ops {
		for _, late := range []bool{false, true} {
			store := &hsxtest.Memory{}
			seen := 0
			fail := func(string, string) error {
				if seen++; seen > n {
					return down
				}
				return nil
			}
			if late {
				store.After = fail
			} else {
				store.Before = fail
			}
			acked, err := playInto(store, steps)
			if late && err == nil { // it has fewer answers than there are operations
				continue
			}
			if !errors.Is(err, down) {
				t.Errorf("operation %d fails (answer only: %t): got error %v, want %v", n, late, err, down)
			}
			mend(store)
			if err := whole(store, samplesOf(steps), acked); err != nil {
				t.Errorf("operation %d failed (answer only: %t): %v", n, late, err)
			}
			if _, err := playInto(store, steps); err != nil {
				t.Errorf("operation %d failed (answer only: %t), next run: %v", n, late, err)
				continue
			}
			got, err := listed(store)
			if err == nil {
				err = sameObjects(got, want)
			}
			if err != nil {
				t.Errorf("operation %d failed (answer only: %t), after the next run: %v", n, late, err)
			}
		}
	}
}

// TestStoreTwoWriters has two runs of the same steps at the same store, the second of
// which begins when the first is at each of its operations.
func TestStoreTwoWriters(t *testing.T) {
	t.Parallel()
	for name, steps := range map[string][]step{"ingest": story(), "compact": trickle()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storeTwoWriters(t, steps)
		})
	}
}

func storeTwoWriters(t *testing.T, steps []step) {
	t.Helper()
	for n := 0; ; n++ {
		store := &hsxtest.Memory{}
		seen, met := 0, false
		var inner error
		store.Before = func(string, string) error {
			if seen++; seen == n+1 {
				met = true
				store.Before = nil
				_, inner = playInto(store, steps)
			}
			return nil
		}
		_, outer := playInto(store, steps)
		if !met {
			break
		}
		if inner != nil {
			t.Errorf("writer that came at operation %d: %v", n, inner)
		}
		if outer != nil && !errors.Is(outer, shard.ErrConflict) {
			t.Errorf("writer that was overtaken at operation %d: got error %v, want %v", n, outer, shard.ErrConflict)
		}
		if err := whole(store, samplesOf(steps), int64(len(samplesOf(steps)))); err != nil {
			t.Errorf("overtaken at operation %d: %v", n, err)
		}
	}
}

// unconditional is a store in which the last one wins.
type unconditional struct{ *hsxtest.Memory }

func (s unconditional) PutIf(ctx context.Context, name string, data []byte, _ string) (string, error) {
	_, version, _ := s.Get(ctx, name)
	return s.Memory.PutIf(ctx, name, data, version)
}

// The test above is worth something only if it finds what is wrong.
func TestStoreTwoWritersFindsMutant(t *testing.T) {
	t.Parallel()
	steps := story()
	store := unconditional{&hsxtest.Memory{}}
	other := samplesOf(steps)[0]
	other.ID = "another"
	a, err := shard.OpenObjectsWriter(context.Background(), store, small())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := playInto(store, []step{{sample: other}, {commit: true}}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(perform(a, samplesOfFrom(steps, 1)), a.Close()); err != nil {
		t.Fatal(err)
	}
	if got, err := listed(store.Memory); err != nil || strings.Contains(got["manifest.json"], `"rows": 9`) {
		t.Errorf("manifest has the samples of both writers (%v), want those of the last", err)
	}
}

func samplesOfFrom(steps []step, from int) (out []step) {
	for _, s := range samplesOf(steps)[from:] {
		out = append(out, step{sample: s})
	}
	return append(out, step{commit: true})
}

// A writer's files are gone when it ends, and those of a killed one when the next
// begins; what a running one has stays.
func TestStoreStaging(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	left := filepath.Join(tmp, "hsx-staging-killed")
	if err := os.MkdirAll(filepath.Join(left, "shards"), 0o700); err != nil {
		t.Fatal(err)
	}
	running, err := shard.OpenObjectsWriter(context.Background(), &hsxtest.Memory{}, small())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := playInto(&hsxtest.Memory{}, story()); err != nil {
		t.Fatal(err)
	}
	if err := perform(running, story()); err != nil {
		t.Errorf("writer that was at work meanwhile: %v", err)
	}
	if err := running.Close(); err != nil {
		t.Error(err)
	}
	if entries, err := os.ReadDir(tmp); err != nil || len(entries) > 0 {
		t.Errorf("temporary directory has %v (%v), want nothing", entries, err)
	}
}

func TestStoreRefusesForeign(t *testing.T) {
	t.Parallel()
	store := &hsxtest.Memory{}
	store.Set("notes.txt", []byte("mine"))
	if _, err := playInto(store, story()); err == nil || !strings.Contains(err.Error(), `holds "notes.txt"`) {
		t.Errorf("writer among other objects: got error %v, want one that names them", err)
	}
}
