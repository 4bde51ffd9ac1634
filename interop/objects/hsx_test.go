//go:build objects

package objects_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hsx/format"
	"hsx/internal/faultproxy"
	"hsx/internal/hsxtest"
	"hsx/internal/objstore"
	"hsx/shard"
)

const kit = "../../cmd/hsx/testdata/kit"

// program is an hsx that finds the store at an endpoint.
type program struct{ endpoint string }

func (p program) command(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(env(t, "HSX_BIN"), args...)
	cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL="+p.endpoint)
	return cmd
}

// run runs it and demands an exit code.
func (p program) run(t testing.TB, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := p.command(t, args...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if code := cmd.ProcessState.ExitCode(); code != want {
		t.Fatalf("hsx %q: exit %d, want %d\n%s%s", args, code, want, out.String(), talk.String())
	}
	if text := out.String() + talk.String(); strings.Contains(text, secret) {
		t.Errorf("hsx %q shows the secret:\n%s", args, text)
	}
	return out.String(), talk.String()
}

// ingest is the command that takes the kit's dumps into small shards.
func ingest(from, to string, more ...string) []string {
	args := []string{"ingest", "--out", to, "--layers", "0,2,3", "--target", kit + "/model/config.json", "--shard-size", "8kB"}
	return append(append(args, more...), from)
}

const localDumps = kit + "/dumps/specforge_eagle3"

// exported is what a dataset exports: the same files are the same samples.
func (p program) exported(t testing.TB, ds string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	p.run(t, 0, "export", "--to", "safetensors", "--out", dir, ds)
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".safetensors") {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(data)
		return err
	})
	if err != nil || len(files) == 0 {
		t.Fatalf("export of %s gave %d files (%v)", ds, len(files), err)
	}
	return files
}

// same demands that a dataset in a store is whole, and has the samples of a local run.
func (p program) same(t testing.TB, ds string, want map[string]string) {
	t.Helper()
	p.run(t, 0, "verify", ds)
	if got := p.exported(t, ds); !maps.Equal(got, want) {
		t.Errorf("%s exports %d files, want the %d of a local run, byte for byte", ds, len(got), len(want))
	}
}

// local is what a dataset on a file system exports.
func local(t testing.TB) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ds")
	p := program{}
	p.run(t, 0, ingest(localDumps, dir)...)
	return p.exported(t, dir)
}

