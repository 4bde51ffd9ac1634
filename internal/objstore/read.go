package objstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"golang.org/x/sync/errgroup"
)

// maxGet bounds what Get holds in memory.
const maxGet = 256 << 20

// versions are the versions that this process reads of each object: parts of two
// states of it must never mix.
type versions struct{ seen sync.Map }

func (v *versions) of(key string) string {
	version, _ := v.seen.Load(key)
	text, _ := version.(string)
	return text
}

// pin makes version the one that is read, unless there is another.
func (v *versions) pin(key, version string) error {
	if was, _ := v.seen.LoadOrStore(key, version); was != version {
		return ErrChanged
	}
	return nil
}

func (v *versions) forget(key string) { v.seen.Delete(key) }

// Get reads a whole object of at most 256 MiB, and the version that [Store.PutIf] takes.
// The error wraps [fs.ErrNotExist] when there is none.
func (s *Store) Get(ctx context.Context, name string) (data []byte, version string, err error) {
	key, err := s.key("read", name)
	if err != nil {
		return nil, "", err
	}
	for attempt := 1; ; attempt++ {
		s.version.forget(key) // whoever gets an object wants its present state
		data, err = s.get(ctx, key)
		if !errors.Is(err, ErrChanged) || attempt == s.opts.Attempts {
			break
		}
	}
	if err != nil {
		return nil, "", s.fail("read", key, err)
	}
	return data, s.version.of(key), nil
}

func (s *Store) get(ctx context.Context, key string) ([]byte, error) {
	st, err := s.vendor.stat(ctx, key)
	if err != nil {
		return nil, s.unseen(ctx, key, err)
	}
	if st.size > maxGet {
		return nil, fmt.Errorf("it has %d bytes, want at most %d", st.size, maxGet)
	}
	if err := s.version.pin(key, st.version); err != nil {
		return nil, err
	}
	data := make([]byte, st.size)
	return data, s.readParts(ctx, key, data, 0)
}

// unseen finds out why an object has no state. The answer to a HEAD request has no
// body: a bucket that is missing looks like an object that is, and a key that is wrong
// like one that may not read.
func (s *Store) unseen(ctx context.Context, key string, err error) error {
	r, rerr := s.bucket.NewRangeReader(ctx, key, 0, 1, nil)
	if rerr == nil {
		_ = r.Close() // nothing was read
		return err
	}
	if errors.As(s.cause(err), new(*refusal)) && !errors.As(s.cause(rerr), new(*refusal)) {
		return err
	}
	return rerr
}

// Size asks for the size of an object. The error wraps [fs.ErrNotExist] when there is
// none.
func (s *Store) Size(ctx context.Context, name string) (int64, error) {
	key, err := s.key("find", name)
	if err != nil {
		return 0, err
	}
	st, err := s.vendor.stat(ctx, key)
	if err != nil {
		return 0, s.fail("find", key, s.unseen(ctx, key, err))
	}
	return st.size, nil
}

// ReadRange fills p with the bytes of an object from an offset, a large p by several
// requests at once. All reads of an object by one store see the same state of it: the
// error wraps [ErrChanged] once it is replaced, until Get is called for it. It wraps
// [fs.ErrNotExist] when there is no object and [io.ErrUnexpectedEOF] when it ends before.
func (s *Store) ReadRange(ctx context.Context, name string, p []byte, off int64) error {
	key, err := s.key("read", name)
	if err != nil {
		return err
	}
	if err := s.readParts(ctx, key, p, off); err != nil {
		return s.fail("read", key, err)
	}
	return nil
}

