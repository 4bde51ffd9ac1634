package shard_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// wide makes samples of n tokens whose states, three of 7168 bf16, are views of one
// block that all of them share.
func wide(samples, n int) []*format.Sample {
	const hidden = 7168
	block := make([]byte, 3*2*hidden*n)
	for i := 0; i < len(block); i += 61 {
		block[i] = byte(i)
	}
	out := make([]*format.Sample, samples)
	for i := range out {
		s := hsxtest.Sample(hsxtest.Spec{DType: format.BFloat16, Layers: field()}, i, n)
		for k := range s.Hidden {
			s.Hidden[k].Rows = format.Rows{DType: format.BFloat16, N: n, Width: hidden, Stride: 3 * 2 * hidden, Data: block[k*2*hidden:]}
		}
		out[i] = s
	}
	return out
}

// A batch is read where it lies. Not parallel: it counts what the process allocates.
func TestReadAllocates(t *testing.T) {
	const samples, n = 10, 156 // 64 MiB
	dir := filepath.Join(t.TempDir(), "ds")
	want := wide(samples, n)
	write(t, dir, shard.Options{}, want...)
	ds := open(t, dir)
	if got := ds.Manifest().Shards; len(got) != 1 || got[0].LargestBatch < 63<<20 {
		t.Fatalf("dataset has %d shards with a largest batch of %d bytes, want one batch of 64 MiB", len(got), got[0].LargestBatch)
	}
	for name, read := range map[string]func() error{
		"Verify": func() error {
			return ds.Verify(context.Background(), func(c *shard.CorruptError) { t.Error(c) }, nil)
		},
		"Samples": func() error {
			rows := 0
			for s, err := range ds.Samples(context.Background()) {
				if err != nil {
					return err
				}
				rows += len(s.Tokens)
			}
			if rows != samples*n {
				return fmt.Errorf("read %d tokens, want %d", rows, samples*n)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			got := hsxtest.Allocated(func() { err = read() })
			if err != nil {
				t.Fatal(err)
			}
			if got > 1<<20 {
				t.Errorf("reading 64 MiB allocated %d bytes, want at most 1 MiB", got)
			}
		})
	}
	compare(t, ds, want)
}

func BenchmarkSamples(b *testing.B) {
	const samples, n = 10, 156
	b.Run("bf16-10x3x156x7168", func(b *testing.B) {
		dir := filepath.Join(b.TempDir(), "ds")
		write(b, dir, shard.Options{}, wide(samples, n)...)
		ds := open(b, dir)
		b.SetBytes(samples * n * 3 * 7168 * 2)
		b.ReportAllocs()
		for b.Loop() {
			for _, err := range ds.Samples(context.Background()) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	b.Run("bf16-16x4x1024x1024", func(b *testing.B) {
		dir := b.TempDir()
		var samples []*format.Sample
		for i := range 16 {
			samples = append(samples, hsxtest.Sample(hsxtest.Spec{Hidden: 1024, Layers: field(), Final: true, DType: format.BFloat16}, i, 1024))
		}
		write(b, dir, shard.Options{}, samples...)
		ds := open(b, dir)
		b.SetBytes(ds.Manifest().Shards[0].Bytes)
		b.ReportAllocs()
		for b.Loop() {
			if err := ds.Verify(b.Context(), func(c *shard.CorruptError) { b.Error(c) }, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// What Scan shows is the states of the sample, each in its rows' order, and whole rows.
func TestScanShows(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]shard.Options{"plain": {}, "compressed": {Compress: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "ds")
			write(t, dir, opt, wide(2, 20)...)
			s, err := open(t, dir).Shard(0)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			seen, last, calls := make([][]byte, 3), 0, 0
			sample, err := s.Scan(nil, 1, func(state int, r format.Rows) {
				if state < last || r.N < 1 || len(r.Data) != r.N*2*7168 {
					t.Errorf("shown %d rows in %d bytes of state %d after %d", r.N, len(r.Data), state, last)
				}
				last, calls = state, calls+1
				seen[state] = append(seen[state], r.Data...)
			})
			if err != nil {
				t.Fatal(err)
			}
			if calls != 3*3 {
				t.Errorf("shown %d times, want 9 rows of 14 KiB at a time, and the last 2", calls)
			}
			for i, h := range sample.Hidden {
				if !bytes.Equal(seen[i], h.Rows.Data) {
					t.Errorf("rows shown of %s differ from the sample's", h.State.Column())
				}
			}
		})
	}
}
