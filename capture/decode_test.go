package capture_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"hsx/capture"
	"hsx/format"
	"hsx/format/safetensors"
	"hsx/internal/hsxtest"
	"hsx/internal/mapped"
)

func gzipped(tb testing.TB, data []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, err := z.Write(data)
	if err := errors.Join(err, z.Close()); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func zstded(tb testing.TB, data []byte, opts ...zstd.EOption) []byte {
	tb.Helper()
	z, err := zstd.NewWriter(nil, append([]zstd.EOption{zstd.WithEncoderConcurrency(1)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = z.Close() }() // EncodeAll keeps nothing
	return z.EncodeAll(data, nil)
}

// streamed is compressed without its size being known, as by a pipe.
func streamed(tb testing.TB, data []byte, window int) []byte {
	tb.Helper()
	var buf bytes.Buffer
	z, err := zstd.NewWriter(&buf, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		tb.Fatal(err)
	}
	for chunk := range bytes.SplitAfterSeq(data, []byte("\n")) {
		if _, err := z.Write(chunk); err != nil {
			tb.Fatal(err)
		}
		if err := z.Flush(); err != nil {
			tb.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func TestDecode(t *testing.T) {
	t.Parallel()
	st := dump(t, 3)
	tests := map[string]struct {
		data                []byte
		path                string
		name, side, ignored string
		note                string
		answers             int
	}{
		"torch":                       {data: hsxtest.Golden(t, "specforge/rows_0-2000/data_0.ckpt"), path: "x.safetensors", name: "torch archive"},
		"torch without extension":     {data: hsxtest.Golden(t, "trtllm/dp_0_0.pt"), path: "x", name: "torch archive"},
		"safetensors":                 {data: st, path: "x.ckpt", name: "safetensors file"},
		"npz":                         {data: hsxtest.Golden(t, "npz/s03.npz"), path: "x.ckpt", name: "npz archive"},
		"npy":                         {data: hsxtest.Golden(t, "npy/s03/input_ids.npy"), path: "x.bin", name: "npy array"},
		"gzip":                        {data: gzipped(t, st), path: "x.pt", name: "safetensors file in gzip"},
		"gzip of torch":               {data: hsxtest.Golden(t, "gz/data_0.ckpt.gz"), path: "data_0.ckpt.gz", name: "torch archive in gzip"},
		"gzip in members":             {data: append(gzipped(t, st[:10]), gzipped(t, st[10:])...), path: "x", name: "safetensors file in gzip"},
		"zstd":                        {data: zstded(t, st), path: "x.gz", name: "safetensors file in zstd"},
		"zstd of a small stream":      {data: streamed(t, st, 8<<20), path: "x.zst", name: "safetensors file in zstd"},
		"plain under a packed name":   {data: st, path: "x.safetensors.gz", name: "safetensors file", note: "name ends in .gz, the content is a plain safetensors file"},
		"plain under another":         {data: st, path: "x.zst", name: "safetensors file", note: "name ends in .zst"},
		"stream of token columns":     {data: hsxtest.Golden(t, "speculators/data-00000-of-00001.arrow"), path: "x.pt", name: "Arrow stream", side: "token columns of a Hugging Face dataset, 5 rows"},
		"answer":                      {data: hsxtest.Golden(t, "sglang/response_0.json"), path: "x.pt", name: "SGLang answer", answers: 1},
		"answers":                     {data: hsxtest.Golden(t, "sglang_batch/response.json"), path: "x", name: "SGLang answer", answers: 2},
		"request":                     {data: hsxtest.Golden(t, "sglang/request_0.json"), path: "x.pt", name: "JSON document", side: "request to an SGLang server"},
		"state":                       {data: hsxtest.Golden(t, "speculators/state.json"), path: "x", name: "JSON document", side: "Hugging Face dataset state"},
		"config of speculators v1":    {data: hsxtest.Golden(t, "v1/data_config.json"), path: "x", name: "JSON document", side: "speculators v1 data_config.json"},
		"lengths":                     {data: hsxtest.Golden(t, "v1/sample_lengths.json"), path: "x", name: "JSON document", side: "sample lengths"},
		"other JSON":                  {data: []byte(` {"a": 1}`), path: "notes.json", name: "JSON document", ignored: "JSON document of no known kind"},
		"a list":                      {data: []byte(`[1, 2]`), path: "notes", name: "JSON document", ignored: "JSON document of no known kind"},
		"prompts as lines of JSON":    {data: []byte("{\"prompt\": 1}\n{\"prompt\": 2}\n"), path: "prompts.jsonl", name: "file", ignored: "begins like JSON and is none"},
		"settings":                    {data: []byte("[section]\nkey = 1\n"), path: "config.toml", name: "file", ignored: "begins like JSON and is none"},
		"a template":                  {data: []byte("{% for m in messages %}"), path: "chat_template.jinja", name: "file", ignored: "begins like JSON and is none"},
		"a README":                    {data: []byte("# Dumps\n"), path: "README.md", name: "file", ignored: "content of no known kind (it begins with 23 20 44 75 6d 70 73 0a)"},
		"a packed README":             {data: gzipped(t, []byte("# D")), path: "README.md.gz", name: "file in gzip", ignored: "content of no known kind (it begins with 23 20 44)"},
		"a safetensors' large header": {data: append([]byte("\x00\x01\x00\x00\x00\x00\x00\x00{"), bytes.Repeat([]byte{' '}, 7)...), path: "x", name: ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := capture.Decode(tc.data, tc.path)
			if tc.name == "" {
				if err == nil {
					t.Errorf("Decode: got %+v, want an error", c)
				}
				return
			}
			if err != nil {
				t.Fatalf("Decode: got error %v", err)
			}
			if c.Name != tc.name || c.Side != tc.side || c.Ignored != tc.ignored || c.Answers != tc.answers {
				t.Errorf("Decode: got %+v, want %q, side %q, ignored %q, %d answers", c, tc.name, tc.side, tc.ignored, tc.answers)
			}
			if notes := strings.Join(c.Notes, "\n"); tc.note == "" && notes != "" || !strings.Contains(notes, tc.note) {
				t.Errorf("Decode: got notes %q, want %q", notes, tc.note)
			}
			if dumped := c.Value != nil || c.Answers > 0; dumped == (tc.side != "" || tc.ignored != "") {
				t.Errorf("Decode: got value %v beside side %q and ignored %q, want exactly one", c.Value, c.Side, c.Ignored)
			}
		})
	}
}

func TestDecodeRefuses(t *testing.T) {
	t.Parallel()
	st := dump(t, 3)
	zs, gz := zstded(t, st), gzipped(t, st)
	damaged := func(data []byte, at int) []byte {
		data = bytes.Clone(data)
		data[(at+len(data))%len(data)] ^= 0x40
		return data
	}
	zeros := make([]byte, 64<<20)
	tests := map[string]struct {
		data   []byte
		path   string
		kind   error
		offset int64 // -2: any that is in the file
		parts  string
	}{
		"empty":                       {path: "x.pt", kind: format.ErrCorrupt, parts: "file is empty (0 bytes)"},
		"empty under any name":        {path: "README", kind: format.ErrCorrupt, parts: "file is empty (0 bytes)"},
		"empty in gzip":               {data: gzipped(t, nil), path: "x", kind: format.ErrCorrupt, parts: "file is empty (0 bytes)"},
		"empty in zstd":               {data: zstded(t, nil, zstd.WithZeroFrames(true)), path: "x", kind: format.ErrCorrupt, parts: "file is empty (0 bytes)"},
		"gzip cut":                    {data: gz[:len(gz)/2], path: "x.gz", kind: format.ErrCorrupt, offset: -2, parts: "gzip|truncated: the file ends within the compressed data"},
		"gzip cut in its header":      {data: gz[:5], path: "x.gz", kind: format.ErrCorrupt, parts: "gzip|header"},
		"gzip cut in its sum":         {data: gz[:len(gz)-3], path: "x.gz", kind: format.ErrCorrupt, offset: -2, parts: "truncated"},
		"gzip with a wrong sum":       {data: damaged(gz, -8), path: "x.gz", kind: format.ErrCorrupt, offset: -2, parts: "gzip|checksum differs"},
		"gzip with a tail":            {data: append(bytes.Clone(gz), "tail of ten bytes"...), path: "x.gz", kind: format.ErrCorrupt, offset: -2, parts: "compressed data is damaged"},
		"gzip bomb":                   {data: gzipped(t, zeros), path: "x.gz", kind: format.ErrLimit, offset: -2, parts: "grow to more than|100 times"},
		"gzip in gzip":                {data: gzipped(t, gz), path: "x.gz", kind: format.ErrUnsupported, offset: -1, parts: "nested compression: the unpacked bytes are gzip again"},
		"zstd cut":                    {data: zs[:len(zs)/2], path: "x.zst", kind: format.ErrCorrupt, offset: -2, parts: "zstd|truncated"},
		"zstd cut in its header":      {data: zs[:5], path: "x.zst", kind: format.ErrCorrupt, offset: -2, parts: "truncated"},
		"zstd with a wrong sum":       {data: damaged(zs, -1), path: "x.zst", kind: format.ErrCorrupt, offset: -2, parts: "zstd|checksum differs"},
		"zstd with a tail":            {data: append(bytes.Clone(zs), "tail"...), path: "x.zst", kind: format.ErrCorrupt, offset: -2, parts: "zstd"},
		"zstd bomb":                   {data: zstded(t, zeros), path: "x.zst", kind: format.ErrLimit, offset: -2, parts: "zstd"},
		"zstd streamed bomb":          {data: streamed(t, bytes.Repeat(append(make([]byte, 1<<20), '\n'), 20), 1<<20), path: "x.zst", kind: format.ErrLimit, offset: -2, parts: "grow to more than"},
		"zstd window":                 {data: streamed(t, []byte("a\nb\n"), 64<<20), path: "x.zst", kind: format.ErrLimit, offset: -2, parts: "window is larger than a file of"},
		"zstd in gzip":                {data: gzipped(t, zs), path: "x.gz", kind: format.ErrUnsupported, offset: -1, parts: "are zstd again"},
		"Arrow file":                  {data: []byte("ARROW1\x00\x00"), path: "x.arrow", kind: format.ErrUnsupported, parts: "Arrow file|not a dump of any known producer"},
		"NMET":                        {data: []byte("TEMN\x01\x00\x00\x00"), path: "x.bin", kind: format.ErrUnsupported, parts: "Automodel's wire format"},
		"bare pickle":                 {data: []byte("\x80\x04K\x01."), path: "x.pkl", kind: format.ErrUnsupported, offset: -2, parts: "pickle"},
		"hostile bare pickle":         {data: []byte("\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."), path: "x.pt", kind: format.ErrUnsupported, offset: -2, parts: "os.system"},
		"torch before 1.6":            {data: hsxtest.Golden(t, "legacy/data_0.ckpt"), path: "data_0.ckpt", kind: format.ErrUnsupported, offset: -2, parts: "old non-zip format"},
		"torch cut":                   {data: hsxtest.Golden(t, "trtllm/dp_0_0.pt")[:5000], path: "x", kind: format.ErrCorrupt, offset: -2, parts: "torch archive"},
		"safetensors cut":             {data: st[:len(st)-1], path: "x.ckpt", kind: format.ErrCorrupt, offset: -2, parts: "safetensors"},
		"safetensors cut in 7 bytes":  {data: st[:7], path: "x.safetensors", kind: format.ErrCorrupt, offset: -2, parts: "safetensors"},
		"npz cut":                     {data: hsxtest.Golden(t, "npz/s03.npz")[:5000], path: "x.npz", kind: format.ErrCorrupt, offset: -2, parts: "npz"},
		"stream cut":                  {data: hsxtest.Golden(t, "speculators/data-00000-of-00001.arrow")[:3000], path: "x", kind: format.ErrCorrupt, offset: -2, parts: "arrow stream"},
		"answer cut":                  {data: hsxtest.Golden(t, "sglang/response_0.json")[:9000], path: "x", kind: format.ErrCorrupt, offset: 9000, parts: "sglang json|truncated"},
		"JSON cut":                    {data: []byte(`{"_data_files": [`), path: "state.json", kind: format.ErrCorrupt, offset: -2, parts: "JSON document|unexpected end"},
		"not JSON in a dump's name":   {data: []byte("{% x %}"), path: "x.ckpt", kind: format.ErrCorrupt, offset: -2, parts: "JSON document"},
		"JSON in a dump's name":       {data: []byte(`{"error": "not found"}`), path: "data_0.ckpt", kind: format.ErrUnsupported, parts: "of no known kind, and no dump"},
		"text in a dump's name":       {data: []byte("<html>"), path: "data_0.ckpt.gz", kind: format.ErrUnsupported, offset: -2, parts: "torch archive"},
		"text in a dump's name, .npy": {data: []byte("<html>"), path: "a.npy", kind: format.ErrUnsupported, offset: -2, parts: "npy"},
		"text in a dump's name, .npz": {data: []byte("<html>"), path: "a.npz", kind: format.ErrUnsupported, offset: -2, parts: "npz"},
		"text in a dump's name, st":   {data: []byte("<html><head>"), path: "a.safetensors", kind: format.ErrLimit, parts: "safetensors|header length"},
		"text in a dump's name, IPC":  {data: []byte("<html>"), path: "a.arrow", kind: format.ErrUnsupported, offset: -2, parts: "arrow stream"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, err := capture.Decode(tc.data, tc.path)
			var de *format.DecodeError
			if !errors.As(err, &de) {
				t.Fatalf("Decode: got %+v, error %v, want a DecodeError", c, err)
			}
			if !errors.Is(de.Kind, tc.kind) {
				t.Errorf("Decode: got error %q of kind %v, want %v", err, de.Kind, tc.kind)
			}
			if tc.offset == -2 && de.Offset >= -1 && de.Offset <= 1<<20 {
				tc.offset = de.Offset
			}
			if de.Offset != tc.offset {
				t.Errorf("Decode: got error %q at byte %d, want %d", err, de.Offset, tc.offset)
			}
			contains(t, "Decode", err.Error(), strings.Split(tc.parts, "|")...)
		})
	}
}

// TestWrongNames puts dumps under names of other encodings: the content decides.
func TestWrongNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, "a.npy", dump(t, 2))
	write(t, dir, "b.json", dump(t, 2))
	write(t, dir, "c", hsxtest.Golden(t, "specforge/rows_0-2000/data_0.ckpt"))
	write(t, dir, "d.pt", hsxtest.Golden(t, "npz/s03.npz"))
	write(t, dir, "e.txt", zstded(t, dump(t, 2)))
	r := ingest(t, &record{}, capture.Options{}, dir)
	if got, want := r.ids(), "a.npy b.json c d.pt e.txt"; got != want || r.stats.Rejected != 0 {
		t.Errorf("samples: got %s, rejections %q, want %s", got, r.reasons(), want)
	}
}

// TestRejectionPlace says where a rejection's place comes from.
func TestRejectionPlace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	st := dump(t, 3)
	write(t, dir, "a.safetensors", st[:len(st)-1])
	write(t, dir, "b.safetensors", encode(t, tensor("token_ids", format.Float32, 3), tensor("hidden_states", format.BFloat16, 3, 2, 8)))
	write(t, dir, "c.safetensors", encode(t, tensor("foo", format.Float32, 3, 2)))
	wrong := bytes.Clone(st)
	copy(wrong[bytes.Index(wrong, []byte("BF16")):], "QQ16")
	write(t, dir, "d.safetensors", wrong)
	r := ingest(t, &record{}, capture.Options{}, dir)
	if len(r.rejected) != 4 {
		t.Fatalf("rejections: got %q, want 4", r.reasons())
	}
	if a := r.rejected[0]; a.Offset < 0 || a.Bytes != int64(len(st)-1) || a.ModTime == 0 {
		t.Errorf("a cut file: got %+v, want its size, its time and a place", a)
	}
	if b := r.rejected[1]; b.Offset != -1 || b.Tensor != "token_ids" {
		t.Errorf("ids of floats: got %+v, want the tensor and no place", b)
	}
	if c := r.rejected[2]; c.Offset != -1 || c.Tensor != "" {
		t.Errorf("unknown producer: got %+v, want neither tensor nor place", c)
	}
	if d := r.rejected[3]; d.Offset <= 0 || d.Tensor != "hidden_states" {
		t.Errorf("unknown dtype: got %+v, want the tensor and a place", d)
	}
}

// TestCompressedFileShrinks reads packed data of a file that was cut while it was
// mapped: the decoders have to read in the goroutine that is guarded.
func TestCompressedFileShrinks(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(noise) // never fails
	for name, data := range map[string][]byte{"gzip": gzipped(t, noise), "zstd": zstded(t, noise)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := write(t, t.TempDir(), "x", data)
			f, err := mapped.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = f.Close() }()
			if err := os.Truncate(path, 4096); err != nil {
				t.Fatal(err)
			}
			err = mapped.Guard(func() error {
				_, err := capture.Decode(f.Bytes(), filepath.Base(path))
				return err
			})
			if !errors.Is(err, mapped.ErrFault) {
				t.Errorf("Decode: got error %v, want %v", err, mapped.ErrFault)
			}
		})
	}
}

// TestDecodeHeaderLengths has safetensors files of every header length up to some
// kilobytes: the length is the first thing in the file, and looks like other formats'
// magic numbers.
func TestDecodeHeaderLengths(t *testing.T) {
	t.Parallel()
	for n := 0; n < 4096; n += 8 {
		var b bytes.Buffer
		meta := map[string]string{"x": strings.Repeat("a", n)}
		if err := safetensors.Encode(&b, []*format.Tensor{tensor("token_ids", format.Int64, 1)}, meta); err != nil {
			t.Fatal(err)
		}
		c, err := capture.Decode(b.Bytes(), "x.safetensors")
		if err != nil || c.Name != "safetensors file" {
			t.Fatalf("header of % x: got %v, error %v, want a safetensors file", b.Bytes()[:8], c, err)
		}
	}
}
