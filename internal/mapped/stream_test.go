package mapped_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"hsx/internal/mapped"
)

// from reads data by ranges.
func from(data []byte) mapped.Read {
	return func(p []byte, off int64) error {
		copy(p, data[off:])
		return nil
	}
}

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
	sparse, err := mapped.NewChunks().Sparse(int64(len(want)), from(want))
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

// TestStreamFetchFails fetches from one Chunks again and again: who fails has given back
// all that it took.
func TestStreamFetchFails(t *testing.T) {
	t.Parallel()
	want := errors.New("no answer")
	chunks := mapped.NewChunks()
	for _, bad := range []int64{0, 32 << 20, 96 << 20} {
		f, err := chunks.Sparse(100<<20, func(_ []byte, off int64) error {
			if off >= bad {
				return want
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		used := int64(0)
		err = f.Stream(t.Context(), func(part []byte) error { used += int64(len(part)); return nil })
		if !errors.Is(err, want) || used != bad {
			t.Errorf("Stream without an answer from %d on: got error %v after %d bytes, want %v", bad, err, used, want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStreamsShare goes through more at once than there are buffers for, and maps the
// same files meanwhile.
func TestStreamsShare(t *testing.T) {
	t.Parallel()
	chunks := mapped.NewChunks()
	var all sync.WaitGroup
	for i, n := range []int{1, 4 << 20, 40<<20 + 5, 40 << 20} {
		want := make([]byte, n)
		_, _ = rand.NewChaCha8([32]byte{byte(i)}).Read(want) // never fails
		f, err := chunks.Sparse(int64(n), from(want))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		all.Go(func() {
			if err := f.Need(f.Bytes()); err != nil || !bytes.Equal(f.Bytes(), want) {
				t.Errorf("Need of %d bytes: got others, error %v", n, err)
			}
		})
		all.Go(func() {
			got := make([]byte, 0, n)
			err := f.Stream(t.Context(), func(part []byte) error { got = append(got, part...); return nil })
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("Stream of %d bytes: got %d others, error %v", n, len(got), err)
			}
		})
	}
	all.Wait()
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
