package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hsx/capture/live"
	"hsx/format"
	"hsx/format/producer"
)

// memory is a store that keeps what it is given.
type memory struct {
	samples   map[string]*format.Sample
	committed int
	files     func() int // counted at each commit
	before    []int      // files at the instant of each commit
	err       error      // of Commit
}

func (m *memory) Put(_ context.Context, s *format.Sample) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("%w: %w", format.ErrRefused, err)
	}
	if m.samples == nil {
		m.samples = map[string]*format.Sample{}
	}
	own := *s
	own.Hidden = nil
	for _, h := range s.Hidden {
		var data []byte
		for n := range h.Rows.N {
			data = append(data, h.Rows.Data[n*h.Rows.Stride:][:h.Rows.Width*h.Rows.DType.Size()]...)
		}
		h.Rows.Data, h.Rows.Stride = data, h.Rows.Width*h.Rows.DType.Size()
		own.Hidden = append(own.Hidden, h)
	}
	m.samples[s.ID] = &own
	return nil
}

func (m *memory) Commit(context.Context) error {
	if m.err != nil {
		return m.err
	}
	m.committed = len(m.samples)
	if m.files != nil {
		m.before = append(m.before, m.files())
	}
	return nil
}

// somePrompts have the first tokens 10, 11 and so on.
func somePrompts(n int) []live.Prompt {
	var ps []live.Prompt
	for i := range n {
		ps = append(ps, live.Prompt{ID: fmt.Sprintf("p%d", i), InputIDs: []int32{int32(10 + i), 3, 4, 5}, LossMask: []byte{0, 1, 1, 0}})
	}
	return ps
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func options(t *testing.T, url string) live.Options {
	t.Helper()
	layers, err := format.ParseLayers("1,2,4", format.Boundary)
	if err != nil {
		t.Fatal(err)
	}
	return live.Options{
		URL: url, Retries: 2, LockTimeout: 5 * time.Second, Pending: filepath.Join(t.TempDir(), "capture.jsonl"),
		Facts: producer.Facts{Layers: layers, Convention: format.Boundary, Target: format.Target{Layers: 8}},
	}
}

func run(t *testing.T, opt live.Options, ps []live.Prompt, store *memory) (stats live.Stats, rejected []string, err error) {
	t.Helper()
	info, err := live.Preflight(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	opt.Reject = func(r format.Rejection) error { rejected = append(rejected, r.Reason); return nil }
	stats, err = live.Run(t.Context(), ps, info, opt, store)
	return stats, rejected, err
}

func TestVLLM(t *testing.T) {
	t.Parallel()
	f := &fakeVLLM{}
	opt := options(t, newVLLM(t, f))
	store := &memory{files: func() int { return len(files(t, f.dir)) }}
	stats, rejected, err := run(t, opt, append(somePrompts(40), somePrompts(3)...), store)
	if err != nil || rejected != nil {
		t.Fatalf("got %v, rejected %q", err, rejected)
	}
	want := live.Stats{Prompts: 43, Samples: 40, Tokens: 160, Bytes: 40 * 4 * 3 * hidden * 4, Skipped: 3, Removed: 40}
	if stats != want {
		t.Errorf("got %+v, want %+v", stats, want)
	}
	if store.committed != 40 || !slices.Equal(store.before, []int{80}) {
		t.Errorf("%d samples committed with the files %v there, want 40 and all 80 files until then", store.committed, store.before)
	}
	if left := files(t, f.dir); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
	for i, p := range somePrompts(40) {
		s := store.samples[p.ID]
		if s == nil || !slices.Equal(s.Tokens, p.InputIDs) || !bytes.Equal(s.LossMask, p.LossMask) || s.Input != p.Input() || !s.Last {
			t.Fatalf("%s: got %+v, want the prompt's", p.ID, s)
		}
		if s.Producer != "vllm" || len(s.Hidden) != 3 {
			t.Fatalf("%s: producer %s with %d states, want vllm with 3", p.ID, s.Producer, len(s.Hidden))
		}
		for slot, layer := range []format.Layer{0, 1, 3} {
			h := s.Hidden[slot]
			row := make([]float32, hidden)
			h.State.DType.Floats(row, h.Rows.Data)
			if want := float32(10+i) + float32(slot)/8; h.State.Layer != layer || row[0] != want || row[hidden-1] != want {
				t.Errorf("%s: state %d is of %s and begins with %v, want %s and %v", p.ID, slot, h.State.Layer, row[0], layer, want)
			}
		}
	}
}

// TestChat: a conversation that ends with an answer is not opened for another, and the
// token ids are those that the server says.
func TestChat(t *testing.T) {
	t.Parallel()
	f := &fakeVLLM{}
	opt := options(t, newVLLM(t, f))
	opt.Concurrency = 1
	store := &memory{}
	_, rejected, err := run(t, opt, []live.Prompt{
		{ID: "open", Messages: []byte(`[{"role":"user","content":"a"}]`)},
		{ID: "answered", Messages: []byte(`[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`)},
	}, store)
	if err != nil || rejected != nil {
		t.Fatalf("got %v, rejected %q", err, rejected)
	}
	for id, want := range map[string][]int32{"open": {100, 5, 6}, "answered": {100, 5, 5}} {
		if s := store.samples[id]; s == nil || !slices.Equal(s.Tokens, want) || s.LossMask != nil {
			t.Errorf("%s: got %+v, want the tokens %v and no mask", id, s, want)
		}
	}
	if left := files(t, f.dir); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
}

// TestFaults is what one prompt's fault does among good ones.
func TestFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault   string
		asked   int    // how often the prompt is sent
		reject  string // "" is none
		fatal   string
		left    int // files of it that stay
		samples int
	}{
		"busy":                      {"busy", 3, "", "", 0, 6},
		"file missing once":         {"no file once", 2, "", "", 1, 6},
		"file missing":              {"no file", 3, "the server failed to write it", "", 3, 5},
		"too long":                  {"too long", 1, "maximum context length", "", 0, 5},
		"one prompt breaks":         {"broken", 3, "answered 500", "", 0, 5},
		"rows missing":              {"cut", 1, "hidden_states", "", 2, 5},
		"other tokens":              {"other ids", 1, "are not the 4 of the prompt", "", 2, 5},
		"not finite":                {"nan", 1, "", "", 0, 6}, // as ingest: states are taken as they are, and audited
		"server dies":               {"dies", 3, "", "server does not answer any more", 0, 5},
		"no lock beside the answer": {"no lock", 1, "", "no lock beside", 1, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const bad = 13 // the fourth prompt
			f := &fakeVLLM{faults: map[int32]string{bad: c.fault}}
			opt := options(t, newVLLM(t, f))
			opt.Concurrency = 1
			store := &memory{}
			_, rejected, err := run(t, opt, somePrompts(6), store)
			if c.fatal == "" && err != nil || c.fatal != "" && (err == nil || !strings.Contains(err.Error(), c.fatal)) {
				t.Fatalf("got error %v, want %q", err, c.fatal)
			}
			if f.asked[bad] != c.asked {
				t.Errorf("sent %d times, want %d", f.asked[bad], c.asked)
			}
			if text := strings.Join(rejected, ""); !strings.Contains(text, c.reject) || (c.reject == "") != (text == "") {
				t.Errorf("rejected %q, want %q", text, c.reject)
			}
			if c.fatal == "" && store.committed != c.samples {
				t.Errorf("%d samples committed, want %d", store.committed, c.samples)
			}
			if store.committed != len(store.samples) {
				t.Errorf("%d of %d samples are committed, want all", store.committed, len(store.samples))
			}
			f.writes.Wait()
			if left := files(t, f.dir); len(left) != c.left {
				t.Errorf("files left: %q, want %d", left, c.left)
			}
		})
	}
}

