package capture_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hsx/capture"
	"hsx/format"
	"hsx/internal/mapped"
)

// files is a directory as a tree: a fake of a store.
type files struct {
	dir  string
	fail func(name string) error // if not nil, of Open
}

func (f files) String() string { return "mem://bucket/" + filepath.Base(f.dir) }

func (f files) List(_ context.Context, each func(name string, size int64, modified time.Time) error) error {
	return fs.WalkDir(os.DirFS(f.dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		return each(name, info.Size(), info.ModTime())
	})
}

func (f files) Open(_ context.Context, name string) (*mapped.File, error) {
	if f.fail != nil {
		if err := f.fail(name); err != nil {
			return nil, err
		}
	}
	return mapped.Open(filepath.Join(f.dir, name))
}

// treeTakes is what a plan over all kinds of dumps puts, samples and inputs, and what it warns of.
func treeTakes(t *testing.T, paths []string, opt capture.Options) []string {
	t.Helper()
	var got []string
	opt.Warn = func(in, msg string) { got = append(got, "warning "+in+": "+msg) }
	opt.Reject = func(r format.Rejection) error { got = append(got, "rejected "+r.Path+": "+r.Reason); return nil }
	plan, err := capture.NewPlan(t.Context(), paths, opt)
	if err != nil {
		t.Fatal(err)
	}
	put := sinkFunc(func(s *format.Sample) error {
		got = append(got, s.ID+" "+s.Input.Path)
		return nil
	})
	if _, err := plan.Run(t.Context(), put); err != nil {
		t.Fatal(err)
	}
	return got
}

type sinkFunc func(s *format.Sample) error

func (f sinkFunc) Put(_ context.Context, s *format.Sample) error { return f(s) }

// A tree gives the inputs that the same files give in a directory, whatever lies beside
// them.
func TestTree(t *testing.T) {
	t.Parallel()
	kit, err := filepath.Abs("../cmd/hsx/testdata/kit/dumps")
	if err != nil {
		t.Fatal(err)
	}
	kinds, err := os.ReadDir(kit)
	if err != nil {
		t.Fatal(err)
	}
	read := 0
	for _, k := range kinds {
		if !k.IsDir() {
			continue
		}
		dir := filepath.Join(kit, k.Name())
		want := treeTakes(t, []string{dir}, capture.Options{})
		got := treeTakes(t, nil, capture.Options{Tree: files{dir: dir}})
		if !slices.Equal(got, want) {
			t.Errorf("%s: from a tree come\n%s\nwant\n%s", k.Name(), strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		read += len(want)
	}
	if read < 20 {
		t.Errorf("the kit gave %d samples and notes, want at least 20", read)
	}
}

// That a store does not answer ends the work, and rejects nothing.
func TestTreeFails(t *testing.T) {
	t.Parallel()
	down := errors.New("503 Slow Down")
	dir, err := filepath.Abs("../cmd/hsx/testdata/kit/dumps/specforge_eagle3")
	if err != nil {
		t.Fatal(err)
	}
	opt := capture.Options{Tree: files{dir: dir, fail: func(name string) error {
		if strings.HasSuffix(name, ".ckpt") {
			return down
		}
		return nil
	}}}
	opt.Reject = func(r format.Rejection) error { t.Errorf("rejected %s: %s", r.Path, r.Reason); return nil }
	plan, err := capture.NewPlan(t.Context(), nil, opt)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), sinkFunc(func(*format.Sample) error { return nil })); !errors.Is(err, down) {
		t.Errorf("Run: got error %v, want %v", err, down)
	}
	if _, err := capture.NewPlan(t.Context(), nil, capture.Options{Tree: files{dir: t.TempDir()}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("NewPlan of an empty tree: got error %v, want %v", err, os.ErrNotExist)
	}
}