// load brings a directory into a store.
func load(t testing.TB, s *objstore.Store, dir string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		return s.Upload(t.Context(), name, filepath.Join(dir, name))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// everything has all commands work on a store.
func everything(t *testing.T, p program) {
	t.Helper()
	want := local(t)
	const ds = "s3://bucket/runs/ds"
	p.run(t, 0, ingest("s3://bucket/dumps/specforge_eagle3", ds)...)
	p.same(t, ds, want)
	again, _ := p.run(t, 0, ingest("s3://bucket/dumps/specforge_eagle3", ds)...)
	if !strings.Contains(again, "nothing new") {
		t.Errorf("ingest of the same dumps says %q", again)
	}
	p.run(t, 0, "inspect", ds)
	p.run(t, 0, "validate", "--layers", "0,2,3", ds)
	p.run(t, 0, "audit", "--html", "s3://bucket/reports/ds.html", ds)
	part, _ := p.run(t, 0, "audit", "--partition", "1/1", ds)
	partial := file(t, []byte(part))
	p.run(t, 0, "audit", "--merge", "--html", "s3://bucket/reports/merged.html", partial)
	for _, i := range []string{"1", "2"} {
		p.run(t, 0, ingest("s3://bucket/dumps/specforge_eagle3", "s3://bucket/runs/part"+i, "--partition", i+"/2")...)
	}
	p.run(t, 0, "merge", "--out", "s3://other/merged", "s3://bucket/runs/part2", "s3://bucket/runs/part1")
	p.same(t, "s3://other/merged", want)
	dir := filepath.Join(t.TempDir(), "merged")
	p.run(t, 1, "merge", "--out", dir, "s3://other/merged")
	p.run(t, 0, "merge", "--copy", "--out", dir, "s3://other/merged")
	p.same(t, dir, want)
	p.run(t, 0, "merge", "--out", "s3://other/up", "file://"+dir)
	p.same(t, "s3://other/up", want)
	p.run(t, 1, "merge", "--out", "s3://other/up", dir)
	for _, way := range [][]string{{"--shard-size", "8kB"}, {"--plain"}} { // as many compressed shards; one plain one
		p.run(t, 0, append([]string{"recompress", ds}, way...)...)
		p.same(t, ds, want)
	}
	p.planned(t, "s3://bucket/runs/planned", "s3://bucket/dumps/specforge_eagle3", want)
	p.run(t, 0, "gc", "--older-than", "0s", "--yes", ds)
	p.same(t, ds, want)
	if out, _ := p.run(t, 0, "gc", "--older-than", "0s", ds); !strings.HasPrefix(out, "nothing to remove") {
		t.Errorf("gc after a gc says %q", out)
	}
}

// planned runs the commands that a plan prints.
func (p program) planned(t testing.TB, ds, dumps string, want map[string]string) {
	t.Helper()
	out, _ := p.run(t, 0, "plan", "--json", "--parts", "3", "--out", ds, "--layers", "0,2,3", "--target", kit+"/model/config.json", dumps)
	var plan struct {
		Parts []struct{ Command []string }
		Merge []string
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		t.Fatal(err)
	}
	if len(plan.Parts) != 3 {
		t.Fatalf("plan of 3 parts has %d", len(plan.Parts))
	}
	for _, part := range plan.Parts {
		p.run(t, 0, part.Command[1:]...)
	}
	p.run(t, 0, plan.Merge[1:]...)
	p.same(t, ds, want)
}

func TestHSX(t *testing.T) {
	url := startServer(t)
	load(t, open(t, "s3://bucket/dumps", url, objstore.Options{}), kit+"/dumps")
	p := program{url}
	everything(t, p)
	for want, ds := range map[string]string{"has no manifest.json": "s3://bucket/none", "bucket nobody does not exist": "s3://nobody/ds"} {
		if _, talk := p.run(t, 1, "verify", ds); !strings.Contains(talk, want) {
			t.Errorf("verify %s says %q, want %q", ds, talk, want)
		}
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "WrongSecretOfTestsThatNoErrorShows")
	if _, talk := p.run(t, 1, "verify", "s3://bucket/runs/ds"); strings.Contains(talk, "WrongSecret") || !strings.Contains(talk, "credentials") {
		t.Errorf("verify with a wrong secret says %q", talk)
	}
}

// TestHSXFaults has the same work through a proxy that refuses, cuts, delays and loses.
func TestHSXFaults(t *testing.T) {
	url := startServer(t)
	load(t, open(t, "s3://bucket/dumps", url, objstore.Options{}), kit+"/dumps")
	bad, proxy := between(t, url, faultproxy.Random(7, 0.05, 0.05, 0.1, 5*time.Millisecond))
	everything(t, program{bad})
	faults := 0
	for _, c := range proxy.Counts() {
		faults += c.Faults
	}
	if faults < 20 {
		t.Errorf("proxy made %d faults, want at least 20", faults)
	}
}

// atShard is a proxy's choice that tells of the nth upload of a shard or a part of one,
// from 1, and holds it.
func atShard(n int) (faultproxy.Choose, chan struct{}) {
	reached := make(chan struct{})
	seen := 0
	return func(r *http.Request, _ int) faultproxy.Fault {
		if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/shards/") {
			return faultproxy.Fault{}
		}
		if seen++; seen == n {
			close(reached)
		}
		if seen >= n {
			return faultproxy.Fault{Delay: 3 * time.Second} // long after it was killed
		}
		return faultproxy.Fault{}
	}, reached
}

// kill starts a command, and kills it when it has reached something.
func (p program) kill(t *testing.T, reached chan struct{}, args ...string) {
	t.Helper()
	cmd := p.command(t, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-reached:
	case <-time.After(time.Minute):
		t.Error("no upload of a shard came within a minute")
	}
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()         // by the kill
}

// TestHSXKilled kills an ingest, and then a recompress, in the middle of an upload. What was
// committed is whole, and the same command completes it.
func TestHSXKilled(t *testing.T) {
	url := startServer(t)
	want := local(t)
	for n := 1; n <= 3; n++ {
		choose, reached := atShard(n)
		slow, _ := between(t, url, choose)
		ds := "s3://bucket/killed" + string(rune('0'+n))
		program{slow}.kill(t, reached, ingest(localDumps, ds)...)
		p := program{url}
		if n > 1 {
			p.run(t, 0, "verify", ds)
		}
		p.run(t, 0, ingest(localDumps, ds)...)
		p.same(t, ds, want)
	}
	for n := 1; n <= 2; n++ { // the dataset is whole also when its shards are on their way to be others
		choose, reached := atShard(n)
		slow, _ := between(t, url, choose)
		again := []string{"recompress", "--shard-size", "8kB", "s3://bucket/killed" + string(rune('0'+n))}
		program{slow}.kill(t, reached, again...)
		p := program{url}
		p.same(t, again[3], want)
		p.run(t, 0, again...)
		p.same(t, again[3], want)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "hsx-staging-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary directory still has %q (%v)", left, err)
	}
}

