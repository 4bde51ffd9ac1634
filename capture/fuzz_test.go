package capture_test

import (
	"os"
	"strings"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
)

// facts settle what the dumps of containers leave open.
func facts() producer.Facts {
	return producer.Facts{Layers: format.Layers{2, 30}, Final: producer.FinalNone}
}

// containers are dumps in every encoding that is read, each small.
func containers(tb testing.TB) map[string][]byte {
	tb.Helper()
	st := dump(tb, 3)
	return map[string][]byte{
		"torch":       hsxtest.Golden(tb, "specforge/rows_0-2000/data_0.ckpt"),
		"torch list":  hsxtest.Golden(tb, "trtllm/dp_0_0.pt"),
		"safetensors": st,
		"several":     several(tb, 3, 2, 1),
		"npz":         hsxtest.Golden(tb, "npz/s03.npz"),
		"npy":         hsxtest.Golden(tb, "npy/s03/input_ids.npy"),
		"stream":      hsxtest.Golden(tb, "speculators/data-00000-of-00001.arrow"),
		"answer":      []byte(answer(3, "9", `"prompt_tokens":3,"completion_tokens":1,`)),
		"gzip":        gzipped(tb, st),
		"zstd":        zstded(tb, st),
	}
}

// checkAlloc wants no more than a small multiple of the input, beyond what decoders
// take once. Compressed input may grow by the ratio that is allowed it.
func checkAlloc(tb testing.TB, data []byte, got uint64) {
	tb.Helper()
	limit := uint64(1<<20 + 128*len(data))
	if out, compressed, _ := capture.Decompress(data); compressed {
		// A window, and a buffer that doubles up to the bound.
		limit += 2*capture.MinWindow + 4*uint64(capture.MaxRatio*len(data)+capture.FreeBytes) + 128*uint64(len(out))
	}
	if got > limit {
		tb.Fatalf("%d bytes were allocated for an input of %d, want at most %d", got, len(data), limit)
	}
}

// FuzzDecode reads any bytes under the names that matter.
func FuzzDecode(f *testing.F) {
	for _, data := range containers(f) {
		f.Add(data, ".pt")
		f.Add(data[:len(data)*2/3], ".safetensors")
	}
	for _, s := range []string{"", "{", `{"a":1}`, "[1,2]", "ARROW1\x00\x00", "TEMN\x01", "\x80\x04K\x01.", "\xff\xff\xff\xff", "# text", "PK\x03\x04"} {
		for _, ext := range []string{"", ".json", ".npy", ".npz.gz", ".arrow"} {
			f.Add([]byte(s), ext)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, ext string) {
		var c capture.Content
		var err error
		checkAlloc(t, data, hsxtest.Allocated(func() { c, err = capture.Decode(data, "x"+ext) }))
		if err != nil {
			hsxtest.CheckDecodeError(t, err, capture.MaxRatio*len(data)+capture.FreeBytes)
			return
		}
		kinds := 0
		for _, is := range []bool{c.Side != "", c.Ignored != "", c.Answers > 0} {
			if is {
				kinds++
			}
		}
		if kinds > 1 || kinds > 0 && c.Value != nil || c.Name == "" {
			t.Fatalf("got %+v, want one kind of content, with a name", c)
		}
		checkTensors(t, c.Value, 0)
	})
}

func checkTensors(tb testing.TB, v format.Value, depth int) {
	switch v := v.(type) {
	case *format.Tensor:
		if err := v.Check(); err != nil {
			tb.Fatal(err)
		}
	case *format.Record:
		for _, f := range v.Fields {
			checkTensors(tb, f.Value, depth+1)
		}
	case []format.Value:
		for _, e := range v {
			checkTensors(tb, e, depth+1)
		}
	}
}

func FuzzDecompress(f *testing.F) {
	for _, data := range containers(f) {
		for _, packed := range [][]byte{gzipped(f, data), zstded(f, data)} {
			f.Add(packed)
			f.Add(packed[:len(packed)-1])
		}
	}
	f.Add(zstded(f, make([]byte, 4<<20)))
	f.Add(gzipped(f, gzipped(f, []byte("x"))))
	f.Fuzz(func(t *testing.T, data []byte) {
		var out []byte
		var compressed bool
		var err error
		checkAlloc(t, data, hsxtest.Allocated(func() { out, compressed, err = capture.Decompress(data) }))
		if err != nil {
			hsxtest.CheckDecodeError(t, err, capture.MaxRatio*len(data)+capture.FreeBytes)
			return
		}
		if len(out) > capture.MaxRatio*len(data)+capture.FreeBytes {
			t.Fatalf("%d bytes grew to %d", len(data), len(out))
		}
		if !compressed && out != nil {
			t.Fatalf("%d bytes came out of what is not compressed", len(out))
		}
	})
}

// FuzzRun takes any bytes through a whole run: the run itself does not end, and what
// reaches the sink is sound.
func FuzzRun(f *testing.F) {
	for _, data := range containers(f) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := t.TempDir() + "/x.pt"
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var r record
		r.put = func(s *format.Sample) error {
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			return nil
		}
		ingest(t, &r, capture.Options{Facts: facts()}, path)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if n := len(r.taken) + len(r.rejected) + r.stats.Side + r.stats.Ignored; n == 0 {
			t.Fatalf("got %+v, want a word on the only input", r.stats)
		}
		for _, rej := range r.rejected {
			if rej.Reason == "" || strings.Contains(rej.Reason, "\n") && len(data) < 64 {
				t.Fatalf("got reason %q, want one line", rej.Reason)
			}
		}
	})
}