// TestFirstAnswers end the work when none can be taken: a list of layers that is not
// the server's would have every prompt refused.
func TestFirstAnswers(t *testing.T) {
	t.Parallel()
	f := &fakeVLLM{slots: 5}
	opt := options(t, newVLLM(t, f))
	stats, _, err := run(t, opt, somePrompts(20), &memory{})
	if err == nil || !strings.Contains(err.Error(), "dump has 5 slots, but 3 layers are named") || len(f.asked) != 3 || stats.Samples != 0 {
		t.Errorf("got %v after %d prompts, want the slots named after 3", err, len(f.asked))
	}
}

func TestRelativePath(t *testing.T) {
	t.Parallel()
	f := &fakeVLLM{relative: true}
	opt := options(t, newVLLM(t, f))
	if _, _, err := run(t, opt, somePrompts(2), &memory{}); err == nil || !strings.Contains(err.Error(), "relative to its own working directory") {
		t.Errorf("without a root: got %v, want an error that says so", err)
	}
	opt.Root = f.dir
	f2 := &fakeVLLM{relative: true, dir: f.dir}
	opt.URL = newVLLM(t, f2)
	if stats, _, err := run(t, opt, somePrompts(2), &memory{}); err != nil || stats.Samples != 2 {
		t.Errorf("with the root: got %+v, %v, want 2 samples", stats, err)
	}
}

