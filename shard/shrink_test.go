package shard_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/hsxtest"
	"hsx/internal/mapped"
	"hsx/shard"
)

// The file of a dump: two states and a mask. Faults come by pages.
const (
	shrinkPage   = 4 << 10
	shrinkTokens = 200
	shrinkRow    = 256                        // bytes
	shrinkState  = shrinkTokens * shrinkRow   // bytes of one of the two states
	shrinkMask   = 2 * shrinkState            // where the mask begins
	shrinkFile   = shrinkMask + shrinkPage    // bytes
	shrinkTail   = shrinkMask - shrinkPage    // no row from here on enters the fingerprint
	shrinkMiddle = shrinkState + shrinkPage/2 // in the second state, among rows that do
)

func shrinkSpec() hsxtest.Spec {
	return hsxtest.Spec{Hidden: shrinkRow / 2, Layers: []format.Layer{2, 30}, DType: format.BFloat16}
}

// dumped is a sample whose states, and with mask its mask, lie in a mapped file.
func dumped(t *testing.T, mask bool) (s *format.Sample, path string) {
	t.Helper()
	data := make([]byte, shrinkFile)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range data {
		data[i] = byte(rng.Uint32() & 0x3f)
	}
	path = filepath.Join(t.TempDir(), "dump")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := mapped.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	s = hsxtest.Sample(shrinkSpec(), 1000, shrinkTokens)
	for i := range s.Hidden {
		s.Hidden[i].Rows.Data = m.Bytes()[i*shrinkState : (i+1)*shrinkState]
	}
	if mask {
		s.LossMask = m.Bytes()[shrinkMask : shrinkMask+shrinkTokens]
	}
	return s, path
}

const (
	streams = 64 << 10 // bytes of a batch in which a sample is streamed
	gathers = 1 << 20  // and gathered
)

// shrunk is a run in which one dump shrinks.
type shrunk struct {
	batch   int64
	before  []int // tokens of the samples put before
	commit  bool  // and whether they were committed
	size    int64 // that the file shrinks to
	write   int   // before which write of the sample it does; 0: before it is put
	after   []int // tokens of the samples put after
	unasked bool  // nobody has guarded the call

	compress bool
}

// run writes a dataset, with the sample that faults or without it, and returns what
// Put said of the sample.
func (c shrunk) run(t *testing.T, disturb bool) (dir string, said error) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "ds")
	bad, path := dumped(t, c.size == shrinkMask)
	var writes atomic.Int64 // what was packed is written while the next is put
	fs := &hsxtest.HookFS{FS: hasty(), Before: func(op hsxtest.Op) error {
		if op.Kind != hsxtest.OpWrite {
			return nil
		}
		if writes.Add(-1) != 0 {
			return nil
		}
		return os.Truncate(path, c.size)
	}}
	w, err := shard.OpenWriter(dir, shard.WithFS(shard.Options{BatchBytes: c.batch, Compress: c.compress}, fs))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	put := func(tokens []int) {
		for _, length := range tokens {
			if err := w.Put(context.Background(), hsxtest.Sample(shrinkSpec(), n, length)); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if c.commit {
			if err := w.Commit(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(c.before)
	if disturb {
		if writes.Store(int64(c.write)); c.write == 0 {
			if err := os.Truncate(path, c.size); err != nil {
				t.Fatal(err)
			}
		}
		try := func() error { return w.Put(context.Background(), bad) }
		if c.unasked {
			said = try()
		} else {
			said = mapped.Guard(try)
		}
		writes.Store(0)
	}
	put(c.after)
	if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, said
}

// undisturbed is the dataset of the run that never saw the sample.
func (c shrunk) undisturbed(t *testing.T) map[string]string {
	t.Helper()
	dir, _ := c.run(t, false)
	files, err := tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// check compares the dataset of a disturbed run with that.
func (c shrunk) check(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	if found := verify(t, open(t, dir)); len(found) > 0 {
		t.Errorf("Verify reports %q", found)
	}
	if d := differ(dir, want); d != "" {
		t.Errorf("shrunk before write %d: %s", c.write, d)
	}
}

// A dump that shrinks costs its own sample and no other: the dataset is, to the byte,
// that of a run which never saw it.
func TestPutOfShrunkFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]shrunk{
		"streamed, first":                   {streams, nil, false, shrinkMiddle, 0, []int{200, 3}, false, false},
		"streamed, first, unguarded":        {streams, nil, false, shrinkMiddle, 0, []int{200, 3}, true, false},
		"streamed, first, tail":             {streams, nil, false, shrinkTail, 0, []int{200, 3}, false, false},
		"streamed, first of second shard":   {streams, []int{200, 5}, true, shrinkTail, 0, []int{200, 3}, false, false},
		"streamed, later":                   {streams, []int{200, 5}, false, shrinkMiddle, 0, []int{200, 3}, false, false},
		"streamed, later, tail":             {streams, []int{200, 5}, false, shrinkTail, 0, []int{200, 3}, false, false},
		"streamed, last, tail":              {streams, []int{200, 5}, false, shrinkTail, 0, nil, false, false},
		"streamed, only":                    {streams, nil, false, shrinkTail, 0, nil, false, false},
		"streamed, mask":                    {streams, []int{200}, false, shrinkMask, 0, []int{200, 3}, true, false},
		"streamed, nothing left":            {streams, []int{200}, false, 0, 0, []int{200, 3}, true, false},
		"gathered, first":                   {gathers, nil, false, shrinkMiddle, 0, []int{5, 7}, false, false},
		"gathered, first, unguarded":        {gathers, nil, false, shrinkMiddle, 0, []int{5, 7}, true, false},
		"gathered, first of second shard":   {gathers, []int{5}, true, shrinkTail, 0, []int{7}, true, false},
		"gathered, later":                   {gathers, []int{5, 9}, false, shrinkTail, 0, []int{7}, false, false},
		"gathered, later, unguarded":        {gathers, []int{5, 9}, false, shrinkTail, 0, []int{7}, true, false},
		"gathered, last":                    {gathers, []int{5, 9}, false, shrinkTail, 0, nil, true, false},
		"gathered, only":                    {gathers, nil, false, shrinkTail, 0, nil, true, false},
		"gathered, mask":                    {gathers, []int{5, 9}, false, shrinkMask, 0, []int{7}, false, false},
		"gathered, mask, first":             {gathers, nil, false, shrinkMask, 0, []int{7}, true, false},
		"gathered, nothing left, unguarded": {gathers, []int{5}, false, 0, 0, []int{7}, true, false},
		"packed, first":                     {streams, nil, false, shrinkMiddle, 0, []int{200, 3}, false, true},
		"packed, later, tail":               {streams, []int{200, 5}, false, shrinkTail, 0, []int{200, 3}, true, true},
		"packed, gathered, later":           {gathers, []int{5, 9}, false, shrinkTail, 0, []int{7}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := c.run(t, true)
			if !errors.Is(err, mapped.ErrFault) {
				t.Errorf("Put: got error %v, want %v", err, mapped.ErrFault)
			}
			c.check(t, dir, c.undisturbed(t))
		})
	}
}

// The same, when the dump shrinks between two writes of its sample.
func TestPutOfShrinkingFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]shrunk{
		"first": {batch: streams, size: shrinkMiddle, after: []int{200, 3}},
		"later": {batch: streams, before: []int{200, 5}, size: shrinkMiddle, after: []int{200, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := c.undisturbed(t)
			for c.write = 1; ; c.write++ {
				dir, err := c.run(t, true)
				if err == nil { // it was read before it shrank
					break
				}
				if !errors.Is(err, mapped.ErrFault) {
					t.Errorf("Put of a file that shrinks before write %d: got error %v, want %v", c.write, err, mapped.ErrFault)
				}
				c.check(t, dir, want)
			}
			if c.write < 5 {
				t.Errorf("Put took its last look at the file before write %d, want some later", c.write)
			}
		})
	}
}

