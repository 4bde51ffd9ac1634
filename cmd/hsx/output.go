package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/shard"
)

const formatVersion = shard.Version

// printJSON writes one document. Its fields are an interface: new ones may come,
// none goes or changes its meaning.
func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// placeFor reports why a file could not be written, before the work that is to fill it.
func placeFor(ctx context.Context, flag, name string) error {
	if name == "" {
		return nil
	}
	p, _, err := placeOfFile(ctx, name)
	if err != nil {
		return fmt.Errorf("write %s: %w", flag, err)
	}
	if p.store != nil {
		return nil // it says so itself
	}
	path := behindLinks(p.path)
	dir := filepath.Dir(path)
	parent, err := os.Stat(dir)
	info, missing := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("write %s: %w", flag, err)
	case !parent.IsDir():
		return fmt.Errorf("write %s: %s is not a directory", flag, dir)
	case missing == nil && info.IsDir():
		return fmt.Errorf("write %s: %s is a directory, want the name of a file", flag, path)
	case missing == nil && !info.Mode().IsRegular():
		return nil // a pipe or a device, which is written in place
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("write %s: no file can be made in %s: %w", flag, dir, err)
	}
	return nil
}

// behindLinks is the file that a path leads to, the path itself when there is none.
func behindLinks(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	return path
}

// writePage draws a page, and writes it once it is whole.
func writePage(ctx context.Context, path string, draw func(io.Writer) error) error {
	var page bytes.Buffer
	if err := draw(&page); err != nil {
		return fmt.Errorf("draw the report: %w", err)
	}
	return writeFile(ctx, path, page.Bytes())
}

// bytesText is a size for people: "1.5 MB".
func bytesText(n int64) string {
	const units = "kMGTPE"
	if n < 1000 {
		return fmt.Sprintf("%d bytes", n)
	}
	v, i := float64(n)/1000, 0
	for v >= 999.5 && i < len(units)-1 {
		v /= 1000
		i++
	}
	return fmt.Sprintf("%.3g %cB", v, units[i])
}

// count is a number for people, with thousands apart: "1,136 tokens", "1 sample".
func count(n int64, noun string) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	if n != 1 {
		noun += "s"
	}
	return s + " " + noun
}

// printable makes text from a dump safe for a terminal: a tensor's name or an id may
// hold anything.
func printable(s string) string {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// spoken is talk with what a terminal would obey, in names that a dump or a file system
// gave, made visible. Lines stay lines.
func spoken(s string) string {
	var b strings.Builder
	for i, r := range s {
		_, n := utf8.DecodeRuneInString(s[i:])
		switch text := s[i : i+n]; {
		case r == utf8.RuneError && n == 1, r != '\n' && !strconv.IsPrint(r):
			quoted := strconv.Quote(text)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteString(text)
		}
	}
	return b.String()
}

// layoutLines describes a layout, one line per fact.
func layoutLines(l format.Layout) []string {
	var layers format.Layers
	var rest []string
	unknown := 0
	for _, s := range l.States {
		switch s.Role {
		case format.RoleLayer:
			layers = append(layers, s.Layer)
		case format.RoleBlock:
			unknown++
		case format.RoleFinal:
			rest = append(rest, fmt.Sprintf("final (%s the norm)", map[format.Norm]string{
				format.NormPre: "before", format.NormPost: "after", format.NormUnknown: "unknown whether before or after"}[s.Norm]))
		}
	}
	var lines []string
	if layers != nil {
		lines = append(lines, layers.String())
	}
	if unknown > 0 {
		lines = append(lines, fmt.Sprintf("%d blocks of unknown layers (pass --layers when you ingest)", unknown))
	}
	lines = append(lines, rest...)
	if l.HiddenSize > 0 {
		lines = append(lines, fmt.Sprintf("hidden size %d, %s", l.HiddenSize, dtypes(l)))
	}
	return lines
}

// dtypes lists the element types of a layout: usually one.
func dtypes(l format.Layout) string {
	var out []string
	for _, s := range l.States {
		if d := s.DType.String(); len(out) == 0 || out[len(out)-1] != d {
			out = append(out, d)
		}
	}
	return strings.Join(out, ", ")
}

// tally is a count that a result has a line for, unless it is 0.
type tally struct {
	n    int
	noun string
	what string
}

// tallies writes the counts of a result: "  3 inputs rejected".
func tallies(b *strings.Builder, list ...tally) {
	for _, t := range list {
		if t.n > 0 {
			fmt.Fprintf(b, "  %s %s\n", count(int64(t.n), t.noun), t.what)
		}
	}
}

// factWidth is where the lines of facts are wrapped: a terminal of 80 columns.
const factWidth = 80

// fact writes one named fact, wrapped, under the column of names.
func fact(b *strings.Builder, name, f string, args ...any) {
	const indent = 13
	fmt.Fprintf(b, "  %-10s ", name)
	wrap(b, max(indent, len(name)+3), indent, fmt.Sprintf(f, args...))
}

// paragraph writes text, wrapped and indented.
func paragraph(b *strings.Builder, indent int, f string, args ...any) {
	fmt.Fprintf(b, "%*s", indent, "")
	wrap(b, indent, indent, fmt.Sprintf(f, args...))
}

// wrap writes text from column width on and breaks it at spaces.
func wrap(b *strings.Builder, width, indent int, text string) {
	for i, word := range strings.Split(text, " ") {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
			b.WriteString(word)
		case width+1+n > factWidth:
			fmt.Fprintf(b, "\n%*s%s", indent, "", word)
			width = indent - 1
		default:
			b.WriteString(" " + word)
		}
		width += n
		if i > 0 {
			width++
		}
	}
	b.WriteByte('\n')
}

// facts writes several lines under one name.
func facts(b *strings.Builder, name string, lines []string) {
	for _, line := range lines {
		fact(b, name, "%s", line)
		name = ""
	}
}