// TestKilled is a run after one that was killed between its commit and the removal:
// what was listed goes, another file of that name stays.
func TestKilled(t *testing.T) {
	t.Parallel()
	f := &fakeVLLM{}
	opt := options(t, newVLLM(t, f))
	store := &memory{err: errors.New("killed")}
	if _, _, err := run(t, opt, somePrompts(5), store); err == nil {
		t.Fatal("got no error of the commit")
	}
	if n := len(files(t, f.dir)); n != 10 {
		t.Fatalf("%d files without a commit, want all 10", n)
	}
	other := filepath.Join(f.dir, "cmpl-12-1.safetensors")
	if err := os.WriteFile(other, []byte("somebody else's"), 0o600); err != nil {
		t.Fatal(err)
	}
	gone := filepath.Join(f.dir, "cmpl-11-1.safetensors") // killed between the file and its lock
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	var warned []string
	opt.Warn = func(m string) { warned = append(warned, m) }
	opt.Has = func(format.Input) (bool, error) { return true, nil } // all were committed
	if _, _, err := run(t, opt, somePrompts(5), &memory{}); err != nil {
		t.Fatal(err)
	}
	if left := files(t, f.dir); !slices.Equal(left, []string{filepath.Base(other), filepath.Base(other) + ".lock"}) || len(warned) != 1 {
		t.Errorf("left %q, warned %q, want the other file and a word about it", left, warned)
	}
	if _, err := os.Stat(opt.Pending); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the list is left: %v", err)
	}
}

// TestInterrupt finishes what is on its way and commits it.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	f := &fakeVLLM{}
	opt := options(t, newVLLM(t, f))
	ctx, stop := context.WithCancel(t.Context())
	opt.OnProgress = func(s live.Stats) {
		if s.Samples == 10 {
			stop()
		}
	}
	info, err := live.Preflight(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	store := &memory{}
	stats, err := live.Run(ctx, somePrompts(200), info, opt, store)
	if !errors.Is(err, context.Canceled) || stats.Samples < 10 || stats.Samples > 10+8 || store.committed != stats.Samples || len(f.asked) != stats.Samples {
		t.Errorf("got %v, %+v, %d asked, %d committed, want what was asked taken and committed", err, stats, len(f.asked), store.committed)
	}
	if left := files(t, f.dir); len(left) > 0 {
		t.Errorf("files are left: %q", left)
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ version, caching, model, want, note string }{
		"fine":                   {"0.32.0", "False", "", "", ""},
		"caching since 0.32":     {"0.32.1rc1", "True", "", "", "keeps the states of cached prefixes"},
		"caching before":         {"0.19.2", "True", "", "prefix caching is on", ""},
		"caching, unknown build": {"dev", "True", "", "prefix caching is on", ""},
		"another model":          {"0.32.0", "False", "big", `no model "big"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := options(t, newVLLM(t, &fakeVLLM{version: c.version, caching: c.caching}))
			opt.Model = c.model
			info, err := live.Preflight(t.Context(), opt)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || info.Engine != live.VLLM || info.Version != c.version || info.Model != "tiny" || !strings.Contains(strings.Join(info.Notes, ""), c.note) {
				t.Errorf("got %+v, %v", info, err)
			}
		})
	}
}
