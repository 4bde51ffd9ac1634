package torch_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"hsx/format"
	"hsx/format/torch"
	"hsx/internal/hsxtest"
)

// numbers are the elements of a tensor in row-major order.
func numbers(t *format.Tensor) []float64 {
	stride := t.Strides
	if stride == nil {
		stride = make([]int64, len(t.Shape))
		n := int64(1)
		for i := len(stride) - 1; i >= 0; i-- {
			stride[i], n = n, n*t.Shape[i]
		}
	}
	elems, _ := format.Elems(t.Shape)
	var out []float64
	for i := range elems {
		at, rest := int64(0), i
		for d := len(t.Shape) - 1; d >= 0; d-- {
			at += rest % t.Shape[d] * stride[d]
			rest /= t.Shape[d]
		}
		out = append(out, number(t.DType, t.Data[at*int64(t.DType.Size()):]))
	}
	return out
}

func number(d format.DType, b []byte) float64 {
	switch d {
	case format.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case format.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case format.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16))
	case format.Float16: // normal numbers and 0 only
		h := uint32(binary.LittleEndian.Uint16(b))
		if h&0x7fff == 0 {
			return 0
		}
		return float64(math.Float32frombits(h&0x8000<<16 | (h&0x7fff)<<13 + (127-15)<<23))
	}
	var v uint64
	for i := range d.Size() {
		v |= uint64(b[i]) << (8 * i)
	}
	return float64(v)
}

func bits32(v float64) uint32 { return math.Float32bits(float32(v)) }

func TestDecodeRefusesGoldens(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		kind   error
		tensor string
		text   string
		offset int64
	}{
		"pickle_os_system.ckpt":       {format.ErrUnsupported, "", `refused global "os.system"`, 62},
		"pickle_os_system_bare.ckpt":  {format.ErrUnsupported, "", `refused global "os.system"`, 2},
		"pickle_eval.ckpt":            {format.ErrUnsupported, "", `refused global "builtins.eval"`, 47},
		"pickle_numpy.ckpt":           {format.ErrUnsupported, "", `refused global "numpy.core.multiarray._reconstruct": the record holds NumPy`, 63},
		"pickle_obj.ckpt":             {format.ErrUnsupported, "", `refused global "os.system"`, 48},
		"pickle_stack_global.ckpt":    {format.ErrUnsupported, "", `refused opcode STACK_GLOBAL (0x93), naming "posix.system"`, 62},
		"pickle_inst.ckpt":            {format.ErrUnsupported, "", `refused opcode INST (0x69)`, 57},
		"pickle_ext.ckpt":             {format.ErrUnsupported, "", `refused opcode EXT1 (0x82)`, 47},
		"pickle_persid_text.ckpt":     {format.ErrUnsupported, "", `refused opcode PERSID (0x50)`, 47},
		"pickle_build_on_tensor.ckpt": {format.ErrUnsupported, "", `refused opcode BUILD (0x62) on a tensor`, 204},
		"pickle_laughs.ckpt":          {format.ErrLimit, "", `more than 1000000 values`, -1},
		"pickle_long_int.ckpt":        {format.ErrCorrupt, "", `pickle is truncated`, 47},
		"pickle_string_length.ckpt":   {format.ErrCorrupt, "", `pickle is truncated`, 47},
		"pickle_no_stop.ckpt":         {format.ErrCorrupt, "", `pickle is truncated`, 48},
		"pickle_memo_index.ckpt":      {format.ErrLimit, "", `memo index is 2147483647`, 48},
		"pickle_memo_missing.ckpt":    {format.ErrCorrupt, "", `memo slot 7`, 47},
		"pickle_stack_underflow.ckpt": {format.ErrCorrupt, "", `stack underflow`, 47},
		"pickle_self_cycle.ckpt":      {format.ErrCorrupt, "[0]", `contains itself`, -1},
		"torch_int_key.pt":            {format.ErrUnsupported, "", `has a key that is an integer`, -1},
		"torch_float8.pt":             {format.ErrUnsupported, "", `refused global "torch.float8_e4m3fn"`, 228},
		"torch_complex.pt":            {format.ErrUnsupported, "", `refused global "torch.ComplexFloatStorage"`, 128},
		"torch_quantised.pt":          {format.ErrUnsupported, "", `refused global "torch._utils._rebuild_qtensor"`, 77},
		"torch_negative_bit.pt":       {format.ErrUnsupported, "", `hooks or metadata`, 236},
		"torch_protocol4.pt":          {format.ErrUnsupported, "torch_protocol4/data.pkl", `pickle protocol is 4, want 2`, 64},
		"torch_legacy.pt":             {format.ErrUnsupported, "", `old non-zip format`, -1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := torch.Decode(hsxtest.Golden(t, name), torch.Options{})
			wantError(t, err, tt.kind, tt.tensor, tt.text)
			if e := (*format.DecodeError)(nil); errors.As(err, &e) && e.Offset != tt.offset {
				t.Errorf("got offset %d, want %d (%v)", e.Offset, tt.offset, err)
			}
		})
	}
}