// A sample that cannot be taken back ends the writer: what follows would be written
// to the wrong place.
func TestShrunkFileNotTakenBack(t *testing.T) {
	t.Parallel()
	for name, before := range map[string][]int{"first": nil, "later": {200}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad, path := dumped(t, false)
			broken := false
			fs := &hsxtest.HookFS{FS: atomicfile.OS{}, Before: func(op hsxtest.Op) error {
				if broken && (op.Kind == hsxtest.OpTruncate || op.Kind == hsxtest.OpRemove) {
					return unix.EIO
				}
				return nil
			}}
			dir := filepath.Join(t.TempDir(), "ds")
			w, err := shard.OpenWriter(dir, shard.WithFS(shard.Options{BatchBytes: streams}, fs))
			if err != nil {
				t.Fatal(err)
			}
			for i, n := range before {
				if err := w.Put(context.Background(), hsxtest.Sample(shrinkSpec(), i, n)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Truncate(path, shrinkTail); err != nil {
				t.Fatal(err)
			}
			broken = true
			err = w.Put(context.Background(), bad)
			if errors.Is(err, mapped.ErrFault) || !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), "000000.arrow") {
				t.Errorf("Put: got error %v, want %v alone and the file's name", err, unix.EIO)
			}
			broken = false
			if err := w.Put(context.Background(), hsxtest.Sample(shrinkSpec(), 9, 3)); !errors.Is(err, unix.EIO) {
				t.Errorf("next Put: got error %v, want %v", err, unix.EIO)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestPutOfWrittenFile puts samples whose dump says, after it was copied, that it was
// written to: nothing of them may stay.
func TestPutOfWrittenFile(t *testing.T) {
	t.Parallel()
	spec := hsxtest.Spec{Hidden: 8, Layers: field(), Final: true}
	for name, size := range map[string]int64{"gathered": 1 << 20, "streamed": 64} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w, err := shard.OpenWriter(dir, shard.Options{BatchBytes: size})
			if err != nil {
				t.Fatal(err)
			}
			var want []*format.Sample
			for i := range 6 {
				s := hsxtest.Sample(spec, i, 7)
				written := i%3 == 0
				s.Intact = func() error {
					if written {
						return fmt.Errorf("%w: it was written to", mapped.ErrFault)
					}
					return nil
				}
				err := w.Put(context.Background(), s)
				if written != errors.Is(err, mapped.ErrFault) || !written && err != nil {
					t.Fatalf("Put(%s): got error %v", s.ID, err)
				}
				if !written {
					want = append(want, s)
				}
			}
			if err := errors.Join(w.Commit(context.Background()), w.Close()); err != nil {
				t.Fatal(err)
			}
			ds := open(t, dir)
			compare(t, ds, want)
			if found := verify(t, ds); len(found) > 0 {
				t.Errorf("Verify reports %q", found)
			}
		})
	}
}
