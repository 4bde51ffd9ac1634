package safetensors_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/safetensors"
	"hsx/internal/hsxtest"
)

// file is a safetensors file of this header, unpadded, and n bytes of data.
func file(header string, n int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	for i := range n {
		b = append(b, byte(i))
	}
	return b
}

func TestDecodeGolden(t *testing.T) {
	t.Parallel()
	for name, tokens := range map[string]int64{
		"one_token.safetensors":      1,
		"nine_tokens.safetensors":    9,
		"sixteen_tokens.safetensors": 16,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := hsxtest.Golden(t, name)
			f, err := safetensors.Decode(data)
			if err != nil {
				t.Fatalf("Decode(%s): %v", name, err)
			}
			if got, want := f.Record.Keys(), []string{"token_ids", "hidden_states"}; !cmp.Equal(got, want) {
				t.Errorf("Decode(%s): got keys %q, want %q", name, got, want)
			}
			if f.Metadata != nil || f.Notes != nil {
				t.Errorf("Decode(%s): got metadata %q and notes %q, want none", name, f.Metadata, f.Notes)
			}
			ids, states := f.Record.Tensor("token_ids"), f.Record.Tensor("hidden_states")
			begin := len(data) - len(states.Data)
			want := []*format.Tensor{
				{Name: "token_ids", DType: format.Int64, Shape: []int64{tokens}, Data: data[begin-len(ids.Data) : begin]},
				{Name: "hidden_states", DType: format.BFloat16, Shape: []int64{tokens, 4, 64}, Data: data[begin:]},
			}
			if diff := cmp.Diff([]*format.Tensor{ids, states}, want); diff != "" {
				t.Errorf("Decode(%s): got - want +\n%s", name, diff)
			}
			if id := binary.LittleEndian.Uint64(ids.Data); id != 1 {
				t.Errorf("Decode(%s): got first token %d, want 1", name, id)
			}
			for _, x := range want {
				if err := f.Record.Tensor(x.Name).Check(); err != nil {
					t.Errorf("Check: %v", err)
				}
			}
			if unsafe.SliceData(states.Data) != unsafe.SliceData(data[begin:]) {
				t.Errorf("Decode(%s): the states are a copy, want a view of the input", name)
			}
		})
	}
}

// The order of data decides, not that of the header, and empty tensors take no room.
func TestDecodeOrder(t *testing.T) {
	t.Parallel()
	f, err := safetensors.Decode(file(`{"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]},"empty":{"data_offsets":[1,1],"shape":[0,7],"dtype":"F32"},
		"scalar":{"dtype":"I8","shape":[],"data_offsets":[0,1]}}  `, 4))
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	if got, want := f.Record.Keys(), []string{"scalar", "empty", "b"}; !cmp.Equal(got, want) {
		t.Errorf("Decode: got keys %q, want %q", got, want)
	}
	if got, want := f.Record.Tensor("b").Data, []byte{1, 2, 3}; !cmp.Equal(got, want) {
		t.Errorf("Decode: got b %v, want %v", got, want)
	}
}

func TestDecodeMetadata(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		header string
		want   map[string]string
		note   string
	}{
		"none":        {`{}`, nil, ""},
		"strings":     {`{"__metadata__":{"format":"pt","a":"\u00e9"}}`, map[string]string{"format": "pt", "a": "é"}, ""},
		"null":        {`{"__metadata__":null}`, nil, "__metadata__ is left out: it is null, want an object of strings"},
		"number":      {`{"__metadata__":{"n":3,"format":"pt","m":[{}]}}`, map[string]string{"format": "pt"}, `__metadata__ values other than strings are left out: 2, beginning with "n", which is 3`},
		"nested":      {`{"__metadata__":{"n":{"a":[1,[2]],"a":null},"format":"pt"}}`, map[string]string{"format": "pt"}, `__metadata__ values other than strings are left out: 1, beginning with "n", which is {"a":[1,[2]],"a":null}`},
		"not object":  {`{"__metadata__":["a",{"b":true}]}`, nil, `__metadata__ is left out: it is ["a",{"b":true}], want an object of strings`},
		"just a word": {`{"__metadata__":"pt"}`, nil, `__metadata__ is left out: it is "pt", want an object of strings`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := safetensors.Decode(file(tc.header, 0))
			if err != nil {
				t.Fatalf("Decode(%s): %v", tc.header, err)
			}
			if diff := cmp.Diff(f.Metadata, tc.want); diff != "" {
				t.Errorf("Decode(%s): metadata: got - want +\n%s", tc.header, diff)
			}
			if got := strings.Join(f.Notes, "; "); got != tc.note {
				t.Errorf("Decode(%s): got notes %q, want %q", tc.header, got, tc.note)
			}
		})
	}
}

