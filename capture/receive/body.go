package receive

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"hsx/internal/mapped"
)

// body is one request's body, in a file without a name once it is complete.
type body struct {
	r        *Receiver
	reserved int64
	n        int64
	file     *mapped.File
	slot     bool
	once     sync.Once
}

// close gives back what the body takes. The goroutine of the store calls it as soon as
// the sample is put, the handler at its end.
func (b *body) close() {
	b.once.Do(func() {
		if b.file != nil {
			_ = b.file.Close() // mapped for reading: nothing can be lost
		}
		if b.slot {
			<-b.r.slots
		}
		b.r.spool.free(b.reserved)
		b.r.receiving.Add(-1)
	})
}

const (
	copyBytes  = 256 << 10
	chunkBytes = 1 << 20 // reserved at a time for a body that does not say its length
)

// receive spools a request's body and maps it.
func (b *body) receive(w http.ResponseWriter, req *http.Request) error {
	if req.ContentLength > b.r.opt.MaxBody {
		return tooBig(b.r.opt.MaxBody)
	}
	if !b.reserve(req.ContentLength) {
		return b.overload()
	}
	f, err := b.r.spool.create()
	if err != nil {
		return noRoom(err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // the map keeps what it needs
	err = b.copy(f, w, req)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = noRoom(cerr)
	}
	if err != nil {
		return err
	}
	b.file, err = mapped.Open(f.Name())
	if err != nil {
		return noRoom(err)
	}
	b.file.Populate()
	return nil
}

// copy reads the body at the rate that a client must keep.
func (b *body) copy(f *os.File, w http.ResponseWriter, req *http.Request) error {
	var buf []byte
	select {
	case buf = <-b.r.buffers:
	default:
		buf = make([]byte, copyBytes)
	}
	defer func() {
		select {
		case b.r.buffers <- buf:
		default:
		}
	}()
	rc, opt, start := http.NewResponseController(w), b.r.opt, time.Now()
	deadline := func(t time.Time) error {
		if err := rc.SetReadDeadline(t); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return err
		}
		return nil
	}
	for {
		stalled := time.Now().Add(opt.BodyTimeout)
		slow := start.Add(opt.BodyTimeout + time.Duration(float64(b.n)/float64(opt.MinRate)*float64(time.Second)))
		if slow.Before(stalled) {
			stalled = slow
		}
		if err := deadline(stalled); err != nil {
			return err
		}
		n, err := req.Body.Read(buf)
		if b.n += int64(n); b.n > opt.MaxBody {
			return tooBig(opt.MaxBody)
		}
		for b.n > b.reserved {
			if !b.reserve(chunkBytes) {
				return b.overload()
			}
		}
		if _, err := f.Write(buf[:n]); err != nil {
			return noRoom(err)
		}
		switch {
		case errors.Is(err, io.EOF):
			return deadline(time.Time{})
		case errors.Is(err, os.ErrDeadlineExceeded):
			return &answer{code: http.StatusRequestTimeout, reason: fmt.Sprintf("body came at less than %d bytes a second, or not at all for %s", opt.MinRate, opt.BodyTimeout)}
		case err != nil:
			return &answer{code: http.StatusBadRequest, reason: fmt.Sprintf("read body after %d bytes: %v", b.n, err)}
		}
	}
}

func (b *body) reserve(n int64) bool {
	n = max(n, 0)
	if !b.r.spool.reserve(n) {
		return false
	}
	b.reserved += n
	return true
}

func (b *body) overload() error {
	return &answer{code: http.StatusTooManyRequests, reason: fmt.Sprintf("spool is full: bodies on their way take all of %d bytes", b.r.opt.SpoolBytes)}
}

func tooBig(most int64) error {
	return &answer{code: http.StatusRequestEntityTooLarge, reason: fmt.Sprintf("body is too big, want at most %d bytes", most)}
}

// noRoom is a failure to spool: room may be made, and the client's retry then works.
func noRoom(err error) error {
	return &answer{code: http.StatusInsufficientStorage, reason: fmt.Sprintf("spool body: %v", err)}
}
