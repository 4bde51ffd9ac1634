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

// TestCompactTrickle commits each sample by itself: shards stay few, and no row is
// written anew more often than a shard can grow by half before it is large.
func TestCompactTrickle(t *testing.T) {
	t.Parallel()
	const samples, least = 300, 8
	dir := filepath.Join(t.TempDir(), "ds")
	opt := shard.Options{BatchBytes: 400, ShardBytes: 8000, SmallShards: least}
	w, err := shard.OpenWriter(dir, shard.WithFS(opt, hasty()))
	if err != nil {
		t.Fatal(err)
	}
	var put []*format.Sample
	seen, rewritten, most := map[string]bool{}, int64(0), 0
	for i := range samples {
		s := hsxtest.Sample(hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}, DType: format.BFloat16}, i, 1+i%5)
		if err := errors.Join(w.Put(t.Context(), s), w.Commit(t.Context()), w.Compact(t.Context())); err != nil {
			t.Fatal(err)
		}
		put = append(put, s)
		m := open(t, dir).Manifest()
		small := 0
		for _, sh := range m.Shards {
			if !seen[sh.Name] && sh.Rows > 1 {
				rewritten += sh.Rows
			}
			seen[sh.Name] = true
			if m.StateBytes(sh) < opt.ShardBytes/2 {
				small++
			}
		}
		most = max(most, small)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	checkDataset(t, dir, put)
	// A shard of one sample, 16 bytes and more, is half a full one after 14 growths by half.
	if most >= 2*least || rewritten > 14*samples {
		t.Errorf("up to %d small shards and %d rows written anew, want below %d and at most %d", most, rewritten, 2*least, 14*samples)
	}
	t.Logf("up to %d small shards, %d rows written anew", most, rewritten)
}
