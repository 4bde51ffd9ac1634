package main

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// BenchmarkCompressed runs `hsx ingest` plain and with --compress, and cp, HSX_ROUNDS times
// in turn over HSX_MIB of SpecForge dumps, the order turned round from round to round. HSX_DISK
// names the disk in what is reported; scripts/slow-disk.sh bounds one and says so. of-plain
// is the median, over rounds, of a way's rate by that of the plain ingest.
func BenchmarkCompressed(b *testing.B) {
	rounds, mib := setting(b, "HSX_ROUNDS", 1), setting(b, "HSX_MIB", 60)
	disk := cmp.Or(os.Getenv("HSX_DISK"), "as_it_is")
	dir := b.TempDir()
	dumps, out := filepath.Join(dir, "dumps"), filepath.Join(dir, "out")
	size := wideDumps(b, dumps, mib)
	ways := []struct {
		name string
		run  func() usage
	}{
		{"cp", func() usage {
			return shell(b, `cp -r "$0" "$1" && find "$1" -type f -exec sync {} +`, dumps, out)
		}},
		{"plain", func() usage { return measure(b, "ingest", "--out", out, "--layers", "2,30,58", dumps) }},
		{"compressed", func() usage {
			return measure(b, "ingest", "--compress", "--out", out, "--layers", "2,30,58", dumps)
		}},
	}
	runs, written := map[string][]usage{}, map[string]int64{}
	for round := range rounds {
		if round > 0 {
			slices.Reverse(ways)
		}
		for _, w := range ways {
			runs[w.name] = append(runs[w.name], w.run())
			written[w.name] = bytesUnder(b, out)
			drop(b, out)
		}
	}
	for _, w := range ways {
		b.Run(disk+"/"+w.name, func(b *testing.B) {
			for b.Loop() { // what is reported was measured above, in turn
			}
			wall := median(runs[w.name], func(u usage) float64 { return u.wall.Seconds() })
			b.ReportMetric(wall*1e9, "ns/op")
			b.ReportMetric(float64(size)/1e6/wall, "MB/s")
			b.ReportMetric(float64(written[w.name])/float64(size), "of-bytes")
			reportUsage(b, runs[w.name])
			ratios := make([]float64, rounds)
			for i, u := range runs[w.name] {
				ratios[i] = runs["plain"][i].wall.Seconds() / u.wall.Seconds()
			}
			b.ReportMetric(median(ratios, func(r float64) float64 { return r }), "of-plain")
		})
	}
}
