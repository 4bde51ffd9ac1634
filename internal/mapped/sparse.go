package mapped

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"unsafe"
)

// pieceBytes is what a sparse file is filled by: little more than nothing, against
// the time that a store takes to answer.
const pieceBytes = 256 << 10

// ErrUnkept means that there is no sparse file, or that what came could not be written to
// it: its disk is full, or failed. It says nothing of what the file stands for, so the
// cause is not wrapped.
var ErrUnkept = errors.New("temporary file could not be made or written")

func unkept(cause error) error { return fmt.Errorf("%w: %v", ErrUnkept, cause) } //nolint:errorlint // see there

// Sparse maps a file of size bytes that stands for one that lies elsewhere. It has no
// name, lies in the system's temporary directory, and takes room there only for what was
// fetched. A part of its bytes is valid once [File.Need] was asked for it.
func (c *Chunks) Sparse(size int64, read Read) (*File, error) {
	f, err := c.open()
	if err != nil {
		return nil, unkept(err)
	}
	m := &File{f: f, sparse: &sparse{chunks: c, read: read, dst: f, size: size, pieces: map[int64]*run{}}}
	if err = f.Truncate(size); err == nil {
		err = m.mmap()
	}
	if err != nil {
		_ = f.Close() // nothing in it is of use
		return nil, unkept(err)
	}
	return m, nil
}

// Sparse reports whether the file stands for one that lies elsewhere.
func (m *File) Sparse() bool { return m.sparse != nil }

// Need makes parts of Bytes valid that are about to be read: what of them is not there
// yet is fetched, all at once. It does nothing for a file that is not sparse. Parts
// that lie elsewhere are none of its business. Several goroutines may ask.
func (m *File) Need(parts ...[]byte) error {
	for _, r := range m.begin(parts) {
		if <-r.done; r.err != nil {
			return r.err
		}
	}
	return nil
}

// Expect begins to fetch what Need will be asked for, and returns when all of it is on its
// way. What does not come, Need asks for again.
func (m *File) Expect(parts ...[]byte) { m.begin(parts) }

// begin returns the runs that parts come with. All of them have begun.
func (m *File) begin(parts [][]byte) (all []*run) {
	if m.sparse == nil || len(m.data) == 0 {
		return nil
	}
	var own []*run
	for _, p := range parts {
		if n, off := int64(len(p)), m.place(p); n > 0 && off >= 0 && off < int64(len(m.data)) {
			own, all = m.sparse.claim(own, all, off, n)
		}
	}
	for _, r := range own {
		buf := m.sparse.chunks.take(true)
		m.sparse.filling.Go(func() { m.sparse.fill(r, buf) })
	}
	return all
}

// place is where in the file a part of its bytes lies. Of other memory it is anything.
func (m *File) place(part []byte) int64 {
	// Both are addresses, whose difference is the place.
	return int64(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))
}

// sparse is what is there of a sparse file.
type sparse struct {
	chunks *Chunks
	read   Read
	dst    io.WriterAt
	size   int64

	filling sync.WaitGroup // runs that still write to dst

	mu     sync.Mutex
	pieces map[int64]*run // what fetched each piece, or does so now
}

// run is neighbouring pieces that are fetched together: a chunk at most, so that who
// needs a part of much that is on its way need not wait for all of it.
type run struct {
	first, end int64
	done       chan struct{} // closed when err is known
	err        error
}

// claim adds to all the runs that the n bytes from off on come with, and to own those
// of them that the caller must fetch.
func (s *sparse) claim(own, all []*run, off, n int64) (ownNow, allNow []*run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh, last *run
	for i := off / pieceBytes; i*pieceBytes < off+n; i++ {
		r := s.pieces[i]
		if r == nil {
			if fresh == nil || fresh.end != i || i%(chunkBytes/pieceBytes) == 0 {
				fresh = &run{first: i, done: make(chan struct{})}
				own = append(own, fresh)
			}
			fresh.end = i + 1
			r = fresh
			s.pieces[i] = r
		}
		if r != last {
			all = append(all, r)
			last = r
		}
	}
	return own, all
}

// fill fetches a run by way of a buffer, which it gives back. Pieces that did not come
// can be asked for again.
func (s *sparse) fill(r *run, buf []byte) {
	off := r.first * pieceBytes
	p := buf[:min(r.end*pieceBytes, s.size)-off]
	if r.err = s.read(p, off); r.err == nil {
		if _, err := s.dst.WriteAt(p, off); err != nil {
			r.err = unkept(err)
		}
	}
	s.chunks.give(buf)
	if r.err != nil {
		s.mu.Lock()
		for i := r.first; i < r.end; i++ {
			delete(s.pieces, i)
		}
		s.mu.Unlock()
	}
	close(r.done)
}
