package capture_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
)

func TestPlanOrder(t *testing.T) {
	t.Parallel()
	names := []string{"a/data_2.ckpt", "a/data_10.ckpt", "a/data_100.ckpt", "b/data_1.ckpt", "rows_0-2000/x", "rows_2000-4000/x", "rows_10000-12000/x"}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		dir := t.TempDir()
		for _, i := range rng.Perm(len(names)) {
			write(t, dir, names[i], []byte("x"))
		}
		p := plan(t, capture.Options{}, dir)
		if got, want := sources(p), strings.Join(names, " "); got != want {
			t.Fatalf("inputs: got %s, want %s", got, want)
		}
		if p.Inputs() != len(names) || p.Bytes() != int64(len(names)) || p.Root() != dir {
			t.Errorf("got %d inputs, %d bytes, root %s, want %d, %d, %s", p.Inputs(), p.Bytes(), p.Root(), len(names), len(names), dir)
		}
	}
}

// TestPlanUnnamed leaves out what a writer has not given its name, and nothing else that
// looks a little like it.
func TestPlanUnnamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{".a.safetensors.tmp", "x/.b.tmp", "x/.tmp/c", ".d.ckpt", "e.tmp"} {
		write(t, dir, name, []byte("x"))
	}
	if got, want := sources(plan(t, capture.Options{}, dir)), ".d.ckpt e.tmp"; got != want {
		t.Errorf("inputs: got %s, want %s", got, want)
	}
}

func TestPlanRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a/b/1.pt", "a/b/2.pt", "a/c/3.pt", "ab/4.pt"} {
		write(t, dir, name, []byte("x"))
	}
	at := func(names ...string) []string {
		for i, n := range names {
			names[i] = filepath.Join(dir, n)
		}
		return names
	}
	tests := map[string]struct {
		paths      []string
		root, want string
		wantErr    string
	}{
		"a directory":          {paths: at("a/b"), want: "1.pt 2.pt"},
		"a directory above":    {paths: at("a"), want: "b/1.pt b/2.pt c/3.pt"},
		"a file":               {paths: at("a/b/1.pt"), want: "1.pt"},
		"two files":            {paths: at("a/b/2.pt", "a/b/1.pt"), want: "1.pt 2.pt"},
		"two directories":      {paths: at("a/c", "a/b"), want: "b/1.pt b/2.pt c/3.pt"},
		"equal beginnings":     {paths: at("a/b", "ab"), want: "a/b/1.pt a/b/2.pt ab/4.pt"},
		"a file and above":     {paths: at("a/b/1.pt", "a/c"), want: "b/1.pt c/3.pt"},
		"the same twice":       {paths: at("a/b/1.pt", "a/b/1.pt"), want: "1.pt"},
		"one within the other": {paths: at("a/b", "a/b/1.pt"), want: "b/1.pt b/2.pt"},
		"root":                 {paths: at("a/b/1.pt"), root: dir, want: "a/b/1.pt"},
		"root is the path":     {paths: at("a"), root: filepath.Join(dir, "a"), want: "b/1.pt b/2.pt c/3.pt"},
		"outside the root":     {paths: at("ab"), root: filepath.Join(dir, "a"), wantErr: "is not under the root"},
		"above the root":       {paths: at("."), root: filepath.Join(dir, "a"), wantErr: "is not under the root"},
		"absent":               {paths: at("a", "gone"), wantErr: "no such file"},
		"absent with root":     {paths: at("gone"), root: dir, wantErr: "no such file"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := capture.NewPlan(t.Context(), tc.paths, capture.Options{Root: tc.root})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("NewPlan: got error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := sources(p); got != tc.want {
				t.Errorf("inputs: got %s, want %s", got, tc.want)
			}
		})
	}
}

func link(tb testing.TB, target, name string) {
	tb.Helper()
	if err := os.Symlink(target, name); err != nil {
		tb.Fatal(err)
	}
}

func TestPlanLinks(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	write(t, dir, "d/data_9.pt", []byte("x"))
	write(t, other, "far/data_1.pt", []byte("x"))
	link(t, filepath.Join(dir, "d/data_9.pt"), filepath.Join(dir, "d/current.pt"))    // a file, twice
	link(t, filepath.Join(dir, "d"), filepath.Join(dir, "again"))                     // a directory, twice
	link(t, "..", filepath.Join(dir, "d/up"))                                         // a loop
	link(t, "self", filepath.Join(dir, "self"))                                       // a loop of nothing
	link(t, "nowhere", filepath.Join(dir, "dangling"))                                // a target that is not there
	link(t, filepath.Join(other, "far"), filepath.Join(dir, "outside"))               // a directory elsewhere
	link(t, filepath.Join(other, "far/data_1.pt"), filepath.Join(dir, "zz_extra.pt")) // reached through it too

	r := ingest(t, &record{}, capture.Options{}, dir)
	if got, want := sources(plan(t, capture.Options{}, dir)), "d/data_9.pt outside/data_1.pt"; got != want {
		t.Errorf("inputs: got %s, want %s", got, want)
	}
	contains(t, "warnings", strings.Join(r.warnings, "\n"), "dangling: not looked into: no such file or directory")
	contains(t, "rejections", r.reasons(), "self: not looked into: ", "too many links")
	if r.err != nil {
		t.Errorf("Run: got error %v, want the rest to go on", r.err)
	}
}

