package torch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/torch"
	"hsx/internal/hsxtest"
)

func record(t testing.TB, data []byte, opt torch.Options) *format.Record {
	t.Helper()
	a, err := torch.Decode(data, opt)
	if err != nil {
		t.Fatalf("Decode: got error %v", err)
	}
	r, ok := a.Value.(*format.Record)
	if !ok {
		t.Fatalf("Decode: got %T, want a record", a.Value)
	}
	return r
}

func storageOf(d format.DType) string {
	switch d {
	case format.Bool:
		return "BoolStorage"
	case format.Uint8:
		return "ByteStorage"
	case format.Int8:
		return "CharStorage"
	case format.Int16:
		return "ShortStorage"
	case format.Int32:
		return "IntStorage"
	case format.Int64:
		return "LongStorage"
	case format.Float16:
		return "HalfStorage"
	case format.BFloat16:
		return "BFloat16Storage"
	case format.Float32:
		return "FloatStorage"
	case format.Float64:
		return "DoubleStorage"
	}
	return ""
}

// pickled is one tensor [n] over storage 0, by version 3 where no storage class is.
func pickled(d format.DType, n int64) string {
	one := []int64{n}
	if class := storageOf(d); class != "" {
		return tensor("torch\n"+class, "0", n, 0, one, []int64{1})
	}
	return rebuildV3 + tuple(persID("torch.storage\nUntypedStorage", "0", n*int64(d.Size())), num(0), nums(one),
		nums([]int64{1}), "\x89", hooks, "ctorch\n"+d.String()+"\n") + "R"
}

func TestDecodeRoundTrip(t *testing.T) {
	t.Parallel()
	layouts := map[string]struct {
		layout
		byteorder string
	}{
		"plain":      {layout: layout{prefix: "x/"}},
		"torch":      {layout: layout{prefix: "archive/", descriptors: true, align: true}, byteorder: "little"},
		"odd prefix": {layout: layout{prefix: "run:0001.g1.ckpt.6f/", descriptors: true}},
		"zip64":      {layout: layout{prefix: "x/", zip64: true, align: true}},
		"no crc":     {layout: layout{prefix: "x/", noCRC: true}},
		"big endian": {layout: layout{prefix: "x/"}, byteorder: "big"},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for name, l := range layouts {
		t.Run(name, func(t *testing.T) {
			for d := format.Bool; d <= format.Float64; d++ {
				if l.byteorder == "big" && storageOf(d) == "" {
					continue // untyped storages are refused there
				}
				for _, n := range []int64{0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
					want := make([]byte, n*int64(d.Size()))
					for i := range want {
						want[i] = byte(rng.Uint32())
					}
					stored := want
					files := members(dict("x", pickled(d, n)), stored)
					if l.byteorder != "" {
						files = append(files, file{name: "byteorder", data: []byte(l.byteorder)})
					}
					if l.byteorder == "big" {
						stored = slices.Clone(want)
						for e := range slices.Chunk(stored, d.Size()) {
							slices.Reverse(e)
						}
						files[1].data = stored
					}
					data := l.build(files...)
					got := record(t, data, torch.Options{}).Tensor("x")
					wantT := &format.Tensor{Name: "x", DType: d, Shape: []int64{n}, Data: want, Storage: "0"}
					if !reflect.DeepEqual(wantT, got) {
						t.Fatalf("Decode of %s [%d] (-want +got):\n%s", d, n, cmp.Diff(wantT, got))
					}
					if n > 0 && l.byteorder != "big" && !within(data, got.Data) {
						t.Fatalf("Decode of %s [%d] copied the data, want a view of the input", d, n)
					}
				}
			}
		})
	}
}

// within reports whether part is memory of whole.
func within(whole, part []byte) bool {
	p, w := uintptr(unsafe.Pointer(&part[0])), uintptr(unsafe.Pointer(&whole[0]))
	return p >= w && p+uintptr(len(part)) <= w+uintptr(len(whole))
}

func TestDecodeGoldenDTypes(t *testing.T) {
	t.Parallel()
	r := record(t, hsxtest.Golden(t, "torch_dtypes.pt"), torch.Options{})
	if got, want := len(r.Fields), 13; got != want {
		t.Fatalf("got %d fields, want %d", got, want)
	}
	for _, f := range r.Fields {
		x := r.Tensor(f.Key)
		if x == nil || x.DType.String() != f.Key || !slices.Equal(x.Shape, []int64{2, 2}) {
			t.Errorf("got %+v, want a 2x2 tensor of %s", f.Value, f.Key)
			continue
		}
		want := []float64{0, 1, 2, 3}
		if x.DType == format.Bool {
			want = []float64{0, 1, 1, 1}
		}
		if got := numbers(x); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", f.Key, got, want)
		}
	}
}

