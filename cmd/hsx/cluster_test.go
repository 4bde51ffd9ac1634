package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPartitions divides an ingest, has the parts end in any order and be killed on the
// way, and merges them in any order: the dataset is what one undisturbed run makes, and
// an audit says the same of both, whatever the number of parts.
func TestPartitions(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dumps := unevenDumps(t)
	whole := filepath.Join(t.TempDir(), "whole")
	if code, out, talk := hsx(ingestUneven(whole, dumps)...); code != exitBadData {
		t.Fatalf("ingest: exit %d\n%s%s", code, out, talk)
	}
	report := auditOf(t, whole, 1)
	for _, n := range []int{1, 2, 7, 16} {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(n)))
			dir := t.TempDir()
			part := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
			args := func(i int) []string {
				return append(ingestUneven(part(i), dumps), "--partition", fmt.Sprintf("%d/%d", i, n))
			}
			kills := 0
			for _, i := range rng.Perm(n) {
				for range 1 + rng.IntN(2) {
					commits := rng.IntN(1 + manySamples/n/2)
					if !killAfter(t, rng, process(t, args(i+1)...), func() bool {
						entries, _ := os.ReadDir(filepath.Join(part(i+1), "shards")) // no directory is no shards
						return len(entries) >= commits
					}) {
						break // it is done
					}
					kills++
				}
			}
			t.Logf("%d kills", kills)
			merge := []string{"merge", "--out", filepath.Join(dir, "ds")}
			for _, i := range rng.Perm(n) {
				if code, out, talk := hsx(args(i + 1)...); code != exitDone && code != exitBadData {
					t.Fatalf("part %d: exit %d\n%s%s", i+1, code, out, talk)
				}
				merge = append(merge, part(i+1))
			}
			if code, out, talk := hsx(merge...); code != exitDone {
				t.Fatalf("merge: exit %d\n%s%s", code, out, talk)
			}
			ds := merge[2]
			if diff := cmp.Diff(samples(t, whole), samples(t, ds)); diff != "" {
				t.Errorf("samples of one run and of the merged parts (-one +parts):\n%.2000s", diff)
			}
			for _, name := range []string{"inputs.jsonl", "rejected.jsonl"} {
				want, got := files(t, whole)[name], files(t, ds)[name]
				if got != want || want == "" {
					t.Errorf("%s of one run and of the merged parts (-one +parts):\n%.2000s", name, cmp.Diff(want, got))
				}
			}
			if diff := cmp.Diff(report, auditOf(t, ds, n)); diff != "" {
				t.Errorf("audit of one run and of the merged parts (-one +parts):\n%.2000s", diff)
			}
		})
	}
}

// unevenDumps is a directory of many dumps of four sizes, and some that are none.
func unevenDumps(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i := range manySamples {
		data, err := os.ReadFile(fmt.Sprintf("testdata/kit/dumps/specforge_eagle3/rows_0-2000/data_%d.ckpt", i*i/3%4))
		if err != nil {
			t.Fatal(err)
		}
		if i%13 == 5 {
			data = data[:len(data)/2]
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("data_%d.ckpt", i)), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// ingestUneven is a command line that commits every few of the dumps.
func ingestUneven(ds, dumps string) []string {
	return []string{"ingest", "--out", ds, "--layers", "0,2,3", "--target", "testdata/kit/model/config.json", "--shard-size", "20kB", dumps}
}

// auditOf is what an audit in n parts says of a dataset, but for what is different by
// its nature: the time, the dataset's name, and where its shards are cut.
func auditOf(t *testing.T, ds string, n int) any {
	t.Helper()
	dir := t.TempDir()
	merge := []string{"audit", "--merge", "--json"}
	for i := range n {
		code, out, talk := hsx("audit", "--partition", fmt.Sprintf("%d/%d", i+1, n), ds)
		if code != exitDone {
			t.Fatalf("audit of part %d: exit %d\n%s", i+1, code, talk)
		}
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
		merge = append(merge, name)
	}
	code, out, talk := hsx(merge...)
	if code != exitDone && code != exitBadData {
		t.Fatalf("audit: exit %d\n%s", code, talk)
	}
	var doc map[string]any
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		t.Fatal(err)
	}
	return placeless(doc)
}

// placeless is a report without members that say where.
func placeless(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			switch name {
			case "seconds", "dataset", "shard", "shards", "row":
				delete(v, name)
			default:
				v[name] = placeless(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = placeless(v[i])
		}
	}
	return v
}
