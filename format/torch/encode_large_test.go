//go:build unix && (amd64 || arm64)

package torch_test

import (
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/torch"
)

// pages are n bytes of zeros that take memory only where they are written.
func pages(t *testing.T, n int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatalf("map %d bytes: %v", n, err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// holes keeps what is written, but for long writes, which are known to be of zeros.
type holes struct {
	mem []byte
	n   int
}

func (h *holes) Write(p []byte) (int, error) {
	if len(p) < 64<<10 {
		copy(h.mem[h.n:], p)
	}
	h.n += len(p)
	return len(p), nil
}

// TestEncodeLarge writes and reads a tensor of more than 4 GiB, and small ones that lie
// behind it. The bytes were compared once with those of torch 2.13: they are the same.
func TestEncodeLarge(t *testing.T) {
	const size = 4<<30 + 10
	in := fields("a", zeros(format.Int64, 3),
		"big", &format.Tensor{DType: format.Uint8, Shape: []int64{size}, Data: pages(t, size)},
		"b", &format.Tensor{DType: format.Int32, Shape: []int64{2}, Data: []byte("12345678")}, "e", zeros(format.Float32, 0))
	out := &holes{mem: pages(t, size+1<<20)}
	if err := torch.Encode(out, "big", in); err != nil {
		t.Fatalf("Encode: got error %v", err)
	}
	data := out.mem[:out.n]
	got := record(t, data, torch.Options{SkipCRC: true}) // checkZip verifies them all
	if diff := cmp.Diff(in.Keys(), got.Keys()); diff != "" {
		t.Fatalf("keys (-want +got):\n%s", diff)
	}
	if n := len(got.Tensor("big").Data); n != size {
		t.Errorf("got %d bytes, want %d", n, size)
	}
	if b := got.Tensor("b"); string(b.Data) != "12345678" || !within(data, b.Data) {
		t.Errorf("got %+v, want the elements that were written", b)
	}
	checkZip(t, data, []string{"big/data.pkl", "big/.format_version", "big/.storage_alignment", "big/byteorder",
		"big/data/0", "big/data/1", "big/data/2", "big/data/3", "big/version"})
}
