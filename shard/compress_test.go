package shard_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

// normal is a sample of 56 MiB whose values are spread as those of real states.
func normal() *format.Sample {
	spec := hsxtest.Spec{Hidden: 7168, Layers: field(), Final: true, DType: format.BFloat16}
	s := hsxtest.Sample(spec, 0, 1024)
	rng := rand.New(rand.NewPCG(1, 2))
	first := s.Hidden[0].Rows.Data
	for i := 0; i < len(first); i += 2 {
		scale := 1 + float64(i/2%7168%16) // channels differ
		binary.LittleEndian.PutUint16(first[i:], uint16(math.Float32bits(float32(scale*rng.NormFloat64()))>>16))
	}
	for _, h := range s.Hidden[1:] {
		copy(h.Rows.Data, first)
	}
	return s
}

// BenchmarkCompress writes samples, plain and compressed, and reads them back. MB/s are of
// states, cpu-MB/s the same of a second of one processor; ratio is of the shard to its
// states. Pack is what writing does without the hashes and the file.
func BenchmarkCompress(b *testing.B) {
	s := normal()
	b.Run("pack", func(b *testing.B) {
		var states []format.Rows
		for _, h := range s.Hidden {
			states = append(states, h.Rows)
		}
		pack, closePacker := shard.Packer()
		b.SetBytes(s.Bytes())
		defer perProcessor(b, s.Bytes())()
		for b.Loop() {
			if err := pack(states); err != nil {
				b.Fatal(err)
			}
		}
		if err := closePacker(); err != nil {
			b.Fatal(err)
		}
	})
	for _, packed := range []bool{false, true} {
		name := map[bool]string{false: "plain", true: "compressed"}[packed]
		opt := shard.WithFS(shard.Options{Compress: packed}, hasty())
		b.Run("put/"+name, func(b *testing.B) {
			w, err := shard.OpenWriter(b.TempDir(), opt)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(s.Bytes())
			defer perProcessor(b, s.Bytes())()
			n := 0
			for b.Loop() {
				s.ID = fmt.Sprint(n)
				n++
				if err := w.Put(b.Context(), s); err != nil {
					b.Fatal(err)
				}
			}
			if err := errors.Join(w.Commit(b.Context()), w.Close()); err != nil {
				b.Fatal(err)
			}
		})
		b.Run("read/"+name, func(b *testing.B) {
			dir := b.TempDir()
			samples := make([]*format.Sample, 4)
			for i := range samples {
				one := *s
				one.ID = fmt.Sprint(i)
				samples[i] = &one
			}
			write(b, dir, opt, samples...)
			ds := open(b, dir)
			info := ds.Manifest().Shards[0]
			size := s.Bytes() * int64(len(samples))
			b.SetBytes(size)
			defer perProcessor(b, size)()
			defer b.ReportMetric(float64(info.Bytes)/float64(ds.Manifest().StateBytes(info)), "ratio")
			for b.Loop() {
				for _, err := range ds.Samples(b.Context()) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

// perProcessor reports what the loop does for each second of processor time.
func perProcessor(b *testing.B, size int64) (report func()) {
	before := processTime(b)
	return func() {
		b.ReportMetric(float64(size)*float64(b.N)/1e6/(processTime(b)-before).Seconds(), "cpu-MB/s")
	}
}
