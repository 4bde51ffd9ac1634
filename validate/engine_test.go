package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/shard"
)

// writeDataset makes a dataset of samples, with shards of the given size.
func writeDataset(tb testing.TB, shardBytes int64, samples ...*format.Sample) (string, *shard.Dataset) {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.Options{ShardBytes: shardBytes, BatchBytes: min(shardBytes, 1<<20)})
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
	return dir, openDataset(tb, dir)
}

func openDataset(tb testing.TB, dir string) *shard.Dataset {
	tb.Helper()
	ds, err := shard.Open(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return ds
}

// manySamples makes n samples of 3 to 9 tokens.
func manySamples(n int) []*format.Sample {
	out := make([]*format.Sample, n)
	for i := range out {
		out[i] = dataSample(dataLayout(format.BFloat16), i, 3+i%7, 64)
	}
	return out
}

// noteScan notes what it sees, in order.
type noteScan struct{ seen []string }

func (n *noteScan) sample(f *sampleFacts, out *Collector) {
	n.seen = append(n.seen, f.Sample.ID)
	out.Add(Finding{Rule: "mask-values", Sample: f.Sample.ID, Message: fmt.Sprint(f.Ref, f.States[0][0].Hash)})
}

func (n *noteScan) add(later scan) { n.seen = append(n.seen, later.(*noteScan).seen...) }

func (n *noteScan) finish(open opener, out *Collector) {
	out.Add(Finding{Rule: "mask-empty", Message: strings.Join(n.seen, " ")})
}

func noteScans() []scan { return []scan{&noteScan{}} }

// runScans reads the samples at refs, nil for all, and reports what scans find in them.
func runScans(ctx context.Context, ds *shard.Dataset, refs []Ref, mk scanSet, out *Collector, progress func(bytes int64)) error {
	e := &engine{ds: ds, workers: 2, make: mk, out: out, progress: progress}
	scans, err := e.run(ctx, jobsOf(ds, refs))
	if err != nil {
		return err
	}
	return finishScans(ctx, ds, scans, out)
}

func TestRunScansOrder(t *testing.T) {
	t.Parallel()
	samples := manySamples(40)
	_, ds := writeDataset(t, 16<<10, samples...)
	if n := len(ds.Manifest().Shards); n < 5 {
		t.Fatalf("dataset has %d shards, want several", n)
	}
	var want []Group
	for i, workers := range []int{1, 2, 3, 16, 2, 16} {
		out := NewCollector(100, nil)
		total := int64(0)
		e := &engine{ds: ds, workers: workers, make: noteScans, out: out, progress: func(n int64) { total += n }}
		if i > 2 {
			e.spanBytes = 4 << 10
		}
		runEngine(t, e)
		if got, want := total, wholeDataset(ds).bytes; got != want {
			t.Errorf("progress of %d workers: got %d bytes, want %d", workers, got, want)
		}
		got := out.Groups()
		if want == nil {
			want = got
			if len(got) != 2 || len(got[0].Findings) != 40 || !strings.HasPrefix(got[1].Findings[0].Message, "s0 s1 s2 ") {
				t.Fatalf("groups: got %+v, want 40 notes and the order of all", got)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%d workers (-want +got):\n%s", workers, d)
		}
	}
}

// runEngine runs an engine over a whole dataset, to the end.
func runEngine(tb testing.TB, e *engine) {
	tb.Helper()
	scans, err := e.run(tb.Context(), jobsOf(e.ds, nil))
	if err != nil {
		tb.Fatal(err)
	}
	if err := finishScans(tb.Context(), e.ds, scans, e.out); err != nil {
		tb.Fatal(err)
	}
}

func TestEngineSpans(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 16<<10, manySamples(40)...)
	info := ds.Manifest().Shards[0]
	e := &engine{ds: ds}
	for name, tc := range map[string]struct {
		bytes int64
		rows  []int
		want  []span
	}{
		"one":       {0, nil, []span{{0, int(info.Rows), true}}},
		"halves":    {ds.Manifest().StateBytes(info)/2 + 1, nil, []span{{0, int(info.Rows) / 2, false}, {int(info.Rows) / 2, int(info.Rows), true}}},
		"each row":  {1, []int{1, 4}, []span{{0, 1, false}, {1, 2, true}}},
		"some rows": {1 << 20, []int{1, 4}, []span{{0, 2, true}}},
		"no rows":   {1, []int{}, []span{{0, 0, true}}},
	} {
		e.spanBytes = tc.bytes
		if got := e.spans(shardJob{rows: tc.rows}); !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
	claims := &ds.Manifest().Shards[0] // more than any file has
	claims.Rows = math.MaxInt64
	claims.Tokens = math.MaxInt64 / (ds.Manifest().StateBytes(info) / info.Tokens)
	got := e.spans(shardJob{})
	if len(got) > maxSpans || got[0].from != 0 || got[len(got)-1].to != math.MaxInt64 {
		t.Errorf("of a forged manifest: %d spans from %d to %d, want at most %d of all rows", len(got), got[0].from, got[len(got)-1].to, maxSpans)
	}
	for i, s := range got[1:] {
		if s.from != got[i].to || s.to <= s.from {
			t.Fatalf("span %d is %+v, after %+v", i+1, s, got[i])
		}
	}
}

func TestRunScansRefs(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 16<<10, manySamples(40)...)
	out := NewCollector(100, nil)
	refs := []Ref{{2, 1}, {0, 3}, {0, 0}, {2, 1}}
	if err := runScans(t.Context(), ds, refs, noteScans, out, nil); err != nil {
		t.Fatal(err)
	}
	if g := out.Groups(); g[0].Count != 3 || !strings.HasPrefix(g[1].Findings[0].Message, "s0 s3 s") {
		t.Errorf("groups: got %+v, want samples of rows 0 and 3 of shard 0 and row 1 of shard 2", g)
	}
	for _, bad := range []Ref{{0, -1}, {0, 1000}} {
		if err := runScans(t.Context(), ds, []Ref{bad}, noteScans, out, nil); err == nil || !strings.Contains(err.Error(), "is asked for") {
			t.Errorf("runScans(%v): got error %v, want one that names the row", bad, err)
		}
	}
}

func TestRunScansCancelled(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 16<<10, manySamples(40)...)
	ctx, cancel := context.WithCancel(t.Context())
	read := 0
	err := runScans(ctx, ds, nil, noteScans, NewCollector(1, nil), func(int64) {
		if read++; read == 7 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("runScans: got error %v, want %v", err, context.Canceled)
	}
}

// TestRunScansDamage flips a byte of a state, cuts a shard and removes another.
func TestRunScansDamage(t *testing.T) {
	t.Parallel()
	samples := manySamples(40)
	dir, ds := writeDataset(t, 16<<10, samples...)
	path := func(i int) string { return filepath.Join(dir, "shards", ds.Manifest().Shards[i].Name) }
	first := samples[0].Hidden[2].Rows.Data
	data, err := os.ReadFile(path(0))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, first)
	if at < 0 {
		t.Fatal("the first sample's states are not in the first shard")
	}
	data[at+5] ^= 4
	if err := os.WriteFile(path(0), data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path(1), 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path(3)); err != nil {
		t.Fatal(err)
	}
	for _, spanBytes := range []int64{0, 2 << 10} {
		out := NewCollector(100, nil)
		runEngine(t, &engine{ds: ds, workers: 2, make: noteScans, out: out, spanBytes: spanBytes})
		checkDamage(t, ds.Manifest(), out.Groups())
	}
}

