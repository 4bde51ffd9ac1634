package mapped_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"hsx/internal/mapped"
)

const piece = 256 << 10

// TestSparse asks for parts of a file from several goroutines at once: each comes to
// be what it should be, and no byte is fetched twice.
func TestSparse(t *testing.T) {
	t.Parallel()
	want := make([]byte, 20*piece+777)
	for i := range want {
		want[i] = byte(i * 31 / piece)
	}
	var mu sync.Mutex
	fetched := make([]int, len(want)/piece+1)
	m, err := mapped.NewChunks().Sparse(int64(len(want)), func(p []byte, off int64) error {
		mu.Lock()
		for at := off; at < off+int64(len(p)); at += piece {
			fetched[at/piece]++
		}
		mu.Unlock()
		copy(p, want[off:])
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	if err := m.Need(); err != nil {
		t.Fatal(err)
	}
	if err := m.Need(want, m.Bytes()[:0]); err != nil { // lies elsewhere; is nothing
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for seed := range uint64(8) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for range 20 {
				a, b := rng.IntN(len(want)), rng.IntN(len(want))
				end := min(len(want), b+rng.IntN(2*piece))
				parts := [][]byte{m.Bytes()[a : a+1], m.Bytes()[b:end]}
				if err := m.Need(parts...); err != nil {
					t.Error(err)
				}
				if parts[0][0] != want[a] || !bytes.Equal(parts[1], want[b:end]) {
					t.Errorf("bytes at %d or from %d to %d are not there", a, b, end)
				}
			}
		})
	}
	all.Wait()
	for i, n := range fetched {
		if n > 1 {
			t.Errorf("piece %d was fetched %d times", i, n)
		}
	}
	if err := m.Intact(); err != nil {
		t.Errorf("Intact: %v", err)
	}
}

// What could not be fetched is an error of all that wait for it, and can be asked for
// again; the rest is there.
func TestSparseFails(t *testing.T) {
	t.Parallel()
	cut := errors.New("connection cut")
	var bad atomic.Bool
	bad.Store(true)
	m, err := mapped.NewChunks().Sparse(3*piece, func(p []byte, off int64) error {
		if off == 0 && bad.Load() {
			return cut
		}
		copy(p, bytes.Repeat([]byte{7}, len(p)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Close() }()
	first, last := m.Bytes()[:1], m.Bytes()[2*piece:]
	if err := m.Need(first, last); !errors.Is(err, cut) {
		t.Fatalf("Need: got error %v, want %v", err, cut)
	}
	if err := m.Need(last); err != nil || last[0] != 7 {
		t.Errorf("Need of what came: got error %v", err)
	}
	bad.Store(false)
	if err := m.Need(first); err != nil || first[0] != 7 {
		t.Errorf("Need again: got error %v", err)
	}
}

// What is expected comes without being waited for, but for Close: the next file may be the
// same one. What does not come is asked for again.
func TestSparseExpect(t *testing.T) {
	t.Parallel()
	chunks := mapped.NewChunks()
	answer, answered := make(chan error), atomic.Int32{}
	m, err := chunks.Sparse(40*piece, func([]byte, int64) error {
		err := <-answer
		answered.Add(1)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Expect(m.Bytes()[:30*piece]) // two chunks
	answer <- errors.New("connection cut")
	answer <- errors.New("connection cut")
	go func() { answer <- nil }()
	for m.Need(m.Bytes()[:1]) != nil { // it may still meet the cut connection
	}
	m.Expect(m.Bytes()[39*piece:])
	go func() { answer <- nil }()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if n := answered.Load(); n != 4 {
		t.Errorf("file is closed after %d answers, want 4", n)
	}
}

// What a closed file held does not come to lie in the next one.
func TestSparseAgain(t *testing.T) {
	t.Parallel()
	chunks := mapped.NewChunks()
	for i, size := range []int{3*piece + 1, 9 * piece, 10, 9 * piece} {
		m, err := chunks.Sparse(int64(size), func(p []byte, _ int64) error {
			copy(p, bytes.Repeat([]byte{byte(i + 1)}, len(p)))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Bytes()) != size {
			t.Fatalf("file has %d bytes, want %d", len(m.Bytes()), size)
		}
		last := m.Bytes()[size-1:]
		if err := m.Need(last); err != nil || last[0] != byte(i+1) {
			t.Errorf("file %d ends with %d (%v), want %d", i, last[0], err, i+1)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestSparseLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	chunks := mapped.NewChunks()
	m, err := chunks.Sparse(1<<40, nil) // takes no room
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("directory has %v (%v), want nothing", entries, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := chunks.Sparse(1<<62, nil); !errors.Is(err, mapped.ErrUnkept) {
		t.Errorf("Sparse of 2^62 bytes: got error %v, want %v", err, mapped.ErrUnkept)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("after an error the directory has %v (%v), want nothing", entries, err)
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	if _, err := mapped.NewChunks().Sparse(1, nil); !errors.Is(err, mapped.ErrUnkept) || errors.Is(err, os.ErrNotExist) {
		t.Errorf("Sparse without a directory: got error %v, want %v and not that something else is missing", err, mapped.ErrUnkept)
	}
}
