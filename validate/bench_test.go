package validate_test

import (
	"errors"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
	"hsx/validate"
)

// benchDataset is 128 samples of 256 tokens, four states 1024 wide in bf16: 256 MiB of
// states, in the page cache.
func benchDataset(b *testing.B) (ds *shard.Dataset, bytes int64) {
	b.Helper()
	dir := b.TempDir()
	w, err := shard.OpenWriter(dir, shard.Options{ShardBytes: 64 << 20})
	if err != nil {
		b.Fatal(err)
	}
	spec := hsxtest.Spec{Hidden: 1024, Layers: []format.Layer{2, 30, 58}, Final: true, Norm: format.NormPost, DType: format.BFloat16}
	for i := range 128 {
		s := hsxtest.Sample(spec, i, 256)
		for _, h := range s.Hidden { // random bits are full of NaN: make them numbers around 1
			for j := 1; j < len(h.Rows.Data); j += 2 {
				h.Rows.Data[j] = h.Rows.Data[j]&0x83 | 0x3c
			}
		}
		if err := w.Put(b.Context(), s); err != nil {
			b.Fatal(err)
		}
		bytes += s.Bytes()
	}
	if err := errors.Join(w.Commit(b.Context()), w.Close()); err != nil {
		b.Fatal(err)
	}
	if ds, err = shard.Open(dir); err != nil {
		b.Fatal(err)
	}
	return ds, bytes
}

func BenchmarkRun(b *testing.B) {
	b.Run("default-sample/bf16-128x4x256x1024", func(b *testing.B) {
		ds, _ := benchDataset(b)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := validate.Run(b.Context(), ds, validate.Input{}, validate.Options{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAudit(b *testing.B) {
	b.Run("bf16-128x4x256x1024", func(b *testing.B) {
		ds, bytes := benchDataset(b)
		b.SetBytes(bytes)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := validate.RunAudit(b.Context(), ds, validate.Input{}, validate.Options{}, "ds", "hsx"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
