package hfdata_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/hfdata"
	"hsx/internal/hsxtest"
)

func TestGolden(t *testing.T) {
	t.Parallel()
	var want []struct{ Tokens, Mask []int64 }
	if err := json.Unmarshal(hsxtest.Golden(t, "speculators.want.json"), &want); err != nil {
		t.Fatal(err)
	}
	s, err := hfdata.Open(hsxtest.Golden(t, "speculators.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Len() != len(want) {
		t.Fatalf("Len() = %d, want %d", s.Len(), len(want))
	}
	for i, w := range want {
		checkRow(t, s, i, row{w.Tokens, w.Mask})
	}
}

func checkRow(t *testing.T, s *hfdata.Stream, i int, want row) {
	t.Helper()
	tokens, mask, err := s.Row(i)
	if err != nil {
		t.Fatalf("Row(%d): got error %v", i, err)
	}
	wantTokens := make([]int32, len(want.tokens))
	for k, v := range want.tokens {
		wantTokens[k] = int32(v)
	}
	var wantMask []byte
	if want.mask != nil {
		wantMask = make([]byte, len(want.mask))
		for k, v := range want.mask {
			wantMask[k] = byte(v)
		}
	}
	if d := cmp.Diff(wantTokens, tokens); d != "" {
		t.Fatalf("Row(%d) tokens (-want +got):\n%s", i, d)
	}
	if d := cmp.Diff(wantMask, mask); d != "" {
		t.Fatalf("Row(%d) mask (-want +got):\n%s", i, d)
	}
}

func sizes() []int {
	return []int{0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025}
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	elems := map[string]struct {
		typ  arrow.DataType
		most int64
	}{
		"int64":  {arrow.PrimitiveTypes.Int64, math.MaxInt32},
		"int32":  {arrow.PrimitiveTypes.Int32, math.MaxInt32},
		"int16":  {arrow.PrimitiveTypes.Int16, math.MaxInt16},
		"int8":   {arrow.PrimitiveTypes.Int8, math.MaxInt8},
		"uint32": {arrow.PrimitiveTypes.Uint32, math.MaxInt32},
		"uint16": {arrow.PrimitiveTypes.Uint16, math.MaxUint16},
		"uint8":  {arrow.PrimitiveTypes.Uint8, math.MaxUint8},
		"bool":   {arrow.FixedWidthTypes.Boolean, 1},
	}
	lists := map[string]func(arrow.DataType) arrow.DataType{
		"list":       func(e arrow.DataType) arrow.DataType { return arrow.ListOf(e) },
		"large_list": func(e arrow.DataType) arrow.DataType { return arrow.LargeListOf(e) },
	}
	for en, e := range elems {
		for ln, list := range lists {
			t.Run(ln+"/"+en, func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(1, 2))
				ids, most := e.typ, e.most
				if en == "bool" {
					ids, most = arrow.PrimitiveTypes.Int64, math.MaxInt32
				}
				var rows []row
				for _, n := range sizes() {
					r := row{make([]int64, n), make([]int64, n)}
					for k := range r.tokens {
						r.tokens[k] = rng.Int64N(most + 1)
						r.mask[k] = rng.Int64N(2)
					}
					rows = append(rows, r)
				}
				rows = append(rows, row{[]int64{7}, nil})
				batches := [][]row{rows[:3], {}, rows[3:9], rows[9:]}
				s, err := hfdata.Open(stream(t, tokenColumns(list(ids), list(e.typ)), batches))
				if err != nil {
					t.Fatal(err)
				}
				if s.Len() != len(rows) {
					t.Fatalf("Len() = %d, want %d", s.Len(), len(rows))
				}
				for i, r := range rows {
					checkRow(t, s, i, r)
				}
			})
		}
	}
	for _, n := range sizes()[1:] {
		t.Run(fmt.Sprintf("fixed_size_list/%d", n), func(t *testing.T) {
			t.Parallel()
			rows := []row{{make([]int64, n), nil}, {make([]int64, n), make([]int64, n)}}
			for k := range n {
				rows[0].tokens[k], rows[1].tokens[k], rows[1].mask[k] = int64(k), -int64(k), int64(k%2)
			}
			typ := arrow.FixedSizeListOf(int32(n), arrow.PrimitiveTypes.Int64)
			s, err := hfdata.Open(stream(t, tokenColumns(typ, typ), [][]row{rows}))
			if err != nil {
				t.Fatal(err)
			}
			for i, r := range rows {
				checkRow(t, s, i, r)
			}
		})
	}
}