func TestDecodeRefusesArchives(t *testing.T) {
	t.Parallel()
	pickle := []byte("\x80\x02}.")
	plain := []file{{name: "data.pkl", data: pickle}, {name: "version", data: []byte("3\n")}}
	with := func(f ...file) []byte { return layout{prefix: "x/"}.build(append(f, plain...)...) }
	good := with()
	tests := map[string]struct {
		data   []byte
		kind   error
		tensor string
		text   string
	}{
		"empty":            {nil, format.ErrCorrupt, "", "file is empty"},
		"two bytes":        {good[:2], format.ErrCorrupt, "", "truncated"},
		"no zip":           {[]byte("hello"), format.ErrUnsupported, "", "zip signature"},
		"leading":          {append([]byte{0, 0}, good...), format.ErrCorrupt, "", "does not begin at byte 0"},
		"leading zip":      {append([]byte("PK\x03\x04"), good...), format.ErrCorrupt, "", "does not end at byte"},
		"trailing":         {append(good[:len(good):len(good)], "junk"...), format.ErrCorrupt, "", "4 bytes follow"},
		"trailing zip64":   {append(layout{prefix: "x/", zip64: true}.build(plain...), "junk"...), format.ErrCorrupt, "", "4 bytes follow"},
		"count":            {layout{prefix: "x/", entries: 5000}.build(plain...), format.ErrCorrupt, "", "counts 5002 members"},
		"count by one":     {layout{prefix: "x/", entries: -1}.build(plain...), format.ErrCorrupt, "", "bytes after its 1 members"},
		"count zip64":      {layout{prefix: "x/", zip64: true, entries: 1 << 40}.build(plain...), format.ErrCorrupt, "", "counts 1099511627778 members"},
		"count negative":   {layout{prefix: "x/", zip64: true, entries: math.MinInt64}.build(plain...), format.ErrCorrupt, "", "central directory"},
		"header":           {with(file{name: "data/0", header: 1}), format.ErrCorrupt, "x/data/0", "begins at byte 1, want 0"},
		"no local header":  {layout{prefix: "x/"}.build(plain[0], file{name: "version", header: 1}), format.ErrCorrupt, "x/version", "no local header"},
		"overlap":          {layout{prefix: "x/"}.build(plain[0], file{name: "version", header: -20}), format.ErrCorrupt, "x/version", `inside "x/data.pkl"`},
		"past directory":   {layout{prefix: "x/"}.build(plain[0], file{name: "version", header: 100}), format.ErrCorrupt, "x/version", "before the directory"},
		"local name":       {with(file{name: "data/0", local: "x/data/1"}), format.ErrCorrupt, "x/data/0", `called "x/data/1"`},
		"compressed":       {with(file{name: "data/0", method: 8}), format.ErrUnsupported, "x/data/0", "compressed"},
		"sizes":            {with(file{name: "data/0", size: 1}), format.ErrUnsupported, "x/data/0", "0 bytes for 1"},
		"encrypted":        {with(file{name: "data/0", flags: 1}), format.ErrUnsupported, "x/data/0", "encrypted"},
		"duplicate":        {with(plain[1]), format.ErrCorrupt, "x/version", "there twice"},
		"dot dot":          {with(file{name: "../evil"}), format.ErrCorrupt, "x/../evil", "plain relative path"},
		"absolute":         {layout{prefix: "/x/"}.build(plain...), format.ErrCorrupt, "/x/data.pkl", "plain relative path"},
		"backslash":        {with(file{name: `a\b`}), format.ErrCorrupt, `x/a\b`, "plain relative path"},
		"nul":              {with(file{name: "a\x00b"}), format.ErrCorrupt, "x/a\x00b", "plain relative path"},
		"two prefixes":     {layout{}.build(file{name: "a/data.pkl", data: pickle}, file{name: "b/version"}), format.ErrCorrupt, "b/version", `outside the directory "a"`},
		"no prefix":        {layout{}.build(plain...), format.ErrCorrupt, "data.pkl", "is in no directory"},
		"no pickle":        {layout{}.build(file{name: "input_ids.npy"}), format.ErrUnsupported, "", "no data.pkl"},
		"pickle too deep":  {layout{prefix: "x/"}.build(file{name: "y/data.pkl", data: pickle}), format.ErrCorrupt, "x/data.pkl", "is missing"},
		"torchscript":      {with(file{name: "constants.pkl"}), format.ErrUnsupported, "x/constants.pkl", "TorchScript"},
		"torchscript code": {with(file{name: "code/__torch__.py"}), format.ErrUnsupported, "x/code/__torch__.py", "TorchScript"},
		"crc":              {with(file{name: "byteorder", data: []byte("little"), crc: 1}), format.ErrCorrupt, "x/byteorder", "CRC-32"},
		"byteorder":        {with(file{name: "byteorder", data: []byte("middle")}), format.ErrCorrupt, "x/byteorder", `"middle", want little or big`},
		"trailing pickle":  {archive("\x80\x02}.}."), format.ErrCorrupt, "x/data.pkl", "2 bytes follow"},
		"stack left":       {archive("\x80\x02}}."), format.ErrCorrupt, "x/data.pkl", "leaves 1 values"},
		"one crc of many":  {with(file{name: "byteorder", data: []byte("little"), crc: -crc32.ChecksumIEEE([]byte("little"))}), format.ErrCorrupt, "x/byteorder", "want 00000000"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := torch.Decode(tt.data, torch.Options{})
			wantError(t, err, tt.kind, tt.tensor, tt.text)
		})
	}
	// What an archive may hold besides: members of others, which are never read.
	r := record(t, with(file{name: "notes/readme.txt", data: []byte("hi"), crc: 1}, file{name: "empty/"}), torch.Options{})
	if len(r.Fields) != 0 {
		t.Errorf("got %d fields, want 0", len(r.Fields))
	}
}

