package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRecompressKill ends recompress without warning at any instant: the dataset is
// whole, and the same command then makes what it would have made undisturbed.
func TestRecompressKill(t *testing.T) {
	t.Parallel()
	const kills = 12
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	plain := undisturbed(t, manyDumps(t))
	recompress := func(ds string) []string { return []string{"recompress", "--shard-size", "20KiB", ds} }
	copied := func() string {
		ds := filepath.Join(t.TempDir(), "ds")
		if err := os.CopyFS(ds, os.DirFS(plain)); err != nil {
			t.Fatal(err)
		}
		return ds
	}
	want := copied()
	if code, _, talk := hsx(recompress(want)...); code != exitDone {
		t.Fatalf("recompress: exit %d\n%s", code, talk)
	}
	if n := len(files(t, filepath.Join(want, "shards"))); n < manySamples/3 || n > manySamples/2 {
		t.Fatalf("dataset has %d shards, want many of two samples each", n)
	}
	for killed := 0; killed < kills; {
		ds := copied()
		for range 1 + rng.IntN(3) {
			shards := rng.IntN(manySamples / 3)
			if !killAfter(t, rng, process(t, recompress(ds)...), func() bool { return rewritten(ds) >= shards }) {
				break // it is complete
			}
			killed++
			if code, out, talk := hsx("verify", ds); code != exitDone {
				t.Fatalf("verify after a kill: exit %d\n%s%s", code, out, talk)
			}
			if n := len(samples(t, ds)); n != manySamples {
				t.Fatalf("dataset has %d samples after a kill, want %d", n, manySamples)
			}
		}
		if code, out, talk := hsx(recompress(ds)...); code != exitDone {
			t.Fatalf("recompress after kills: exit %d\n%s%s", code, out, talk)
		}
		if diff := differences(t, ds, want); diff != "" {
			t.Fatalf("dataset after kills differs from an undisturbed one (-want +got):\n%.2000s", diff)
		}
	}
}

// rewritten counts the shards that took the place of others.
func rewritten(ds string) (n int) {
	entries, _ := os.ReadDir(filepath.Join(ds, "shards")) // it is there
	for _, e := range entries {
		if strings.Contains(e.Name(), "-") {
			n++
		}
	}
	return n
}
