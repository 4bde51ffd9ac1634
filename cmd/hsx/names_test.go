package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestNamesOnTerminal has names say nothing to a terminal, whoever repeats them: names
// of files may hold anything but a slash.
func TestNamesOnTerminal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	evil := "a\x1b[31m\u202e\nb"
	dumps := at("dumps")
	below := filepath.Join(dumps, "d"+evil)
	if err := os.CopyFS(below, os.DirFS("testdata/kit/dumps/specforge_eagle3/rows_0-2000")); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"data_0.ckpt": evil + ".ckpt", "data_1.ckpt": "\xff\x9b.ckpt"} {
		if err := os.Rename(filepath.Join(below, from), filepath.Join(below, to)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(below, evil+".pt"), []byte("<html>"), 0o600); err != nil {
		t.Fatal(err)
	}
	hsx := func(want int, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if got := run(args, &stdout, &stderr); got != want {
			t.Errorf("hsx %q: exit %d, want %d\n%q", args, got, want, stderr.String())
		}
		for _, out := range []string{stdout.String(), stderr.String()} {
			if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && r != ' ' && !strconv.IsPrint(r) }); i >= 0 {
				t.Errorf("hsx %q: prints %q", args, out[max(0, i-30):min(len(out), i+10)])
			}
		}
	}
	ds := at("ds")
	ingest := []string{"ingest", "--out", ds, "--layers", "0,2,3", dumps}
	hsx(exitBadData, ingest...)
	hsx(exitBadData, ingest...)
	hsx(exitDone, "inspect", ds)
	hsx(exitDone, "plan", "--parts", "2", "--layers", "0,2,3", dumps)
	hsx(exitFailed, "merge", "--out", at("m"), ds, ds)
	hsx(exitDone, "validate", ds)
	hsx(exitFailed, "ingest", "--out", at("x"), at(evil))
	hsx(exitUsage, "ingest", "--out", at("x"), "--final", evil, dumps)
	shard := filepath.Join(ds, "shards", "000000.arrow")
	data, err := os.ReadFile(shard)
	if err != nil {
		t.Fatal(err)
	}
	for i := len(data) / 10; i < len(data)*9/10; i++ {
		data[i] ^= 1
	}
	if err := os.WriteFile(shard, data, 0o600); err != nil {
		t.Fatal(err)
	}
	hsx(exitBadData, "verify", ds)
	hsx(exitFailed, "recompress", ds)
}
