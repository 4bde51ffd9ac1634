package capture_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"hsx/capture"
	"hsx/format"
)

// discard takes samples without a look at their states.
type discard struct{}

func (discard) Put(context.Context, *format.Sample) error { return nil }

// noisy fills states with values that compress as bf16 states do: their low bytes
// are noise, their high bytes few.
func noisy(t *format.Tensor) *format.Tensor {
	_, _ = rand.NewChaCha8([32]byte{2}).Read(t.Data) // never fails
	for i := 1; i < len(t.Data); i += 2 {
		t.Data[i] = 0x3f | t.Data[i]&0x81
	}
	return t
}

// BenchmarkRun is what a run adds to the work of its sink: states are mapped and
// handed over, not read.
func BenchmarkRun(b *testing.B) {
	const tokens, hidden = 1024, 7168
	// Three aux states and the final, as SpecForge has them.
	data := encode(b,
		tensor("input_ids", format.Int64, tokens), tensor("loss_mask", format.Uint8, tokens),
		noisy(tensor("aux_hidden_state", format.BFloat16, 1, tokens, 3*hidden)), noisy(tensor("hidden_state", format.BFloat16, 1, tokens, hidden)))
	b.Run("specforge-bf16-4x1024x7168", func(b *testing.B) {
		path := write(b, b.TempDir(), "data_0.ckpt", data)
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			p, err := capture.NewPlan(b.Context(), []string{path}, capture.Options{})
			if err != nil {
				b.Fatal(err)
			}
			if stats, err := p.Run(b.Context(), discard{}); err != nil || stats.Samples != 1 {
				b.Fatalf("Run: got %+v, error %v, want 1 sample", stats, err)
			}
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	const tokens, hidden = 128, 7168
	st := encode(b, tensor("token_ids", format.Int64, tokens), noisy(tensor("hidden_states", format.BFloat16, tokens, 4, hidden)))
	var rows bytes.Buffer
	for i := range 64 {
		if i > 0 {
			rows.WriteByte(',')
		}
		rows.WriteByte('[')
		for j := range 1024 {
			if j > 0 {
				rows.WriteByte(',')
			}
			fmt.Fprintf(&rows, "%.8g", float64(i*1024+j)/7-3000)
		}
		rows.WriteByte(']')
	}
	for name, data := range map[string][]byte{
		"gzip-bf16-4x128x7168": gzipped(b, st),
		"zstd-bf16-4x128x7168": zstded(b, st),
		"json-fp32-64x1024":    []byte(`{"meta_info":{"hidden_states":[` + rows.String() + `]}}`),
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := capture.Decode(data, "x"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPlan lists a directory of many files.
func BenchmarkPlan(b *testing.B) {
	const n = 10000
	dir := b.TempDir()
	for i := range n {
		name := filepath.Join(dir, fmt.Sprintf("data_%d.ckpt", i))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("files-10000", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if p, err := capture.NewPlan(b.Context(), []string{dir}, capture.Options{}); err != nil || p.Inputs() != n {
				b.Fatalf("NewPlan: got error %v, want %d inputs", err, n)
			}
		}
	})
}
