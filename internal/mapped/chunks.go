package mapped

import (
	"cmp"
	"context"
	"errors"
	"os"
)

// What all files of one Chunks hold in memory while they are fetched: a request should
// take about as long to bring a chunk as to be answered.
const (
	chunkBytes = 4 << 20
	chunkCount = 16
)

// Read fills p with what lies at an offset of what a sparse file stands for. Several
// are called at once.
type Read func(p []byte, off int64) error

// Chunks are the buffers by which sparse files are fetched, several at once. They bound
// the memory that all files of one Chunks take together. Files that were closed serve
// again for as long as there is a Chunks: their pages are there already, and a new page
// costs several times what is copied into it.
type Chunks struct {
	buffers chan []byte   // free ones; nil where none was needed yet
	files   chan *os.File // closed ones
}

// NewChunks makes chunks for files that share their memory.
func NewChunks() *Chunks {
	c := &Chunks{buffers: make(chan []byte, chunkCount), files: make(chan *os.File, chunkCount)}
	for range chunkCount {
		c.buffers <- nil
	}
	return c
}

// take is a buffer. It is nil when none is free and the caller does not wait.
func (c *Chunks) take(wait bool) (buf []byte) {
	if wait {
		buf = <-c.buffers
	} else {
		select {
		case buf = <-c.buffers:
		default:
			return nil
		}
	}
	if buf == nil {
		buf = make([]byte, chunkBytes)
	}
	return buf
}

func (c *Chunks) give(buf []byte) { c.buffers <- buf }

// open is a file without a name that holds anything.
func (c *Chunks) open() (*os.File, error) {
	select {
	case f := <-c.files:
		return f, nil
	default:
	}
	f, err := os.CreateTemp("", "hsx-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// close takes back a file that nobody has mapped.
func (c *Chunks) close(f *os.File) error {
	select {
	case c.files <- f:
		return nil
	default:
		return f.Close()
	}
}

// stream reads n bytes and hands them to use in their order, while what follows is on
// its way into all the buffers that nobody else has.
func (c *Chunks) stream(ctx context.Context, read Read, n int64, use func(part []byte) error) (err error) {
	type chunk struct {
		buf, p []byte
		read   chan error
	}
	var ahead []chunk
	for off := int64(0); off < n && err == nil || len(ahead) > 0; {
		for off < n && err == nil {
			buf := c.take(len(ahead) == 0)
			if buf == nil {
				break
			}
			next, at := chunk{buf, buf[:min(chunkBytes, n-off)], make(chan error, 1)}, off
			go func() { next.read <- read(next.p, at) }()
			ahead, off = append(ahead, next), off+chunkBytes
		}
		first := ahead[0]
		ahead = ahead[1:]
		if err = cmp.Or(err, <-first.read, ctx.Err()); err == nil {
			err = use(first.p)
		}
		c.give(first.buf)
	}
	return err
}
