package shard_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// TestCompare asks for samples of earlier writers, in several shards, and for those of
// this one that are not committed yet.
func TestCompare(t *testing.T) {
	t.Parallel()
	spec := hsxtest.Spec{Hidden: 4, Layers: field()}
	dir := filepath.Join(t.TempDir(), "ds")
	write(t, dir, shard.Options{}, hsxtest.Sample(spec, 0, 5), hsxtest.Sample(spec, 1, 6))
	write(t, dir, shard.Options{}, hsxtest.Sample(spec, 2, 7))
	w, err := shard.OpenWriter(dir, shard.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Put(context.Background(), hsxtest.Sample(spec, 3, 8)); err != nil {
		t.Fatal(err)
	}
	for n := range 4 {
		for name, c := range map[string]struct {
			change func(s *format.Sample)
			same   bool
		}{
			"same":         {func(*format.Sample) {}, true},
			"state":        {func(s *format.Sample) { s.Hidden[2].Rows.Data[4] ^= 1 }, false},
			"token":        {func(s *format.Sample) { s.Tokens[1]++ }, false},
			"mask":         {func(s *format.Sample) { s.LossMask[0] ^= 1 }, false},
			"without mask": {func(s *format.Sample) { s.LossMask = nil }, false},
			"layer":        {func(s *format.Sample) { s.Hidden[0].State.Layer = 1 }, false},
			"fewer layers": {func(s *format.Sample) { s.Hidden = s.Hidden[:2] }, false},
		} {
			s := hsxtest.Sample(spec, n, 5+n)
			c.change(s)
			known, same, err := w.Compare(context.Background(), s)
			if !known || same != c.same || err != nil {
				t.Errorf("%s of sample %d: Compare: got known %t, same %t, error %v; want true, %t", name, n, known, same, err, c.same)
			}
		}
	}
	if known, same, err := w.Compare(context.Background(), hsxtest.Sample(spec, 4, 9)); known || same || err != nil {
		t.Errorf("new sample: Compare: got %t, %t, error %v; want false, false", known, same, err)
	}
	if got := open(t, dir).Manifest().Rows; got != 4 {
		t.Errorf("dataset has %d rows, want 4: Compare commits what it compares with", got)
	}
	if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
		t.Fatal(err)
	}
}