// one is a header whose only tensor has these values.
func one(dtype, shape, offsets string) string {
	return `{"x":{"dtype":` + dtype + `,"shape":` + shape + `,"data_offsets":` + offsets + `}}`
}

func TestDecodeFaults(t *testing.T) {
	t.Parallel()
	const two = `{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":`
	length := func(n uint64, rest string) []byte {
		return append(binary.LittleEndian.AppendUint64(nil, n), rest...)
	}
	for name, tc := range map[string]struct {
		data   []byte
		kind   error
		offset int64
		tensor string
		want   string
	}{
		"empty":            {nil, format.ErrCorrupt, 0, "", "file is empty"},
		"seven bytes":      {make([]byte, 7), format.ErrCorrupt, 7, "", "file is truncated: it has 7 bytes"},
		"zero length":      {length(0, "{}"), format.ErrCorrupt, 0, "", "header length is 0, want at least 2"},
		"huge length":      {length(1<<63-1, "{}"), format.ErrLimit, 0, "", "header length is 9223372036854775807, want at most 100000000"},
		"negative length":  {length(1<<64-1, "{}"), format.ErrLimit, 0, "", "header length is 18446744073709551615"},
		"cut in header":    {length(144, `{"a":`), format.ErrCorrupt, 13, "", "file is truncated: the header length is 144, and 5 bytes follow"},
		"array":            {file(`[1,2,3] `, 0), format.ErrCorrupt, 8, "", "want a JSON object"},
		"leading space":    {file(` {}`, 0), format.ErrCorrupt, 8, "", `header begins with ' '`},
		"not UTF-8":        {file("{\"a\xff\":{}}", 0), format.ErrCorrupt, 8, "", "header is not valid UTF-8"},
		"lone surrogate":   {file(`{"a\ud800":{}}`, 0), format.ErrCorrupt, 18, "a\ufffd", "not valid Unicode"},
		"long name":        {file(`{"`+strings.Repeat("a", 5000)+`":{}}`, 0), format.ErrLimit, 5011, "", "key of 5000 bytes, want at most 4096"},
		"open object":      {file(`{"a":{}`, 0), format.ErrCorrupt, 12, "a", "not fully declared"},
		"open header":      {file(`{"__metadata__":{}`, 0), format.ErrCorrupt, 26, "", "not valid JSON: it ends inside the object"},
		"trailing comma":   {file(`{"__metadata__":{},}`, 0), format.ErrCorrupt, 27, "", "header is not valid JSON: "},
		"junk after":       {file(`{} x`, 0), format.ErrCorrupt, 11, "", `"x" follows the object`},
		"zero padding":     {file("{}\x00\x00", 0), format.ErrCorrupt, 10, "", "follows the object"},
		"duplicate":        {file(two+`[4,8]},"a":{}}`, 8), format.ErrCorrupt, 116, "a", `duplicate key "a"`},
		"duplicate field":  {file(`{"a":{"dtype":"U8","dtype":"U8"}}`, 0), format.ErrCorrupt, 34, "a", `duplicate key "dtype"`},
		"duplicate meta":   {file(`{"__metadata__":{"k":"1","k":"2"}}`, 0), format.ErrCorrupt, 36, "__metadata__", `duplicate key "k"`},
		"duplicate escape": {file(`{"__metadata__":{"k":"1","\u006b":"2"}}`, 0), format.ErrCorrupt, 41, "__metadata__", `duplicate key "k"`},
		"tensor is array":  {file(`{"a":[[[[]]]]}`, 0), format.ErrCorrupt, 14, "a", `header has an array for the tensor of "a", want "{"`},
		"deep metadata":    {file(`{"__metadata__":{"a":`+strings.Repeat("[", 20000), 0), format.ErrCorrupt, 29, "", "exceeded max depth"},
		"unknown field":    {file(`{"a":{"stride":[1]}}`, 0), format.ErrUnsupported, 22, "a", `tensor "a" has a field "stride"`},
		"no shape":         {file(`{"a":{"dtype":"U8","data_offsets":[0,0]}}`, 0), format.ErrCorrupt, 12, "a", "want dtype, shape and two data_offsets"},
		"one offset":       {file(one(`"U8"`, `[1]`, `[0]`), 1), format.ErrCorrupt, 12, "x", "two data_offsets"},
		"three offsets":    {file(one(`"U8"`, `[1]`, `[0,1,2]`), 1), format.ErrLimit, 60, "x", "more than 2 numbers in its data_offsets"},
		"null shape":       {file(one(`"U8"`, `null`, `[0,1]`), 1), format.ErrCorrupt, 39, "x", `header has null for the shape of "x", want "["`},
		"number dtype":     {file(one(`8`, `[1]`, `[0,1]`), 1), format.ErrCorrupt, 23, "x", "has 8 for its dtype, want a string"},
		"unknown dtype":    {file(one(`"BF17"`, `[1]`, `[0,2]`), 2), format.ErrUnsupported, 28, "x", `dtype "BF17"`},
		"float8":           {file(one(`"F8_E4M3"`, `[1]`, `[0,1]`), 1), format.ErrUnsupported, 31, "x", `tensor "x" has dtype "F8_E4M3", want BF16`},
		"float dimension":  {file(one(`"U8"`, `[4.0]`, `[0,4]`), 4), format.ErrCorrupt, 39, "x", "has 4.0 in its shape, want whole numbers"},
		"exponent":         {file(one(`"U8"`, `[4e0]`, `[0,4]`), 4), format.ErrCorrupt, 39, "x", "has 4e0 in its shape"},
		"string dimension": {file(one(`"U8"`, `["4"]`, `[0,4]`), 4), format.ErrCorrupt, 39, "x", `has the string "4" in its shape`},
		"negative shape":   {file(one(`"U8"`, `[-2,-2]`, `[0,4]`), 4), format.ErrCorrupt, 38, "x", "has -2 in its shape"},
		"minus zero":       {file(one(`"U8"`, `[-0]`, `[0,0]`), 0), format.ErrCorrupt, 38, "x", "has -0 in its shape"},
		"65 dimensions":    {file(one(`"U8"`, `[1`+strings.Repeat(",1", 64)+`]`, `[0,1]`), 1), format.ErrLimit, 165, "x", "more than 64 numbers in its shape"},
		"negative offset":  {file(one(`"U8"`, `[4]`, `[-4,0]`), 4), format.ErrCorrupt, 57, "x", "has -4 in its data_offsets"},
		"2^63":             {file(one(`"U8"`, `[9223372036854775808]`, `[0,4]`), 4), format.ErrCorrupt, 55, "x", "has 9223372036854775808 in its shape"},
		"product wraps":    {file(one(`"U8"`, `[4294967296,4294967296]`, `[0,0]`), 0), format.ErrCorrupt, 12, "x", "more bytes than can be counted"},
		"bytes wrap":       {file(one(`"F64"`, `[2305843009213693952]`, `[0,0]`), 0), format.ErrCorrupt, 12, "x", "more bytes than can be counted"},
		"shape too big":    {file(one(`"U8"`, `[5]`, `[0,4]`), 4), format.ErrCorrupt, 12, "x", `tensor "x" of shape [5] and type uint8 needs 5 bytes, its data offsets [0, 4] hold 4`},
		"backwards":        {file(one(`"U8"`, `[4]`, `[4,0]`), 4), format.ErrCorrupt, 12, "x", "data offsets [4, 0], which run backwards"},
		"hole":             {file(two+`[6,10]}}`, 10), format.ErrCorrupt, 118, "b", "there is a hole of 2 bytes"},
		"hole in front":    {file(one(`"U8"`, `[4]`, `[1,5]`), 5), format.ErrCorrupt, 61, "x", "want a beginning at 0: there is a hole of 1 bytes"},
		"overlap":          {file(two+`[3,7]}}`, 7), format.ErrCorrupt, 116, "b", "data offsets [3, 7], which overlap"},
		"same bytes":       {file(two+`[0,4]}}`, 4), format.ErrCorrupt, 113, "b", "which overlap"},
		"trailing bytes":   {file(two+`[4,8]}}`, 9), format.ErrCorrupt, 121, "", "1 trailing bytes"},
		"cut in data":      {file(two+`[4,8]}}`, 7), format.ErrCorrupt, 120, "b", "the data ends at 7: the file is truncated"},
		"far past the end": {file(one(`"U8"`, `[1152921504606846976]`, `[0,1152921504606846976]`), 7), format.ErrCorrupt, 104, "x", "the file is truncated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := safetensors.Decode(tc.data)
			if err == nil {
				t.Fatalf("Decode: got %v, want an error about %q", f.Record.Keys(), tc.want)
			}
			hsxtest.CheckFault(t, err, format.DecodeError{Format: "safetensors", Kind: tc.kind, Offset: tc.offset, Tensor: tc.tensor}, tc.want)
		})
	}
}

