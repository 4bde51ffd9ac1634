package export_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hsx/export"
	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// full is a capture that every target can take, once its final is normed where it must
// be.
func full(norm format.Norm) hsxtest.Spec {
	return hsxtest.Spec{Hidden: 8, Layers: []format.Layer{2, 30, 58}, DType: format.BFloat16, Final: true, Norm: norm}
}

// dataset stores samples of these lengths, in shards of a few.
func dataset(tb testing.TB, spec hsxtest.Spec, lengths ...int) *shard.Dataset {
	tb.Helper()
	var samples []*format.Sample
	for i, n := range lengths {
		s := hsxtest.Sample(spec, i, n)
		if s.LossMask != nil {
			for k := range s.LossMask {
				s.LossMask[k] = 1
			}
		}
		samples = append(samples, s)
	}
	return stored(tb, samples)
}

func stored(tb testing.TB, samples []*format.Sample) *shard.Dataset {
	tb.Helper()
	return opened(tb, storeAt(tb, filepath.Join(tb.TempDir(), "ds"), samples))
}

func storeAt(tb testing.TB, dir string, samples []*format.Sample) string {
	tb.Helper()
	w, err := shard.OpenWriter(dir, shard.Options{ShardBytes: 2000, BatchBytes: 1000})
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range samples {
		if err := w.Put(tb.Context(), s); err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(tb.Context()), w.Close()); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func opened(tb testing.TB, dir string) *shard.Dataset {
	tb.Helper()
	ds, err := shard.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return ds
}

func planned(tb testing.TB, ds *shard.Dataset, opt export.Options) *export.Plan {
	tb.Helper()
	p, err := export.NewPlan(context.WithoutCancel(tb.Context()), ds, opt)
	if err != nil {
		tb.Fatal(err)
	}
	p.SetFS(hasty{})
	return p
}

// hasty is a file system that waits for no disk, for tests that cut no power.
type hasty struct{ atomicfile.OS }

func (h hasty) OpenFile(name string, flag int, perm os.FileMode) (atomicfile.File, error) {
	f, err := h.OS.OpenFile(name, flag, perm)
	return hastyFile{f}, err
}

func (hasty) SyncDir(string) error { return nil }

type hastyFile struct{ atomicfile.File }

func (hastyFile) Sync() error { return nil }

// written runs a plan and gives back the directory.
func written(tb testing.TB, p *export.Plan) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "out")
	if _, err := p.Run(tb.Context(), dir); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// tree is the content of all files below a directory, but for the journal, whose lines
// come in no fixed order.
func tree(tb testing.TB, dir string) map[string]string {
	tb.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == export.JournalName {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path) // path begins with dir
		out[filepath.ToSlash(name)] = string(data)
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func names(files map[string]string) []string { return slices.Sorted(maps.Keys(files)) }

// journal is the lines of a journal in the order of their text, the first one first.
func journal(tb testing.TB, dir string) []string {
	tb.Helper()
	lines := strings.Split(strings.TrimSuffix(string(hsxtest.Read(tb, filepath.Join(dir, export.JournalName))), "\n"), "\n")
	slices.Sort(lines[1:])
	return lines
}

// norm is a final norm of the width of [full].
func norm() (*export.Norm, error) {
	weight := &format.Tensor{Name: "model.norm.weight", DType: format.Float32, Shape: []int64{8}, Data: make([]byte, 32)}
	for i := range 8 {
		copy(weight.Data[4*i:], []byte{0, 0, byte(0x80 + 8*i), 0x3f}) // 1 to 1.4375
	}
	return export.NewNorm(weight, 1e-5, "llama")
}
