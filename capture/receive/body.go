package receive

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hsx/internal/mapped"
)

// Body is what a client sends: samples in a file of the spool. Its client's goroutine holds it until Close, and so does each of its samples
// until it is put.
type Body struct {
	r        *Receiver
	reserved int64
	n        int64
	file     *spooled
	holders  atomic.Int32
	own      sync.Once
	released chan struct{}
}

// NewBody begins a body.
func (r *Receiver) NewBody() *Body {
	r.receiving.Add(1)
	b := &Body{r: r, released: make(chan struct{})}
	b.holders.Store(1)
	return b
}

// Close lets go of the body. What it takes is given back when its samples are put.
func (b *Body) Close() { b.own.Do(b.release) }

func (b *Body) release() {
	if b.holders.Add(-1) > 0 {
		return
	}
	if b.file != nil {
		b.r.spool.give(b.file)
	}
	b.r.spool.free(b.reserved)
	close(b.released)
	if b.r.receiving.Add(-1) == 0 {
		select {
		case b.r.quiet <- struct{}{}:
		default: // it will be looked at anyway
		}
	}
}

// Released is closed when the last holder let go: what the body took of the quota is free.
func (b *Body) Released() <-chan struct{} { return b.released }

// Bytes is the whole body, once Receive returned nil and until its last holder let go;
// none when nothing was received. Touch it under [mapped.Guard].
func (b *Body) Bytes() []byte {
	if b.file == nil {
		return nil
	}
	return b.file.Bytes()[:b.n]
}

// The steps in which a spool file grows while its body comes: at most as much as has
// come, so that a client takes no room that it does not fill.
const (
	leastStep  = 256 << 10
	mostStep   = 64 << 20
	chunkBytes = 1 << 20 // of the quota, for a body that does not say its length
)

// Receive spools what src holds, size bytes or an unknown number if that is negative.
// src must end at the deadlines that it is given; a client that is too slow is given up.
// [Code] of its error says what is wrong.
func (b *Body) Receive(src io.Reader, size int64, deadline func(time.Time) error) error {
	if size > b.r.opt.MaxBody {
		return tooBig(b.r.opt.MaxBody)
	}
	if !b.reserve(size) {
		return b.overload()
	}
	var err error
	if b.file, err = b.r.spool.take(); err != nil {
		return noRoom(err)
	}
	err = mapped.Guard(func() error { return b.copy(src, size, deadline) })
	if errors.Is(err, mapped.ErrFault) {
		return noRoom(err)
	}
	return err
}

// copy reads the body, straight into the file and at the rate that a client must keep.
func (b *Body) copy(src io.Reader, size int64, deadline func(time.Time) error) error {
	opt, start := b.r.opt, time.Now()
	for {
		stalled := time.Now().Add(opt.BodyTimeout)
		slow := start.Add(opt.BodyTimeout + time.Duration(float64(b.n)/float64(opt.MinRate)*float64(time.Second)))
		if slow.Before(stalled) {
			stalled = slow
		}
		if err := deadline(stalled); err != nil {
			return err
		}
		if b.n == int64(len(b.file.Bytes())) {
			step := min(max(b.n, leastStep), mostStep)
			if size >= 0 {
				step = min(step, max(0, size-b.n)+1) // one more, to see that it ends
			}
			if err := b.r.spool.grow(b.file, min(b.n+step, opt.MaxBody+1)); err != nil {
				return noRoom(err)
			}
		}
		n, err := src.Read(b.file.Bytes()[b.n:])
		if b.n += int64(n); b.n > opt.MaxBody {
			return tooBig(opt.MaxBody)
		}
		for b.n > b.reserved {
			if !b.reserve(chunkBytes) {
				return b.overload()
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return deadline(time.Time{})
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &answer{code: http.StatusRequestTimeout, reason: fmt.Sprintf("body came at less than %d bytes a second, or not at all for %s", opt.MinRate, opt.BodyTimeout)}
		case errors.Is(err, unix.EFAULT): // the kernel's word for a fault of the file
			return noRoom(err)
		case err != nil:
			return &answer{code: http.StatusBadRequest, reason: fmt.Sprintf("read body after %d bytes: %v", b.n, err)}
		}
	}
}

func (b *Body) reserve(n int64) bool {
	n = max(n, 0)
	if !b.r.spool.reserve(n) {
		return false
	}
	b.reserved += n
	return true
}

func (b *Body) overload() error {
	return &answer{code: http.StatusTooManyRequests, reason: fmt.Sprintf("spool is full: bodies on their way take all of %d bytes", b.r.opt.SpoolBytes)}
}

func tooBig(most int64) error {
	return &answer{code: http.StatusRequestEntityTooLarge, reason: fmt.Sprintf("body is too big, want at most %d bytes", most)}
}

// noRoom is a failure to spool: room may be made, and the client's retry then works.
func noRoom(err error) error {
	return &answer{code: http.StatusInsufficientStorage, reason: fmt.Sprintf("spool body: %v", err)}
}
