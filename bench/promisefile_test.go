package bench_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hsx/bench"
)

func openPromise(name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join("testdata", "promise", name))
}

func TestParsePromise(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		flag string
		want bench.Promise
	}{
		"number": {"2.95", bench.Promise{Given: 2.95, Source: "--promised 2.95", Form: "number"}},
		"list on the command line": {"[0.8, 0.5]", bench.Promise{
			Given: 1.2, Positions: []float64{0.8, 0.5}, ExcludesBonus: new(true), Source: "--promised [0.8, 0.5]", Form: "list"}},
		"list": {"positions.json", bench.Promise{
			Given: 0.747 + 0.747*0.7 + 0.747*0.7*0.66, Positions: []float64{0.747, 0.7, 0.66}, ExcludesBonus: new(true), Source: "positions.json", Form: "list"}},
		"SpecForge console": {"specforge-eval.log", bench.Promise{
			Given: 1.82, Positions: []float64{0.8, 0.75, 0.7}, ExcludesBonus: new(true),
			Source: "specforge-eval.log", Form: "specforge", Note: "the last evaluation, line 5"}},
		"SpecForge best checkpoint": {"specforge-best_meta.json", bench.Promise{
			Given: 1.82, Positions: []float64{0.8, 0.75, 0.7}, ExcludesBonus: new(true),
			Source: "specforge-best_meta.json", Form: "specforge", Note: "the last evaluation, line 8"}},
		"SpecForge and EAGLE printed": {"specforge-printed.log", bench.Promise{
			Given: 0.68 + 0.68*0.63 + 0.68*0.63*0.61, Positions: []float64{0.68, 0.63, 0.61}, ExcludesBonus: new(true),
			Source: "specforge-printed.log", Form: "specforge", Note: "the last training metrics, line 9"}},
		"TorchSpec history, killed": {"torchspec-history.jsonl", bench.Promise{
			Given: 0.76 + 0.76*0.72 + 0.76*0.72*0.7 + 0.76*0.72*0.7*0.68, Positions: []float64{0.76, 0.72, 0.7, 0.68}, ExcludesBonus: new(true),
			Source: "torchspec-history.jsonl", Form: "torchspec", Note: "the last evaluation, line 4; " + pruned}},
		"TorchSpec console": {"torchspec-console.log", bench.Promise{
			Given: 2.95, ExcludesBonus: new(true), Source: "torchspec-console.log", Form: "torchspec", Note: "the last evaluation, line 4; " + pruned}},
		"TorchSpec checkpoint": {"torchspec-meta.json", bench.Promise{
			Given: 2.95, ExcludesBonus: new(true), Source: "torchspec-meta.json", Form: "torchspec", Note: "the last evaluation, line 2; " + pruned}},
		"speculators console": {"speculators-console.log", bench.Promise{
			Given: 0.75 + 0.75*0.72, Positions: []float64{0.75, 0.72}, ExcludesBonus: new(true),
			Source: "speculators-console.log", Form: "speculators", Note: "the last evaluation, line 18"}},
		"speculators, joint only": {"speculators-val_metrics.json", bench.Promise{
			Given: 0.75 + 0.54, Positions: []float64{0.75, 0.72}, ExcludesBonus: new(true),
			Source: "speculators-val_metrics.json", Form: "speculators", Note: "the last evaluation, line 1"}},
		"speculators DFlash": {"speculators-dflash.json", bench.Promise{
			Given: 0.8 + 0.56 + 0.336, Positions: []float64{0.8, 0.7, 0.6}, ExcludesBonus: new(true),
			Source: "speculators-dflash.json", Form: "speculators", Note: "the last evaluation, line 1"}},
		"speculators DSpark": {"speculators-dspark.json", bench.Promise{
			Given: 2.696, Positions: []float64{0.8, 0.7, 0.6}, ExcludesBonus: new(false),
			Source: "speculators-dspark.json", Form: "speculators", Note: "the last evaluation, line 1"}},
		"Hugging Face trainer state": {"trainer_state.json", bench.Promise{
			Given: 0.78 + 0.78*0.73, Positions: []float64{0.78, 0.73}, ExcludesBonus: new(true),
			Source: "trainer_state.json", Form: "specforge", Note: "the last evaluation, line 29"}},
		"fork with the bonus token": {"with-bonus.jsonl", bench.Promise{
			Given: 2.2, Positions: []float64{0.8, 0.5}, ExcludesBonus: new(false),
			Source: "with-bonus.jsonl", Form: "torchspec", Note: "the last evaluation, line 1; " + pruned}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := bench.ParsePromise(tt.flag, openPromise)
			if err != nil {
				t.Fatalf("ParsePromise(%q): got error %v", tt.flag, err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("ParsePromise(%q) (-want +got):\n%s", tt.flag, diff)
			}
		})
	}
}

