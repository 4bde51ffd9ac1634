package mapped_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
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
	m, err := mapped.Sparse(t.TempDir(), int64(len(want)), func(dst io.WriterAt, off, n int64) error {
		mu.Lock()
		for at := off; at < off+n; at += piece {
			fetched[at/piece]++
		}
		mu.Unlock()
		_, err := dst.WriteAt(want[off:off+n], off)
		return err
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
	m, err := mapped.Sparse(t.TempDir(), 3*piece, func(dst io.WriterAt, off, n int64) error {
		if off == 0 && bad.Load() {
			return cut
		}
		_, err := dst.WriteAt(bytes.Repeat([]byte{7}, int(n)), off)
		return err
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

func TestSparseLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := mapped.Sparse(dir, 1<<40, nil) // takes no room
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("directory has %v (%v), want nothing", entries, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if _, err := mapped.Sparse(dir, 1<<62, nil); err == nil {
		t.Error("Sparse of 2^62 bytes: got no error")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("after an error the directory has %v (%v), want nothing", entries, err)
	}
}
