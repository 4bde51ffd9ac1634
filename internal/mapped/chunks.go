package mapped

import (
	"io"

	"golang.org/x/sync/errgroup"
)

// What all files of one Chunks hold in memory while they are fetched: a request should
// take about as long to bring a chunk as to be answered.
const (
	chunkBytes = 4 << 20
	chunkCount = 16
)

// Chunks fetches ranges of sparse files by chunks, several at once, and bounds the
// memory that all of these files take together.
type Chunks struct {
	buffers chan []byte // free ones; nil where none was needed yet
}

// NewChunks makes chunks for files that share their memory.
func NewChunks() *Chunks {
	c := &Chunks{buffers: make(chan []byte, chunkCount)}
	for range chunkCount {
		c.buffers <- nil
	}
	return c
}

// Fetch is a [Fetch] by way of read, which fills p with what is at an offset.
func (c *Chunks) Fetch(read func(p []byte, off int64) error) Fetch {
	return func(dst io.WriterAt, off, n int64) error {
		var g errgroup.Group
		end := off + n
		for ; off < end; off += chunkBytes {
			at, buf := off, <-c.buffers
			g.Go(func() error {
				defer func() { c.buffers <- buf }()
				if buf == nil {
					buf = make([]byte, chunkBytes)
				}
				p := buf[:min(chunkBytes, end-at)]
				if err := read(p, at); err != nil {
					return err
				}
				_, err := dst.WriteAt(p, at)
				return err
			})
		}
		return g.Wait()
	}
}
