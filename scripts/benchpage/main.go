// Benchpage writes the tables of a page of benchmarks from what benchmarks printed.
//
//	benchpage -page docs/benchmarks.md -chart docs/benchmarks.svg build/bench/*.txt
//
// The files hold lines as `go test -bench` prints them. A table stands between two
// comments, <!-- NAME --> and <!-- /NAME -->; one of which the files hold nothing stays as
// it is.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	page := flag.String("page", "docs/benchmarks.md", "the page to write")
	chart := flag.String("chart", "docs/benchmarks.svg", "the drawing to write")
	flag.Parse()
	if err := write(*page, *chart, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "benchpage:", err)
		os.Exit(1)
	}
}

func write(page, drawing string, files []string) error {
	var all results
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		all = append(all, parse(data)...)
	}
	if len(all) == 0 {
		return errors.New("the files hold no line of a benchmark")
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	where := machine()
	for _, t := range tables() {
		body := t.body(all)
		if body == "" {
			continue
		}
		if text, err = replace(text, t.name, where+"\n\n"+body); err != nil {
			return fmt.Errorf("write %s: %w", page, err)
		}
	}
	if err := os.WriteFile(page, text, 0o644); err != nil {
		return err
	}
	svg, err := draw(all)
	if svg == nil || err != nil {
		return err
	}
	return os.WriteFile(drawing, svg, 0o644)
}

// replace puts body between the comments of a table.
func replace(text []byte, name, body string) ([]byte, error) {
	open, end := "<!-- "+name+" -->\n", "<!-- /"+name+" -->"
	before, rest, ok1 := bytes.Cut(text, []byte(open))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok1 || !ok2 {
		return nil, fmt.Errorf("no place %s … %s for a table", strings.TrimSpace(open), end)
	}
	return bytes.Join([][]byte{before, []byte(open), []byte(body), []byte(end), after}, nil), nil
}

// machine says where and when.
func machine() string {
	parts := []string{time.Now().Format("2 January 2006"), fmt.Sprintf("%d cores", runtime.NumCPU())}
	if data, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, after, ok := bytes.Cut(data, []byte("model name\t: ")); ok {
			model, _, _ := bytes.Cut(after, []byte("\n"))
			parts[1] += " of " + string(model)
		}
	}
	if data, err := os.ReadFile("/proc/meminfo"); err == nil {
		var kib int
		if _, err := fmt.Sscanf(string(data), "MemTotal: %d", &kib); err == nil {
			parts = append(parts, fmt.Sprintf("%.0f GiB", float64(kib)/(1<<20)))
		}
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err == nil {
		parts = append(parts, unix.ByteSliceToString(u.Sysname[:])+" "+unix.ByteSliceToString(u.Release[:]))
	}
	parts = append(parts, strings.Replace(runtime.Version(), "go", "Go ", 1), "commit "+commit())
	return strings.Join(parts, "; ") + "."
}

// commit is the revision that was measured, as far as the checkout tells.
func commit() string {
	head, err := os.ReadFile(filepath.Join(".git", "HEAD"))
	if err != nil {
		return "unknown"
	}
	name := strings.TrimSpace(string(head))
	if ref, ok := strings.CutPrefix(name, "ref: "); ok {
		data, err := os.ReadFile(filepath.Join(".git", ref))
		if err != nil {
			return "unknown"
		}
		name = strings.TrimSpace(string(data))
	}
	return name[:min(12, len(name))]
}
