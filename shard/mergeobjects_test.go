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

	"hsx/internal/hsxtest"
	"hsx/shard"
)

// copying is a fake store that copies from another one by itself.
type copying struct{ *hsxtest.Memory }

func (c copying) CopyFrom(ctx context.Context, from shard.Objects, fromName, name string) error {
	other, ok := from.(*hsxtest.Memory)
	if !ok {
		return fmt.Errorf("copy from %s: %w", from, errors.ErrUnsupported)
	}
	return c.Copy(ctx, other, fromName, name)
}

// TestMergeObjects merges a dataset of a directory and one of a store into a store, with
// and without its help, and all of it back into a directory.
func TestMergeObjects(t *testing.T) {
	t.Parallel()
	samples := samplesOf(story())
	dir := filepath.Join(t.TempDir(), "ds")
	write(t, dir, small(), samples[:4]...)
	source := stored(t, small(), samples[4:]...)
	for name, help := range map[string]bool{"copied": true, "through here": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &hsxtest.Memory{}
			var to shard.Store = store
			if help {
				to = copying{store}
			}
			before := source.Read()
			m, err := shard.MergeObjects(context.Background(), to, []*shard.Dataset{open(t, dir), openObjects(t, source)}, shard.MergeOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if read := source.Read() - before; help && read > 10_000 {
				t.Errorf("merge read %d bytes of what the store could copy", read)
			}
			if err := whole(store, samples, m.Rows); err != nil {
				t.Error(err)
			}
			if _, err := playInto(store, story()); err != nil {
				t.Errorf("next run: %v", err)
			}
			_, err = shard.MergeObjects(context.Background(), to, []*shard.Dataset{open(t, dir)}, shard.MergeOptions{})
			if !errors.Is(err, os.ErrExist) {
				t.Errorf("merge into a dataset: got error %v, want %v", err, os.ErrExist)
			}
			out := filepath.Join(t.TempDir(), "out")
			merged := []*shard.Dataset{openObjects(t, store)}
			if _, err := shard.Merge(out, merged, swift()); !errors.Is(err, shard.ErrOtherDevice) {
				t.Errorf("merge into a directory without copying: got error %v, want %v", err, shard.ErrOtherDevice)
			}
			opt := swift()
			opt.Copy = true
			if _, err := shard.Merge(out, merged, opt); err != nil {
				t.Fatal(err)
			}
			if err := intact(out, samples, int64(len(samples))); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMergeObjectsDamaged(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ds")
	write(t, dir, small(), samplesOf(story())...)
	name := filepath.Join(dir, "shards", "000000.arrow")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	store := &hsxtest.Memory{}
	_, err = shard.MergeObjects(context.Background(), store, []*shard.Dataset{open(t, dir)}, shard.MergeOptions{})
	if !shard.IsCorrupt(err) || store.Bytes("manifest.json") != nil {
		t.Errorf("merge of a damaged shard: got error %v and a manifest of %d bytes, want damage and none", err, len(store.Bytes("manifest.json")))
	}
}

// TestGarbage has a writer that was killed and one that was overtaken: what they left
// is found once it is old, and its removal takes nothing from the dataset.
func TestGarbage(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	store := &hsxtest.Memory{}
	if _, err := playInto(store, story()); err != nil {
		t.Fatal(err)
	}
	store.Set("shards/000099-00aa.arrow", []byte("killed"))
	store.Set("inputs-0123456789abcdef.jsonl", []byte("overtaken"))
	store.Set("notes.txt", []byte("mine"))
	store.Abandon("shards/000100-00bb.arrow")
	store.Abandon("theirs")
	find := func(age time.Duration) []shard.Garbage {
		t.Helper()
		found, err := shard.FindGarbage(ctx, store, time.Now().Add(-age))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := find(time.Hour); len(found) > 0 {
		t.Errorf("young things are garbage: %v", found)
	}
	store.Age(2 * time.Hour)
	found := find(time.Hour)
	var names []string
	for _, g := range found {
		names = append(names, g.Name)
	}
	all := strings.Join(names, " ")
	for _, want := range []string{"shards/000099-00aa.arrow", "inputs-0123456789abcdef.jsonl", "shards/000100-00bb.arrow"} {
		if !strings.Contains(all, want) {
			t.Errorf("found %q, want %s among them", names, want)
		}
	}
	if strings.Contains(all, "notes.txt") || strings.Contains(all, "theirs") || strings.Contains(all, "manifest") {
		t.Errorf("found %q, want nothing that is not a dataset's", names)
	}
	if err := shard.RemoveGarbage(ctx, store, found); err != nil {
		t.Fatal(err)
	}
	if found := find(time.Hour); len(found) > 0 {
		t.Errorf("after the removal there is still %v", found)
	}
	if err := whole(store, samplesOf(story()), int64(len(samplesOf(story())))); err != nil {
		t.Error(err)
	}
	if store.Bytes("notes.txt") == nil {
		t.Error("notes.txt is gone")
	}
	store.Set("manifest.json", []byte("{"))
	if _, err := shard.FindGarbage(ctx, store, time.Now()); !shard.IsCorrupt(err) {
		t.Errorf("with a damaged manifest: got error %v, want damage", err)
	}
}

func TestSweepDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ds")
	write(t, dir, small(), samplesOf(story())...)
	want, err := tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"shards/000077.arrow", "shards/000078.arrow.tmp", "manifest.json.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := shard.SweepDir(dir, time.Now().Add(-time.Hour), true); err != nil || len(found) > 0 {
		t.Errorf("got %v and error %v, want nothing that old", found, err)
	}
	if found, err := shard.SweepDir(dir, time.Now().Add(time.Hour), false); err != nil || len(found) != 3 {
		t.Errorf("got %v and error %v, want three leftovers", found, err)
	}
	if _, err := shard.SweepDir(dir, time.Now().Add(time.Hour), true); err != nil {
		t.Fatal(err)
	}
	if d := differ(dir, want); d != "" {
		t.Error(d)
	}
	w, err := shard.OpenWriter(dir, small())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if _, err := shard.SweepDir(dir, time.Now(), true); !errors.Is(err, shard.ErrLocked) {
		t.Errorf("while a writer is at work: got error %v, want %v", err, shard.ErrLocked)
	}
}
