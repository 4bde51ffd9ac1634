package shard_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// parts are n datasets, of three samples in two or three shards each, with a
// rejection of its own and one that all share.
func parts(t *testing.T, n int) (dirs []string, samples [][]*format.Sample) {
	t.Helper()
	for p := range n {
		var steps []step
		var mine []*format.Sample
		for i, tokens := range []int{5, 20, 7} {
			s := hsxtest.Sample(hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}, DType: format.BFloat16}, 10*p+i, tokens+p)
			mine = append(mine, s)
			steps = append(steps, step{sample: s})
		}
		for _, path := range []string{"bad.ckpt", fmt.Sprintf("bad-%d.ckpt", p)} {
			steps = append(steps, step{reject: &format.Rejection{Input: format.Input{Path: path}, Reason: "cut", Offset: -1}})
		}
		dir := filepath.Join(t.TempDir(), "part")
		opt := shard.WithFS(shard.Options{BatchBytes: 400, ShardBytes: 2000}, hasty())
		if _, err := play(dir, opt, append(steps, step{commit: true})); err != nil {
			t.Fatal(err)
		}
		if got := len(open(t, dir).Manifest().Shards); got < 2 {
			t.Fatalf("a part has %d shards, want more", got)
		}
		dirs, samples = append(dirs, dir), append(samples, mine)
	}
	return dirs, samples
}

func swift() shard.MergeOptions {
	return shard.MergeWithFS(shard.MergeOptions{WrittenBy: "test"}, hasty())
}

// mergeDirs merges the datasets of directories.
func mergeDirs(dir string, sources []string, opt shard.MergeOptions) (*shard.Manifest, error) {
	var datasets []*shard.Dataset
	for _, src := range sources {
		ds, err := shard.Open(src)
		if err != nil {
			return nil, err
		}
		datasets = append(datasets, ds)
	}
	return shard.Merge(dir, datasets, opt)
}

// linked reports how many shards of the parts are files of the merged dataset too,
// in their order.
func linked(t *testing.T, out string, dirs []string) int {
	t.Helper()
	n, same := 0, 0
	for _, dir := range dirs {
		for _, s := range open(t, dir).Manifest().Shards {
			from, err := os.Stat(filepath.Join(dir, "shards", s.Name))
			if err != nil {
				t.Fatal(err)
			}
			to, err := os.Stat(filepath.Join(out, "shards", fmt.Sprintf("%06d.arrow", n)))
			if err != nil {
				t.Fatal(err)
			}
			n++
			if os.SameFile(from, to) {
				same++
			}
		}
	}
	if got := len(open(t, out).Manifest().Shards); got != n {
		t.Errorf("merged dataset has %d shards, want %d", got, n)
	}
	return same
}

