package capture_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
)

// mappings counts the places in this process where files below dir are mapped.
func mappings(tb testing.TB, dir string) int {
	tb.Helper()
	data, err := os.ReadFile("/proc/self/maps")
	if errors.Is(err, os.ErrNotExist) {
		return 0 // not Linux
	}
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.Count(data, []byte(dir+"/"))
}

// TestGoldens reads what the real producers wrote.
func TestGoldens(t *testing.T) {
	t.Parallel()
	final := producer.Facts{Final: producer.FinalPost}
	tests := map[string]struct {
		facts producer.Facts
		want  []taken
		side  int
	}{
		"specforge": {side: 1, want: []taken{
			{"rows_0-2000/data_0.ckpt", "rows_0-2000/data_0.ckpt", "specforge-eagle3", 1, true},
			{"rows_0-2000/data_1.ckpt", "rows_0-2000/data_1.ckpt", "specforge-eagle3", 2, true},
			{"rows_0-2000/data_2.ckpt", "rows_0-2000/data_2.ckpt", "specforge-eagle3", 9, true},
		}},
		"gz":   {want: []taken{{"data_0.ckpt.gz", "data_0.ckpt.gz", "specforge-eagle3", 16, true}}},
		"vllm": {want: []taken{{"cmpl-91d9cb1511f8ae08a151aca65bbe146f-0.safetensors", "cmpl-91d9cb1511f8ae08a151aca65bbe146f-0.safetensors", "vllm", 16, true}}},
		"speculators": {side: 4, want: []taken{
			{"hidden_states/hs_0.safetensors", "hidden_states/hs_0.safetensors", "speculators", 1, true},
			{"hidden_states/hs_1.safetensors", "hidden_states/hs_1.safetensors", "speculators", 9, true},
		}},
		"v1":     {side: 2, want: []taken{{"data_4.pt", "data_4.pt", "speculators-v1", 9, true}}},
		"sglang": {side: 1, facts: final, want: []taken{{"response_0.json", "response_0.json", "sglang", 15, true}}},
		"sglang_batch": {side: 1, facts: final, want: []taken{
			{"response.json#0", "response.json", "sglang", 8, false},
			{"response.json#1", "response.json", "sglang", 15, true},
		}},
		"trtllm":  {want: []taken{{"0", "dp_0_0.pt", "modelopt-trtllm", 16, true}}},
		"npy":     {want: []taken{{"s03", "s03", "arrays", 16, true}}},
		"npy/s03": {want: []taken{{"s03", "s03", "arrays", 16, true}}},
		"npz":     {want: []taken{{"s03.npz", "s03.npz", "arrays", 16, true}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ingest(t, &record{}, capture.Options{Facts: tc.facts}, filepath.Join("testdata", name))
			if diff := cmp.Diff(tc.want, r.taken); diff != "" {
				t.Errorf("samples (-want +got):\n%s", diff)
			}
			if r.err != nil || r.stats.Rejected != 0 || r.stats.Side != tc.side || r.stats.Ignored != 0 {
				t.Errorf("Run: got %+v, error %v, rejections %q, want %d side files", r.stats, r.err, r.reasons(), tc.side)
			}
		})
	}
}

