package main

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadme runs what the README shows, block after block in the directory that the
// demo leaves, without its datasets and with a stored measurement: each command prints
// what stands under it.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "demo")
	if code, out, talk := hsx("demo", "--dir", dir); code != exitDone {
		t.Fatalf("demo: exit %d\n%s%s", code, out, talk)
	}
	datasets, err := fs.Glob(os.DirFS(dir), "*/manifest.json")
	if err != nil || len(datasets) == 0 {
		t.Fatalf("the demo leaves datasets %q, want some: %v", datasets, err)
	}
	for _, manifest := range datasets {
		if err := os.RemoveAll(filepath.Join(dir, filepath.Dir(manifest))); err != nil {
			t.Fatal(err)
		}
	}
	journal, err := os.ReadFile("testdata/journals/fieldcase.jsonl")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "fieldcase.jsonl"), journal, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Dir(hsxLink(t)) + string(filepath.ListSeparator) + os.Getenv("PATH")
	commands := 0
	_, text, more := strings.Cut(string(readme), "```console\n")
	for more {
		var block string
		block, text, _ = strings.Cut(text, "```")
		var got strings.Builder
		for line := range strings.Lines(block) {
			command, ok := strings.CutPrefix(line, "$ ")
			if !ok {
				continue
			}
			commands++
			cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GORACE="+noSleep, "PATH="+path)
			out, err := cmd.CombinedOutput()
			if cmd.ProcessState == nil {
				t.Fatalf("%s: %v", command, err)
			}
			fmt.Fprintf(&got, "%s%s", line, out)
			if code := cmd.ProcessState.ExitCode(); code != exitDone {
				fmt.Fprintf(&got, "(exit %d)\n", code)
			}
		}
		if diff := cmp.Diff(block, got.String()); diff != "" {
			t.Errorf("README.md and what hsx prints (-README +hsx):\n%s", diff)
		}
		_, text, more = strings.Cut(text, "```console\n")
	}
	if commands == 0 {
		t.Error("README.md shows no command, want some in blocks of ```console")
	}
}