func TestDecodeRefusesTensors(t *testing.T) {
	t.Parallel()
	bf16 := func(elems, offset int64, size, stride []int64) string {
		return tensor("torch\nBFloat16Storage", "0", elems, offset, size, stride)
	}
	i := func(ns ...int64) []int64 { return ns }
	ones := make([]int64, 65)
	tests := map[string]struct {
		value string // of key x, over a storage of 16 elements
		kind  error
		text  string
	}{
		"bounds":          {bf16(16, 1, i(16), i(1)), format.ErrCorrupt, "needs 16 elements from element 1"},
		"bounds by step":  {bf16(16, 0, i(2, 2), i(15, 1)), format.ErrCorrupt, "needs 17 elements"},
		"offset":          {bf16(16, math.MaxInt64, i(1), i(1)), format.ErrCorrupt, "from element 9223372036854775807"},
		"negative offset": {bf16(16, -1, i(1), i(1)), format.ErrCorrupt, "element -1"},
		"negative size":   {bf16(16, 0, i(-1), i(1)), format.ErrCorrupt, "negative"},
		"negative stride": {bf16(16, 15, i(2), i(-1)), format.ErrCorrupt, "negative"},
		"overflow":        {bf16(16, 0, i(1<<40, 1<<40), i(1, 1)), format.ErrCorrupt, "overflows"},
		"overflow stride": {bf16(16, 0, i(3, 3), i(1<<62, 1<<62)), format.ErrCorrupt, "overflows"},
		"empty overflow":  {bf16(16, 0, i(-1, 0), i(1, 1)), format.ErrCorrupt, "negative"},
		"ranks":           {bf16(16, 0, i(4, 4), i(1)), format.ErrCorrupt, "2 sizes and 1 strides"},
		"dims":            {bf16(16, 0, ones, ones), format.ErrLimit, "65 dimensions"},
		"bomb":            {bf16(16, 0, i(1<<20, 1<<20), i(0, 0)), format.ErrLimit, "1099511627776 elements"},
		"windows":         {bf16(16, 0, i(8, 8), i(1, 1)), format.ErrLimit, "64 elements over storage"},
		"broadcast":       {bf16(16, 0, i(2, 8), i(0, 1)), format.ErrUnsupported, "stride 0"},
		"declared":        {bf16(1<<60, 0, i(16), i(1)), format.ErrCorrupt, "declares 1152921504606846976 elements"},
		"negative size2":  {bf16(-1, 0, i(16), i(1)), format.ErrCorrupt, "-1 elements"},
		"missing":         {tensor("torch\nByteStorage", "7", 1, 0, i(1), i(1)), format.ErrCorrupt, `no member "x/data/7"`},
		"typed base":      {tensor("torch.storage\nTypedStorage", "0", 16, 0, i(1), i(1)), format.ErrCorrupt, "storage class"},
		"class value":     {"ctorch\nFloatStorage\n", format.ErrUnsupported, "is the class torch.FloatStorage"},
		"long":            {"\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01", format.ErrUnsupported, "integer of 9 bytes"},
		"call of class":   {"ctorch\nFloatStorage\n)R", format.ErrUnsupported, "refused opcode REDUCE"},
		"arity":           {rebuildV2 + ")R", format.ErrCorrupt, "has 0 arguments"},
		"types":           {rebuildV2 + "(K\x00K\x00K\x00K\x00K\x00K\x00tR", format.ErrCorrupt, "has 6 arguments"},
		"v3 class":        {rebuildV3 + tuple(persID("torch\nHalfStorage", "0", 16), num(0), nums(i(1)), nums(i(1)), "\x89", hooks, "ctorch\nbfloat16\n") + "R", format.ErrCorrupt, "has 7 arguments"},
		"device length":   {"ctorch\ndevice\n" + str(strings.Repeat("x", 65)) + "\x85R", format.ErrCorrupt, "torch.device"},
		"two types":       {tuple(bf16(16, 0, i(1), i(1)), tensor("torch\nHalfStorage", "0", 16, 0, i(1), i(1))), format.ErrCorrupt, "two element types"},
		"share":           {"](" + bf16(16, 0, i(16), i(1)) + "q\x00" + strings.Repeat("h\x00", 5000) + "e", format.ErrLimit, "4 times the archive"},
		"tensors":         {"](" + bf16(16, 0, i(0), i(1)) + "q\x00" + strings.Repeat("h\x00", 20000) + "e", format.ErrLimit, "more than 10000 tensors"},
		"key twice":       {"}(" + str("a") + "N" + str("a") + "Nu", format.ErrCorrupt, `key "a" twice`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := archive(dict("x", tt.value), make([]byte, 32))
			_, err := torch.Decode(data, torch.Options{})
			wantError(t, err, tt.kind, "", tt.text)
		})
	}
}