func TestDecodeGoldenViews(t *testing.T) {
	t.Parallel()
	r := record(t, hsxtest.Golden(t, "torch_views.pt"), torch.Options{})
	tests := map[string]struct {
		shape, strides []int64
		want           []float64
	}{
		"tail":       {[]int64{3, 2}, []int64{8, 1}, []float64{6, 7, 14, 15, 22, 23}},
		"head":       {[]int64{3, 6}, []int64{8, 1}, []float64{0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 16, 17, 18, 19, 20, 21}},
		"offset":     {[]int64{2, 4, 2}, nil, []float64{8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23}},
		"transposed": {[]int64{4, 3}, nil, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		"steps":      {[]int64{5}, nil, []float64{0, 1, 2, 3, 4}},
		"scalar":     {[]int64{}, nil, []float64{7}},
		"empty":      {[]int64{0}, nil, nil},
		"empty2":     {[]int64{0, 5}, nil, nil},
		"one":        {[]int64{4, 1, 3}, nil, []float64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
	}
	if len(tests) != len(r.Fields) {
		t.Errorf("got keys %v, want %d", r.Keys(), len(tests))
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := r.Tensor(name)
			if x == nil {
				t.Fatal("tensor is missing")
			}
			if err := x.Check(); err != nil {
				t.Error(err)
			}
			if !slices.Equal(x.Shape, tt.shape) || !slices.Equal(x.Strides, tt.strides) || (x.Strides == nil) != (tt.strides == nil) {
				t.Errorf("got shape %v and strides %v, want %v and %v", x.Shape, x.Strides, tt.shape, tt.strides)
			}
			if got := numbers(x); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
	if a, b := r.Tensor("tail").Storage, r.Tensor("head").Storage; a != b || a == "" {
		t.Errorf("got storages %q and %q, want one", a, b)
	}
}

func TestDecodeGoldenValues(t *testing.T) {
	t.Parallel()
	a, err := torch.Decode(hsxtest.Golden(t, "torch_values.pt"), torch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f32 := func(name, key string, vs ...float64) *format.Tensor {
		var b []byte
		for _, v := range vs {
			b = binary.LittleEndian.AppendUint32(b, bits32(v))
		}
		return &format.Tensor{Name: name, DType: format.Float32, Shape: []int64{int64(len(vs))}, Data: b, Storage: key}
	}
	shared := []format.Value{int64(1), int64(2)}
	want := []format.Value{&format.Record{Fields: []format.Field{
		{Key: "none"}, {Key: "true", Value: true}, {Key: "int", Value: int64(-70000)}, {Key: "long", Value: int64(1) << 40},
		{Key: "minus", Value: int64(-1 << 63)}, {Key: "float", Value: 0.5}, {Key: "text", Value: "héllo"},
		{Key: "tuple", Value: []format.Value{int64(1), []format.Value{"a"}}}, {Key: "size", Value: []format.Value{int64(2), int64(3)}},
		{Key: "device", Value: "cuda:1"}, {Key: "cpu", Value: "cpu"}, {Key: "dtype", Value: "torch.bfloat16"},
		{Key: "ordered", Value: &format.Record{Fields: []format.Field{{Key: "a", Value: int64(1)}}}},
		{Key: "list", Value: []format.Value{f32("[0].list[0]", "0", 0, 1), f32("[0].list[1]", "1", 0, 1, 2)}},
		{Key: "again", Value: []format.Value{shared, shared}},
		{Key: "parameter", Value: f32("[0].parameter", "2", 0, 1)}, {Key: "storage", Value: f32("[0].storage", "3", 0, 1, 2)},
		{Key: "untyped", Value: &format.Tensor{Name: "[0].untyped", DType: format.Uint8, Shape: []int64{2}, Data: []byte{0, 1}, Storage: "4"}},
	}}}
	if diff := cmp.Diff(format.Value(want), a.Value); diff != "" {
		t.Errorf("Decode (-want +got):\n%s", diff)
	}
	if a.Prefix != "torch_values" || a.Notes != nil {
		t.Errorf("got prefix %q and notes %q, want torch_values and none", a.Prefix, a.Notes)
	}
}

func TestDecodeProducers(t *testing.T) {
	t.Parallel()
	good := record(t, hsxtest.Golden(t, "zip_handmade_good.ckpt"), torch.Options{})
	for _, name := range []string{"zip_big_endian.ckpt", "tensor_transposed.ckpt"} {
		if diff := cmp.Diff(good, record(t, hsxtest.Golden(t, name), torch.Options{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	// The same sample from a producer that keeps its states as views of one storage,
	// and the final one before the norm, which makes it another state.
	old := record(t, hsxtest.Golden(t, "torch113_views.pt"), torch.Options{})
	for newKey, oldKey := range map[string]string{"aux_hidden_state": "aux_hidden_states", "loss_mask": "loss_mask", "input_ids": "input_ids"} {
		if a, b := good.Tensor(newKey), old.Tensor(oldKey); !slices.Equal(numbers(a), numbers(b)) {
			t.Errorf("%s of torch 1.13 differs from %s", oldKey, newKey)
		}
	}
	if id, _ := old.Get("conversation_id"); id != "conv-03" {
		t.Errorf("got conversation_id %v, want conv-03", id)
	}
	one := record(t, hsxtest.Golden(t, "sample_1_token.ckpt"), torch.Options{})
	if x := one.Tensor("aux_hidden_state"); !slices.Equal(x.Shape, []int64{1, 1, 192}) || x.Strides != nil {
		t.Errorf("got shape %v and strides %v, want [1 1 192] and nil", x.Shape, x.Strides)
	}
	if v, ok := record(t, hsxtest.Golden(t, "sample_none.ckpt"), torch.Options{}).Get("aux_hidden_state"); !ok || v != nil {
		t.Errorf("got %v, %t for a pickled None, want nil, true", v, ok)
	}
	if r := record(t, hsxtest.Golden(t, "torch_state_dict.pt"), torch.Options{}); !slices.Equal(r.Keys(), []string{"weight", "bias"}) {
		t.Errorf("got keys %v, want weight and bias", r.Keys())
	}
}

// TestDecodeStrides reads every element width through permuted and stepped views.
func TestDecodeStrides(t *testing.T) {
	t.Parallel()
	i := func(ns ...int64) []int64 { return ns }
	tests := map[string]struct {
		offset       int64
		size, stride []int64
		kept         bool // as a view, without a copy
	}{
		"transposed":    {0, i(6, 4), i(1, 6), false},
		"permuted":      {0, i(2, 4, 3), i(1, 6, 2), false},
		"columns":       {1, i(4, 2), i(6, 1), true},
		"column":        {2, i(4, 1), i(6, 6), false},
		"column batch":  {2, i(1, 4), i(24, 6), false},
		"steps":         {1, i(2, 3, 2), i(12, 4, 2), false},
		"batch of rows": {0, i(1, 4, 5), i(7, 6, 1), true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for d := format.Bool; d <= format.Float64; d++ {
				class := storageOf(d)
				if class == "" {
					continue
				}
				storage := make([]byte, 24*d.Size())
				for e := range 24 {
					storage[e*d.Size()] = byte(e) // small patterns: integers, or denormal floats
				}
				data := archive(dict("x", tensor("torch\n"+class, "0", 24, tt.offset, tt.size, tt.stride)), storage)
				got := record(t, data, torch.Options{}).Tensor("x")
				if err := got.Check(); err != nil {
					t.Fatal(err)
				}
				if (got.Strides != nil) != tt.kept || within(data, got.Data) != tt.kept {
					t.Errorf("%s: got strides %v, want a view: %t", d, got.Strides, tt.kept)
				}
				whole := &format.Tensor{DType: d, Shape: tt.size, Strides: tt.stride, Data: storage[tt.offset*int64(d.Size()):]}
				if !slices.Equal(numbers(got), numbers(whole)) {
					t.Errorf("%s: got %v, want %v", d, numbers(got), numbers(whole))
				}
			}
		})
	}
}

func TestDecodeNotes(t *testing.T) {
	t.Parallel()
	tests := map[string]string{"torch_no_crc.pt": "no CRC", "zip_big_endian.ckpt": "big-endian", "torch_views.pt": ""}
	for name, want := range tests {
		a, err := torch.Decode(hsxtest.Golden(t, name), torch.Options{})
		if err != nil {
			t.Fatalf("Decode(%s): got error %v", name, err)
		}
		if got := strings.Join(a.Notes, "\n"); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("Decode(%s): got notes %q, want %q", name, got, want)
		}
	}
}

func TestDecodeOptions(t *testing.T) {
	t.Parallel()
	_, err := torch.Decode(hsxtest.Golden(t, "torch_broadcast.pt"), torch.Options{})
	wantError(t, err, format.ErrLimit, "m", `tensor "m"`)

	storage := make([]byte, 64)
	flipped := archive(dict("x", pickled(format.Int64, 8)), storage)
	flipped[bytes.Index(flipped, storage)] ^= 1
	record(t, flipped, torch.Options{SkipCRC: true})
	_, err = torch.Decode(flipped, torch.Options{})
	wantError(t, err, format.ErrCorrupt, "x/data/0", `member "x/data/0" has the CRC-32`)
}

// TestDecodeDamage flips each byte of two archives and cuts them everywhere: each
// change is an error, or touches nothing that counts.
func TestDecodeDamage(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"torch_views.pt", "sample_1_token.ckpt"} {
		data := hsxtest.Golden(t, name)
		want := record(t, data, torch.Options{})
		for i := range data {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << (i % 8)
			a, err := torch.Decode(bad, torch.Options{})
			if err == nil && !reflect.DeepEqual(format.Value(want), a.Value) {
				t.Fatalf("%s with byte %d flipped: got other values and no error", name, i)
			}
			if _, err := torch.Decode(data[:i], torch.Options{}); err == nil {
				t.Fatalf("%s cut after %d bytes: got no error", name, i)
			} else if i >= 1 && !strings.Contains(err.Error(), "truncated") {
				t.Fatalf("%s cut after %d bytes: got error %v, want truncated", name, i, err)
			}
		}
	}
}

func wantError(t *testing.T, err, kind error, tensor string, texts ...string) {
	t.Helper()
	var e *format.DecodeError
	if !errors.As(err, &e) {
		t.Errorf("got error %v of type %T, want a DecodeError", err, err)
		return
	}
	if !errors.Is(e.Kind, kind) {
		t.Errorf("got kind %v, want %v (%v)", e.Kind, kind, err)
	}
	if tensor != "" && e.Tensor != tensor {
		t.Errorf("got tensor %q, want %q (%v)", e.Tensor, tensor, err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("got error %q, want %q in it", err, text)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, s := range []struct{ rows, width int64 }{{16, 64}, {1024, 7168}, {4096, 7168}} {
		n := s.rows * s.width
		size := []int64{s.rows, s.width}
		storage := make([]byte, 2*n)
		for name, stride := range map[string][]int64{"rows": {s.width, 1}, "transposed": {1, s.rows}} {
			data := archive(dict("x", tensor("torch\nBFloat16Storage", "0", n, 0, size, stride)), storage)
			b.Run(fmt.Sprintf("%s/bf16-%dx%d", name, s.rows, s.width), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := torch.Decode(data, torch.Options{}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
