package capture_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/format/npy"
	"hsx/format/producer"
	"hsx/format/safetensors"
)

// write puts a file under dir, with the directories on its way.
func write(tb testing.TB, dir, name string, data []byte) string {
	tb.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// copyGolden copies a directory of testdata to a new one.
func copyGolden(tb testing.TB, name string) string {
	tb.Helper()
	dir := tb.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", name))); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func tensor(name string, d format.DType, shape ...int64) *format.Tensor {
	n, _ := format.Elems(shape)
	t := &format.Tensor{Name: name, DType: d, Shape: shape, Data: make([]byte, n*int64(d.Size()))}
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := 0; i < len(t.Data); i += d.Size() {
		switch d { // small ids, masks of 1, and any bits for states
		case format.Int64:
			binary.LittleEndian.PutUint64(t.Data[i:], rng.Uint64N(100))
		case format.Uint8, format.Bool:
			t.Data[i] = 1
		default:
			t.Data[i] = byte(rng.Uint32())
		}
	}
	return t
}

func encode(tb testing.TB, tensors ...*format.Tensor) []byte {
	tb.Helper()
	var buf bytes.Buffer
	if err := safetensors.Encode(&buf, tensors, nil); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// dump is one sample as vLLM writes it, of 2 states of 8 values.
func dump(tb testing.TB, tokens int64) []byte {
	tb.Helper()
	return encode(tb, tensor("token_ids", format.Int64, tokens), tensor("hidden_states", format.BFloat16, tokens, 2, 8))
}

// several are samples of tokens each in one file, as Automodel writes them. Those
// listed as bad have an attention mask with a hole.
func several(tb testing.TB, samples, tokens int64, bad ...int64) []byte {
	tb.Helper()
	attention := tensor("attention_mask", format.Int64, samples, tokens)
	for i := range samples * tokens {
		binary.LittleEndian.PutUint64(attention.Data[8*i:], 1)
	}
	for _, i := range bad {
		attention.Data[8*i*tokens] = 0
	}
	return encode(tb,
		tensor("input_ids", format.Int64, samples, tokens), tensor("loss_mask", format.Uint8, samples, tokens),
		tensor("position_mask", format.Uint8, samples, tokens), attention,
		tensor("aux_hidden_states", format.BFloat16, samples, tokens, 16))
}

// twoLayers is what several leaves open.
func twoLayers() producer.Facts { return producer.Facts{Layers: format.Layers{2, 30}} }

func array(tb testing.TB, t *format.Tensor) []byte {
	tb.Helper()
	var buf bytes.Buffer
	if err := npy.Encode(&buf, t); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// taken is a copy of what a sink got of a sample, without its states.
type taken struct {
	ID, Path, Producer string
	Tokens             int
	Last               bool
}

// record is all that a run tells the outside.
type record struct {
	taken    []taken
	rejected []format.Rejection
	warnings []string
	err      error
	stats    capture.Stats

	put func(s *format.Sample) error // of the sink, asked first
}

// Put reads all of a sample, as a sink does.
func (r *record) Put(_ context.Context, s *format.Sample) error {
	if r.put != nil {
		if err := r.put(s); err != nil {
			return err
		}
	}
	if err := s.Check(); err != nil {
		return fmt.Errorf("%w: %w", format.ErrRefused, err)
	}
	sum := 0
	for _, h := range s.Hidden {
		for i := range h.Rows.N {
			for _, b := range h.Rows.Row(i) {
				sum += int(b)
			}
		}
	}
	if sum < 0 {
		return fmt.Errorf("sum of bytes is %d", sum)
	}
	r.taken = append(r.taken, taken{s.ID, s.Input.Path, s.Producer, len(s.Tokens), s.Last})
	return nil
}

// watch fills the callbacks that opt does not have.
func (r *record) watch(opt capture.Options) capture.Options {
	if opt.Reject == nil {
		opt.Reject = func(rej format.Rejection) error {
			r.rejected = append(r.rejected, rej)
			return nil
		}
	}
	if opt.Warn == nil {
		opt.Warn = func(input, message string) { r.warnings = append(r.warnings, input+": "+message) }
	}
	return opt
}

func (r *record) ids() string {
	var ids []string
	for _, t := range r.taken {
		ids = append(ids, t.ID)
	}
	return strings.Join(ids, " ")
}

// reasons are the inputs that were refused and why, one a line.
func (r *record) reasons() string {
	var lines []string
	for _, rej := range r.rejected {
		lines = append(lines, rej.Path+": "+rej.Reason)
	}
	return strings.Join(lines, "\n")
}

func plan(tb testing.TB, opt capture.Options, paths ...string) *capture.Plan {
	tb.Helper()
	p, err := capture.NewPlan(tb.Context(), paths, opt)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// ingest runs a plan over paths into r.
func ingest(tb testing.TB, r *record, opt capture.Options, paths ...string) *record {
	tb.Helper()
	r.stats, r.err = plan(tb, r.watch(opt), paths...).Run(tb.Context(), r)
	return r
}

// sources are the names of a plan's inputs.
func sources(p *capture.Plan) string {
	var names []string
	for _, u := range p.Units() {
		names = append(names, u.Path)
	}
	return strings.Join(names, " ")
}

// contains reports every part that text lacks.
func contains(tb testing.TB, what, text string, parts ...string) {
	tb.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			tb.Errorf("%s: got %q, want it to contain %q", what, text, p)
		}
	}
}
