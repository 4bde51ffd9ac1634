package npy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	npyio "github.com/sbinet/npyio/npy"

	"hsx/format"
	"hsx/format/npy"
	"hsx/internal/hsxtest"
)

// file is a .npy file of this version and header text, and n bytes of data.
func file(major byte, header string, n int) []byte {
	b := append([]byte("\x93NUMPY"), major, 0)
	if major == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	b = append(b, header...)
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

// dict is a header as NumPy writes it.
func dict(descr, order, shape string) string {
	return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }\n"
}

func encode(t testing.TB, x *format.Tensor) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := npy.Encode(&b, x); err != nil {
		t.Fatalf("Encode: %v", err)
	}
	return b.Bytes()
}

func TestGolden(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]format.Tensor{
		"float16.npy": {DType: format.Float16, Shape: []int64{16, 64}},
		"float32.npy": {DType: format.Float32, Shape: []int64{16, 64}},
		"uint16.npy":  {DType: format.Uint16, Shape: []int64{16, 64}},
		"int64.npy":   {DType: format.Int64, Shape: []int64{16}},
		"uint8.npy":   {DType: format.Uint8, Shape: []int64{16}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := hsxtest.Golden(t, name)
			got, err := npy.Decode(data)
			if err != nil {
				t.Fatalf("Decode(%s): %v", name, err)
			}
			want.Data = data[128:]
			if diff := cmp.Diff(got, &want); diff != "" {
				t.Errorf("Decode(%s): got - want +\n%s", name, diff)
			}
			if unsafe.SliceData(got.Data) != unsafe.SliceData(want.Data) {
				t.Errorf("Decode(%s): the tensor is a copy, want a view of the input", name)
			}
			if again := encode(t, got); !bytes.Equal(again, data) {
				t.Errorf("Encode(%s): got %q, want %q", name, again[:128], data[:128])
			}
		})
	}
}

func TestOtherOrders(t *testing.T) {
	t.Parallel()
	want, err := npy.Decode(hsxtest.Golden(t, "float16.npy"))
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	for _, name := range []string{"big_endian.npy", "fortran.npy"} {
		got, err := npy.Decode(hsxtest.Golden(t, name))
		if err != nil {
			t.Fatalf("Decode(%s): %v", name, err)
		}
		if diff := cmp.Diff(got, want); diff != "" {
			t.Errorf("Decode(%s): got - want +\n%s", name, diff)
		}
	}
}

func TestDecodeForms(t *testing.T) {
	t.Parallel()
	iota := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}
	for name, tc := range map[string]struct {
		data []byte
		want format.Tensor
	}{
		"version 2":       {file(2, dict("'<i2'", "False", "(2,)"), 4), format.Tensor{DType: format.Int16, Shape: []int64{2}, Data: iota[:4]}},
		"version 3":       {file(3, dict("'<i2'", "False", "(2,)"), 4), format.Tensor{DType: format.Int16, Shape: []int64{2}, Data: iota[:4]}},
		"other key order": {file(1, `{"shape":(2,1),"descr":"|b1","fortran_order":False}`+"\n", 2), format.Tensor{DType: format.Bool, Shape: []int64{2, 1}, Data: iota[:2]}},
		"spaces":          {file(1, " {  'descr' : '<u1',\n'fortran_order':False, 'shape' : ( 2 , 2 , ) } \n \n", 4), format.Tensor{DType: format.Uint8, Shape: []int64{2, 2}, Data: iota[:4]}},
		"scalar":          {file(1, dict("'<f4'", "False", "()"), 4), format.Tensor{DType: format.Float32, Shape: []int64{}, Data: iota[:4]}},
		"empty":           {file(1, dict("'<f4'", "True", "(3, 0, 1152921504606846976)"), 0), format.Tensor{DType: format.Float32, Shape: []int64{3, 0, 1152921504606846976}, Data: iota[:0]}},
		"one byte":        {file(1, dict("'>i1'", "False", "(2,)"), 2), format.Tensor{DType: format.Int8, Shape: []int64{2}, Data: iota[:2]}},
		"flat Fortran":    {file(1, dict("'|u1'", "True", "(1, 4, 1)"), 4), format.Tensor{DType: format.Uint8, Shape: []int64{1, 4, 1}, Data: iota[:4]}},
		"Fortran": {file(1, dict("'|u1'", "True", "(2, 3, 2)"), 12), format.Tensor{DType: format.Uint8, Shape: []int64{2, 3, 2},
			Data: []byte{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}}},
		"big-endian Fortran": {file(1, dict("'>u2'", "True", "(2, 3)"), 12), format.Tensor{DType: format.Uint16, Shape: []int64{2, 3},
			Data: []byte{1, 0, 5, 4, 9, 8, 3, 2, 7, 6, 11, 10}}},
		"big-endian": {file(1, dict("'>f4'", "False", "(3,)"), 12), format.Tensor{DType: format.Float32, Shape: []int64{3},
			Data: []byte{3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := bytes.Clone(tc.data)
			got, err := npy.Decode(tc.data)
			if err != nil {
				t.Fatalf("Decode(%q): %v", tc.data, err)
			}
			if diff := cmp.Diff(got, &tc.want); diff != "" {
				t.Errorf("Decode(%q): got - want +\n%s", tc.data, diff)
			}
			if err := got.Check(); err != nil {
				t.Errorf("Check: %v", err)
			}
			if !bytes.Equal(tc.data, before) {
				t.Errorf("Decode: the input has changed to %q, want %q", tc.data, before)
			}
		})
	}
}