func TestSamplesOfOneInput(t *testing.T) {
	t.Parallel()
	refuse := func(id string, err error) func(*format.Sample) error {
		return func(s *format.Sample) error {
			if s.ID == id {
				return fmt.Errorf("of the sink: %w", err)
			}
			return nil
		}
	}
	tests := map[string]struct {
		bad       []int64
		put       func(*format.Sample) error
		want      string // ids, the last one with a ! when it is marked
		rejected  string
		wantTaken int
	}{
		"all good":            {want: "x#0 x#1 x#2!", wantTaken: 1},
		"a bad one":           {bad: []int64{1}, want: "x#0 x#2", rejected: "x: sample 1: item 1: attention_mask", wantTaken: 1},
		"the last bad":        {bad: []int64{2}, want: "x#0 x#1", rejected: "x: sample 2: ", wantTaken: 1},
		"all bad":             {bad: []int64{0, 1, 2}, rejected: "x: sample 0: "},
		"one refused":         {put: refuse("x#1", format.ErrRefused), want: "x#0 x#2", rejected: "x: sample 1: of the sink: refused", wantTaken: 1},
		"the last refused":    {put: refuse("x#2", format.ErrRefused), want: "x#0 x#1", rejected: "x: sample 2: of the sink: refused", wantTaken: 1},
		"one known":           {put: refuse("x#0", format.ErrKnown), want: "x#1 x#2!", wantTaken: 1},
		"the last known":      {put: refuse("x#2", format.ErrKnown), want: "x#0 x#1", wantTaken: 1},
		"all known":           {put: func(*format.Sample) error { return format.ErrKnown }},
		"known after refused": {bad: []int64{0}, put: refuse("x#1", format.ErrKnown), want: "x#2", rejected: "x: sample 0: ", wantTaken: 1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data := several(t, 3, 4, tc.bad...)
			write(t, dir, "x", data)
			r := ingest(t, &record{put: tc.put}, capture.Options{Facts: twoLayers()}, dir)
			got := r.ids()
			for i, s := range r.taken {
				if s.Last != (i == len(r.taken)-1 && strings.HasSuffix(tc.want, "!")) {
					t.Errorf("%s: Last is %t", s.ID, s.Last)
				}
			}
			if want := strings.TrimSuffix(tc.want, "!"); got != want {
				t.Errorf("samples: got %q, want %q", got, want)
			}
			if (tc.rejected == "") != (len(r.rejected) == 0) || !strings.HasPrefix(r.reasons(), tc.rejected) {
				t.Errorf("rejections: got %q, want %q", r.reasons(), tc.rejected)
			}
			want := capture.Stats{Inputs: 1, Taken: tc.wantTaken, Samples: len(r.taken), Tokens: int64(4 * len(r.taken)), Bytes: int64(len(data) * tc.wantTaken), Rejected: len(r.rejected)}
			if diff := cmp.Diff(want, r.stats); diff != "" || r.err != nil {
				t.Errorf("Run: error %v, stats (-want +got):\n%s", r.err, diff)
			}
		})
	}
}

// TestTooManySamples bounds what samples of next to nothing cost.
func TestTooManySamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const n = capture.FreeSamples * 8
	write(t, dir, "x", encode(t, tensor("input_ids", format.Uint8, n, 1), tensor("loss_mask", format.Uint8, n, 1),
		tensor("position_mask", format.Uint8, n, 1), tensor("attention_mask", format.Uint8, n, 1), tensor("aux_hidden_states", format.BFloat16, n, 1, 2)))
	r := ingest(t, &record{}, capture.Options{Facts: twoLayers()}, dir)
	if len(r.taken) != 0 || len(r.rejected) != 1 {
		t.Fatalf("got %d samples, rejections %q, want one rejection", len(r.taken), r.reasons())
	}
	contains(t, "rejection", r.reasons(), "x: dump holds more than ", "samples, too many for its ")
}

// TestRunEnds has runs end early, and looks for what they leave open.
func TestRunEnds(t *testing.T) { // not parallel: it counts goroutines
	boom := errors.New("disk is full")
	third := func(do func() error) func(*format.Sample) error {
		n := 0
		return func(*format.Sample) error {
			if n++; n == 3 {
				return do()
			}
			return nil
		}
	}
	tests := map[string]struct {
		set     func(r *record, opt *capture.Options, cancel context.CancelFunc)
		wantErr error
		samples int
	}{
		"to the end": {func(*record, *capture.Options, context.CancelFunc) {}, nil, 20},
		"sink fails": {func(r *record, _ *capture.Options, _ context.CancelFunc) {
			r.put = third(func() error { return boom })
		}, boom, 2},
		"cancelled": {func(r *record, _ *capture.Options, cancel context.CancelFunc) {
			r.put = third(func() error { cancel(); return nil })
		}, context.Canceled, -1},
		"cancelled before": {func(_ *record, _ *capture.Options, cancel context.CancelFunc) { cancel() }, context.Canceled, 0},
		"sink gives up": {func(r *record, _ *capture.Options, cancel context.CancelFunc) {
			r.put = third(func() error { cancel(); return context.Canceled })
		}, context.Canceled, 2},
		"first rejection": {func(r *record, opt *capture.Options, _ context.CancelFunc) {
			opt.StopAtRejection = true
			r.put = third(func() error { return format.ErrRefused })
		}, capture.ErrRejected, 2},
		"reject fails": {func(r *record, opt *capture.Options, _ context.CancelFunc) {
			r.put = third(func() error { return format.ErrRefused })
			opt.Reject = func(format.Rejection) error { return boom }
		}, boom, 2},
		"has stops it": {func(_ *record, opt *capture.Options, _ context.CancelFunc) {
			opt.StopAtRejection = true
			opt.Has = func(format.Input) (bool, error) { return false, errors.New("changed") }
		}, capture.ErrRejected, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			dir := copyGolden(t, "speculators") // its dataset is mapped too
			for i := range 18 {
				write(t, dir, fmt.Sprintf("z/data_%d", i), dump(t, 4))
			}
			before := runtime.NumGoroutine()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r := &record{}
			opt := r.watch(capture.Options{Workers: 4})
			p := plan(t, opt, dir)
			if n := mappings(t, dir); n != 0 {
				t.Errorf("%d files are mapped after NewPlan, want 0", n)
			}
			tc.set(r, &opt, cancel)
			p.SetOptions(opt)
			stats, err := p.Run(ctx, r)
			if !errors.Is(err, tc.wantErr) || (tc.wantErr == nil) != (err == nil) {
				t.Errorf("Run: got error %v, want %v", err, tc.wantErr)
			}
			if stats.Samples != len(r.taken) || tc.samples >= 0 && stats.Samples != tc.samples {
				t.Errorf("Run: got %d samples, sink has %d, want %d", stats.Samples, len(r.taken), tc.samples)
			}
			if n := mappings(t, dir); n != 0 {
				t.Errorf("%d files are still mapped, want 0", n)
			}
			after := runtime.NumGoroutine()
			for range 100 { // the opener ends right after its channel
				if after <= before {
					break
				}
				time.Sleep(time.Millisecond)
				after = runtime.NumGoroutine()
			}
			if after > before {
				t.Errorf("%d goroutines are left, had %d", after, before)
			}
			if tc.wantErr != nil {
				return
			}
			if stats, err := p.Run(ctx, r); err != nil || stats.Samples != tc.samples {
				t.Errorf("second Run: got %d samples, error %v, want %d again", stats.Samples, err, tc.samples)
			}
		})
	}
}