func checkDamage(t *testing.T, m *shard.Manifest, g []Group) {
	t.Helper()
	if g[0].Rule != "damaged" || g[0].Count != 3 || g[0].Severity != Error {
		t.Fatalf("groups: got %+v, want three findings of damage", g[0])
	}
	for i, want := range []string{"shard 000000.arrow, row 0: states or ids are not as they were written", "shard 000001.arrow: file has 1000 bytes", "shard 000003.arrow: "} {
		if f := g[0].Findings[i]; !strings.HasPrefix(f.Message, want) || f.Do == "" {
			t.Errorf("finding %d: got %+v, want %q", i, f, want)
		}
	}
	if got := g[0].Findings[0].Sample; got != "s0" {
		t.Errorf("damaged sample: got %q, want s0", got)
	}
	if got, want := int64(g[1].Count), m.Rows-m.Shards[1].Rows-m.Shards[3].Rows-1; got != want {
		t.Errorf("samples that were read: got %d, want %d", got, want)
	}
}

// shrinkScan cuts the file that it is shown a sample of, then reads all of that.
type shrinkScan struct {
	noteScan
	path string
	sum  byte
}

func (s *shrinkScan) sample(f *sampleFacts, out *Collector) {
	s.noteScan.sample(f, out)
	if f.Ref != (Ref{1, 1}) {
		return
	}
	if err := os.Truncate(s.path, 0); err != nil {
		panic(err)
	}
	for _, h := range f.Sample.Hidden {
		for _, b := range h.Rows.Data {
			s.sum += b
		}
	}
}

