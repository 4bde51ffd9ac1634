package torch_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/torch"
	"hsx/internal/hsxtest"
)

func encode(t testing.TB, prefix string, r *format.Record) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := torch.Encode(&b, prefix, r); err != nil {
		t.Fatalf("Encode: got error %v", err)
	}
	return b.Bytes()
}

func fields(kv ...any) *format.Record {
	r := &format.Record{}
	for i := 0; i < len(kv); i += 2 {
		r.Fields = append(r.Fields, format.Field{Key: kv[i].(string), Value: kv[i+1]})
	}
	return r
}

func zeros(d format.DType, shape ...int64) *format.Tensor {
	n, _ := format.Elems(shape)
	return &format.Tensor{DType: d, Shape: shape, Data: make([]byte, n*int64(d.Size()))}
}

func byBytes() cmp.Option { return cmp.Comparer(bytes.Equal) }

// TestEncodeGolden holds Encode to the bytes of torch itself, which end with one member
// more: its name and its place are cut out of the golden file before they are compared.
func TestEncodeGolden(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"torch_dtypes.pt", "torch_plain.pt", "sample_1_token.ckpt", "sample_none.ckpt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			golden := hsxtest.Golden(t, name)
			a, err := torch.Decode(golden, torch.Options{})
			if err != nil {
				t.Fatalf("Decode: got error %v", err)
			}
			id := bytes.LastIndex(golden, []byte("PK\x03\x04"))
			dir := id + bytes.Index(golden[id:], []byte("PK\x01\x02"))
			idEntry := bytes.LastIndex(golden, []byte("PK\x01\x02"))
			if !bytes.Contains(golden[id:dir], []byte(a.Prefix+"/.data/serialization_id")) {
				t.Fatalf("last member of %s is %q, want the serialization id", name, golden[id:dir])
			}
			want := append(bytes.Clone(golden[:id]), golden[dir:idEntry]...)
			end := len(golden) - bytes.LastIndex(golden, []byte("PK\x06\x06"))

			got := encode(t, a.Prefix, a.Value.(*format.Record))
			if len(got) != len(want)+end {
				t.Errorf("got %d bytes, want %d and an end of %d", len(got), len(want), end)
			}
			for i := range min(len(want), len(got)) {
				if got[i] != want[i] {
					t.Fatalf("byte %d: got %.60q, want %.60q", i, got[i:], want[i:])
				}
			}
			b, err := torch.Decode(got, torch.Options{})
			if err != nil {
				t.Fatalf("Decode of what Encode wrote: got error %v", err)
			}
			if diff := cmp.Diff(a, b); diff != "" {
				t.Errorf("Decode (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncodeRoundTrip(t *testing.T) {
	t.Parallel()
	random := rand.NewChaCha8([32]byte{1})
	for d := format.Bool; d <= format.Float64; d++ {
		for _, n := range []int64{0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
			for _, shape := range [][]int64{{n}, {n, 3}, {1, n, 1}, {2, 0, n}, {}} {
				x := zeros(d, shape...)
				_, _ = random.Read(x.Data) // never fails
				in := fields("ids", zeros(format.Int64, n), "x", x)
				data := encode(t, "data_0", in)
				if !bytes.Equal(data, encode(t, "data_0", in)) {
					t.Fatalf("Encode of %s %v: two runs differ", d, shape)
				}
				a, err := torch.Decode(data, torch.Options{})
				if err != nil {
					t.Fatalf("Decode of %s %v: got error %v", d, shape, err)
				}
				for i, f := range in.Fields {
					x := f.Value.(*format.Tensor)
					x.Name, x.Storage = f.Key, fmt.Sprint(i)
				}
				if diff := cmp.Diff(&torch.Archive{Value: in, Prefix: "data_0"}, a, byBytes()); diff != "" {
					t.Errorf("Decode of %s %v (-want +got):\n%s", d, shape, diff)
				}
			}
		}
	}
}

func TestEncodeValues(t *testing.T) {
	t.Parallel()
	ints := []format.Value{int64(0)}
	for _, bits := range []int{7, 8, 15, 16, 31, 32, 39, 40, 55, 56, 62} {
		n := int64(1) << bits
		ints = append(ints, n-1, n, n+1, -n+1, -n, -n-1)
	}
	ints = append(ints, int64(math.MaxInt64), int64(math.MinInt64))
	lists := []format.Value{}
	for _, n := range []int{0, 1, 2, 999, 1000, 1001, 2000, 2001} {
		list, dict := make([]format.Value, n), &format.Record{Fields: make([]format.Field, n)}
		for i := range n {
			list[i] = int64(i)
			dict.Fields[i] = format.Field{Key: fmt.Sprint(i), Value: i%2 == 0}
		}
		lists = append(lists, list, dict)
	}
	deep := format.Value("bottom")
	for range 999 {
		deep = []format.Value{deep}
	}
	tests := map[string]format.Value{
		"ints": ints, "lists": lists, "deep": deep,
		"floats": []format.Value{0.0, 0.1, -1e300, math.Inf(1), math.SmallestNonzeroFloat64},
		"texts":  []format.Value{"", "a", "héllo\x00\n", "storage", "cpu", strings.Repeat("x", 70_000)},
		"none":   nil, "true": true, "false": false,
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := record(t, encode(t, "x", fields("", want)), torch.Options{}).Get("")
			if !ok || !reflect.DeepEqual(want, got) { // go-cmp takes minutes for deep values
				t.Errorf("Decode: got %.500v, %t, want %.500v", got, ok, want)
			}
		})
	}
}

