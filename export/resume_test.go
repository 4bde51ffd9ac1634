package export_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"hsx/export"
	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// damage changes a bit of a state in a shard.
func damage(t *testing.T, name string, ds *shard.Dataset) {
	t.Helper()
	for s, err := range ds.Samples(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		data := hsxtest.Read(t, name)
		at := bytes.Index(data, s.Hidden[0].Rows.Data[:s.Hidden[0].Rows.Bytes()])
		if at < 0 {
			t.Fatalf("shard does not hold the states of %s", s.ID)
		}
		data[at] ^= 1
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// stamps is the inode and time of each file: equal ones were not written anew.
func stamps(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name := range tree(t, dir) {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil {
			t.Fatal(err)
		}
		out[name] = fmt.Sprint(st.Ino, st.Mtim)
	}
	delete(out, export.MappingName) // is written each time
	return out
}

// kinds are targets that differ in what a unit of the export is.
func kinds() map[string]export.Options {
	return map[string]export.Options{
		"files":         {To: "specforge", Norm: norm},
		"directories":   {To: "npy"},
		"rows and hs":   {To: "speculators", Splits: []export.Split{{"a", 0.5}, {"b", 0.5}}},
		"rows":          {To: "datasets", Shuffle: true},
		"flat, shuffle": {To: "modelopt", Shuffle: true, Limit: 5},
	}
}

func lengths() []int { return []int{3, 4, 65, 2, 9, 31, 8} }

// TestResume exports into one directory again: what is there and whole stays untouched,
// what is missing or of another size is written.
func TestResume(t *testing.T) {
	t.Parallel()
	for name, opt := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ds := dataset(t, full(format.NormPre), lengths()...)
			plan := planned(t, ds, opt)
			dir := written(t, plan)
			want, before, lines := tree(t, dir), stamps(t, dir), journal(t, dir)
			if opt.To == "datasets" || opt.To == "speculators" {
				for name := range before {
					if strings.HasSuffix(name, ".json") {
						delete(before, name)
					}
				}
			}
			again := func(written int) {
				t.Helper()
				res, err := planned(t, ds, opt).Run(t.Context(), dir)
				if err != nil || res.Written != written || res.Kept != len(lines)-1-written {
					t.Errorf("again: got %+v, %v, want %d of %d written", res, err, written, len(lines)-1)
				}
				if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
					t.Errorf("files (-want +got):\n%.1000s", diff)
				}
			}
			again(0)
			after := stamps(t, dir)
			for name, stamp := range before {
				if after[name] != stamp {
					t.Errorf("file %s was written again", name)
				}
			}
			victim := names(before)[0]
			if err := os.Truncate(filepath.Join(dir, victim), 10); err != nil {
				t.Fatal(err)
			}
			again(1)
			if err := errors.Join(os.Remove(filepath.Join(dir, victim)), os.Remove(filepath.Join(dir, export.MappingName))); err != nil {
				t.Fatal(err)
			}
			again(1)
		})
	}
}

// TestOtherExport refuses to mix two exports, and says in what they differ.
func TestOtherExport(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "ds")
	samples := many(6)
	ds := opened(t, storeAt(t, root, samples[:5]))
	base := export.Options{To: "specforge", Shuffle: true, Seed: 1}
	dir := written(t, planned(t, ds, base))
	want := tree(t, dir)
	refused := func(ds *shard.Dataset, opt export.Options, text string) {
		t.Helper()
		_, err := planned(t, ds, opt).Run(t.Context(), dir)
		if err == nil || !strings.Contains(err.Error(), "holds another export: "+text) {
			t.Errorf("got error %v, want %q", err, text)
		}
	}
	for text, change := range map[string]func(o *export.Options){
		`its seed is 1, this one's 2`:                func(o *export.Options) { o.Seed = 2 },
		`its limit is 0, this one's 3`:               func(o *export.Options) { o.Limit = 3 },
		`its max_tokens is 0, this one's 9`:          func(o *export.Options) { o.MaxTokens = 9 },
		`its select is "", this one's "*"`:           func(o *export.Options) { o.Select = "*" },
		`its layers is [2,30,58], this one's [2`:     func(o *export.Options) { o.To, o.Layers = "npy", format.Layers{2} },
		`its to is "specforge-eagle3", this one's "`: func(o *export.Options) { o.To = "npy" },
		`its split is [], this one's [{"name":"a",`:  func(o *export.Options) { o.Splits = []export.Split{{"a", 1}} },
	} {
		opt := base
		change(&opt)
		refused(ds, opt, text)
	}
	refused(opened(t, storeAt(t, root, samples[5:])), base, `its dataset is "`)
	if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
		t.Errorf("files after refusals (-want +got):\n%s", diff)
	}
}