func TestDecodeFaults(t *testing.T) {
	t.Parallel()
	text := func(s string) []byte { return file(1, s+"\n", 8) }
	version := func(major, minor byte) []byte {
		b := file(1, dict("'|u1'", "False", "(8,)"), 8)
		b[6], b[7] = major, minor
		return b
	}
	for name, tc := range map[string]struct {
		data   []byte
		kind   error
		offset int64
		want   string
	}{
		"empty":             {nil, format.ErrCorrupt, 0, "file is empty"},
		"cut in magic":      {[]byte("\x93NUM"), format.ErrCorrupt, 4, "file is truncated: it has 4 bytes"},
		"cut in version":    {[]byte("\x93NUMPY\x01"), format.ErrCorrupt, 7, "file is truncated"},
		"cut in length":     {[]byte("\x93NUMPY\x02\x00\x10\x00\x00"), format.ErrCorrupt, 11, "file is truncated"},
		"other magic":       {[]byte("PK\x03\x04"), format.ErrUnsupported, 0, `file begins with "PK\x03\x04"`},
		"version 9":         {version(9, 0), format.ErrUnsupported, 6, "header has version 9.0, want 1.0, 2.0 or 3.0"},
		"version 0":         {version(0, 0), format.ErrUnsupported, 6, "version 0.0"},
		"version 1.1":       {version(1, 1), format.ErrUnsupported, 6, "version 1.1"},
		"header 4 GiB":      {[]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{}"), format.ErrLimit, 8, "header length is 4294967295, want at most 65536"},
		"header past end":   {[]byte("\x93NUMPY\x01\x00\x60\xea{}"), format.ErrCorrupt, 12, "file is truncated: the header length is 60000, and 2 bytes follow"},
		"no header":         {file(1, "", 8), format.ErrCorrupt, 10, "header does not end with a newline"},
		"no newline":        {file(1, "{'descr': '|u1', 'fortran_order': False, 'shape': (8,), }", 8), format.ErrCorrupt, 67, "newline"},
		"only newline":      {text(""), format.ErrCorrupt, 11, `header ends where "{" is wanted`},
		"open dict":         {text("{'descr': '|u1', "), format.ErrCorrupt, 28, "header ends where a plain string is wanted"},
		"open string":       {text("{'descr"), format.ErrCorrupt, 11, "a plain string is wanted"},
		"mixed quotes":      {text(`{'descr": 1}`), format.ErrCorrupt, 11, "a plain string is wanted"},
		"escape":            {text(`{'descr': '\x3cu1'`), format.ErrCorrupt, 20, "a plain string is wanted"},
		"missing key":       {text("{'descr': '|u1', 'shape': (8,)}"), format.ErrCorrupt, 41, "want the keys descr, fortran_order and shape"},
		"duplicate key":     {text("{'descr': '|u1', 'descr': '|u1'}"), format.ErrCorrupt, 41, `duplicate key "descr"`},
		"unknown key":       {text("{'descr': '|u1', 'strides': (1,)}"), format.ErrCorrupt, 37, `header has a key "strides"`},
		"two values":        {text("{'descr': '|u1' '|u1'}"), format.ErrCorrupt, 26, `where "}" is wanted`},
		"tail":              {text("{'descr': '|u1', 'fortran_order': False, 'shape': (8,), } + 1"), format.ErrCorrupt, 68, "the end of the header is wanted"},
		"code in shape":     {text("{'descr': '|u1', 'fortran_order': False, 'shape': (__import__('os').getpid(), 64), }"), format.ErrCorrupt, 61, "a dimension of the shape"},
		"code in order":     {text("{'descr': '|u1', 'fortran_order': not True"), format.ErrCorrupt, 44, "where True or False is wanted"},
		"expression":        {text(dict("'|u1'", "False", "(4+4,)")), format.ErrCorrupt, 62, `header has "+4,), }`},
		"shape is number":   {text(dict("'|u1'", "False", "8")), format.ErrCorrupt, 60, `where "(" is wanted`},
		"parenthesis":       {text(dict("'|u1'", "False", "(8)")), format.ErrCorrupt, 62, "the shape is a number and not a tuple"},
		"list":              {text(dict("'|u1'", "False", "[8]")), format.ErrCorrupt, 60, `where "(" is wanted`},
		"lone comma":        {text(dict("'|u1'", "False", "(,)")), format.ErrCorrupt, 61, "a dimension"},
		"negative":          {text(dict("'|u1'", "False", "(-2, -4)")), format.ErrCorrupt, 61, `"-2, -4), }`},
		"float":             {text(dict("'|u1'", "False", "(8.0,)")), format.ErrCorrupt, 62, `".0,), }`},
		"leading zero":      {text(dict("'|u1'", "False", "(08,)")), format.ErrCorrupt, 61, "a dimension"},
		"old Python long":   {text(dict("'|u1'", "False", "(8L,)")), format.ErrCorrupt, 62, "comma"},
		"2^63":              {text(dict("'|u1'", "False", "(9223372036854775808,)")), format.ErrCorrupt, 61, "dimension 9223372036854775808, want at most 2^63-1"},
		"65 dimensions":     {text(dict("'|u1'", "False", "("+strings.Repeat("1,", 65)+")")), format.ErrLimit, 190, "more than 64 dimensions"},
		"product overflows": {text(dict("'<f2'", "False", "(4611686018427387904, 64)")), format.ErrCorrupt, 8, "more bytes than can be counted"},
		"bytes overflow":    {text(dict("'<f8'", "False", "(1152921504606846976,)")), format.ErrCorrupt, 8, "more bytes than can be counted"},
		"object":            {text(dict("'|O'", "False", "(1,)")), format.ErrUnsupported, 8, "object dtype"},
		"structured":        {text(dict("[('a', '<f2'), ('b', '<f2')]", "False", "(2,)")), format.ErrUnsupported, 20, "structured dtype"},
		"raw":               {text(dict("'|V2'", "False", "(4,)")), format.ErrUnsupported, 8, "save array.view(numpy.uint16)"},
		"complex":           {text(dict("'<c8'", "False", "(1,)")), format.ErrUnsupported, 8, `array has dtype "<c8"`},
		"native order":      {text(dict("'=f4'", "False", "(2,)")), format.ErrUnsupported, 8, `array has dtype "=f4"`},
		"no order":          {text(dict("'f4'", "False", "(2,)")), format.ErrUnsupported, 8, `array has dtype "f4"`},
		"order |":           {text(dict("'|f4'", "False", "(2,)")), format.ErrUnsupported, 8, `array has dtype "|f4"`},
		"no dtype":          {text(dict("''", "False", "(8,)")), format.ErrUnsupported, 8, `array has dtype ""`},
		"brace in dtype":    {text(dict("'}'", "False", "(8,)")), format.ErrUnsupported, 8, `array has dtype "}"`},
		"trailing":          {file(1, dict("'|u1'", "False", "(7,)"), 8), format.ErrCorrupt, 75, "needs 7 bytes, has 8: 1 trailing bytes"},
		"cut":               {file(1, dict("'<u2'", "False", "(4, 1)"), 7), format.ErrCorrupt, 77, "array of shape [4 1] and type uint16 needs 8 bytes, has 7: the file is truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := npy.Decode(tc.data)
			hsxtest.CheckFault(t, err, format.DecodeError{Format: "npy", Kind: tc.kind, Offset: tc.offset}, tc.want)
		})
	}
}