// TestEncodeZip reads an archive with a reader that knows nothing of torch.
func TestEncodeZip(t *testing.T) {
	t.Parallel()
	data := encode(t, "x", fields("a", zeros(format.BFloat16, 3, 700_000), "b", zeros(format.Float32, 0), "c", zeros(format.Int8)))
	checkZip(t, data, []string{"x/data.pkl", "x/.format_version", "x/.storage_alignment", "x/byteorder", "x/data/0", "x/data/1", "x/data/2", "x/version"})
}

// checkZip wants every member stored, aligned, of the right sum, and of these names.
func checkZip(t *testing.T, data []byte, names []string) {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatalf("NewReader: got error %v", err)
	}
	var got []string
	for _, f := range z.File {
		got = append(got, f.Name)
		if at, err := f.DataOffset(); err != nil || at%64 != 0 || f.Method != zip.Store {
			t.Errorf("%s: got method %d, data at byte %d and error %v, want stored data at a multiple of 64", f.Name, f.Method, at, err)
		}
		r, err := f.Open()
		if err != nil {
			t.Errorf("Open(%s): got error %v", f.Name, err)
			continue
		}
		if n, err := io.Copy(io.Discard, r); err != nil || n != int64(f.UncompressedSize64) {
			t.Errorf("read %s: got %d bytes and error %v, want %d", f.Name, n, err, f.UncompressedSize64)
		}
	}
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

