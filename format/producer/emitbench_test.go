package producer_test

import (
	"testing"

	"hsx/format"
	"hsx/format/producer"
)

func BenchmarkEmit(b *testing.B) {
	const n, h = 512, 7168
	for name, norm := range map[string]format.Norm{"specforge": format.NormPost, "speculators": format.NormPre, "safetensors": format.NormPost} {
		b.Run(name+"-bf16-512x4x7168", func(b *testing.B) {
			s := sample(format.BFloat16, n, h, norm, 2, 30, 58)
			opt := producer.EmitOptions{Buffer: &producer.Buffer{}}
			b.SetBytes(s.Bytes())
			b.ReportAllocs()
			for b.Loop() {
				if _, err := producer.Emit(name, s, opt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
