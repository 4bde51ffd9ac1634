package npy_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/npy"
	"hsx/internal/hsxtest"
)

func FuzzDecode(f *testing.F) {
	for _, name := range []string{"int64.npy", "uint8.npy"} {
		f.Add(hsxtest.Golden(f, name))
	}
	f.Add(file(1, dict("'>f4'", "True", "(2, 3)"), 24))
	f.Add(file(2, dict("'|b1'", "False", "()"), 1))
	f.Add(file(3, `{"shape":(2,1),"descr":"<i2","fortran_order":True}`+"\n", 4))
	f.Add(file(1, dict("[('a', '<f2')]", "False", "(2,)"), 4))
	f.Add(file(1, dict("'|O'", "False", "(1,)"), 4))
	f.Add(file(1, dict("'<f8'", "False", "(1152921504606846976, 0)"), 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got *format.Tensor
		var err error
		used := hsxtest.Allocated(func() { got, err = npy.Decode(data) })
		if bound := allocationBound(data); used > bound {
			t.Errorf("Decode of %d bytes: allocated %d bytes, want at most %d", len(data), used, bound)
		}
		if err != nil {
			hsxtest.CheckDecodeError(t, err, len(data))
			return
		}
		if !npy.IsFile(data) {
			t.Errorf("IsFile: got false for a file that Decode takes")
		}
		checkTensor(t, got)
	})
}

func FuzzDecodeArchive(f *testing.F) {
	one, two := file(1, dict("'|u1'", "False", "(1,)"), 1), file(3, dict("'>u2'", "True", "(2, 2)"), 8)
	f.Add(archive(f, stored("input_ids.npy", hsxtest.Golden(f, "int64.npy")), deflated(f, "loss_mask.npy", hsxtest.Golden(f, "uint8.npy"))))
	f.Add(archive(f))
	f.Add(archive(f, stored("a.npy", one), deflated(f, "b.npy", two)))
	f.Add(archive(f, deflated(f, "a.npy", encode(f, states(32, 32)))))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got *format.Record
		var err error
		used := hsxtest.Allocated(func() { got, err = npy.DecodeArchive(data) })
		if bound := archiveBound(data); used > bound {
			t.Errorf("DecodeArchive of %d bytes: allocated %d bytes, want at most %d", len(data), used, bound)
		}
		if err != nil {
			hsxtest.CheckDecodeError(t, err, len(data))
			return
		}
		for _, key := range got.Keys() {
			x := got.Tensor(key)
			if x.Name != key {
				t.Errorf("DecodeArchive: tensor %q stands under %q", x.Name, key)
			}
			checkTensor(t, x)
		}
	})
}

func checkTensor(t *testing.T, x *format.Tensor) {
	t.Helper()
	if err := x.Check(); err != nil {
		t.Fatalf("Check: %v", err)
	}
	again, err := npy.Decode(encode(t, x))
	if err != nil {
		t.Fatalf("Decode of the re-encoded array: %v", err)
	}
	again.Name = x.Name // which the encoding does not hold
	if diff := cmp.Diff(again, x, byBytes()); diff != "" {
		t.Errorf("re-encoded: got - want +\n%s", diff)
	}
}