// TestDecodeLimits holds small files that ask for a lot to a small allocation.
func TestDecodeLimits(t *testing.T) {
	rep := strings.Repeat
	half := "\x80\x02" + rep("]", 900) + rep("a", 899) + "q\x00"
	tests := map[string]struct {
		pickle string
		text   string
	}{
		"marks":         {"\x80\x02" + rep("(", 200_000), "stack holds more than 100000"},
		"values":        {"\x80\x02" + rep("(", 1) + rep(rep("N", 50_000)+"t(", 21), "more than 1000000 values"},
		"nested":        {"\x80\x02" + rep("]", 20_000) + rep("a", 19_999) + ".", "nested more than 1000"},
		"nested dicts":  {"\x80\x02" + rep("}"+str("a"), 5000) + "N" + rep("s", 5000) + ".", "nested more than 1000"},
		"nested shared": {half + rep("]", 900) + "h\x00a" + rep("a", 899) + "\x86.", "nested more than 1000"},
		"string":        {"\x80\x02" + str(rep("x", 1<<20+1)) + ".", "string has 1048577 bytes"},
		"global":        {"\x80\x02c" + rep("x", 300) + "\nx\n.", "more than 256 bytes"},
		"size":          {"\x80\x02" + rep("N", 16<<20) + ".", "pickle has 16777219 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			data := archive(tt.pickle)
			var err error
			got := hsxtest.Allocated(func() { _, err = torch.Decode(data, torch.Options{}) })
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got error %v, want %q in it", err, tt.text)
			}
			if want := 1<<20 + 64*uint64(len(data)); got > want {
				t.Errorf("%d bytes made Decode allocate %d, want at most %d", len(data), got, want)
			}
		})
	}
}