func (s *shrinkScan) add(later scan) { s.noteScan.add(&later.(*shrinkScan).noteScan) }

// TestRunScansShrink: of a shard that shrinks nothing counts, and the process lives.
func TestRunScansShrink(t *testing.T) {
	t.Parallel()
	for _, spanBytes := range []int64{0, 2 << 10} {
		dir, ds := writeDataset(t, 64<<10, manySamples(60)...)
		path := filepath.Join(dir, "shards", ds.Manifest().Shards[1].Name)
		out := NewCollector(100, nil)
		runEngine(t, &engine{ds: ds, workers: 2, make: func() []scan { return []scan{&shrinkScan{path: path}} }, out: out, spanBytes: spanBytes})
		checkShrunk(t, ds.Manifest(), out.Groups())
	}
}

func checkShrunk(t *testing.T, m *shard.Manifest, g []Group) {
	t.Helper()
	if g[0].Rule != "damaged" || g[0].Count != 1 || !strings.Contains(g[0].Findings[0].Message, "while it was mapped") {
		t.Fatalf("groups: got %+v, want one finding of a shard that shrank", g[0])
	}
	if got, want := int64(g[1].Count), m.Rows-m.Shards[1].Rows; got != want {
		t.Errorf("samples that count: got %d, want %d", got, want)
	}
}