func TestDecodeTruncated(t *testing.T) {
	t.Parallel()
	data := hsxtest.Golden(t, "int64.npy")
	for n := range data {
		if _, err := npy.Decode(data[:n]); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("Decode of the first %d bytes: got error %v, want %v", n, err, format.ErrCorrupt)
		}
		if got, want := npy.IsFile(data[:n]), n >= 6; got != want {
			t.Errorf("IsFile of the first %d bytes: got %t, want %t", n, got, want)
		}
	}
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
				x := &format.Tensor{DType: d, Shape: shape, Data: make([]byte, elems*int64(d.Size()))}
				_, _ = random.Read(x.Data) // never fails
				data := encode(t, x)
				got, err := npy.Decode(data)
				if err != nil {
					t.Fatalf("Decode of %s %v: %v", d, shape, err)
				}
				want := *x
				if d == format.BFloat16 {
					want.DType = format.Uint16
				}
				if diff := cmp.Diff(got, &want, byBytes()); diff != "" {
					t.Errorf("Decode of %s %v: got - want +\n%s", d, shape, diff)
				}
				checkNpyio(t, data, x)
			}
		}
	}
}

// checkNpyio asks an independent reader what Encode wrote.
func checkNpyio(t *testing.T, data []byte, x *format.Tensor) {
	t.Helper()
	r, err := npyio.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatalf("npyio of %s %v: %v", x.DType, x.Shape, err)
	}
	if got, want := fmt.Sprint(r.Header.Descr.Shape), fmt.Sprint(x.Shape); got != want {
		t.Errorf("npyio of %s %v: got shape %s, want %s", x.DType, x.Shape, got, want)
	}
	if begin := len(data) - len(x.Data); begin%64 != 0 {
		t.Errorf("Encode of %s %v: data begins at byte %d, want a multiple of 64", x.DType, x.Shape, begin)
	}
}