func TestMerge(t *testing.T) {
	t.Parallel()
	dirs, samples := parts(t, 3)
	empty := filepath.Join(t.TempDir(), "empty")
	if _, err := play(empty, small(), []step{{commit: true}}); err != nil {
		t.Fatal(err)
	}
	elsewhere := &hsxtest.HookFS{FS: hasty(), Before: func(op hsxtest.Op) error {
		if op.Kind == hsxtest.OpLink {
			return unix.EXDEV
		}
		return nil
	}}
	for name, tc := range map[string]struct {
		sources []string
		opt     shard.MergeOptions
		want    []*format.Sample
		links   bool
	}{
		"one":         {dirs[:1], swift(), samples[0], true},
		"two":         {dirs[:2], shard.MergeOptions{}, slices.Concat(samples[:2]...), true},
		"three":       {dirs, swift(), slices.Concat(samples...), true},
		"other order": {[]string{dirs[2], dirs[0]}, swift(), slices.Concat(samples[2], samples[0]), true},
		"empty first": {[]string{empty, dirs[0]}, swift(), samples[0], true},
		"empty last":  {[]string{dirs[0], empty}, swift(), samples[0], true},
		"empty only":  {[]string{empty}, swift(), nil, true},
		"copied":      {dirs, shard.MergeWithFS(shard.MergeOptions{Copy: true}, elsewhere), slices.Concat(samples...), false},
		"may copy":    {dirs, shard.MergeWithFS(shard.MergeOptions{Copy: true}, hasty()), slices.Concat(samples...), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "deep", "out")
			m, err := mergeDirs(out, tc.sources, tc.opt)
			if err != nil {
				t.Fatal(err)
			}
			ds := open(t, out)
			if m.Rows != int64(len(tc.want)) || ds.Manifest().Rows != m.Rows {
				t.Errorf("Merge: got a manifest of %d rows, and %d on disk, want %d", m.Rows, ds.Manifest().Rows, len(tc.want))
			}
			compare(t, ds, tc.want)
			if found := verify(t, ds); len(found) > 0 {
				t.Errorf("Verify reports %q", found)
			}
			n, want := linked(t, out, tc.sources), 0
			if tc.links {
				want = len(m.Shards)
			}
			if n != want {
				t.Errorf("%d shards are links, want %d", n, want)
			}
			if left := unfinished(out); len(left) > 0 {
				t.Errorf("%q are left", left)
			}
			lines := int64(0)
			if len(tc.want) > 0 {
				lines = int64(len(tc.want)/3) + 1 // the shared one once
			}
			if got := ds.Manifest().Rejected.Lines; got != lines {
				t.Errorf("rejected.jsonl has %d lines, want %d", got, lines)
			}
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	dirs, _ := parts(t, 1)
	first := dirs[0]
	spec := hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}, DType: format.BFloat16}
	// made is a dataset of one sample that is changed first.
	made := func(opt shard.Options, change func(*hsxtest.Spec), also func(*format.Sample)) string {
		spec := spec
		if change != nil {
			change(&spec)
		}
		s := hsxtest.Sample(spec, 77, 5)
		if also != nil {
			also(s)
		}
		dir := filepath.Join(t.TempDir(), "other")
		if _, err := play(dir, shard.WithFS(opt, hasty()), []step{{sample: s}, {commit: true}}); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	plain := func() string { return made(shard.Options{}, nil, nil) }
	// spoilt is a dataset whose file was changed since.
	spoilt := func(name string, change func([]byte) []byte) string {
		dir := plain()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), change(data), 0o600); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	newer := func(b []byte) []byte {
		return []byte(strings.Replace(string(b), `"version": 1`, `"version": 7`, 1))
	}
	with := func(layers int) shard.Options {
		return shard.Options{Target: format.Target{Layers: layers}}
	}
	another := func(layers int) string {
		return made(with(layers), nil, func(s *format.Sample) { s.ID, s.Input.Path = fmt.Sprint(layers), fmt.Sprint(layers) })
	}
	for name, tc := range map[string]struct {
		sources []string
		err     error // nil: *shard.CorruptError
		want    string
	}{
		"no dataset":      {[]string{first, t.TempDir()}, shard.ErrNotDataset, "manifest.json"},
		"no directory":    {[]string{first, filepath.Join(first, "none")}, os.ErrNotExist, "none"},
		"other layers":    {[]string{first, made(shard.Options{}, func(s *hsxtest.Spec) { s.Layers = []format.Layer{3, 31} }, nil)}, shard.ErrMismatch, "P_3"},
		"other norm":      {[]string{made(shard.Options{}, func(s *hsxtest.Spec) { s.Final, s.Norm = true, format.NormPre }, nil), made(shard.Options{}, func(s *hsxtest.Spec) { s.Final, s.Norm = true, format.NormPost }, nil)}, shard.ErrMismatch, "final (post)"},
		"other dtype":     {[]string{first, made(shard.Options{}, func(s *hsxtest.Spec) { s.DType = format.Float16 }, nil)}, shard.ErrMismatch, "float16"},
		"other width":     {[]string{first, made(shard.Options{}, func(s *hsxtest.Spec) { s.Hidden = 5 }, nil)}, shard.ErrMismatch, "hidden size is 5"},
		"other producer":  {[]string{first, made(shard.Options{}, nil, func(s *format.Sample) { s.Producer = "vllm" })}, shard.ErrMismatch, "producer is vllm"},
		"shifted":         {[]string{first, made(shard.Options{}, nil, func(s *format.Sample) { s.Shifted = true })}, shard.ErrMismatch, "shifted"},
		"same id":         {[]string{plain(), first, plain()}, shard.ErrNames, `id "sample-77" of `},
		"itself":          {[]string{first, first}, shard.ErrNames, `"sample-0"`},
		"changed input":   {[]string{plain(), made(shard.Options{}, nil, func(s *format.Sample) { s.ID, s.Input.Bytes = "other", 3 })}, shard.ErrNames, "two states"},
		"targets":         {[]string{another(32), another(36)}, shard.ErrMismatch, "layers 32"},
		"targets, late":   {[]string{first, another(32), another(36)}, shard.ErrMismatch, "layers 32"},
		"another's":       {[]string{first, spoilt("manifest.json", func([]byte) []byte { return []byte("{}") })}, shard.ErrForeign, "another program's"},
		"newer manifest":  {[]string{first, spoilt("manifest.json", newer)}, shard.ErrVersion, "version 7"},
		"damaged":         {[]string{first, spoilt("manifest.json", flip)}, nil, "manifest.json"},
		"damaged journal": {[]string{first, spoilt("inputs.jsonl", flip)}, nil, "inputs.jsonl"},
		"cut journal":     {[]string{first, spoilt("inputs.jsonl", cut)}, nil, "inputs.jsonl"},
		"cut shard":       {[]string{first, spoilt("shards/000000.arrow", cut)}, nil, "000000.arrow"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			m, err := mergeDirs(out, tc.sources, swift())
			if tc.err != nil && !errors.Is(err, tc.err) || tc.err == nil && !shard.IsCorrupt(err) || !strings.Contains(fmt.Sprint(err), tc.want) {
				t.Errorf("Merge: got error %v, want %v with %q", err, tc.err, tc.want)
			}
			if m != nil {
				t.Errorf("Merge: got a manifest with the error %v", err)
			}
			if _, err := shard.Open(out); err == nil {
				t.Error("there is a dataset")
			}
			if _, err := mergeDirs(out, []string{first}, swift()); err != nil {
				t.Errorf("Merge into the same directory after a refusal: %v", err)
			}
		})
	}
}

