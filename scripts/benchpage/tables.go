package main

import (
	"cmp"
	"fmt"
	"strings"
)

// table is one part of the page.
type table struct {
	name string
	body func(all results) string // "" when nothing was measured
}

func tables() []table {
	return []table{
		{"commands", commands},
		{"samples", samples},
		{"large", large},
		{"peers", peers},
		{"ratios", ratios},
		{"loaders", loaders},
		{"compression", compression},
		{"disks", disks},
		{"stages", stages},
	}
}

// rows writes a table in Markdown, "" when it has no rows.
func rows(head string, lines [][]string) string {
	if len(lines) == 0 {
		return ""
	}
	columns := strings.Split(head, "|")
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	for _, cells := range lines {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// isLimit reports whether a way of BenchmarkCommands is not a command of hsx.
func isLimit(name string) bool {
	return name == "copy" || name == "cat" || name == "cp" || name == "xxhsum"
}

func commands(all results) string {
	var lines [][]string
	for _, r := range all.under("Commands") {
		title := "`hsx " + r.name + "`"
		if isLimit(r.name) {
			title = r.name
		}
		share, cpu := "", ""
		for unit := range r.metrics {
			if limit, ok := strings.CutPrefix(unit, "of-"); ok {
				share = r.number(unit, 1) + " of " + limit
				cpu = r.number(limit+"-cpu", 1) + " × " + limit
			}
		}
		lines = append(lines, []string{title, r.number("ns/op", 1e-9), r.number("cpu-s", 1), r.number("own-MiB", 1), r.number("MB/s", 1e-3), share, cpu})
	}
	return rows("|wall s|CPU s|own MiB|GB/s|rate|CPU", lines)
}

func samples(all results) string {
	var lines [][]string
	for _, r := range all.under("SmallSamples") {
		command, n, _ := strings.Cut(r.name, "/")
		lines = append(lines, []string{"`hsx " + command + "`", n, r.number("ns/op", 1e-9), r.number("cpu-s", 1), r.number("own-MiB", 1), r.number("µs/sample", 1)})
	}
	return rows("|samples|wall s|CPU s|own MiB|µs a sample", lines)
}

func large(all results) string {
	var lines [][]string
	for _, r := range all.under("Large") {
		lines = append(lines, []string{r.name, r.number("samples", 1), r.number("early-MiB", 1), r.number("late-MiB", 1), r.number("first-s", 1), r.number("warm-s", 1), r.number("warm-cpu-s", 1)})
	}
	return rows("dataset|samples|own MiB, first eighth|own MiB, last eighth|validate, first run, s|warm, s|warm, CPU s", lines)
}

func peers(all results) string {
	var lines [][]string
	for _, r := range all.under("Peers") {
		lines = append(lines, []string{plain(r.name), r.number("ns/op", 1e-9), r.number("cpu-s", 1), r.number("own-MiB", 1), r.number("MB/s", 1e-3)})
	}
	return rows("|wall s|CPU s|own MiB|GB/s", lines)
}

// ratios says of each whether its goal is met by the median.
func ratios(all results) string {
	var lines [][]string
	for _, r := range all.under("PeerRatios") {
		goal := ""
		median, _ := r.get("median")
		if most, ok := r.get("at-most"); ok {
			goal = fmt.Sprintf("≤ %s: %s", digits(most), met(median <= most))
		} else if least, ok := r.get("at-least"); ok {
			goal = fmt.Sprintf("≥ %s: %s", digits(least), met(median >= least))
		}
		lines = append(lines, []string{plain(r.name), r.number("median", 1), r.number("least", 1), r.number("most", 1), goal})
	}
	return rows("ratio|median|least|most|goal", lines)
}

func met(ok bool) string {
	if ok {
		return "met"
	}
	return "**missed**"
}

func loaders(all results) string {
	var lines [][]string
	for _, r := range all.under("Loaders") {
		lines = append(lines, []string{plain(r.name), r.number("ms/sample", 1), r.number("loaded-ms/sample", 1), r.number("hsx-faster", 1), r.number("hsx-faster-loaded", 1)})
	}
	return rows("|ms a sample|only loaded|hsx is faster|only loaded", lines)
}

func compression(all results) string {
	var lines [][]string
	for _, r := range all.under("Compression") {
		lines = append(lines, []string{plain(r.name), r.number("of-bytes", 1), r.number("GB/s", 1)})
	}
	return rows("|of the bytes|GB/s", lines)
}

// disks are the ways of BenchmarkCompressed, on each disk that was measured.
func disks(all results) string {
	var lines [][]string
	for _, r := range all.under("Compressed") {
		disk, way, _ := strings.Cut(r.name, "/")
		title := map[string]string{"plain": "`hsx ingest`", "compressed": "`hsx ingest --compress`"}[way]
		lines = append(lines, []string{plain(disk), cmp.Or(title, way), r.number("ns/op", 1e-9), r.number("cpu-s", 1), r.number("MB/s", 1e-3), r.number("of-bytes", 1), r.number("of-plain", 1)})
	}
	return rows("the disk writes||wall s|CPU s|GB/s of dumps|of the bytes|rate by plain ingest's", lines)
}

// plain is the name of a way as people read it: names of benchmarks have no blanks.
func plain(name string) string { return strings.ReplaceAll(name, "_", " ") }

// stages are the benchmarks of single packages that go through bytes.
func stages(all results) string {
	var lines [][]string
	for _, r := range all {
		rate, ok := r.get("MB/s")
		if top, _, _ := strings.Cut(r.name, "/"); !ok || top == "Commands" || top == "Peers" || top == "Compressed" {
			continue
		}
		lines = append(lines, []string{"`" + r.pkg + "`", r.name, digits(rate / 1e3), r.number("allocs/op", 1), r.number("B/op", 1e-3)})
	}
	return rows("package|benchmark|GB/s|allocations|kB allocated", lines)
}