func TestEncodeFaults(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		tensor format.Tensor
		want   string
	}{
		"no dtype":      {format.Tensor{Name: "a"}, `encode npy: tensor "a" has no valid dtype`},
		"short data":    {format.Tensor{DType: format.Uint8, Shape: []int64{2}, Data: []byte{1}}, "needs 2 bytes, has 1"},
		"strided":       {format.Tensor{DType: format.Uint8, Shape: []int64{2}, Strides: []int64{2}, Data: []byte{1, 2, 3}}, "has strides [2], want a dense one"},
		"65 dimensions": {format.Tensor{DType: format.Uint8, Shape: make([]int64, 65)}, "has 65 dimensions, want at most 64"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var b bytes.Buffer
			err := npy.Encode(&b, &tc.tensor)
			if err == nil || !strings.Contains(err.Error(), tc.want) || b.Len() > 0 {
				t.Errorf("Encode: wrote %d bytes, got error %v, want none and one about %q", b.Len(), err, tc.want)
			}
		})
	}
}

// Not parallel: it counts the allocations of the whole process.
func TestDecodeAllocation(t *testing.T) {
	for name, data := range map[string][]byte{
		"claims 2^60 elements": file(1, dict("'|u1'", "False", "(1152921504606846976,)"), 0),
		"claims 4 GiB header":  []byte("\x93NUMPY\x02\x00\xff\xff\xff\xff{"),
		"claims 64 KiB header": []byte("\x93NUMPY\x02\x00\x00\x00\x01\x00{"),
		"long header":          file(2, strings.TrimSpace(dict("'|u1'", "False", "(0,)"))+strings.Repeat(" ", 60_000)+"\n", 0),
		"many dimensions":      file(2, dict("'|u1'", "False", "("+strings.Repeat("1,", 30_000)+")"), 0),
	} {
		t.Run(name, func(t *testing.T) {
			got := hsxtest.Allocated(func() { _, _ = npy.Decode(data) })
			if want := allocationBound(data); got > want {
				t.Errorf("Decode of %d bytes: allocated %d bytes, want at most %d", len(data), got, want)
			}
		})
	}
}

func allocationBound(data []byte) uint64 { return 16<<10 + 8*uint64(len(data)) }

func states(tokens, hidden int64) *format.Tensor {
	return &format.Tensor{DType: format.Float16, Shape: []int64{tokens, hidden}, Data: make([]byte, 2*tokens*hidden)}
}

func BenchmarkDecode(b *testing.B) {
	for _, order := range []string{"C", "big-endian", "Fortran"} {
		data := encode(b, states(2048, 4096))
		switch order {
		case "big-endian":
			data = bytes.Replace(data, []byte("<f2"), []byte(">f2"), 1)
		case "Fortran":
			data = bytes.Replace(data, []byte("False"), []byte("True "), 1)
		}
		b.Run("fp16-2048x4096-"+order, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := npy.Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