// TestNameNotUTF8 refuses what a dataset could not name, or would name as something else
// and take again in the next run. What is no dump may be called as it likes.
func TestNameNotUTF8(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.safetensors", dump(t, 1))
	write(t, dir, "b\xff\xfe.safetensors", dump(t, 2))
	write(t, dir, "d\xff/c.safetensors", dump(t, 3))
	write(t, dir, "README\xff", []byte("# Notes"))
	r := ingest(t, &record{}, capture.Options{}, dir)
	if r.err != nil || r.ids() != "a.safetensors" || r.stats.Rejected != 2 || r.stats.Ignored != 1 {
		t.Errorf("got samples %q, %+v, error %v", r.ids(), r.stats, r.err)
	}
	contains(t, "rejections", r.reasons(), "b\uFFFD.safetensors: name is not valid UTF-8", "d\uFFFD/c.safetensors: name is not valid UTF-8")
}

func TestStopAtRejection(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a", dump(t, 1))
	write(t, dir, "b.pt", []byte("<html>"))
	write(t, dir, "c", dump(t, 1))
	r := ingest(t, &record{}, capture.Options{StopAtRejection: true}, dir)
	if !errors.Is(r.err, capture.ErrRejected) || !errors.Is(r.err, format.ErrUnsupported) {
		t.Errorf("Run: got error %v, want %v and the reason", r.err, capture.ErrRejected)
	}
	contains(t, "Run", fmt.Sprint(r.err), "read b.pt: torch archive", ": stopped at the first bad input")
	if r.ids() != "a" || len(r.rejected) != 1 {
		t.Errorf("got samples %s, rejections %q, want a and one rejection", r.ids(), r.reasons())
	}
}

// TestStopAtPlan stops at what a plan could not look into.
func TestStopAtPlan(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a", dump(t, 1))
	link(t, "self", filepath.Join(dir, "self"))
	r := ingest(t, &record{}, capture.Options{StopAtRejection: true}, dir)
	if !errors.Is(r.err, capture.ErrRejected) || len(r.taken) != 0 || r.stats.Rejected != 1 {
		t.Errorf("Run: got error %v, samples %q, %+v, want %v before any sample", r.err, r.ids(), r.stats, capture.ErrRejected)
	}
}

func TestCallbacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "1_known", dump(t, 1))
	write(t, dir, "2_changed", dump(t, 1))
	write(t, dir, "3_new.gz", dump(t, 2))
	write(t, dir, "4_bad.pt", []byte("<html>"))
	write(t, dir, "README", []byte("# Notes"))
	write(t, dir, "request.json", hsxtest.Golden(t, "sglang/request_0.json"))
	r := &record{}
	var events []string
	opt := capture.Options{
		Has: func(in format.Input) (bool, error) {
			if in.Bytes == 0 || in.ModTime == 0 {
				t.Errorf("Has(%+v): got no size or time", in)
			}
			if in.Path == "2_changed" {
				return false, errors.New("source changed")
			}
			return in.Path == "1_known", nil
		},
		Recognised: func(in format.Input, m *producer.Match, samples int) {
			events = append(events, fmt.Sprintf("%s is %s, %d samples", in.Path, m.Producer, samples))
		},
	}
	r.put = func(s *format.Sample) error {
		events = append(events, "put "+s.ID)
		return nil
	}
	p := plan(t, r.watch(opt), dir)
	var last capture.Progress
	calls := 0
	p.OnProgress(func(pr capture.Progress) { last, calls = pr, calls+1 })
	stats, err := p.Run(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	want := capture.Stats{Inputs: 3, Taken: 1, Samples: 1, Tokens: 2, Bytes: int64(len(dump(t, 2))), Rejected: 2, Skipped: 1, Side: 1, Ignored: 1, Warnings: 2}
	if diff := cmp.Diff(want, stats); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"3_new.gz is vllm, 1 samples", "put 3_new.gz"}, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"3_new.gz: name ends in .gz, the content is a plain safetensors file (content decides)",
		"README: ignored: content of no known kind (it begins with 23 20 4e 6f 74 65 73)",
	}, r.warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	contains(t, "rejections", r.reasons(), "2_changed: source changed", "4_bad.pt: torch archive")
	if want := (capture.Progress{Inputs: 6, TotalInputs: 6, Bytes: p.Bytes(), TotalBytes: p.Bytes(), Samples: 1}); last != want || calls != 6 {
		t.Errorf("progress: got %+v after %d calls, want %+v after 6", last, calls, want)
	}

	// Nobody needs to listen.
	stats, err = plan(t, capture.Options{}, dir).Run(t.Context(), &record{})
	if err != nil || stats.Samples != 3 || stats.Rejected != 1 || stats.Warnings != 2 {
		t.Errorf("Run without callbacks: got %+v, error %v, want 3 samples, 1 rejected, 2 warnings", stats, err)
	}
}

func TestInspect(t *testing.T) {
	t.Parallel()
	multi := t.TempDir()
	write(t, multi, "x", several(t, 30, 2, 0))
	bad, spec := t.TempDir(), copyGolden(t, "speculators")
	write(t, bad, "x.pt", []byte("<html>"))
	tests := map[string]struct {
		path    string
		dir     string // of which nothing is to stay mapped
		facts   producer.Facts
		want    string // producer, columns of the first good sample, problem
		samples int
		wantErr string
	}{
		"torch":       {path: "testdata/specforge/rows_0-2000/data_0.ckpt", want: "specforge-eagle3 block_0,block_1,block_2,final", samples: 1},
		"speculators": {path: "testdata/speculators/hidden_states/hs_1.safetensors", want: "speculators block_0,block_1,block_2,final", samples: 1},
		"arrays":      {path: "testdata/npy/s03", want: "arrays block_0,block_1,block_2,final", samples: 1},
		"side":        {path: "testdata/v1/sample_lengths.json", want: " "},
		"its dataset": {path: filepath.Join(spec, "hidden_states/hs_0.safetensors"), dir: spec, want: "speculators block_0", samples: 1},
		"several":     {path: multi, dir: multi, facts: twoLayers(), want: "automodel layer_2,layer_30", samples: 20},
		"a bad one":   {path: bad, dir: bad, want: " "},
		"directory":   {path: "testdata/specforge", wantErr: "it holds 4 inputs, want one dump"},
		"absent":      {path: "testdata/none", wantErr: "no such file"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in, err := capture.Inspect(t.Context(), tc.path, capture.Options{Facts: tc.facts})
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("Inspect: got error %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var columns []string
			for _, s := range in.Layout.States {
				columns = append(columns, s.Column())
			}
			if got := in.Producer + " " + strings.Join(columns, ","); !strings.HasPrefix(got, tc.want) || len(in.Samples) != tc.samples {
				t.Errorf("Inspect: got %q and %d samples, want %q and %d", got, len(in.Samples), tc.want, tc.samples)
			}
			if in.Producer == "" && in.Side == "" && in.Problem == "" {
				t.Errorf("Inspect: got %+v, want a producer, a side file or a problem", in)
			}
			if n := mappings(t, tc.dir); tc.dir != "" && n != 0 {
				t.Errorf("%d files are still mapped", n)
			}
		})
	}
}