func TestPlanExclude(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "in/data_0.pt", []byte("x"))
	write(t, dir, "ds/shards/000000.arrow", []byte("x"))
	link(t, filepath.Join(dir, "ds"), filepath.Join(dir, "alias"))
	for _, exclude := range []string{"ds", "alias", "ds/../ds"} {
		p := plan(t, capture.Options{Exclude: dir + "/" + exclude}, dir)
		if got, want := sources(p), "in/data_0.pt"; got != want {
			t.Errorf("Exclude %s: got inputs %s, want %s", exclude, got, want)
		}
	}
	if got, want := sources(plan(t, capture.Options{Exclude: filepath.Join(dir, "new")}, filepath.Join(dir, "in"))), "data_0.pt"; got != want {
		t.Errorf("Exclude of what is not there: got inputs %s, want %s", got, want)
	}
}

func TestPlanIgnoresPipes(t *testing.T) { // not parallel: it changes the directory
	dir := t.TempDir()
	write(t, dir, "data_0.safetensors", dump(t, 3))
	// Under names that are opened beside a dump, a pipe must not block either.
	for _, name := range []string{"pipe.pt", "data_config.json", "state.json", "data_0.safetensors.lock"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "manifest.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	t.Chdir(dir)                          // the path of a socket is short
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: "socket.pt"}); err != nil {
		t.Fatal(err)
	}
	r := ingest(t, &record{}, capture.Options{}, dir)
	if r.ids() != "data_0.safetensors" || r.err != nil || len(r.rejected) != 0 {
		t.Errorf("Run: got samples %q, rejections %q, error %v, want data_0.safetensors alone", r.ids(), r.reasons(), r.err)
	}
}

func TestPlanCancelled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "data_0.pt", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := capture.NewPlan(ctx, []string{dir}, capture.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("NewPlan: got error %v, want %v", err, context.Canceled)
	}
}