// TestForeignDirectory leaves alone what is no export.
func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	plan := planned(t, dataset(t, full(format.NormPost), 3), export.Options{To: "specforge"})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), dir); err == nil || !strings.Contains(err.Error(), `neither empty nor an export: it holds "notes.txt"`) {
		t.Errorf("got error %v, want that the directory is foreign", err)
	}
	if got := names(tree(t, dir)); len(got) != 1 {
		t.Errorf("files are %q, want notes.txt alone", got)
	}
	if _, err := plan.Run(t.Context(), filepath.Join(dir, "notes.txt")); err == nil {
		t.Error("got no error for a file in place of a directory")
	}
}

// TestLock lets one export at a time write.
func TestLock(t *testing.T) {
	t.Parallel()
	plan := planned(t, dataset(t, full(format.NormPost), 3), export.Options{To: "specforge"})
	dir := written(t, plan)
	f, err := os.Open(filepath.Join(dir, export.JournalName))
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), dir); !errors.Is(err, shard.ErrLocked) {
		t.Errorf("got error %v, want %v", err, shard.ErrLocked)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Run(t.Context(), dir); err != nil {
		t.Errorf("after the lock: %v", err)
	}
}

// TestJournalTail cuts the journal at many bytes, and puts there what a power loss may
// leave: the export is completed, in the same bytes.
func TestJournalTail(t *testing.T) {
	t.Parallel()
	ds := dataset(t, full(format.NormPost), 3, 4)
	opt := export.Options{To: "specforge"}
	dir := written(t, planned(t, ds, opt))
	want, lines := tree(t, dir), journal(t, dir)
	path := filepath.Join(dir, export.JournalName)
	whole := hsxtest.Read(t, path)
	for n := 0; n < len(whole); n += 5 {
		tail := []string{"", "\x00\x00\x00", "{\"file\":\n\x00"}[n%3]
		if err := os.WriteFile(path, append(bytes.Clone(whole[:n]), tail...), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := planned(t, ds, opt).Run(t.Context(), dir); err != nil {
			t.Fatalf("journal of %d bytes and %q: %v", n, tail, err)
		}
		if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
			t.Fatalf("journal of %d bytes and %q: files (-want +got):\n%s", n, tail, diff)
		}
		if diff := cmp.Diff(lines, journal(t, dir)); diff != "" {
			t.Fatalf("journal of %d bytes and %q (-want +got):\n%s", n, tail, diff)
		}
	}
}

// TestCancel ends a run in its middle: what was written is complete, nothing unfinished is
// left, and another run completes it.
func TestCancel(t *testing.T) {
	t.Parallel()
	for name, opt := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ds := dataset(t, full(format.NormPre), lengths()...)
			want := tree(t, written(t, planned(t, ds, opt)))
			for stop := range 9 {
				dir := filepath.Join(t.TempDir(), "out")
				ctx, cancel := context.WithCancel(t.Context())
				steps := 0
				o := opt
				o.Progress = func(int64, int64) {
					if steps++; steps > stop {
						cancel()
					}
				}
				if stop == 0 {
					cancel()
				}
				_, err := planned(t, ds, o).Run(ctx, dir)
				cancel()
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Fatalf("stopped after %d steps: %v", stop, err)
				}
				part := tree(t, dir)
				for name, data := range part {
					if want[name] != data {
						t.Errorf("stopped after %d steps: %s is not complete", stop, name)
					}
				}
				if _, ok := part[export.MappingName]; ok != (err == nil) {
					t.Errorf("stopped after %d steps with error %v: mapping there is %t", stop, err, ok)
				}
				if _, err := planned(t, ds, opt).Run(t.Context(), dir); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, tree(t, dir)); diff != "" {
					t.Fatalf("completed (-want +got):\n%.1000s", diff)
				}
			}
		})
	}
}

// TestIncompleteAgain wants no mapping, which says that an export is complete, beside one
// that lost a file and was stopped before it had it again.
func TestIncompleteAgain(t *testing.T) {
	t.Parallel()
	ds := dataset(t, full(format.NormPost), lengths()...)
	plan := planned(t, ds, export.Options{To: "specforge"})
	dir := written(t, plan)
	if err := os.Remove(filepath.Join(dir, "rows_0-2000", "data_3.ckpt")); err != nil {
		t.Fatal(err)
	}
	plan.SetFS(&hsxtest.HookFS{FS: hasty{}, Before: func(op hsxtest.Op) error {
		if op.Kind == hsxtest.OpRename {
			return unix.EIO
		}
		return nil
	}})
	if _, err := plan.Run(t.Context(), dir); !errors.Is(err, unix.EIO) {
		t.Errorf("got error %v, want %v", err, unix.EIO)
	}
	if _, err := os.Stat(filepath.Join(dir, export.MappingName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("mapping: got error %v, want none there", err)
	}
}
