//go:build slurm

package slurm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"hsx/shard"
)

const dumps = 60

// flags are those of ingest: a shard holds a sample or two.
func flags() []string {
	return []string{"--layers", "0,2,3", "--shard-size", "8kB", "--lock-timeout", "5m"}
}

// TestSlurm submits the examples for several numbers of parts. On the way hsx is killed
// in one task, and another is requeued.
func TestSlurm(t *testing.T) {
	s := startSlurm(t)
	dir := makeDumps(t)
	whole := filepath.Join(t.TempDir(), "whole")
	if out, err := exec.Command(env(t, "HSX_BIN"), slices.Concat([]string{"ingest", "--out", whole}, flags(), []string{dir})...).CombinedOutput(); exitCode(t, err) != 3 {
		t.Fatalf("ingest: %v, want exit 3 for the dump that is none\n%s", err, out)
	}
	report, err := exec.Command(env(t, "HSX_BIN"), "audit", "--json", whole).Output()
	exitCode(t, err)
	for _, tc := range []struct{ parts, kill, requeue int }{{1, 1, 0}, {2, 1, 2}, {7, 3, 5}} {
		t.Run(strconv.Itoa(tc.parts), func(t *testing.T) {
			work := t.TempDir()
			held := map[int]*os.File{}
			for _, part := range []int{tc.kill, tc.requeue} {
				if part > 0 {
					held[part] = hold(t, filepath.Join(dir, lastOf(t, dir, part, tc.parts)))
				}
			}
			examples, err := filepath.Abs("../../examples/slurm")
			if err != nil {
				t.Fatal(err)
			}
			submit := s.command(filepath.Join(examples, "submit.sh"), slices.Concat([]string{strconv.Itoa(tc.parts), "ds"}, flags(), []string{dir})...)
			submit.Dir = work
			out, err := submit.CombinedOutput()
			m := regexp.MustCompile(`^ingest (\d+) merge (\d+) audit (\d+) report (\d+)\n$`).FindStringSubmatch(string(out))
			if err != nil || m == nil {
				t.Fatalf("submit.sh: %v\n%s", err, out)
			}
			task := func(part int) string { return m[1] + "_" + strconv.Itoa(part) }
			for part, lock := range held {
				out := fmt.Sprintf("ds.parts/%d-of-%d", part, tc.parts)
				s.wait(t, "commit of part "+strconv.Itoa(part), func() bool { _, err := os.Stat(filepath.Join(work, out, "manifest.json")); return err == nil })
				if part == tc.kill {
					if err := syscall.Kill(running(t, work, out), syscall.SIGKILL); err != nil {
						t.Fatal(err)
					}
				} else {
					s.output(t, "scontrol", "requeue", task(part))
				}
				s.wait(t, "second start of part "+strconv.Itoa(part), func() bool { return s.job(t, task(part))["Restarts"] == "1" })
				if err := lock.Close(); err != nil {
					t.Fatal(err)
				}
			}
			s.wait(t, "end of the report", func() bool {
				return !slices.Contains([]string{"PENDING", "RUNNING", "COMPLETING"}, s.job(t, m[4])["JobState"])
			})
			for _, id := range m[1:] {
				if state := s.job(t, id)["JobState"]; state != "COMPLETED" {
					t.Errorf("job %s ended %s\n%s", id, state, outputs(t, work))
				}
			}
			ds := filepath.Join(work, "ds")
			if diff := cmp.Diff(rows(t, whole), rows(t, ds)); diff != "" {
				t.Errorf("samples of one run and of the array (-one +array):\n%.2000s", diff)
			}
			if diff := cmp.Diff(placeless(t, report), placeless(t, read(t, ds+".audit/report.json"))); diff != "" {
				t.Errorf("audit of one run and of the array (-one +array):\n%.2000s", diff)
			}
			if page := read(t, ds+".audit/report.html"); len(page) == 0 {
				t.Error("report.html is empty")
			}
		})
	}
}

// makeDumps is a directory of dumps of four sizes, and one that is none.
func makeDumps(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range dumps {
		data := read(t, fmt.Sprintf("../../cmd/hsx/testdata/kit/dumps/specforge_eagle3/rows_0-2000/data_%d.ckpt", i*i/3%4))
		if i == 20 {
			data = data[:len(data)/2]
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("data_%d.ckpt", i)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// lastOf is the last input of a part, as hsx plan says.
func lastOf(t *testing.T, dir string, part, parts int) string {
	t.Helper()
	out, err := exec.Command(env(t, "HSX_BIN"), slices.Concat([]string{"plan", "--json", "--parts", strconv.Itoa(parts)}, flags(), []string{dir})...).Output()
	var plan struct{ Parts []struct{ Last string } }
	if err = errors.Join(err, json.Unmarshal(out, &plan)); err != nil {
		t.Fatal(err)
	}
	return plan.Parts[part-1].Last
}

// hold keeps the reader of a dump waiting until the file is closed, as vLLM does while it
// writes one.
func hold(t *testing.T, dump string) *os.File {
	t.Helper()
	lock, err := os.Create(dump + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() })
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return lock
}

// running is the process that makes a part.
func running(t *testing.T, work, out string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range lines {
		line, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(string(line), "\x00")
		cwd, _ := os.Readlink(filepath.Join(filepath.Dir(name), "cwd"))
		if args[0] != os.Getenv("HSX_BIN") || !slices.Contains(args, out) || cwd != work {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			return pid
		}
	}
	t.Fatalf("no process makes %s", out)
	return 0
}

// rows are ids and digests of a dataset's samples in their order, then its journals.
func rows(t *testing.T, dir string) []string {
	t.Helper()
	ds, err := shard.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if p := ds.Manifest().Partition; p != nil {
		t.Errorf("%s says that it is %s", dir, p)
	}
	var out []string
	for i := range ds.Manifest().Shards {
		s, err := ds.Shard(i)
		if err != nil {
			t.Fatal(err)
		}
		for row := range s.Rows() {
			h, err := s.Head(row)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, h.ID+" "+h.Digest.String())
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return append(out, string(read(t, filepath.Join(dir, "inputs.jsonl"))), string(read(t, filepath.Join(dir, "rejected.jsonl"))))
}

// placeless is a report without the members that say when and where.
func placeless(t *testing.T, report []byte) any {
	t.Helper()
	var doc any
	if err := json.Unmarshal(report, &doc); err != nil {
		t.Fatalf("%v\n%.500s", err, report)
	}
	var strip func(v any)
	strip = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for _, name := range []string{"seconds", "dataset", "shard", "shards", "row"} {
				delete(v, name)
			}
			for _, member := range v {
				strip(member)
			}
		case []any:
			for _, member := range v {
				strip(member)
			}
		}
	}
	strip(doc)
	return doc
}

// outputs are what the jobs printed.
func outputs(t *testing.T, work string) string {
	t.Helper()
	var b strings.Builder
	names, _ := filepath.Glob(filepath.Join(work, "*.out"))
	for _, name := range names {
		fmt.Fprintf(&b, "%s:\n%s", filepath.Base(name), read(t, name))
	}
	return b.String()
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// exitCode is that of a program that could be run.
func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		t.Fatal(err)
	}
	return exit.ExitCode()
}
