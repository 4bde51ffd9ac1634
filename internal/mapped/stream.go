package mapped

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
)

const (
	// partBytes is read at once and used while it lies in the cache.
	partBytes = 256 << 10
	// sparseBytes is what is fetched at once of a sparse file.
	sparseBytes = 32 << 20
)

// Stream hands all of the file to use, in its order, part by part. A part is valid until
// use returns. Whoever goes through a file once has it cheaper from here than from
// Bytes: a copy into memory that stays in the cache costs less than the faults of the
// pages do. A file that is shorter than it was is [ErrFault]; so is one that cannot be
// read, and its cause is wrapped too. Stream ends with the first error, of use, of
// reading or of ctx.
func (m *File) Stream(ctx context.Context, use func(part []byte) error) error {
	if m.sparse != nil {
		return m.streamSparse(ctx, use)
	}
	size := int64(len(m.data))
	buf := make([]byte, min(partBytes, size))
	for off := int64(0); off < size; off += partBytes {
		part := buf[:min(partBytes, size-off)]
		if err := cmp.Or(m.readAt(part, off), ctx.Err()); err != nil {
			return err
		}
		if err := use(part); err != nil {
			return err
		}
	}
	return nil
}

// Read copies a part of Bytes, which must be there, by reading it. What it costs, and its
// errors, are those of [File.Stream].
func (m *File) Read(dst, part []byte) error {
	return m.readAt(dst[:len(part)], m.place(part))
}

func (m *File) readAt(dst []byte, off int64) error {
	n, err := m.f.ReadAt(dst, off)
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: it had %d bytes and ends at byte %d", ErrFault, len(m.data), off+int64(n))
	case err != nil:
		return fmt.Errorf("%w: %w", ErrFault, err)
	}
	return nil
}

// streamSparse fetches a part while the one before it is used.
func (m *File) streamSparse(ctx context.Context, use func(part []byte) error) error {
	part := func(at int) []byte { return m.data[min(at, len(m.data)):min(at+sparseBytes, len(m.data))] }
	fetch := func(at int) <-chan error {
		err := make(chan error, 1)
		go func() { err <- m.Need(part(at)); close(err) }()
		return err
	}
	next := fetch(0)
	defer func() { // the file may be closed after that
		for range next { // nobody reads what it brought
		}
	}()
	for at := 0; at < len(m.data); at += sparseBytes {
		if err := cmp.Or(<-next, ctx.Err()); err != nil {
			return err
		}
		next = fetch(at + sparseBytes)
		if err := Guard(func() error { return use(part(at)) }); err != nil {
			return err
		}
	}
	return nil
}