func TestDecodeRefusesPickles(t *testing.T) {
	t.Parallel()
	const od = "ccollections\nOrderedDict\n"
	tests := map[string]struct {
		pickle string
		kind   error
		text   string
	}{
		"no proto":        {"}.", format.ErrCorrupt, "begins with 0x7d"},
		"second proto":    {"\x80\x02\x80\x02}.", format.ErrCorrupt, "PROTO is not the first"},
		"unknown opcode":  {"\x80\x02\xff.", format.ErrCorrupt, "opcode 0xff"},
		"newobj":          {"\x80\x02" + od + ")\x81.", format.ErrUnsupported, "refused opcode NEWOBJ (0x81)"},
		"bytes":           {"\x80\x02C\x01a.", format.ErrUnsupported, "refused opcode SHORT_BINBYTES (0x43)"},
		"negative length": {"\x80\x02\x8b\xff\xff\xff\xff.", format.ErrCorrupt, "length is -1"},
		"utf-8":           {"\x80\x02X\x01\x00\x00\x00\xff.", format.ErrCorrupt, "not UTF-8"},
		"append to tuple": {"\x80\x02)Na.", format.ErrCorrupt, "APPEND to a tuple"},
		"append to none":  {"\x80\x02NNa.", format.ErrCorrupt, "APPEND to None"},
		"set on list":     {"\x80\x02]NNs.", format.ErrCorrupt, "SETITEM on a list"},
		"odd items":       {"\x80\x02}(Nu.", format.ErrCorrupt, "SETITEMS with 1 values"},
		"no mark":         {"\x80\x02}u.", format.ErrCorrupt, "has no mark"},
		"below the mark":  {"\x80\x02N(\x85.", format.ErrCorrupt, "stack underflow"},
		"open mark":       {"\x80\x02}(.", format.ErrCorrupt, "stack underflow"},
		"put on nothing":  {"\x80\x02q\x00.", format.ErrCorrupt, "stack underflow"},
		"call of string":  {"\x80\x02U\x01a)R.", format.ErrCorrupt, "REDUCE of a string"},
		"call with list":  {"\x80\x02" + od + "]R.", format.ErrCorrupt, "with a list, want a tuple"},
		"ordered args":    {"\x80\x02" + od + "]\x85R.", format.ErrCorrupt, "OrderedDict has 1 arguments"},
		"build on dict":   {"\x80\x02}}b.", format.ErrUnsupported, "refused opcode BUILD"},
		"build with none": {"\x80\x02" + od + ")RNb.", format.ErrUnsupported, "with None"},
		"size of strings": {"\x80\x02ctorch\nSize\n(U\x01att\x85R.", format.ErrCorrupt, ""},
		"parameter":       {"\x80\x02ctorch._utils\n_rebuild_parameter\n(N\x88" + hooks + "tR.", format.ErrCorrupt, "has 3 arguments"},
		"id of none":      {"\x80\x02NQ.", format.ErrCorrupt, "persistent id is None"},
		"legacy id":       {"\x80\x02(U\x07storageNNNNNtQ.", format.ErrCorrupt, "6 values"},
		"id types":        {"\x80\x02(U\x07storageNG\x00\x00\x00\x00\x00\x00\x00\x00\x88}tQ.", format.ErrCorrupt, "None, a float, a bool and a dict"},
		"bytes encode":    {"\x80\x02c_codecs\nencode\n.", format.ErrUnsupported, `refused global "_codecs.encode"`},
		"short dtype":     {"\x80\x02ctorch\nbf16\n.", format.ErrUnsupported, `refused global "torch.bf16"`},
		"invalid dtype":   {"\x80\x02ctorch\ninvalid\n.", format.ErrUnsupported, `refused global "torch.invalid"`},
		"cut name":        {"\x80\x02cos", format.ErrCorrupt, "inside the name"},
		"top integer":     {"\x80\x02\x8a\x09\x00\x00\x00\x00\x00\x00\x00\x00\x01.", format.ErrUnsupported, "the top value is an integer"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := torch.Decode(archive(tt.pickle), torch.Options{})
			wantError(t, err, tt.kind, "", tt.text)
		})
	}
}

func TestCheckBarePickle(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data string
		kind error
		text string
	}{
		"plain":        {"\x80\x02}.", format.ErrUnsupported, "a pickle without a torch archive"},
		"protocol 4":   {"\x80\x04\x95\x0b\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.", format.ErrUnsupported, "a pickle without a torch archive"},
		"legacy":       {"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", format.ErrUnsupported, "torch 1.6 or newer"},
		"global":       {"\x80\x03cos\nsystem\n.", format.ErrUnsupported, `refused global "os.system"`},
		"stack global": {"\x80\x04\x8c\x02os\x8c\x06system\x93.", format.ErrUnsupported, `STACK_GLOBAL (0x93), naming "os.system"`},
		"cut":          {"\x80\x02}", format.ErrCorrupt, "truncated"},
		"empty":        {"", format.ErrCorrupt, "truncated"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := torch.CheckBarePickle([]byte(tt.data))
			wantError(t, err, tt.kind, "", tt.text)
			if e := (*format.DecodeError)(nil); errors.As(err, &e) && e.Format != "pickle" {
				t.Errorf("got format %q, want pickle", e.Format)
			}
		})
	}
}