func TestOpener(t *testing.T) {
	t.Parallel()
	samples := manySamples(40)
	_, ds := writeDataset(t, 16<<10, samples...)
	var at shardAt
	defer at.close()
	var got []string
	for _, ref := range []Ref{{0, 1}, {2, 0}, {2, 1}, {0, 0}} {
		if err := at.sample(ds, ref, func(s *format.Sample) { got = append(got, s.ID) }); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != 4 || got[0] != "s1" || got[3] != "s0" {
		t.Errorf("samples: got %v, want s1, two of shard 2, s0", got)
	}
	if err := at.sample(ds, Ref{0, 99}, func(*format.Sample) {}); err == nil {
		t.Error("row 99: got no error")
	}
}

func TestChooseSamples(t *testing.T) {
	t.Parallel()
	samples := manySamples(400)
	// Two pairs far apart share a prefix.
	for _, p := range [][2]int{{17, 301}, {60, 61}} {
		copy(samples[p[0]].Tokens, samples[p[1]].Tokens[:3])
		samples[p[1]].Tokens = slices.Clone(samples[p[1]].Tokens)
	}
	_, ds := writeDataset(t, 16<<10, samples...)
	m := ds.Manifest()
	last := Ref{len(m.Shards) - 1, int(m.Shards[len(m.Shards)-1].Rows) - 1}
	for _, n := range []int{1, 2, 3, 16, 64, 100, 256, 399} {
		c, err := chooseSamples(ds, n)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := chooseSamples(ds, n)
		if d := cmp.Diff(c.refs, again.refs); d != "" {
			t.Errorf("chooseSamples(%d) differs (-first +again):\n%s", n, d)
		}
		if len(c.refs) != n || !slices.IsSortedFunc(c.refs, compareRefs) || len(slices.Compact(slices.Clone(c.refs))) != n {
			t.Errorf("chooseSamples(%d): got %d samples, want that many different ones in order", n, len(c.refs))
		}
		if c.refs[0] != (Ref{}) || n >= 150 && !slices.Contains(c.refs, last) {
			t.Errorf("chooseSamples(%d): got %v to %v, want the first and the last sample", n, c.refs[0], c.refs[len(c.refs)-1])
		}
		shards := map[int]int{}
		for _, r := range c.refs {
			shards[r.Shard]++
		}
		if want := min(n/2, len(m.Shards)); len(shards) < want {
			t.Errorf("chooseSamples(%d): got samples of %d shards, want at least %d", n, len(shards), want)
		}
		if want := fmt.Sprintf("read %d of 400 samples, ", n); !strings.HasPrefix(c.note, want) {
			t.Errorf("note: got %q, want it to begin with %q", c.note, want)
		}
	}
	if c, err := chooseSamples(ds, 400); err != nil || c.refs != nil || c.note != "" {
		t.Errorf("chooseSamples(400): got %+v, %v, want everything", c, err)
	}
	for _, n := range []int{0, -1} {
		if _, err := chooseSamples(ds, n); err == nil {
			t.Errorf("chooseSamples(%d): got no error", n)
		}
	}
}

// TestChooseSamplesPairs: what shares a long prefix is read together.
func TestChooseSamplesPairs(t *testing.T) {
	t.Parallel()
	samples := manySamples(300)
	for i := range 8 { // each of the first eight samples has a twin in a later shard
		a, b := dataSample(dataLayout(format.BFloat16), 1000+i, 9, 64), dataSample(dataLayout(format.BFloat16), 2000+i, 9, 64)
		copy(b.Tokens, a.Tokens[:8])
		samples[i], samples[200+i] = a, b
	}
	_, ds := writeDataset(t, 1<<20, samples...)
	c, err := chooseSamples(ds, 256)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	var at shardAt
	defer at.close()
	for _, r := range c.refs {
		if err := at.sample(ds, r, func(s *format.Sample) { have[s.ID] = true }); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		if a, b := fmt.Sprintf("s%d", 1000+i), fmt.Sprintf("s%d", 2000+i); have[a] != have[b] {
			t.Errorf("%s is read: %t, %s is read: %t, want both or none", a, have[a], b, have[b])
		}
	}
}

func TestChooseSamplesDamage(t *testing.T) {
	t.Parallel()
	dir, ds := writeDataset(t, 16<<10, manySamples(100)...)
	if err := os.Remove(filepath.Join(dir, "shards", ds.Manifest().Shards[2].Name)); err != nil {
		t.Fatal(err)
	}
	c, err := chooseSamples(ds, 64)
	if err != nil || !slices.Contains(c.refs, Ref{Shard: 2}) {
		t.Errorf("chooseSamples: got %v, %v, want a row of the shard that is gone", c.refs, err)
	}
}

func TestSelectRanks(t *testing.T) {
	t.Parallel()
	for n := range 70 {
		ranks := selectRanks(n)
		sorted := slices.Sorted(slices.Values(ranks))
		for i, r := range sorted {
			if r != i {
				t.Fatalf("selectRanks(%d): got %v, want each rank once", n, ranks)
			}
		}
	}
	if d := cmp.Diff([]int{0, 5, 3, 7, 2, 6, 4, 8, 1}, selectRanks(9)); d != "" {
		t.Errorf("selectRanks(9) (-want +got):\n%s", d)
	}
}

func TestSelectSize(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1 << 20: "1 MiB", 5 << 29: "2.5 GiB", 1000 << 20: "0.977 GiB", 1<<63 - 1: "8 EiB"} {
		if got := selectSize(n); got != want {
			t.Errorf("selectSize(%d): got %q, want %q", n, got, want)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	for name, dims := range map[string][2]int{"bf16-4x512x576": {512, 576}, "bf16-4x512x7168": {512, 7168}} {
		b.Run(name, func(b *testing.B) {
			s := dataSample(dataLayout(format.BFloat16), 1, dims[0], dims[1])
			var samples []*format.Sample
			for i := range max(2, (64<<20)/int(4*s.Hidden[0].Rows.Bytes())) {
				c := *s
				c.ID, c.Tokens = fmt.Sprint(i), slices.Clone(s.Tokens)
				c.Tokens[0] = int32(i)
				samples = append(samples, &c)
			}
			_, ds := writeDataset(b, 16<<20, samples...)
			b.SetBytes(wholeDataset(ds).bytes)
			b.ReportAllocs()
			for b.Loop() {
				out := NewCollector(10, nil)
				if err := runScans(b.Context(), ds, nil, func() []scan { return dataScans(format.Target{}) }, out, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
