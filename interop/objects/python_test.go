//go:build objects

package objects_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hsx/internal/faultproxy"
)

// TestPythonLoader: python/hsx reads through s3fs what it reads from a directory.
func TestPythonLoader(t *testing.T) {
	url := startServer(t)
	dumps, ds := "../../cmd/hsx/testdata/kit", filepath.Join(t.TempDir(), "ds")
	for _, way := range [][]string{nil, {"--compress"}} {
		if err := os.RemoveAll(ds); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"ingest", "--out", ds, "--layers", "0,2,3", "--target", dumps + "/model/config.json", "--shard-size", "8kB"}, way...)
		if out, err := exec.CommandContext(t.Context(), env(t, "HSX_BIN"), append(args, dumps+"/dumps/specforge_eagle3")...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		name := "python/plain"
		if way != nil {
			name = "python/packed"
		}
		s := open(t, "s3://bucket/"+name, url, quick())
		err := filepath.WalkDir(ds, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			rel, err := filepath.Rel(ds, path)
			if err != nil {
				return err
			}
			return s.Upload(t.Context(), filepath.ToSlash(rel), path)
		})
		if err != nil {
			t.Fatal(err)
		}
		// s3fs has retries of its own for answers that were lost, refused or cut.
		proxied, _ := between(t, url, faultproxy.Random(1, 0.1, 0.1, 0.1, time.Millisecond))
		for _, endpoint := range []string{url, proxied} {
			cmd := exec.CommandContext(t.Context(), env(t, "HSX_PYTHON"), "-W", "error", "check_loader.py", ds, "s3://bucket/"+name, endpoint)
			// Python's client takes an empty variable for a value.
			set := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "AWS_") && strings.HasSuffix(v, "=") })
			cmd.Env = append(set, "PYTHONPATH=../../python/hsx/src", "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.HasSuffix(string(out), "4 samples\n") {
				t.Errorf("%s at %s: %v\n%s", name, endpoint, err, out)
			}
		}
	}
}