func TestEncodePrefix(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		want string
		bad  bool
	}{
		"data_0":                 {want: "data_0"},
		"run:0001.g1.ckpt.6f":    {want: "run:0001.g1.ckpt.6f"},
		"":                       {want: "archive"},
		"größe":                  {want: "archive"},
		strings.Repeat("x", 255): {want: strings.Repeat("x", 255)},
		strings.Repeat("x", 256): {bad: true},
		"a/b":                    {bad: true},
		"a/":                     {bad: true},
		"é/b":                    {bad: true},
		`a\b`:                    {bad: true},
		"a\x00":                  {bad: true},
		"a\xff":                  {bad: true},
		".":                      {bad: true},
		"..":                     {bad: true},
	}
	for prefix, tt := range tests {
		t.Run(fmt.Sprintf("%.20q", prefix), func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			err := torch.Encode(&b, prefix, fields("x", zeros(format.Int8, 1)))
			if tt.bad {
				if err == nil || !strings.Contains(err.Error(), "not a plain file name") || b.Len() > 0 {
					t.Errorf("Encode: got error %v and %d bytes, want it refused", err, b.Len())
				}
				return
			}
			if err != nil {
				t.Fatalf("Encode: got error %v", err)
			}
			a, err := torch.Decode(b.Bytes(), torch.Options{})
			if err != nil || a.Prefix != tt.want {
				t.Errorf("Decode: got %+v and error %v, want prefix %q", a, err, tt.want)
			}
		})
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
	deep := format.Value(nil)
	for range 1001 {
		deep = []format.Value{deep}
	}
	ring := &format.Record{}
	ring.Fields = []format.Field{{Key: "again", Value: ring}}
	wide := []format.Value{"x"} // doubles each time: a small record that stands for a large pickle
	for range 30 {
		wide = []format.Value{wide, wide}
	}
	many := make([]format.Value, 10_001)
	for i := range many {
		many[i] = zeros(format.Bool)
	}
	ones := make([]int64, 65)
	for i := range ones {
		ones[i] = 1
	}
	tests := map[string]struct {
		record *format.Record
		want   string
	}{
		"no record":   {nil, "record is missing"},
		"no tensor":   {fields("mask", (*format.Tensor)(nil)), `key "mask": tensor is missing`},
		"no dtype":    {fields("x", &format.Tensor{}), "no valid dtype"},
		"short":       {fields("x", &format.Tensor{DType: format.Int16, Shape: []int64{2}, Data: make([]byte, 3)}), "needs 4 bytes, has 3"},
		"strided":     {fields("x", &format.Tensor{DType: format.Int8, Shape: []int64{2}, Strides: []int64{2}, Data: make([]byte, 3)}), "has strides [2], want a dense one"},
		"dimensions":  {fields("x", zeros(format.Int8, ones...)), "has 65 dimensions"},
		"type":        {fields("x", 1), `key "x": value has the type int`},
		"key twice":   {fields("x", nil, "x", nil), `key "x" is there twice`},
		"inner twice": {fields("x", fields("y", nil, "y", nil)), `key "x": key "y" is there twice`},
		"key":         {fields("a\xff", nil), `key "a\xff": string "a\xff" is not UTF-8`},
		"text":        {fields("x", "a\xff"), `key "x": string "a\xff" is not UTF-8`},
		"long":        {fields("x", strings.Repeat("x", 1_000_001)), "string has 1000001 bytes"},
		"nested":      {fields("x", deep), "nested more than 1000"},
		"ring":        {ring, "nested more than 1000"},
		"expands":     {fields("x", wide), "pickle has more than 1000000 bytes"},
		"tensors":     {fields("x", many), "record has more than 10000 tensors"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			err := torch.Encode(&b, "x", tt.record)
			if err == nil || !strings.HasPrefix(err.Error(), "encode torch archive: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want one about %q", err, tt.want)
			}
			if b.Len() > 0 {
				t.Errorf("wrote %d bytes before it refused", b.Len())
			}
		})
	}
	small := fields("x", zeros(format.Int8, 5000))
	size := len(encode(t, "x", small))
	for left := range size + 1 {
		err := torch.Encode(&fullDisk{left}, "x", small)
		if want := left < size; errors.Is(err, errFull) != want {
			t.Fatalf("Encode to a disk of %d bytes: got error %v, want it to be full: %t", left, err, want)
		}
	}
}

func TestEncodeAllocates(t *testing.T) {
	in := fields("x", zeros(format.BFloat16, 1<<12, 1<<12))
	got := hsxtest.Allocated(func() {
		if err := torch.Encode(io.Discard, "x", in); err != nil {
			t.Errorf("Encode: got error %v", err)
		}
	})
	if want := uint64(64 << 10); got > want {
		t.Errorf("Encode of %d bytes allocated %d, want at most %d", len(in.Tensor("x").Data), got, want)
	}
}

func BenchmarkEncode(b *testing.B) {
	for _, s := range []struct{ rows, width int64 }{{16, 64}, {1024, 4096}, {4096, 7168}} {
		in := fields("input_ids", zeros(format.Int64, s.rows), "loss_mask", zeros(format.Int64, s.rows),
			"hidden_state", zeros(format.BFloat16, 1, s.rows, s.width), "aux_hidden_state", zeros(format.BFloat16, 1, s.rows, 3*s.width))
		random := rand.NewChaCha8([32]byte{1})
		for _, f := range in.Fields {
			_, _ = random.Read(f.Value.(*format.Tensor).Data) // untouched memory is one page of zeros, many times
		}
		b.Run(fmt.Sprintf("bf16-%dx4x%d", s.rows, s.width), func(b *testing.B) {
			b.SetBytes(16*s.rows + 8*s.rows*s.width)
			b.ReportAllocs()
			for b.Loop() {
				if err := torch.Encode(io.Discard, "data_0", in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
