package mapped_test

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"hsx/internal/mapped"
)

func TestScratch(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const most = 10 << 20
	s, err := mapped.NewScratch(dir, "body-*.tmp", most)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("directory has %v (error %v), want no name", left, err)
	}
	var want []byte
	for _, n := range []int64{1, 4096, 4097, 3 << 20, most} {
		if err := s.Grow(n); err != nil {
			t.Fatal(err)
		}
		got := s.Bytes()
		if int64(len(got)) != n || !bytes.Equal(got[:len(want)], want) {
			t.Fatalf("grown to %d: it has %d bytes, or others than were written", n, len(got))
		}
		for i := len(want); i < len(got); i++ {
			got[i] = byte(i * 7)
		}
		want = bytes.Clone(got)
	}
	if err := s.Grow(5); err != nil || len(s.Bytes()) != most {
		t.Errorf("Grow(5): %d bytes, error %v, want it as it was", len(s.Bytes()), err)
	}
	if err := s.Grow(most + 1); err == nil {
		t.Errorf("Grow(%d): got no error", most+1)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := mapped.NewScratch(dir, "*", 0); err == nil {
		t.Error("NewScratch of no bytes: got no error")
	}
}

// TestScratchPastTheEnd reads into memory that the file does not have: Go code faults,
// and a system call is told so.
func TestScratchPastTheEnd(t *testing.T) {
	t.Parallel()
	s, err := mapped.NewScratch(t.TempDir(), "*", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.Grow(100); err != nil {
		t.Fatal(err)
	}
	beyond := s.Bytes()[: 1<<20 : 1<<20][1<<19:]
	if err := mapped.Guard(func() error { beyond[0] = 1; return nil }); !errors.Is(err, mapped.ErrFault) {
		t.Errorf("store: got error %v, want %v", err, mapped.ErrFault)
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = zero.Close() }()
	if n, err := zero.Read(beyond); !errors.Is(err, unix.EFAULT) {
		t.Errorf("read: got %d bytes, error %v, want %v", n, err, unix.EFAULT)
	}
}