// Every cut of a file is refused, and nearly every one still looks like safetensors.
func TestDecodeTruncated(t *testing.T) {
	t.Parallel()
	data := hsxtest.Golden(t, "one_token.safetensors")
	for n := range data {
		if _, err := safetensors.Decode(data[:n]); !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("Decode of the first %d bytes: got error %v, want %v", n, err, format.ErrCorrupt)
		}
		if got, want := safetensors.IsFile(data[:min(n, 16)], int64(n)), n > 8; got != want {
			t.Errorf("IsFile of the first %d bytes: got %t, want %t", n, got, want)
		}
	}
}

func TestIsFile(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		n    uint64
		rest string
		size int64
		want bool
	}{
		"sound":            {2, "{}", 10, true},
		"cut":              {2000, `{"a`, 11, true},
		"over the bound":   {200_000_000, `{"a`, 200_000_008, true},
		"longer than file": {200_000_000, `{"a`, 200_000_007, false},
		"huge":             {1 << 63, `{"a`, 1 << 40, false},
		"short":            {1, "{}", 10, false},
		"no object":        {2, "[]", 10, false},
		"no header":        {2, "", 8, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := append(binary.LittleEndian.AppendUint64(nil, tc.n), tc.rest...)
			if got := safetensors.IsFile(head, tc.size); got != tc.want {
				t.Errorf("IsFile(%q, %d): got %t, want %t", head, tc.size, got, tc.want)
			}
		})
	}
}