// Columns of every shape stand before the token columns, so that a wrong count of
// nodes or buffers would be seen.
func TestOtherColumns(t *testing.T) {
	t.Parallel()
	message := arrow.StructOf(arrow.Field{Name: "role", Type: arrow.BinaryTypes.String}, arrow.Field{Name: "content", Type: arrow.BinaryTypes.LargeString})
	dict := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}
	union := []arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.BinaryTypes.String}}
	before := map[string]struct {
		typ arrow.DataType
		add func(array.Builder, int)
	}{
		"null":    {arrow.Null, nil},
		"bool":    {arrow.FixedWidthTypes.Boolean, nil},
		"float":   {arrow.PrimitiveTypes.Float32, nil},
		"decimal": {&arrow.Decimal128Type{Precision: 10, Scale: 2}, nil},
		"time":    {arrow.FixedWidthTypes.Timestamp_us, nil},
		"fixed":   {&arrow.FixedSizeBinaryType{ByteWidth: 3}, nil},
		"view":    {arrow.BinaryTypes.StringView, func(b array.Builder, i int) { b.(*array.StringViewBuilder).Append(strings.Repeat("x", 10*i)) }},
		"string": {arrow.BinaryTypes.String, func(b array.Builder, i int) {
			b.(*array.StringBuilder).Append("text")
		}},
		"struct": {message, nil},
		"chat": {arrow.ListOf(message), func(b array.Builder, i int) {
			lb := b.(*array.ListBuilder)
			lb.Append(true)
			sb := lb.ValueBuilder().(*array.StructBuilder)
			sb.Append(true)
			sb.FieldBuilder(0).(*array.StringBuilder).Append("user")
			sb.FieldBuilder(1).(*array.LargeStringBuilder).Append("hello")
		}},
		"map":      {arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64), nil},
		"listview": {arrow.ListViewOf(arrow.PrimitiveTypes.Int8), nil},
		"dict": {dict, func(b array.Builder, i int) {
			if err := b.(*array.BinaryDictionaryBuilder).AppendString("word"); err != nil {
				panic(err)
			}
		}},
		"sparse": {arrow.SparseUnionOf(union, []arrow.UnionTypeCode{0, 1}), func(b array.Builder, i int) { b.AppendEmptyValue() }},
		"dense":  {arrow.DenseUnionOf(union, []arrow.UnionTypeCode{0, 1}), func(b array.Builder, i int) { b.AppendEmptyValue() }},
		"ree": {arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String), func(b array.Builder, i int) {
			b.AppendEmptyValue()
		}},
	}
	rows := []row{{[]int64{1, 2, 3}, []int64{0, 1, 1}}, {[]int64{}, nil}, {[]int64{9}, []int64{255}}}
	for name, c := range before {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cols := append([]column{{"before", c.typ, func(b array.Builder, i int, _ row) {
				if c.add == nil {
					b.AppendNull()
				} else {
					c.add(b, i)
				}
			}}}, tokenColumns(arrow.ListOf(arrow.PrimitiveTypes.Int64), arrow.ListOf(arrow.PrimitiveTypes.Int64))...)
			s, err := hfdata.Open(stream(t, cols, [][]row{rows, rows}))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 6 {
				checkRow(t, s, i, rows[i%3])
			}
		})
	}
}

func TestMaskAbsent(t *testing.T) {
	t.Parallel()
	i64 := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	nulls := column{"loss_mask", arrow.Null, func(b array.Builder, _ int, _ row) { b.AppendNull() }}
	for name, cols := range map[string][]column{
		"no column":      {listColumn("input_ids", i64)},
		"column of null": {nulls, listColumn("input_ids", i64)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := hfdata.Open(stream(t, cols, [][]row{{{[]int64{1, 2}, nil}}}))
			if err != nil {
				t.Fatal(err)
			}
			checkRow(t, s, 0, row{[]int64{1, 2}, nil})
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	i64 := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	rows := [][]row{{{[]int64{1, 2, 3}, []int64{0, 1, 1}}}}
	good := stream(t, tokenColumns(i64, i64), rows)
	ids := func(typ arrow.DataType) []byte { return stream(t, []column{listColumn("input_ids", typ)}, nil) }
	nested := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	for range 69 {
		nested = arrow.ListOf(nested)
	}
	bigSchema := bytes.Clone(hsxtest.Golden(t, "speculators.arrow"))
	binary.LittleEndian.PutUint32(bigSchema[344:], 20_000_000) // fields in the schema

	tests := map[string]struct {
		data []byte
		kind error
		want string
	}{
		"empty":           {nil, format.ErrCorrupt, "truncated"},
		"file":            {[]byte("ARROW1\x00\x00"), format.ErrUnsupported, "Arrow IPC file"},
		"old stream":      {[]byte("\x10\x01\x00\x00"), format.ErrUnsupported, "want ff ff ff ff"},
		"mark only":       {[]byte("\xff\xff\xff\xff"), format.ErrCorrupt, "truncated"},
		"end only":        {good[len(good)-8:], format.ErrCorrupt, "before its schema"},
		"no end":          {good[:len(good)-8], format.ErrCorrupt, "truncated"},
		"after the end":   {append(bytes.Clone(good), good...), format.ErrCorrupt, "follow the end"},
		"negative length": {[]byte("\xff\xff\xff\xff\xff\xff\xff\xff"), format.ErrCorrupt, "-1 bytes long"},
		"no metadata":     {frame(make([]byte, 64)), format.ErrCorrupt, "points outside"},
		"no ids":          {stream(t, []column{listColumn("loss_mask", i64), listColumn("token_ids", i64)}, nil), format.ErrUnsupported, `its columns are "loss_mask", "token_ids"`},
		"twice":           {stream(t, []column{listColumn("input_ids", i64), listColumn("input_ids", i64)}, nil), format.ErrUnsupported, "twice"},
		"not a list":      {ids(arrow.PrimitiveTypes.Int64), format.ErrUnsupported, "is not a list (int)"},
		"list of list":    {ids(arrow.ListOf(i64)), format.ErrUnsupported, "is a list of list"},
		"list of float":   {ids(arrow.ListOf(arrow.PrimitiveTypes.Float32)), format.ErrUnsupported, "is a list of float"},
		"list of bool":    {ids(arrow.ListOf(arrow.FixedWidthTypes.Boolean)), format.ErrUnsupported, "is a list of bool"},
		"list of uint64":  {ids(arrow.ListOf(arrow.PrimitiveTypes.Uint64)), format.ErrUnsupported, "uint64"},
		"list view":       {ids(arrow.ListViewOf(arrow.PrimitiveTypes.Int64)), format.ErrUnsupported, "list view"},
		"deep":            {stream(t, []column{listColumn("x", nested), listColumn("input_ids", i64)}, nil), format.ErrLimit, "deeper than 64"},
		"shared fields":   {shared(60), format.ErrLimit, "shares fields"},
		"zstd":            {stream(t, tokenColumns(i64, i64), rows, ipc.WithZstd()), format.ErrUnsupported, "compressed"},
		"lz4":             {stream(t, tokenColumns(i64, i64), rows, ipc.WithLZ4()), format.ErrUnsupported, "compressed"},
		"huge schema":     {bigSchema, format.ErrCorrupt, "outside"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := hfdata.Open(tc.data)
			if err == nil {
				t.Fatalf("Open(%q): got no error, want %q", name, tc.want)
			}
			hsxtest.CheckDecodeError(t, err, len(tc.data))
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Open(%q): got error %v, want a %v with %q", name, err, tc.kind, tc.want)
			}
		})
	}
}

