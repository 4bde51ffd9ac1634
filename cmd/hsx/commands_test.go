package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"hsx/format"
	"hsx/format/torch"
)

// way is a command of hsx, or a limit of the machine: what the same bytes cost a program
// that does nothing but copy, read or hash them.
type way struct {
	name  string
	of    string // the limit that it is compared with, "" for none
	bytes string // whose bytes it goes through: "dumps", "dataset", "" when it is none
	run   func() usage
}

// BenchmarkCommands runs every command of hsx that goes through data, and the machine's
// own limits, HSX_ROUNDS times in turn over HSX_MIB of SpecForge dumps (7168 wide, bf16),
// the order turned round from round to round. Of each it reports medians; of-LIMIT is the
// median, over rounds, of its rate by the limit's, LIMIT-cpu that of its CPU time by the
// limit's. Everything ends when its output is on disk, and begins in the page cache.
//
// own-MiB is the most memory of a process's own, without mapped files.
func BenchmarkCommands(b *testing.B) {
	rounds, mib := setting(b, "HSX_ROUNDS", 1), setting(b, "HSX_MIB", 60)
	dir := b.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	size := map[string]int64{"": 0, "dumps": wideDumps(b, path("dumps"), mib)}
	ways := []way{
		{"copy", "", "dumps", func() usage { return copyMemory(size["dumps"]) }},
		{"cat", "", "dumps", func() usage { return shell(b, `cat "$0"/* >/dev/null`, path("dumps")) }},
		{"cp", "", "dumps", func() usage {
			return shell(b, `cp -r "$0" "$1" && find "$1" -type f -exec sync {} +`, path("dumps"), path("copy"))
		}},
		{"xxhsum", "", "dataset", func() usage { return hashFiles(b, path("ds/shards")) }},
		{"ingest", "cp", "dumps", func() usage {
			return measure(b, "ingest", "--out", path("again"), "--layers", "2,30,58", path("dumps"))
		}},
		{"inspect", "", "", func() usage { return measure(b, "inspect", path("ds")) }},
		{"inspect-dump", "", "", func() usage { return measure(b, "inspect", path("dumps/data_0.ckpt")) }},
		{"verify", "xxhsum", "dataset", func() usage { return measure(b, "verify", path("ds")) }},
		{"validate", "", "", func() usage { return measure(b, "validate", path("ds")) }},
		{"audit", "copy", "dataset", func() usage { return measure(b, "audit", path("ds")) }},
		{"export", "cp", "dataset", func() usage {
			return measure(b, "export", "--to", "specforge-eagle3", "--out", path("export"), path("ds"))
		}},
		{"merge", "", "", func() usage { return measure(b, "merge", "--out", path("merged"), path("ds")) }},
	}
	measure(b, "ingest", "--out", path("ds"), "--layers", "2,30,58", path("dumps"))
	size["dataset"] = bytesUnder(b, path("ds/shards"))
	runs := map[string][]usage{}
	for round := range rounds {
		if round > 0 {
			slices.Reverse(ways)
		}
		for _, w := range ways {
			runs[w.name] = append(runs[w.name], w.run())
			drop(b, path("copy"), path("again"), path("export"), path("merged"))
		}
	}
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			for b.Loop() { // what is reported was measured above, in turn
			}
			wall := median(runs[w.name], func(u usage) float64 { return u.wall.Seconds() })
			b.ReportMetric(wall*1e9, "ns/op")
			if n := size[w.bytes]; n > 0 {
				b.ReportMetric(float64(n)/1e6/wall, "MB/s")
			}
			reportUsage(b, runs[w.name])
			if w.of == "" {
				return
			}
			ratios := make([]struct{ rate, cpu float64 }, rounds)
			of := ways[slices.IndexFunc(ways, func(o way) bool { return o.name == w.of })]
			for i, u := range runs[w.name] {
				limit := runs[w.of][i]
				ratios[i].rate = limit.wall.Seconds() / u.wall.Seconds() * float64(size[w.bytes]) / float64(size[of.bytes])
				ratios[i].cpu = u.cpu.Seconds() / limit.cpu.Seconds()
			}
			b.ReportMetric(median(ratios, func(r struct{ rate, cpu float64 }) float64 { return r.rate }), "of-"+w.of)
			b.ReportMetric(median(ratios, func(r struct{ rate, cpu float64 }) float64 { return r.cpu }), w.of+"-cpu")
		})
	}
}

// wideDumps writes dumps of SpecForge as torch.save would, and returns their bytes.
func wideDumps(tb testing.TB, dir string, mib int) int64 {
	tb.Helper()
	const hidden, perToken = 7168, 4 * 7168 * 2
	tokens := int64(min(1024, mib<<20/perToken))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	rng := rand.NewChaCha8([32]byte{1})
	for i := range max(1, mib<<20/int(tokens*perToken)) {
		tensor := func(name string, d format.DType, most uint64, shape ...int64) format.Field {
			n, _ := format.Elems(shape)
			t := &format.Tensor{Name: name, DType: d, Shape: shape, Data: make([]byte, n*int64(d.Size()))}
			for i := 0; d == format.Int64 && i < len(t.Data); i += 8 {
				binary.LittleEndian.PutUint64(t.Data[i:], 1+rng.Uint64()%most)
			}
			if d == format.BFloat16 {
				fillStates(rng, t.Data)
			}
			return format.Field{Key: name, Value: t}
		}
		r := &format.Record{Fields: []format.Field{
			tensor("input_ids", format.Int64, 150_000, tokens), tensor("loss_mask", format.Int64, 1, tokens),
			tensor("aux_hidden_state", format.BFloat16, 0, 1, tokens, 3*hidden), tensor("hidden_state", format.BFloat16, 0, 1, tokens, hidden),
		}}
		var buf bytes.Buffer
		if err := torch.Encode(&buf, fmt.Sprintf("data_%d", i), r); err != nil {
			tb.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("data_%d.ckpt", i)), buf.Bytes(), 0o644); err != nil {
			tb.Fatal(err)
		}
	}
	return bytesUnder(tb, dir)
}

func bytesUnder(tb testing.TB, dir string) (n int64) {
	tb.Helper()
	err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// shell runs a line of sh with arguments $0, $1 …
func shell(tb testing.TB, line string, args ...string) usage {
	tb.Helper()
	return measureCommand(tb, exec.CommandContext(tb.Context(), "sh", append([]string{"-c", line}, args...)...))
}

// copyMemory copies n bytes on one core, from and to memory that no cache holds.
func copyMemory(n int64) usage {
	const block = 128 << 20
	from, to := bytes.Repeat([]byte{1}, block), bytes.Repeat([]byte{2}, block)
	start := time.Now()
	for left := n; left > 0; left -= block {
		copy(to[:min(left, block)], from)
	}
	wall := time.Since(start)
	return usage{wall: wall, cpu: wall}
}

// hashFiles hashes the files of a directory as `xxhsum -H2` does, with it where it is
// installed.
func hashFiles(tb testing.TB, dir string) usage {
	tb.Helper()
	if _, err := exec.LookPath("xxhsum"); err == nil {
		return shell(tb, `xxhsum -H2 "$0"/*`, dir)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		tb.Fatal(err)
	}
	start := time.Now()
	buf := make([]byte, 1<<20)
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			tb.Fatal(err)
		}
		var h xxh3.Hasher
		for n := 1; n > 0; {
			n, _ = f.Read(buf)      // the end, or a fault that another way reports
			_, _ = h.Write(buf[:n]) // never fails
		}
		_ = f.Close() // opened for reading
	}
	wall := time.Since(start)
	return usage{wall: wall, cpu: wall}
}