// big is a local dataset of one shard of 48 MiB, which is uploaded in parts.
func big(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "big")
	w, err := shard.OpenWriter(dir, shard.Options{BatchBytes: 16 << 20})
	if err != nil {
		t.Fatal(err)
	}
	spec := hsxtest.Spec{Hidden: 1024, Layers: []format.Layer{2, 16, 30}, DType: format.BFloat16}
	for i := range 64 {
		err = errors.Join(err, w.Put(t.Context(), hsxtest.Sample(spec, i, 128)))
	}
	if err := errors.Join(err, w.Commit(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestHSXAbandoned kills a merge in the middle of an upload in parts: gc finds what is left of it, and
// removes it.
func TestHSXAbandoned(t *testing.T) {
	url := startServer(t)
	dir := big(t)
	choose, reached := atShard(3)
	slow, _ := between(t, url, choose)
	const ds = "s3://bucket/big"
	program{slow}.kill(t, reached, "merge", "--out", ds, dir)
	p := program{url}
	uploads := func() (n int) {
		out, _ := p.run(t, 0, "gc", "--older-than", "0s", "--json", ds)
		var doc struct{ Garbage []shard.Garbage }
		if err := json.Unmarshal([]byte(out), &doc); err != nil {
			t.Fatal(err)
		}
		for _, g := range doc.Garbage {
			if g.Upload != "" {
				n++
			}
		}
		return n
	}
	if n := uploads(); n != 1 {
		t.Errorf("gc finds %d uploads that were not completed, want 1", n)
	}
	if out, _ := p.run(t, 0, "gc", ds); !strings.HasPrefix(out, "nothing to remove") {
		t.Errorf("gc of what is a day old says %q", out)
	}
	p.run(t, 0, "gc", "--older-than", "0s", "--yes", ds)
	if n := uploads(); n != 0 {
		t.Errorf("after gc there are %d uploads that were not completed", n)
	}
	p.run(t, 0, "merge", "--out", ds, dir)
	p.run(t, 0, "verify", ds)
}

// TestHSXTwoWriters has two ingests of the same dumps into the same dataset at once, again and
// again from another offset: one may end with a sentence, and running it again completes it.
func TestHSXTwoWriters(t *testing.T) {
	url := startServer(t)
	want := local(t)
	slow, _ := between(t, url, faultproxy.Random(3, 0, 0, 0, 20*time.Millisecond))
	var overtaken atomic.Int64
	for round := range 4 {
		ds := "s3://bucket/two" + string(rune('0'+round))
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				out, err := program{slow}.command(t, ingest(localDumps, ds)...).CombinedOutput()
				switch {
				case err == nil:
				case strings.Contains(string(out), "another writer committed meanwhile"):
					overtaken.Add(1)
				default:
					t.Errorf("one of two writers: %v\n%s", err, out)
				}
			})
		}
		both.Wait()
		program{url}.run(t, 0, "verify", ds)
		program{url}.run(t, 0, ingest(localDumps, ds)...)
		program{url}.same(t, ds, want)
	}
	if overtaken.Load() == 0 {
		t.Error("no writer was overtaken in four rounds, so nothing was tested")
	}
}

// TestHSXReadsLittle counts what validate brings of a dataset of which it samples a little.
func TestHSXReadsLittle(t *testing.T) {
	url := startServer(t)
	program{url}.run(t, 0, "merge", "--out", "s3://bucket/big", big(t))
	near, proxy := between(t, url, nil)
	received := func() (n int64) {
		for _, c := range proxy.Counts() {
			n += c.Received
		}
		return n
	}
	p := program{near}
	p.run(t, 0, "inspect", "s3://bucket/big")
	if n := received(); n > 100_000 {
		t.Errorf("inspect read %d bytes of a dataset of 48 MiB", n)
	}
	before := received()
	p.run(t, 3, "validate", "--sample", "4", "s3://bucket/big") // of 0.75 MiB each, and nothing but noise
	if n := received() - before; n > 12<<20 {
		t.Errorf("validate of four samples read %d bytes of a dataset of 48 MiB", n)
	}
	before = received()
	p.run(t, 0, "verify", "s3://bucket/big")
	if n := received() - before; n < 48<<20 || n > 49<<20 {
		t.Errorf("verify read %d bytes of a dataset of 48 MiB", n)
	}
}

