package main

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// result is one benchmark, with each of its metrics as often as it was measured.
type result struct {
	pkg, name string // the name without Benchmark and without the number of processors
	metrics   map[string][]float64
}

type results []*result

// parse reads the lines of benchmarks and leaves out all others.
func parse(data []byte) (all results) {
	pkg := ""
	for line := range bytes.Lines(data) {
		fields := strings.Fields(string(line))
		switch {
		case len(fields) == 2 && fields[0] == "pkg:":
			pkg = strings.TrimPrefix(fields[1], "hsx/")
		case len(fields) >= 4 && strings.HasPrefix(fields[0], "Benchmark"):
			all = all.add(pkg, fields)
		}
	}
	return all
}

func (all results) add(pkg string, fields []string) results {
	name := strings.TrimPrefix(fields[0], "Benchmark")
	if i := strings.LastIndexByte(name, '-'); i >= 0 {
		if _, err := strconv.Atoi(name[i+1:]); err == nil {
			name = name[:i]
		}
	}
	i := slices.IndexFunc(all, func(r *result) bool { return r.pkg == pkg && r.name == name })
	if i < 0 {
		i = len(all)
		all = append(all, &result{pkg: pkg, name: name, metrics: map[string][]float64{}})
	}
	for f := 2; f+1 < len(fields); f += 2 {
		if v, err := strconv.ParseFloat(fields[f], 64); err == nil {
			all[i].metrics[fields[f+1]] = append(all[i].metrics[fields[f+1]], v)
		}
	}
	return all
}

// under are the results whose names begin with a benchmark's, without that beginning.
func (all results) under(benchmark string) (out results) {
	for _, r := range all {
		if rest, ok := strings.CutPrefix(r.name, benchmark+"/"); ok {
			out = append(out, &result{pkg: r.pkg, name: rest, metrics: r.metrics})
		}
	}
	return out
}

// get is the median of a metric.
func (r *result) get(unit string) (v float64, ok bool) {
	s := slices.Sorted(slices.Values(r.metrics[unit]))
	if len(s) == 0 {
		return 0, false
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2, true
}

// number writes a metric times scale with three digits, "" when it was not measured.
func (r *result) number(unit string, scale float64) string {
	v, ok := r.get(unit)
	if !ok {
		return ""
	}
	return digits(v * scale)
}

// digits writes three significant digits, without an exponent.
func digits(v float64) string {
	prec := 2
	switch {
	case v >= 100 || v == 0:
		prec = 0
	case v >= 10:
		prec = 1
	case v < 0.1:
		prec = 4
	case v < 1:
		prec = 3
	}
	return strconv.FormatFloat(v, 'f', prec, 64)
}
