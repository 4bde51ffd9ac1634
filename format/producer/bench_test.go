package producer_test

import (
	"testing"

	"hsx/format"
	"hsx/format/producer"
)

func BenchmarkSamples(b *testing.B) {
	const n, h = 1024, 1024
	for name, d := range map[string]producer.Dump{
		"concat-bf16-1024x4x1024": torch(rec("input_ids", ids(n), "loss_mask", mask(n), "aux_hidden_state", bf16(1, n, 3*h), "hidden_state", bf16(1, n, h))),
		"slots-bf16-1024x4x1024":  torch(rec("token_ids", ids(n), "hidden_states", bf16(n, 4, h))),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(4 * n * h * 2)
			b.ReportAllocs()
			for b.Loop() {
				if _, ss, err := read(b, d, producer.Facts{}); err != nil || len(ss) != 1 {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNarrow(b *testing.B) {
	const n, h = 256, 1024
	t := &format.Tensor{DType: format.Float32, Shape: []int64{n, h}, Data: make([]byte, n*h*4)}
	d := producer.Dump{Container: producer.JSON, Value: rec("input_ids", ids(n), "hidden_states", t)}
	b.Run("fp32-bf16-256x1024", func(b *testing.B) {
		b.SetBytes(n * h * 4)
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := read(b, d, producer.Facts{DType: format.BFloat16, Final: producer.FinalPost}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
