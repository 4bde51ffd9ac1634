package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const printed = `goos: linux
pkg: hsx/cmd/hsx
BenchmarkCommands/cp-2       1  2000000000 ns/op  1000 MB/s  0.5 cpu-s
BenchmarkCommands/ingest-2   1  1000000000 ns/op  2000 MB/s  0.75 cpu-s  2.0 of-cp  1.5 cp-cpu
BenchmarkCommands/ingest-2   1  3000000000 ns/op  4000 MB/s  0.75 cpu-s  1.0 of-cp  1.5 cp-cpu
BenchmarkCompressed/200_MB_a_second/compressed-2 1 500000000 ns/op 2000 MB/s 0.75 cpu-s 0.68 of-bytes 1.4 of-plain
pkg: hsx/shard
BenchmarkVerify/bf16-2       9  100 ns/op  9000 MB/s  3 allocs/op
PASS
pkg:
BenchmarkPeerRatios/hsx_/_cp,_CPU 5 1.65 median 1.5 least 2 most 1.5 at-most
BenchmarkPeerRatios/datasets_/_hsx 5 6.4 median 5 least 7 most 6 at-least
`

func TestWrite(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, svg, in := filepath.Join(dir, "page.md"), filepath.Join(dir, "rates.svg"), filepath.Join(dir, "bench.txt")
	var text strings.Builder
	text.WriteString("# Page\n")
	for _, table := range tables() {
		text.WriteString("<!-- " + table.name + " -->\nold " + table.name + "\n<!-- /" + table.name + " -->\n")
	}
	for name, data := range map[string]string{page: text.String(), in: printed} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what it wrote it finds again
		if err := write(page, svg, []string{in}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| cp | 2.00 | 0.500 |  | 1.00 |  |  |\n",
		"| `hsx ingest` | 2.00 | 0.750 |  | 3.00 | 1.50 of cp | 1.50 × cp |\n", // medians
		"| 200 MB a second | `hsx ingest --compress` | 0.500 | 0.750 | 2.00 | 0.680 | 1.40 |\n",
		"| `shard` | Verify/bf16 | 9.00 | 3.00 |  |\n",
		"| hsx / cp, CPU | 1.65 | 1.50 | 2.00 | ≤ 1.50: **missed** |\n",
		"| datasets / hsx | 6.40 | 5.00 | 7.00 | ≥ 6.00: met |\n",
		"old samples\n", // nothing was measured
	} {
		if strings.Count(string(got), want) != 1 {
			t.Errorf("page has not once %q:\n%s", want, got)
		}
	}
	drawn, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(drawn)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("drawing is no XML: %v", err)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, in, empty := filepath.Join(dir, "page.md"), filepath.Join(dir, "bench.txt"), filepath.Join(dir, "empty.txt")
	for name, data := range map[string]string{page: "# Page\n", in: printed, empty: "FAIL\n"} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{in: "<!-- commands -->", empty: "no line of a benchmark"} {
		if err := write(page, filepath.Join(dir, "svg"), []string{name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want one with %q", name, err, want)
		}
	}
}