// TestHSXFullDisk has no room to keep what it fetches. That is no damage; and verify, which
// keeps nothing, needs none.
func TestHSXFullDisk(t *testing.T) {
	url := startServer(t)
	p := program{url}
	p.run(t, 0, "merge", "--out", "s3://bucket/big", big(t))
	in := func(script, want string, code int, args ...string) {
		t.Helper()
		cmd := p.command(t, args...)
		cmd.Args = append([]string{"sh", "-c", script, cmd.Path}, args...)
		cmd.Path = "/bin/sh"
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != code || !strings.Contains(string(out), want) {
			t.Errorf("%s: hsx %q: exit %d, want %d and %q\n%s", script, args, got, code, want, out)
		}
	}
	const none, limit = `TMPDIR=/none exec "$0" "$@"`, `ulimit -f 2048; exec "$0" "$@"`
	in(none, "temporary file could not be made or written: open /none/", 1, "verify", "s3://bucket/big")
	in(none, "temporary file could not be made or written: open /none/", 1, "validate", "s3://bucket/big")
	in(limit, "file too large", 1, "audit", "s3://bucket/big")
	if os.Geteuid() != 0 {
		return // only root may mount a small disk
	}
	t.Setenv("SMALL", t.TempDir())
	const small = `exec unshare --mount sh -c 'mount -t tmpfs -o size=3m none "$SMALL" && TMPDIR=$SMALL exec "$0" "$@"' "$0" "$@"`
	in(small, "no space left on device", 1, "audit", "s3://bucket/big")
	in(small, "", 0, "verify", "s3://bucket/big")
}

// TestReadRate compares what verify and a reader of samples read a second with plain copies
// by the store's library, in turns. This server answers for a whole object by sendfile,
// at a sixth of what the same costs it by ranges: only a copy by ranges is its match.
func TestReadRate(t *testing.T) {
	url := startServer(t)
	program{url}.run(t, 0, "merge", "--out", "s3://bucket/big", big(t))
	s := open(t, "s3://bucket/big", url, objstore.Options{})
	ds, err := shard.OpenObjects(t.Context(), reading{s})
	if err != nil {
		t.Fatal(err)
	}
	info := ds.Manifest().Shards[0]
	plain, key := plainBucket(t, url), "big/shards/"+info.Name
	ways := []struct {
		name string
		read func() error
	}{
		{"whole", func() error { return plainCopy(t.Context(), plain, key) }},
		{"ranges", func() error { return rangesCopy(t.Context(), plain, key, info.Bytes) }},
		{"verify", func() error {
			return ds.Verify(t.Context(), func(c *shard.CorruptError) { t.Error(c) }, nil)
		}},
		{"samples", func() error {
			for _, err := range ds.Samples(t.Context()) {
				if err != nil {
					return err
				}
			}
			return nil
		}},
	}
	const turns = 15
	rates := map[string][]float64{}
	for range turns {
		for _, way := range ways {
			start := time.Now()
			if err := way.read(); err != nil {
				t.Fatal(err)
			}
			rates[way.name] = append(rates[way.name], float64(info.Bytes)/time.Since(start).Seconds()/1e6)
		}
	}
	median := map[string]float64{}
	for _, way := range ways {
		median[way.name] = slices.Sorted(slices.Values(rates[way.name]))[turns/2]
	}
	for _, way := range ways {
		rate := median[way.name]
		t.Logf("%-8s %5.0f MB/s, %.2f of a plain copy, %.2f of one by ranges", way.name, rate, rate/median["whole"], rate/median["ranges"])
	}
	if ratio := median["verify"] / median["ranges"]; ratio < 0.6 { // the goal is 0.8, and this machine may be busy
		t.Errorf("verify reads at %.2f of a plain copy by ranges, want at least 0.6", ratio)
	}
}

// reading is a store as package shard reads from it.
type reading struct{ *objstore.Store }
