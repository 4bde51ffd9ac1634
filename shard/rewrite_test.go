package shard_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

func names(m *shard.Manifest) []string {
	var out []string
	for _, s := range m.Shards {
		out = append(out, s.Name)
	}
	return out
}

// TestCompact joins what a trickle left, goes on, and joins again.
func TestCompact(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ds")
	steps := trickle()
	if _, err := play(dir, shard.WithFS(small(), hasty()), steps[:len(steps)-1]); err != nil {
		t.Fatal(err)
	}
	stale := open(t, dir)
	if _, err := play(dir, shard.WithFS(small(), hasty()), steps); err != nil {
		t.Fatal(err)
	}
	checkDataset(t, dir, samplesOf(steps))
	if _, err := stale.Shard(5); !errors.Is(err, shard.ErrReplaced) || shard.IsCorrupt(err) {
		t.Errorf("Shard of what was replaced: got error %v, want %v", err, shard.ErrReplaced)
	}
	if err := stale.Verify(t.Context(), func(c *shard.CorruptError) { t.Error(c) }, nil); !errors.Is(err, shard.ErrReplaced) {
		t.Errorf("Verify of what was replaced: got error %v, want %v", err, shard.ErrReplaced)
	}
	m := open(t, dir).Manifest()
	var rows []int64
	for _, s := range m.Shards {
		rows = append(rows, s.Rows)
	}
	// The first two are not at the end: the second is large.
	if want := []int64{1, 1, 4, 1}; !slices.Equal(rows, want) || m.Version != 2 {
		t.Fatalf("shards %q have %d rows, version %d, want %d rows and version 2", names(m), rows, m.Version, want)
	}
	before, err := tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := play(dir, shard.WithFS(small(), hasty()), steps); err != nil {
		t.Fatal(err)
	}
	if d := differ(dir, before); d != "" {
		t.Errorf("after the same run again: %s", d)
	}
	more := hsxtest.Sample(hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}, DType: format.BFloat16}, 100, 3)
	if _, err := play(dir, shard.WithFS(small(), hasty()), append(steps, step{sample: more}, step{commit: true})); err != nil {
		t.Fatal(err)
	}
	checkDataset(t, dir, append(samplesOf(steps), more))
	if got, before := names(open(t, dir).Manifest()), names(m); !slices.Equal(got[:len(got)-1], before) {
		t.Errorf("shards are %q after one more, they were %q", got, before)
	}
}

// TestCompactOfDamage finds a shard changed: nothing is joined, and the writer goes on.
func TestCompactOfDamage(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ds")
	steps := trickle()
	if _, err := play(dir, shard.WithFS(small(), hasty()), steps[:len(steps)-1]); err != nil {
		t.Fatal(err)
	}
	before := names(open(t, dir).Manifest())
	path := filepath.Join(dir, "shards", before[len(before)-2])
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(data) / 3; i < 2*len(data)/3; i++ { // not in padding alone
		data[i] ^= 1
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := shard.OpenWriter(dir, shard.WithFS(small(), hasty()))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Compact(context.Background()); !shard.IsCorrupt(err) {
		t.Errorf("Compact: got error %v, want a *shard.CorruptError", err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.Compact(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("Compact: got error %v, want %v", err, context.Canceled)
	}
	more := hsxtest.Sample(hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}, DType: format.BFloat16}, 100, 3)
	if err := errors.Join(w.Put(context.Background(), more), w.Commit(context.Background()), w.Close()); err != nil {
		t.Fatal(err)
	}
	if got := names(open(t, dir).Manifest()); !slices.Equal(got[:len(got)-1], before) {
		t.Errorf("shards are %q, they were %q", got, before)
	}
}
