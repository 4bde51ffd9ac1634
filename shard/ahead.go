package shard

import (
	"sync"

	"hsx/internal/arrowmsg"
	"hsx/internal/mapped"
)

// Ahead fetches what the given rows, in ascending order, take from a store, a record
// batch ahead of the caller that is about to read them: nil is all rows. Whoever reads
// a few rows of a shard leaves the rest where it is. On a file system it does nothing.
// It is called before rows are read, once.
func (s *Shard) Ahead(rows []int) {
	if !s.r.file.Sparse() || s.ahead != nil {
		return
	}
	a := &ahead{}
	a.moved.L = &a.mu
	s.ahead = a
	a.done.Go(func() {
		for k := range s.batches {
			if !a.reach(k - 1) {
				return
			}
			// A row that does not come is met, and said, by its reader.
			_ = mapped.Guard(func() error { s.r.file.Expect(s.wanted(k, rows)...); return nil })
		}
	})
}

// wanted is the parts of batch k that the given rows take: all of it, in one piece, when
// most of it is theirs.
func (s *Shard) wanted(k int, rows []int) [][]byte {
	b, body := s.batches[k], s.r.batch[k].Body.Bytes
	var parts [][]byte
	total := 0
	for _, row := range rows {
		if i := row - s.first[k]; i >= 0 && i < b.n {
			parts = append(parts, b.stateParts(i)...)
		}
	}
	for _, p := range parts {
		total += len(p)
	}
	if rows == nil || total > len(body)/2 {
		return [][]byte{body}
	}
	return parts
}

// ahead is what fetches ahead of a reader.
type ahead struct {
	done sync.WaitGroup

	mu     sync.Mutex
	moved  sync.Cond
	at     int // the last batch that was read from
	closed bool
}

// reach waits until batch k is read from, and reports whether anything still is.
func (a *ahead) reach(k int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.at < k && !a.closed {
		a.moved.Wait()
	}
	return !a.closed
}

// read says that batch k is read from.
func (a *ahead) read(k int) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if k > a.at {
		a.at = k
		a.moved.Broadcast()
	}
}

// close ends the fetching.
func (a *ahead) close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.closed = true
	a.moved.Broadcast()
	a.mu.Unlock()
	a.done.Wait()
}

// needMessages asks for the metadata of all messages at once, where the footer says
// they are. It need not be right: what did not come is asked for when it is read.
func (r *reader) needMessages(footer []byte) error {
	if !r.file.Sparse() {
		return nil
	}
	if err := r.file.Need(footer); err != nil {
		return err
	}
	data := r.file.Bytes()
	const likely = 16 << 10 // more than the metadata of a batch takes
	parts := [][]byte{data[:min(likely, len(data))]}
	for at := range arrowmsg.Blocks(footer) {
		if at > 0 && at < int64(len(data)) {
			parts = append(parts, data[at:min(at+likely, int64(len(data)))])
		}
	}
	return r.file.Need(parts...)
}