// Not parallel: it counts the allocations of the whole process.
func TestDecodeAllocation(t *testing.T) {
	var many strings.Builder
	many.WriteString(`{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`)
	for i := range 2000 {
		fmt.Fprintf(&many, `,"%x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	var few strings.Builder
	few.WriteString(`{"__metadata__":{`)
	for i := range 20_000 {
		fmt.Fprintf(&few, `"%x":"",`, i)
	}
	for name, data := range map[string][]byte{
		"claims 2^60 elements": file(one(`"U8"`, `[1152921504606846976]`, `[0,1152921504606846976]`), 0),
		"claims 100 MB header": append(binary.LittleEndian.AppendUint64(nil, 100_000_000), '{'),
		"many dimensions":      file(one(`"U8"`, `[1`+strings.Repeat(",1", 50_000)+`]`, `[0,1]`), 1),
		"deep":                 file(`{"__metadata__":{"a":`+strings.Repeat("[", 100_000), 0),
		"small metadata":       file(few.String(), 0),
		"notes":                file(`{"__metadata__":{"":[`+strings.Repeat(`0,`, 50_000), 0),
		"many tensors":         file(many.String()+"}", 0),
	} {
		t.Run(name, func(t *testing.T) {
			got := hsxtest.Allocated(func() { _, _ = safetensors.Decode(data) })
			if want := allocationBound(data); got > want {
				t.Errorf("Decode of %d bytes: allocated %d bytes, want at most %d", len(data), got, want)
			}
		})
	}
}

func allocationBound(data []byte) uint64 { return 64<<10 + 64*uint64(len(data)) }