func TestRowRefuses(t *testing.T) {
	t.Parallel()
	i64 := arrow.ListOf(arrow.PrimitiveTypes.Int64)
	ok := row{[]int64{1, 2}, []int64{0, 1}}
	tests := map[string]struct {
		bad    row
		tensor string
		want   string
	}{
		"token above":  {row{[]int64{1, 1 << 31}, nil}, "input_ids", "input_ids of row 1 has 2147483648 at position 1"},
		"token below":  {row{[]int64{-1<<31 - 1}, nil}, "input_ids", "row 1 has -2147483649 at position 0"},
		"null tokens":  {row{nil, nil}, "input_ids", "input_ids of row 1 is null"},
		"null token":   {row{[]int64{5, null}, nil}, "input_ids", "row 1 has null at position 1"},
		"mask above":   {row{[]int64{5}, []int64{256}}, "loss_mask", "loss_mask of row 1 has 256 at position 0, want 0 to 255"},
		"mask below":   {row{[]int64{5}, []int64{-1}}, "loss_mask", "row 1 has -1 at position 0"},
		"null in mask": {row{[]int64{5}, []int64{null}}, "loss_mask", "row 1 has null at position 0"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := stream(t, tokenColumns(i64, i64), [][]row{{ok, tc.bad, ok}})
			s, err := hfdata.Open(data)
			if err != nil {
				t.Fatal(err)
			}
			checkRow(t, s, 0, ok)
			checkRow(t, s, 2, ok)
			_, _, err = s.Row(1)
			de := hsxtest.DecodeError(t, err, len(data))
			if de.Tensor != tc.tensor || de.Offset < 0 || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Row(1): got error %v, want one about %s with %q", err, tc.tensor, tc.want)
			}
			for _, i := range []int{-1, 3} {
				_, _, err := s.Row(i)
				hsxtest.CheckDecodeError(t, err, len(data))
			}
		})
	}
}

// Offsets that leave the column are found by the row that has them.
func TestBadOffsets(t *testing.T) {
	t.Parallel()
	data := bytes.Clone(hsxtest.Golden(t, "speculators.arrow"))
	offsets := binary.LittleEndian.AppendUint32(nil, 0)
	for _, v := range []uint32{1, 10, 74, 138, 202} {
		offsets = binary.LittleEndian.AppendUint32(offsets, v)
	}
	at := bytes.Index(data, offsets)
	if at < 0 {
		t.Fatal("golden file does not have the offsets that this test changes")
	}
	binary.LittleEndian.PutUint32(data[at+8:], 1<<30)
	s, err := hfdata.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, false, true, true} {
		if _, _, err := s.Row(i); (err == nil) != want {
			t.Errorf("Row(%d): got error %v, want one: %v", i, err, !want)
		}
	}
}

func TestIsStream(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]bool{"": false, "\xff\xff\xff": false, "\xff\xff\xff\xff": true, "\xff\xff\xff\xff\x01": true, "ARROW1": false} {
		if got := hfdata.IsStream([]byte(head)); got != want {
			t.Errorf("IsStream(%q) = %v, want %v", head, got, want)
		}
	}
}
