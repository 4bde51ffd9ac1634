package shard

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"

	"hsx/format"
)

// Compare reports whether a sample with the id of s was put, and whether that has the
// same tokens, mask and states. What both are is read from the disk: a sample that is
// not durable yet is committed first, so that same means durable too. Like Put it is
// for one goroutine at a time, and it does not keep s.
func (w *Writer) Compare(ctx context.Context, s *format.Sample) (known, same bool, err error) {
	o, known := w.ids[xxh3.HashString128(s.ID)]
	if !known {
		return false, false, nil
	}
	if w.seen == nil || o.row >= w.seen.manifest.Rows {
		if err := w.Commit(ctx); err != nil {
			return true, false, err
		}
		if w.seen, err = open(w.place); err != nil {
			return true, false, err
		}
	}
	same, err = w.seen.holds(o.row, s)
	return true, same, err
}

// holds reports whether a row, counted over all shards, is s.
func (d *Dataset) holds(row int64, s *format.Sample) (same bool, err error) {
	i := 0
	for ; i < len(d.manifest.Shards) && row >= d.manifest.Shards[i].Rows; i++ {
		row -= d.manifest.Shards[i].Rows
	}
	if i == len(d.manifest.Shards) {
		return false, corrupt(manifestName, "has no row for sample %q", s.ID)
	}
	sh, err := d.Shard(i)
	if err != nil {
		return false, err
	}
	defer func() { _ = sh.Close() }() // mapped for reading: nothing can be lost
	have, err := sh.Sample(int(row))
	if err != nil {
		return false, err
	}
	if have.ID != s.ID {
		return false, sh.corrupt(int(row), have.ID, fmt.Errorf("%s has sample %q in its place", inputsName, s.ID))
	}
	err = Guard(func() error { same = equal(have, s); return nil })
	return same, err
}

// equal reports whether two samples that were checked have the same content.
func equal(a, b *format.Sample) bool {
	if !slices.Equal(a.Tokens, b.Tokens) || (a.LossMask == nil) != (b.LossMask == nil) || !bytes.Equal(a.LossMask, b.LossMask) ||
		a.Layout().Diff(b.Layout()) != "" {
		return false
	}
	for i, h := range a.Hidden {
		for t := range h.Rows.N {
			if !bytes.Equal(h.Rows.Row(t), b.Hidden[i].Rows.Row(t)) {
				return false
			}
		}
	}
	return true
}
