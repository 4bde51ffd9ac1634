package mapped_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"hsx/internal/mapped"
)

// streamFiles are a file and its sparse twin.
func streamFiles(t *testing.T, want []byte) (path string, files map[string]*mapped.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	plain, err := mapped.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	sparse, err := mapped.Sparse(t.TempDir(), int64(len(want)), func(dst io.WriterAt, off, n int64) error {
		_, err := dst.WriteAt(want[off:off+n], off)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = plain.Close(), sparse.Close() })
	return path, map[string]*mapped.File{"plain": plain, "sparse": sparse}
}

func TestStream(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 256 << 10, 256<<10 + 1, 33 << 20} {
		want := make([]byte, n)
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		_, files := streamFiles(t, want)
		for name, f := range files {
			var got []byte
			err := f.Stream(t.Context(), func(part []byte) error { got = append(got, part...); return nil })
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, %d bytes: got %d, the same: %t, error %v", name, n, len(got), bytes.Equal(got, want), err)
			}
		}
	}
}

func TestStreamEnds(t *testing.T) {
	t.Parallel()
	_, files := streamFiles(t, make([]byte, 70<<20))
	mine := errors.New("mine")
	for name, f := range files {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		if err := f.Stream(ctx, func([]byte) error { calls++; return mine }); !errors.Is(err, mine) || calls != 1 {
			t.Errorf("%s: after an error of use: got error %v after %d calls, want mine after one", name, err, calls)
		}
		calls = 0
		err := f.Stream(ctx, func([]byte) error { calls++; cancel(); return nil })
		if !errors.Is(err, context.Canceled) || calls != 1 {
			t.Errorf("%s: canceled in the first part: got error %v after %d calls, want %v after one", name, err, calls, context.Canceled)
		}
	}
}

// TestStreamShrunk cuts a file while it is read, at the border of a part and within one.
func TestStreamShrunk(t *testing.T) {
	t.Parallel()
	for _, size := range []int64{0, 300 << 10, 512 << 10} {
		path, files := streamFiles(t, make([]byte, 1<<20))
		err := files["plain"].Stream(t.Context(), func([]byte) error { return os.Truncate(path, size) })
		if !errors.Is(err, mapped.ErrFault) {
			t.Errorf("cut to %d bytes: got error %v, want %v", size, err, mapped.ErrFault)
		}
	}
}

func TestStreamFetchFails(t *testing.T) {
	t.Parallel()
	want := errors.New("no answer")
	f, err := mapped.Sparse(t.TempDir(), 80<<20, func(_ io.WriterAt, off, _ int64) error {
		if off >= 32<<20 {
			return want
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	calls := 0
	if err := f.Stream(t.Context(), func([]byte) error { calls++; return nil }); !errors.Is(err, want) || calls != 1 {
		t.Errorf("Stream: got error %v after %d parts, want %v after one", err, calls, want)
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	want := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	path, files := streamFiles(t, want)
	buf := make([]byte, 1<<20)
	for name, f := range files {
		part := f.Bytes()[70_001:800_005:800_005]
		if err := f.Need(part); err != nil {
			t.Fatal(err)
		}
		if err := f.Read(buf, part); err != nil || !bytes.Equal(buf[:len(part)], want[70_001:800_005]) {
			t.Errorf("%s: bytes differ, or error %v", name, err)
		}
	}
	if err := os.Truncate(path, 80_000); err != nil {
		t.Fatal(err)
	}
	if err := files["plain"].Read(buf, files["plain"].Bytes()[70_001:90_000]); !errors.Is(err, mapped.ErrFault) {
		t.Errorf("beyond the end of a file that was cut: got error %v, want %v", err, mapped.ErrFault)
	}
}
