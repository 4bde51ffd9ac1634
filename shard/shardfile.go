package shard

import (
	"errors"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/mapped"
)

// shardFile hashes what it writes.
type shardFile struct {
	f    atomicfile.File
	hash xxh3.Hasher  // of all of it
	head xxh3.Hasher  // of the metadata of the Arrow messages, which openShard adds
	row  *xxh3.Hasher // of the states that are written from where they lie, if not nil
	n    int64

	scratch []byte     // one chunk
	later   chan error // of what is on its way, nil when nothing is
}

// writeLater writes parts, which must stay as they are until wait, and returns how many
// bytes they are. Nothing else is written meanwhile.
func (h *shardFile) writeLater(parts [][]byte) int64 {
	total := int64(0)
	for _, p := range parts {
		total += int64(len(p))
	}
	later := make(chan error, 1)
	h.later = later
	go func() {
		start := h.n
		for _, p := range parts {
			if err := h.write(p); err != nil {
				later <- err
				return
			}
		}
		h.startWriteback(start)
		later <- nil
	}()
	return total
}

// wait waits for what is on its way, and returns its error once.
func (h *shardFile) wait() error {
	if h.later == nil {
		return nil
	}
	err := <-h.later
	h.later = nil
	return err
}

// startWriteback lets the disk work while the next batch is made: the fsync at the end of
// the shard then finds little left to do.
func (h *shardFile) startWriteback(start int64) { atomicfile.StartWriteback(h.f, start, h.n-start) }

// write writes p in chunks: the kernel copies what hashing left in the cache.
func (h *shardFile) write(p []byte) error {
	for len(p) > 0 {
		chunk := p[:min(len(p), chunkBytes)]
		_, _ = h.hash.Write(chunk) // never fails
		n, err := h.f.Write(chunk)
		h.n += int64(n)
		if err != nil {
			return err
		}
		p = p[len(chunk):]
	}
	return nil
}

// writeRows writes a state in chunks: what a chunk costs is one read of the dump and one
// write of the file, all else happens in the cache.
func (h *shardFile) writeRows(r format.Rows) error {
	whole, contiguous := r.Contiguous()
	row := r.RowBytes()
	step := max(1, chunkBytes/row)
	for i := 0; i < r.N; i += step {
		end := min(i+step, r.N)
		var chunk []byte
		if contiguous {
			chunk = whole[i*row : end*row]
		} else {
			chunk = h.scratch[:0]
			for j := i; j < end; j++ {
				chunk = append(chunk, r.Row(j)...)
			}
			h.scratch = chunk
		}
		if h.row != nil {
			_, _ = h.row.Write(chunk) // never fails
		}
		if err := h.write(chunk); errors.Is(err, unix.EFAULT) {
			return mapped.ErrFault // the chunk was there a moment ago
		} else if err != nil {
			return err
		}
	}
	return nil
}