const pruned = "TorchSpec counts only tokens of the draft's own vocabulary, so a pruned one reaches less than is promised"

func TestParsePromiseErrors(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"empty":     "",
		"nothing":   "loss=0.3, acc=0.7\n",
		"binary":    "\x00\x01\xff\xfe{{{[[[[:::===",
		"huge list": "[" + strings.Repeat("0.5,", 70) + "0.5]",
		"percent":   "[74.7, 70]",
		"zero":      `{"eval/simulated_acc_len": 0.0}`,
	}
	open := func(name string) (io.ReadCloser, error) {
		if text, ok := files[name]; ok {
			return io.NopCloser(strings.NewReader(text)), nil
		}
		return openPromise(name)
	}
	tests := map[string]string{
		"0":                          `promise "0": want an accept length above 0, at most 1000`,
		"-2.95":                      `promise "-2.95": want an accept length above 0`,
		"NaN":                        `promise "NaN": want an accept length above 0`,
		"1e9":                        `promise "1e9": want an accept length above 0`,
		"2,95":                       `promise "2,95" is no number: open`,
		"empty":                      "read promise empty: no accept length and no acceptance by position in it",
		"nothing":                    "no accept length and no acceptance by position in it",
		"binary":                     "no accept length and no acceptance by position in it",
		"huge list":                  "71 entries: want at most 64 positions",
		"percent":                    "entry 1 is 74.7: want the acceptance of each position, between 0 and 1",
		"zero":                       "no accept length and no acceptance by position in it",
		"specforge-no-positions.log": "line 1: the accept length is only the mean accuracy, 0.71: no acceptance by position was logged",
	}
	for flag, want := range tests {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			got, err := bench.ParsePromise(flag, open)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("ParsePromise(%q): got %+v, error %v, want error with %q", flag, got, err, want)
			}
		})
	}
	if _, err := bench.ParsePromise("2,95", open); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ParsePromise of no file: got %v, want it to wrap %v", err, fs.ErrNotExist)
	}
	broken := errors.New("disk on fire")
	if _, err := bench.ParsePromise("x", func(string) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("eval/acc_0=0.5\n"), failing{broken})), nil
	}); !errors.Is(err, broken) {
		t.Errorf("ParsePromise of a file that cannot be read to the end: got %v, want %v", err, broken)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// TestParsePromiseLarge reads 20 MB of log with lines that have no end: the last
// evaluation counts, and memory does not grow with the file.
func TestParsePromiseLarge(t *testing.T) {
	const lines = 300
	noise := []byte("\rstep 7 " + strings.Repeat("x", 50_000) + " loss=0.1 " + strings.Repeat("[{", 20_000))
	n := 0
	r := readerFunc(func(p []byte) (int, error) {
		if n++; n > lines {
			return 0, io.EOF
		}
		if n == lines {
			return copy(p, "\neval/acc_0=0.5, eval/acc_1=0.25\n"), nil
		}
		return copy(p, noise), nil
	})
	var got *bench.Promise
	allocated := testing.AllocsPerRun(1, func() {
		n = 0
		var err error
		if got, err = bench.ParsePromise("log", func(string) (io.ReadCloser, error) { return io.NopCloser(r), nil }); err != nil {
			t.Fatal(err)
		}
	})
	if diff := cmp.Diff([]float64{0.5, 0.25}, got.Positions); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	if allocated > 1e6 {
		t.Errorf("got %g allocations", allocated)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// FuzzParsePromise gives any bytes as a training log. What is read is a promise: shares
// between 0 and 1, and an accept length that they add up to or that was logged.
func FuzzParsePromise(f *testing.F) {
	names, err := filepath.Glob("testdata/promise/*")
	if err != nil || len(names) == 0 {
		f.Fatalf("seeds: got %v, error %v", names, err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("eval: {\"acc_0\": 0.7\n'don't' position 3, Acc: 1e400 acc_99=1 acc_-1=0.5 [[[ \\"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := bench.ParsePromise("log", func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
		if err != nil {
			if p != nil {
				t.Fatalf("got %+v with error %v", p, err)
			}
			return
		}
		if !(p.Given >= 0) || math.IsInf(p.Given, 0) || p.ExcludesBonus == nil || p.Form == "" || len(p.Positions) > 64 {
			t.Fatalf("got %+v", p)
		}
		for _, v := range p.Positions {
			if !(v >= 0 && v <= 1) {
				t.Fatalf("got position %g of %+v", v, p)
			}
		}
	})
}

func ExampleParsePromise() {
	p, err := bench.ParsePromise("[0.75, 0.6]", nil)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%.2f without the bonus token: %v\n", p.Given, *p.ExcludesBonus)
	// Output: 1.20 without the bonus token: true
}
