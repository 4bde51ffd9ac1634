package shard_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hsx/capture"
	"hsx/format"
	"hsx/format/safetensors"
	"hsx/internal/atomicfile"
	"hsx/shard"
	"hsx/validate"
)

// BenchmarkLarge takes HSX_GIB of dumps, 1 when it is not set, into a dataset, and has
// validate read its default sample of it. All of the work of an ingest is done and every
// byte hashed, but the bulk takes no room: the dumps are links to two files, one of
// numbers and one of zeros, and zeros become holes in the shards. The first sample of
// each shard, which is what validate takes first, is of numbers.
//
// early-MiB and late-MiB are the most memory that the process had of its own, without
// mapped files, in the first and in the last eighth of the inputs; first-s and warm-s are
// the time of validate's first run and the least of three more, warm-cpu-s their least
// CPU time.
func BenchmarkLarge(b *testing.B) {
	gib := 1
	if text := os.Getenv("HSX_GIB"); text != "" {
		var err error
		if gib, err = strconv.Atoi(text); err != nil || gib < 1 {
			b.Fatalf("HSX_GIB is %q, want a number above 0", text)
		}
	}
	b.Run(fmt.Sprintf("%dGiB", gib), func(b *testing.B) {
		for b.Loop() {
			dir := b.TempDir()
			early, late := ingestLarge(b, dir, gib)
			b.ReportMetric(early, "early-MiB")
			b.ReportMetric(late, "late-MiB")
			ds := open(b, filepath.Join(dir, "ds"))
			var took, cpu []time.Duration
			for range 4 { // the first one fills the page cache
				start, before := time.Now(), processTime(b)
				if _, err := validate.Run(b.Context(), ds, validate.Input{}, validate.Options{}); err != nil {
					b.Fatal(err)
				}
				took, cpu = append(took, time.Since(start)), append(cpu, processTime(b)-before)
			}
			b.ReportMetric(took[0].Seconds(), "first-s")
			b.ReportMetric(min(took[1], took[2], took[3]).Seconds(), "warm-s")
			b.ReportMetric(min(cpu[1], cpu[2], cpu[3]).Seconds(), "warm-cpu-s")
			b.ReportMetric(float64(ds.Manifest().Rows), "samples")
		}
	})
}

// perShard is how many samples fit a shard of the default size.
const perShard = 18

// ingestLarge makes dir/ds, and returns the process's own memory early and late in MiB.
func ingestLarge(b *testing.B, dir string, gib int) (early, late float64) {
	b.Helper()
	const tokens, hidden, states = 1024, 7168, 4
	inputs := gib << 30 / (tokens * hidden * states * 2)
	dumps := filepath.Join(dir, "dumps")
	if err := os.MkdirAll(dumps, 0o755); err != nil {
		b.Fatal(err)
	}
	for name, fill := range map[string]func([]byte){"numbers": fillNumbers, "zeros": func([]byte) {}} {
		data := largeDump(b, tokens, hidden, fill)
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	for i := range inputs {
		name := "zeros"
		if i%perShard == 0 {
			name = "numbers"
		}
		if err := os.Link(filepath.Join(dir, name), filepath.Join(dumps, fmt.Sprintf("data_%d.safetensors", i))); err != nil {
			b.Fatal(err)
		}
	}
	w, err := shard.OpenWriter(filepath.Join(dir, "ds"), shard.WithFS(shard.Options{}, sparseFS{}))
	if err != nil {
		b.Fatal(err)
	}
	plan, err := capture.NewPlan(b.Context(), []string{dumps}, capture.Options{})
	if err != nil {
		b.Fatal(err)
	}
	debug.FreeOSMemory() // what made the dumps is not what reads them
	plan.OnProgress(func(p capture.Progress) {
		switch own := ownMiB(b); {
		case p.Inputs <= max(1, p.TotalInputs/8):
			early = max(early, own)
		case p.Inputs > p.TotalInputs*7/8:
			late = max(late, own)
		}
	})
	if stats, err := plan.Run(b.Context(), w); err != nil || stats.Samples != inputs {
		b.Fatalf("Run: got %+v, error %v, want %d samples", stats, err, inputs)
	}
	if err := w.Commit(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.Fatal(err)
	}
	return early, late
}

// largeDump is a dump of SpecForge in safetensors.
func largeDump(b *testing.B, tokens, hidden int64, fill func([]byte)) []byte {
	b.Helper()
	var all []*format.Tensor
	tensor := func(name string, d format.DType, shape ...int64) {
		n, _ := format.Elems(shape)
		t := &format.Tensor{Name: name, DType: d, Shape: shape, Data: make([]byte, n*int64(d.Size()))}
		if d == format.BFloat16 {
			fill(t.Data)
		}
		all = append(all, t)
	}
	tensor("input_ids", format.Int64, tokens)
	tensor("loss_mask", format.Int64, tokens)
	tensor("aux_hidden_state", format.BFloat16, 1, tokens, 3*hidden)
	tensor("hidden_state", format.BFloat16, 1, tokens, hidden)
	var buf bytes.Buffer
	if err := safetensors.Encode(&buf, all, nil); err != nil {
		b.Fatal(err)
	}
	return buf.Bytes()
}

// fillNumbers writes bf16 numbers around 1.
func fillNumbers(data []byte) {
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // never fails
	for i := 1; i < len(data); i += 2 {
		data[i] = data[i]&0x83 | 0x3c
	}
}

// ownMiB is the anonymous memory of this process; 0 where /proc does not tell.
func ownMiB(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	var kib float64
	if _, after, ok := bytes.Cut(status, []byte("RssAnon:")); ok {
		if _, err := fmt.Sscan(string(after[:min(len(after), 32)]), &kib); err != nil {
			b.Fatal(err)
		}
	}
	return kib / 1024
}

// processTime is the CPU time of this process.
func processTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sparseFS is the file system, but that long writes of zeros become holes.
type sparseFS struct{ atomicfile.OS }

func (fs sparseFS) OpenFile(name string, flag int, perm os.FileMode) (atomicfile.File, error) {
	f, err := fs.OS.OpenFile(name, flag, perm)
	return sparseFile{f}, err
}

type sparseFile struct{ atomicfile.File }

// Write leaves a hole for a page of zeros and more. What ends a shard is no hole.
func (f sparseFile) Write(p []byte) (int, error) {
	if len(p) < 4096 || len(bytes.TrimLeft(p[:4096], "\x00")) > 0 || !bytes.Equal(p[1:], p[:len(p)-1]) {
		return f.File.Write(p)
	}
	_, err := f.Seek(int64(len(p)), io.SeekCurrent)
	return len(p), err
}
