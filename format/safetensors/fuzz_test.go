package safetensors_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format/safetensors"
	"hsx/internal/hsxtest"
)

func FuzzDecode(f *testing.F) {
	f.Add(hsxtest.Golden(f, "one_token.safetensors"))
	f.Add([]byte("\x02\x00\x00\x00\x00\x00\x00\x00{}"))
	f.Add(file(`{"__metadata__":{"format":"pt","n":[1,{"a":null}]},"x":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}} `, 4))
	f.Add(file(`{"b":{"dtype":"U8","shape":[3],"data_offsets":[1,4]},"e":{"dtype":"F8_E4M3","shape":[0],"data_offsets":[1,1]}}`, 4))
	f.Add(file(one(`"F64"`, `[2305843009213693952]`, `[0,9223372036854775807]`), 8))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\x7f{"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got *safetensors.File
		var err error
		used := hsxtest.Allocated(func() { got, err = safetensors.Decode(data) })
		if bound := allocationBound(data); used > bound {
			t.Errorf("Decode of %d bytes: allocated %d bytes, want at most %d", len(data), used, bound)
		}
		if err != nil {
			hsxtest.CheckDecodeError(t, err, len(data))
			return
		}
		if !safetensors.IsFile(data, int64(len(data))) {
			t.Errorf("IsFile: got false for a file that Decode takes")
		}
		total := 0
		for _, x := range tensors(got.Record) {
			if err := x.Check(); err != nil {
				t.Fatalf("Check: %v", err)
			}
			total += len(x.Data)
		}
		if total > len(data) {
			t.Fatalf("Decode of %d bytes: got tensors of %d bytes", len(data), total)
		}
		again, err := safetensors.Decode(encode(t, tensors(got.Record), got.Metadata))
		if err != nil {
			t.Fatalf("Decode of the re-encoded file: %v", err)
		}
		for _, x := range tensors(got.Record) {
			if diff := cmp.Diff(again.Record.Tensor(x.Name), x, byBytes()); diff != "" {
				t.Errorf("re-encoded %q: got - want +\n%s", x.Name, diff)
			}
		}
		if len(again.Record.Fields) != len(got.Record.Fields) || len(again.Metadata) != len(got.Metadata) {
			t.Errorf("re-encoded: got %q and %q, want %q and %q", again.Record.Keys(), again.Metadata, got.Record.Keys(), got.Metadata)
		}
	})
}
