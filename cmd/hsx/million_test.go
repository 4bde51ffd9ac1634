package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"hsx/format"
	"hsx/format/safetensors"
)

// BenchmarkSmallSamples has every command deal with very many samples of one kilobyte:
// HSX_SAMPLES of them, 20,000 when it is not set, 1,000 to a file. What a command does for
// each sample, and not for its bytes, shows here; what it does for each pair of samples
// never ends. Memory is the whole process's, without mapped files.
func BenchmarkSmallSamples(b *testing.B) {
	n := setting(b, "HSX_SAMPLES", 20_000)
	dir := b.TempDir()
	dumps, ds := filepath.Join(dir, "dumps"), filepath.Join(dir, "ds")
	smallDumps(b, dumps, n, 1000)
	ingest := []string{"ingest", "--json", "--out", ds, "--layers", "2,30,58,60", dumps}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"ingest", ingest},
		{"resume", ingest}, // finds all of them held
		{"inspect", []string{"inspect", ds}},
		{"verify", []string{"verify", ds}},
		{"validate", []string{"validate", ds}},
		{"audit", []string{"audit", ds}},
		{"merge", []string{"merge", "--out", filepath.Join(dir, "merged"), ds}},
	} {
		b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
			var runs []usage
			for b.Loop() {
				runs = append(runs, measure(b, c.args...))
				b.StopTimer()
				drop(b, filepath.Join(dir, "merged"))
				if c.name == "ingest" && len(runs) < b.N {
					drop(b, ds)
				}
				b.StartTimer()
			}
			reportUsage(b, runs)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(len(runs)*n), "µs/sample")
		})
	}
}

// smallDumps writes n samples of two tokens and four states 64 wide in bf16.
func smallDumps(b *testing.B, dir string, n, perFile int) {
	b.Helper()
	const tokens, width = 2, 4 * 64
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	rng := rand.NewChaCha8([32]byte{1})
	for file := range (n + perFile - 1) / perFile {
		rows := int64(min(perFile, n-file*perFile))
		dense := func(name string, d format.DType, shape ...int64) *format.Tensor {
			count, _ := format.Elems(shape)
			return &format.Tensor{Name: name, DType: d, Shape: shape, Data: make([]byte, count*int64(d.Size()))}
		}
		ids := dense("input_ids", format.Int64, rows, tokens)
		for i := range rows * tokens {
			binary.LittleEndian.PutUint64(ids.Data[8*i:], rng.Uint64()%150_000)
		}
		mask := dense("loss_mask", format.Int64, rows, tokens)
		for i := range rows * tokens {
			mask.Data[8*i] = 1
		}
		attention, position := *mask, *mask
		attention.Name, position.Name = "attention_mask", "position_mask"
		aux := dense("aux_hidden_states", format.BFloat16, rows, tokens, width)
		fillStates(rng, aux.Data)
		var buf bytes.Buffer
		if err := safetensors.Encode(&buf, []*format.Tensor{ids, mask, &attention, &position, aux}, nil); err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("shard_%d.safetensors", file)), buf.Bytes(), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// fillStates writes bf16 numbers around 1.
func fillStates(rng *rand.ChaCha8, data []byte) {
	_, _ = rng.Read(data) // never fails
	for i := 1; i < len(data); i += 2 {
		data[i] = data[i]&0x83 | 0x3c
	}
}

// setting is a size that the environment may set.
func setting(tb testing.TB, name string, otherwise int) int {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		tb.Fatalf("%s is %q, want a number above 0", name, text)
	}
	return n
}

func drop(tb testing.TB, paths ...string) {
	tb.Helper()
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			tb.Fatal(err)
		}
	}
}
