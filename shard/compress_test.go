package shard_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// TestCompressRoundTrip stores samples of all sizes compressed: gathered and streamed,
// whole and strided, of each dtype.
func TestCompressRoundTrip(t *testing.T) {
	t.Parallel()
	for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		for _, spec := range []hsxtest.Spec{
			{Hidden: 1, Layers: field()},
			{Hidden: 64, Layers: field(), Final: true, Norm: format.NormPost, Concat: true},
			{Hidden: 300, Layers: []format.Layer{format.Embedding, 0}, NoMask: true, Concat: true},
			{Hidden: 3, Final: true, Norm: format.NormPre},
		} {
			spec.DType = d
			t.Run(fmt.Sprintf("%s/%d/%d", d, spec.Hidden, len(spec.Layers)), func(t *testing.T) {
				t.Parallel()
				var samples []*format.Sample
				for i, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 5000} {
					samples = append(samples, hsxtest.Sample(spec, i, n))
				}
				dir := filepath.Join(t.TempDir(), "ds")
				write(t, dir, shard.Options{BatchBytes: 400000, ShardBytes: 2000000, Compress: true}, samples...)
				checkDataset(t, dir, samples)
				m := open(t, dir).Manifest()
				for _, s := range m.Shards {
					if s.Encoding != shard.EncodingSplit || m.Version != 2 {
						t.Errorf("shard %s has encoding %q in a manifest of version %d", s.Name, s.Encoding, m.Version)
					}
				}
			})
		}
	}
}

func BenchmarkPutCompressed(b *testing.B) {
	spec := hsxtest.Spec{Hidden: 7168, Layers: field(), Final: true, DType: format.BFloat16, Concat: true}
	s := hsxtest.Sample(spec, 0, 1024)
	w, err := shard.OpenWriter(b.TempDir(), shard.Options{Compress: true})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(s.Bytes())
	n := 0
	for b.Loop() {
		s.ID = fmt.Sprint(n)
		n++
		if err := w.Put(context.Background(), s); err != nil {
			b.Fatal(err)
		}
	}
}