// readParts reads parts of p at once, as many as the store has slots.
func (s *Store) readParts(ctx context.Context, key string, p []byte, off int64) error {
	g, gctx := errgroup.WithContext(ctx)
	for len(p) > 0 && gctx.Err() == nil {
		part, at := p[:min(int64(len(p)), s.opts.PartBytes)], off
		p, off = p[len(part):], off+int64(len(part))
		select {
		case s.slots <- struct{}{}:
		case <-gctx.Done():
			continue
		}
		g.Go(func() error {
			defer func() { <-s.slots }()
			return s.readPart(gctx, key, part, at)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// readPart fills p, and goes on where a connection was cut. The store's client has
// already tried again whatever failed before the first byte.
func (s *Store) readPart(ctx context.Context, key string, p []byte, off int64) error {
	for attempt := 1; ; attempt++ {
		n, err := s.readSome(ctx, key, p, off)
		p, off = p[n:], off+int64(n)
		var cut *cutError
		switch {
		case len(p) == 0:
			return nil
		case !errors.As(err, &cut) || ctx.Err() != nil:
			return err
		case attempt == s.opts.Attempts:
			// Not wrapped: an end of the connection must not pass for one of the object.
			return fmt.Errorf("gave up after %d connections that were cut: %v", attempt, cut.error) //nolint:errorlint // see above
		}
		if err := s.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// pause waits between two attempts: up to twice as long as the time before.
func (s *Store) pause(ctx context.Context, attempt int) error {
	most := min(50*time.Millisecond<<min(attempt, 16), s.opts.MaxBackoff)
	select {
	case <-time.After(rand.N(most)):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// shortError is an object that ends before a read of it.
type shortError struct{ text string }

func (e *shortError) Error() string { return e.text }
func (e *shortError) Unwrap() error { return io.ErrUnexpectedEOF }

// cutError is a body that ended before its time.
type cutError struct{ error }

// readSome reads a range by one request, or as much of it as comes.
func (s *Store) readSome(ctx context.Context, key string, p []byte, off int64) (n int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opts := &blob.ReaderOptions{}
	if version := s.version.of(key); version != "" {
		opts.BeforeRead = s.vendor.readIf(version)
	}
	r, err := s.bucket.NewRangeReader(ctx, key, off, int64(len(p)), opts)
	if err != nil {
		if errors.Is(s.vendor.cause(err), errPrecondition) {
			err = ErrChanged
		}
		return 0, err
	}
	defer func() { _ = r.Close() }() // its bytes were counted
	version, err := s.vendor.reads(r, off)
	if err == nil {
		err = s.version.pin(key, version)
	}
	if err != nil {
		return 0, err
	}
	if end := off + int64(len(p)); r.Size() < end {
		return 0, &shortError{fmt.Sprintf("it has %d bytes, want %d", r.Size(), end)}
	}
	stall := time.AfterFunc(s.opts.Stall, func() {
		cancel(fmt.Errorf("no byte came for %v", s.opts.Stall))
	})
	defer stall.Stop()
	for n < len(p) {
		got, err := r.Read(p[n:])
		n += got
		if n < len(p) && err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return n, &cutError{err}
		}
		stall.Reset(s.opts.Stall)
	}
	return n, nil
}

// List lists the objects whose names begin with prefix, in the order of their names. It
// is over after an error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		first := "" // of the list
		for it := s.bucket.List(&blob.ListOptions{Prefix: s.at.prefix + prefix}); ; {
			o, err := it.Next(ctx)
			if err == io.EOF { //nolint:errorlint // one that is wrapped is a cut connection, not the end of the list
				return
			}
			if err == nil && o.Key == first {
				err = refuse("store lists %q again: it begins a list anew where it should go on", first)
			}
			if err != nil {
				yield(Object{}, s.fail("list", s.at.prefix+prefix, err))
				return
			}
			first = cmp.Or(first, o.Key)
			name := strings.TrimPrefix(o.Key, s.at.prefix)
			if !fs.ValidPath(name) || name == "." {
				continue // what consoles make for an empty folder
			}
			if !yield(Object{Name: name, Size: o.Size, Modified: o.ModTime}, nil) {
				return
			}
		}
	}
}