// Whatever holds a dataset, or may hold one, is not merged over.
func TestMergeIntoOther(t *testing.T) {
	t.Parallel()
	dirs, samples := parts(t, 2)
	for name, tc := range map[string]struct {
		change func(manifest string) string
		err    error // nil: any
	}{
		"a dataset":         {func(s string) string { return s }, os.ErrExist},
		"a damaged dataset": {func(s string) string { return strings.Replace(s, "bfloat16", "float16", 1) }, nil},
		"another program's": {func(string) string { return `{"model": "a/model", "shards": []}` }, shard.ErrForeign},
		"a newer dataset":   {func(s string) string { return strings.Replace(s, `"version": 1`, `"version": 7`, 1) }, shard.ErrVersion},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := filepath.Join(t.TempDir(), "out")
			write(t, out, small(), samples[0]...)
			data, err := os.ReadFile(filepath.Join(out, "manifest.json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(out, "manifest.json"), []byte(tc.change(string(data))), 0o600); err != nil {
				t.Fatal(err)
			}
			before, err := tree(out)
			if err != nil {
				t.Fatal(err)
			}
			_, err = mergeDirs(out, dirs[1:], shard.MergeOptions{})
			if err == nil || tc.err != nil && !errors.Is(err, tc.err) {
				t.Errorf("Merge: got error %v, want %v", err, tc.err)
			}
			if d := differ(out, before); d != "" {
				t.Errorf("after the refusal: %s", d)
			}
		})
	}
	if m, err := mergeDirs(filepath.Join(t.TempDir(), "out"), nil, swift()); m != nil || err == nil {
		t.Error("Merge of nothing: got no error")
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "thesis.tex"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := mergeDirs(foreign, dirs, swift()); err == nil || !strings.Contains(err.Error(), "thesis.tex") {
		t.Errorf("Merge into a directory of other things: got error %v, want one that names them", err)
	}
}

// A merged dataset grows like any other, and its sources do not change with it.
func TestIngestIntoMerged(t *testing.T) {
	t.Parallel()
	dirs, samples := parts(t, 2)
	before, err := tree(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	if _, err := mergeDirs(out, dirs, swift()); err != nil {
		t.Fatal(err)
	}
	more := hsxtest.Sample(hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}, DType: format.BFloat16}, 500, 9)
	all := append(slices.Concat(samples...), more)
	w, err := shard.OpenWriter(out, small())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if has, err := w.Has(s.Input); has != (s != more) || err != nil {
			t.Errorf("Has(%s): got %t, %v", s.Input.Path, has, err)
		}
		if err := w.Put(t.Context(), s); (s == more) != (err == nil) || err != nil && !errors.Is(err, format.ErrKnown) {
			t.Errorf("Put(%s): got error %v", s.ID, err)
		}
	}
	if err := errors.Join(w.Reject(format.Rejection{Input: format.Input{Path: "bad.ckpt"}, Reason: "cut", Offset: -1}), w.Commit(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	ds := open(t, out)
	compare(t, ds, all)
	if found := verify(t, ds); len(found) > 0 || ds.Manifest().Rejected.Lines != 3 {
		t.Errorf("Verify reports %q; rejected.jsonl has %d lines, want 3", found, ds.Manifest().Rejected.Lines)
	}
	if d := differ(dirs[0], before); d != "" {
		t.Errorf("the source: %s", d)
	}
}
