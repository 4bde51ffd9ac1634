package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets this binary be hsx itself, for scripts and for tests that kill it, and a
// server that it can start.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"hsx": main, "simserver": serve, "sender": send})
}

// TestScript runs the scripts in testdata/script, one per behaviour of the command
// line. Each finds the small kit at kit, two texts' states of all layers at layers, and
// stored measurements at journals, which are links and must not be changed.
// HSX_UPDATE=1 writes the expected output anew.
func TestScript(t *testing.T) {
	t.Parallel()
	links := map[string]string{"kit": "testdata/kit", "layers": "../../validate/testdata/layers", "journals": "testdata/journals"}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("HSX_UPDATE") != "",
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", noSleep)
			e.Setenv("DUMP", "kit/dumps/specforge_eagle3")
			e.Setenv("MODEL", "kit/model/config.json")
			for name, dir := range links {
				to, err := filepath.Abs(dir)
				if err = errors.Join(err, os.Symlink(to, filepath.Join(e.WorkDir, name))); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exit":     exitCode,
			"flip":     flipBit,
			"cut":      cutShort,
			"tree":     tree,
			"simulate": simulate,
			"port":     freePort,
			"width":    width,
		},
	})
}

// noSleep has a program under the race detector end at once. By default it waits a
// second for reports of other threads, which a process killed or done has none of.
const noSleep = "atexit_sleep_ms=0"

// exitCode runs a command that must end in a code, without a stack trace:
//
//	exit 3 hsx verify ds
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit code command [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit %d, want %d", got, want)
	}
	if strings.Contains(ts.ReadFile("stderr"), "goroutine ") {
		ts.Fatalf("stderr has a stack trace")
	}
}

// flipBit changes one bit of a file:
//
//	flip ds/shards/000000.arrow 9000
func flipBit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: flip file offset")
	}
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	if at < 0 || at >= len(data) {
		ts.Fatalf("offset %d is not in %s, which has %d bytes", at, args[0], len(data))
	}
	data[at] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o644))
}

// cutShort leaves the first bytes of a file:
//
//	cut ds/shards/000000.arrow 4000
func cutShort(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: cut file length")
	}
	n, err := strconv.ParseInt(args[1], 10, 64)
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), n))
}

// tree prints what a directory is: of everything in it the name, mode, modification
// time and sha256. Two equal trees mean that nothing was touched.
func tree(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: tree directory")
	}
	root := ts.MkAbs(args[0])
	ts.Check(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var data []byte
		if info.Mode().IsRegular() {
			if data, err = os.ReadFile(path); err != nil {
				return err
			}
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(ts.Stdout(), "%s %s %d %x\n", name, info.Mode(), info.ModTime().UnixNano(), sha256.Sum256(data))
		return err
	}))
}

// width checks that no line of a file is wider than a terminal:
//
//	width 80 stdout
func width(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: width columns file")
	}
	most, err := strconv.Atoi(args[0])
	ts.Check(err)
	for line := range strings.Lines(ts.ReadFile(args[1])) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > most {
			ts.Fatalf("%d columns, want at most %d: %s", n, most, line)
		}
	}
}