func TestPlanArrays(t *testing.T) {
	t.Parallel()
	star := []producer.Mapping{{Column: "input_ids", Glob: "*.ids.npy"}, {Column: "layer_2", Glob: "*.aux.npy"}}
	tests := map[string]struct {
		files, path string
		facts       []producer.Mapping
		want        string // name=files, in order
	}{
		"a directory each":        {files: "a/x.npy a/y.npy b/x.npy", want: "a=x.npy,y.npy b=x.npy"},
		"given itself":            {files: "a/x.npy a/y.npy", path: "a", want: "a=x.npy,y.npy"},
		"a name that is taken":    {files: "a/x.npy a/y.npy a/a/x.npy", path: "a", want: ".=x.npy,y.npy a=x.npy"},
		"one file":                {files: "a/x.npy", path: "a/x.npy", want: "x.npy=x.npy"},
		"one file of a root":      {files: "a/x.npy a/z.pt", path: "a", want: "x.npy=x.npy z.pt=z.pt"},
		"a star":                  {files: "d/2.aux.npy d/2.ids.npy d/10.ids.npy d/10.aux.npy", facts: star, want: "d/2=2.aux.npy,2.ids.npy d/10=10.aux.npy,10.ids.npy"},
		"a star with one sample":  {files: "d/1.aux.npy d/1.ids.npy", facts: star, want: "d=1.aux.npy,1.ids.npy"},
		"what no star matches":    {files: "d/1.aux.npy d/1.ids.npy d/2.ids.npy d/foo.npy", facts: star, want: "d/1=1.aux.npy,1.ids.npy d/2=2.ids.npy d/foo.npy=foo.npy"},
		"a star that is a file's": {files: "d/1.aux.npy d/1.ids.npy d/2.ids.npy d/1", facts: star, want: "d/1=1 d/1.aux.npy=1.aux.npy,1.ids.npy d/2=2.ids.npy"},
		"a star that leads up":    {files: "d/...aux.npy d/...ids.npy d/2.ids.npy", facts: star, want: "d/...aux.npy=...aux.npy,...ids.npy d/2=2.ids.npy"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, f := range strings.Fields(tc.files) {
				write(t, dir, f, []byte("x"))
			}
			p := plan(t, capture.Options{Facts: producer.Facts{Map: tc.facts}}, filepath.Join(dir, tc.path))
			var got []string
			for _, u := range p.Units() {
				var files []string
				for _, f := range u.Files {
					files = append(files, filepath.Base(f))
				}
				got = append(got, u.Path+"="+strings.Join(files, ","))
			}
			if got := strings.Join(got, " "); got != tc.want {
				t.Errorf("inputs: got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestTooManyArrays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range capture.MaxArrays + 1 {
		write(t, dir, fmt.Sprintf("d/%d.npy", i), nil)
	}
	r := ingest(t, &record{}, capture.Options{}, dir)
	contains(t, "rejection", r.reasons(), "d: directory has 1001 .npy files, want at most 1000")
}

func TestNaturalCompare(t *testing.T) {
	t.Parallel()
	ordered := []string{"", "0", "00", "1", "01", "2", "10", "a", "a-b", "a/b", "a0", "a00", "a1", "a001", "a1b", "a001b", "a1c", "a2", "a10", "a10a", "a18446744073709551616", "b"}
	for i, a := range ordered {
		for j, b := range ordered {
			got := capture.NaturalCompare(a, b)
			if want := cmpInt(i, j); got != want {
				t.Errorf("NaturalCompare(%q, %q): got %d, want %d", a, b, got, want)
			}
		}
	}
}

func cmpInt(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestNaturalCompareOrders checks on all short texts of an alphabet that the order is
// total: antisymmetric, transitive, and equal for equal texts only.
func TestNaturalCompareOrders(t *testing.T) {
	t.Parallel()
	texts := []string{""}
	for from, round := 0, 0; round < 4; round++ {
		to := len(texts)
		for _, s := range texts[from:to] {
			for _, c := range "01a." {
				texts = append(texts, s+string(c))
			}
		}
		from = to
	}
	sorted := slices.Clone(texts)
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(sorted), func(i, j int) { sorted[i], sorted[j] = sorted[j], sorted[i] })
	slices.SortFunc(sorted, capture.NaturalCompare)
	// Pairwise agreement with one sequence is transitivity.
	for i, a := range sorted {
		for j, b := range sorted {
			if got, want := capture.NaturalCompare(a, b), cmpInt(i, j); got != want {
				t.Fatalf("NaturalCompare(%q, %q): got %d, want %d: not an order", a, b, got, want)
			}
		}
	}
}

func TestLockWithoutFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []string
	for i := range 12 {
		name := fmt.Sprintf("%d/gone.safetensors.lock", i)
		write(t, dir, name, nil)
		want = append(want, name+": lock without the file it guards: the writer failed, or has not begun")
	}
	write(t, dir, "there.safetensors", dump(t, 2))
	write(t, dir, "there.safetensors.lock", nil)
	r := ingest(t, &record{}, capture.Options{}, dir)
	if !slices.Equal(r.warnings, want) || r.stats.Warnings != len(want) {
		t.Errorf("warnings: got %q (%d), want %q", r.warnings, r.stats.Warnings, want)
	}
	if r.ids() != "there.safetensors" || r.taken[0].Producer != "vllm" {
		t.Errorf("samples: got %v, want there.safetensors of vllm", r.taken)
	}
}

// TestSinkOrder holds the promise that samples come in the order of the plan.
func TestSinkOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var want []string
	for i := range 30 {
		name := fmt.Sprintf("data_%d.safetensors", i)
		write(t, dir, name, dump(t, int64(1+(i*7)%5)))
		want = append(want, name)
	}
	for _, workers := range []int{-1, 0, 1, 8} {
		r := ingest(t, &record{}, capture.Options{Workers: workers}, dir)
		if got := r.ids(); got != strings.Join(want, " ") || r.err != nil {
			t.Errorf("%d workers: got %s, error %v, want %s", workers, got, r.err, want)
		}
		if r.stats.Samples != 30 || r.stats.Taken != 30 || r.stats.Inputs != 30 {
			t.Errorf("%d workers: got %+v, want 30 samples of 30 inputs", workers, r.stats)
		}
	}
	var refuse = fmt.Errorf("%w: no", format.ErrRefused)
	r := ingest(t, &record{put: func(*format.Sample) error { return refuse }}, capture.Options{}, dir)
	if r.stats.Samples != 0 || r.stats.Taken != 0 || r.stats.Rejected != 30 || r.stats.Bytes != 0 {
		t.Errorf("a sink that refuses all: got %+v, want 30 rejected", r.stats)
	}
}
