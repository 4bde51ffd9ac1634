package safetensors_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/safetensors"
	"hsx/internal/hsxtest"
)

func encode(t testing.TB, tensors []*format.Tensor, metadata map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Encode(&b, tensors, metadata); err != nil {
		t.Fatalf("Encode: %v", err)
	}
	return b.Bytes()
}

func tensors(r *format.Record) []*format.Tensor {
	ts := make([]*format.Tensor, len(r.Fields))
	for i, f := range r.Fields {
		ts[i] = r.Tensor(f.Key)
	}
	return ts
}

// byBytes compares data as a whole: go-cmp's walk over the elements takes seconds here.
func byBytes() cmp.Option { return cmp.Comparer(bytes.Equal) }

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	for d := format.Bool; d <= format.Float64; d++ {
		for _, n := range []int64{0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
			for _, shape := range [][]int64{{n}, {n, 3}, {1, n, 1}, {}} {
				elems, _ := format.Elems(shape)
				x := &format.Tensor{Name: "x", DType: d, Shape: shape, Data: make([]byte, elems*int64(d.Size()))}
				_, _ = random.Read(x.Data) // never fails
				f, err := safetensors.Decode(encode(t, []*format.Tensor{x}, nil))
				if err != nil {
					t.Fatalf("Decode of %s %v: %v", d, shape, err)
				}
				if diff := cmp.Diff(tensors(f.Record), []*format.Tensor{x}, byBytes()); diff != "" {
					t.Errorf("Decode of %s %v: got - want +\n%s", d, shape, diff)
				}
			}
		}
	}
}

// What the reference implementation wrote comes out again byte for byte.
func TestEncodeGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"one_token.safetensors", "nine_tokens.safetensors", "sixteen_tokens.safetensors"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := hsxtest.Golden(t, name)
			f, err := safetensors.Decode(want)
			if err != nil {
				t.Fatalf("Decode(%s): %v", name, err)
			}
			if got := encode(t, tensors(f.Record), f.Metadata); !bytes.Equal(got, want) {
				t.Errorf("Encode(%s): got %q, want %q", name, got[:160], want[:160])
			}
		})
	}
}

func TestEncodeAlignsAndEscapes(t *testing.T) {
	t.Parallel()
	metadata := map[string]string{"format": "pt", "": "empty \"key\"", "é\n": "\u2028<&>"}
	in := []*format.Tensor{
		{Name: "mask", DType: format.Uint8, Shape: []int64{3}, Data: []byte{1, 2, 3}},
		{Name: `a "quoted"\name/é`, DType: format.BFloat16, Shape: []int64{1}, Data: []byte{4, 5}},
		{Name: "ids", DType: format.Int64, Shape: []int64{1}, Data: []byte("12345678")},
		{Name: "view", DType: format.Uint8, Shape: []int64{1, 2}, Strides: []int64{7, 1}, Data: []byte{6, 7, 8, 9}},
	}
	data := encode(t, in, metadata)
	if again := encode(t, in, metadata); !bytes.Equal(data, again) {
		t.Errorf("Encode: two runs differ: %q and %q", data, again)
	}
	if n := binary.LittleEndian.Uint64(data); n%8 != 0 {
		t.Errorf("Encode: got a header of %d bytes, want a multiple of 8", n)
	}
	f, err := safetensors.Decode(data)
	if err != nil {
		t.Fatalf("Decode(%q): %v", data, err)
	}
	in[3].Strides, in[3].Data = nil, []byte{6, 7}
	if diff := cmp.Diff(tensors(f.Record), []*format.Tensor{in[2], in[1], in[0], in[3]}); diff != "" {
		t.Errorf("Decode: got - want +\n%s", diff)
	}
	if diff := cmp.Diff(f.Metadata, metadata); diff != "" {
		t.Errorf("Decode: metadata: got - want +\n%s", diff)
	}
}

type fullDisk struct{ left int }

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.left -= len(p); d.left < 0 {
		return 0, errFull
	}
	return len(p), nil
}

var errFull = errors.New("no space left")

func TestEncodeFaults(t *testing.T) {
	t.Parallel()
	byteTensor := func(name string) *format.Tensor {
		return &format.Tensor{Name: name, DType: format.Uint8, Shape: []int64{1}, Data: []byte{1}}
	}
	deep := byteTensor("deep")
	for len(deep.Shape) < 65 {
		deep.Shape = append(deep.Shape, 1)
	}
	for name, tc := range map[string]struct {
		tensors  []*format.Tensor
		metadata map[string]string
		want     string
	}{
		"same name":     {[]*format.Tensor{byteTensor("a"), byteTensor("a")}, nil, `tensor name "a" is taken`},
		"reserved name": {[]*format.Tensor{byteTensor("__metadata__")}, nil, "is taken"},
		"bad name":      {[]*format.Tensor{byteTensor("a\xff")}, nil, `name "a\xff" is not valid Unicode`},
		"long name":     {[]*format.Tensor{byteTensor(strings.Repeat("a", 4097))}, nil, "has 4097 bytes, want at most 4096"},
		"no dtype":      {[]*format.Tensor{{Name: "a"}}, nil, "no valid dtype"},
		"short data":    {[]*format.Tensor{{Name: "a", DType: format.Uint8, Shape: []int64{2}, Data: []byte{1}}}, nil, "needs 2 bytes, has 1"},
		"65 dimensions": {[]*format.Tensor{deep}, nil, "has 65 dimensions, want at most 64"},
		"strided": {[]*format.Tensor{{Name: "a", DType: format.Uint8, Shape: []int64{2}, Strides: []int64{2}, Data: []byte{1, 2, 3}}},
			nil, `tensor "a" of shape [2] has strides [2], want a dense one`},
		"metadata key":   {nil, map[string]string{"\xff": ""}, "metadata: name"},
		"metadata value": {nil, map[string]string{"a": "\xff"}, `metadata: the value of "a" is not valid UTF-8`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			err := safetensors.Encode(&b, tc.tensors, tc.metadata)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Encode: got error %v, want one about %q", err, tc.want)
			}
			if b.Len() > 0 {
				t.Errorf("Encode: wrote %d bytes before it refused", b.Len())
			}
		})
	}
	for left := range 80 {
		err := safetensors.Encode(&fullDisk{left}, []*format.Tensor{byteTensor("a")}, nil)
		if want := left < 65; errors.Is(err, errFull) != want {
			t.Errorf("Encode to a disk of %d bytes: got error %v, want it to be full: %t", left, err, want)
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, shape := range [][]int64{{128, 4, 64}, {2048, 4, 4096}} {
		data := encode(b, []*format.Tensor{states(shape)}, nil)
		b.Run(fmt.Sprintf("bf16-%dx%dx%d", shape[0], shape[1], shape[2]), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := safetensors.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, shape := range [][]int64{{128, 4, 64}, {2048, 4, 4096}} {
		in := []*format.Tensor{states(shape)}
		b.Run(fmt.Sprintf("bf16-%dx%dx%d", shape[0], shape[1], shape[2]), func(b *testing.B) {
			var out bytes.Buffer
			out.Grow(len(in[0].Data) + 4096)
			b.SetBytes(int64(len(in[0].Data)))
			b.ReportAllocs()
			for b.Loop() {
				out.Reset()
				if err := safetensors.Encode(&out, in, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func states(shape []int64) *format.Tensor {
	n, _ := format.Elems(shape)
	return &format.Tensor{Name: "hidden_states", DType: format.BFloat16, Shape: shape, Data: make([]byte, 2*n)}
}
