package export_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"hsx/export"
	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// BenchmarkExport writes what a trainer reads, on the disk of the temporary directory: 4 states
// of samples of 512 tokens.
func BenchmarkExport(b *testing.B) {
	spec := hsxtest.Spec{Hidden: 7168, Layers: []format.Layer{2, 30, 58}, DType: format.BFloat16, Final: true, Norm: format.NormPost}
	dir := filepath.Join(b.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s := hsxtest.Sample(spec, 0, 512)
	for i := range 16 {
		s.ID, s.Input.Path = fmt.Sprint(i), fmt.Sprint(i)
		if err := w.Put(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(b.Context()), w.Close()); err != nil {
		b.Fatal(err)
	}
	ds, err := shard.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	for _, to := range []string{"specforge", "modelopt", "safetensors", "datasets"} {
		b.Run(to+"-4x7168", func(b *testing.B) {
			plan, err := export.NewPlan(b.Context(), ds, export.Options{To: to})
			if err != nil {
				b.Fatal(err)
			}
			out := filepath.Join(b.TempDir(), "out")
			b.SetBytes(plan.Bytes)
			b.ReportAllocs()
			for b.Loop() {
				if err := os.RemoveAll(out); err != nil {
					b.Fatal(err)
				}
				if _, err := plan.Run(b.Context(), out); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
