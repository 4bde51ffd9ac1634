package mapped

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
)

// partBytes is read at once and used while it lies in the cache.
const partBytes = 256 << 10

// Stream hands all of the file to use, in its order, part by part. A part is valid until
// use returns. Whoever goes through a file once has it cheaper from here than from
// Bytes: a copy into memory that stays in the cache costs less than the faults of the
// pages do. What a sparse file stands for is fetched ahead of use, and does not come to lie
// in it. A file that is shorter than it was is [ErrFault]; so is one that cannot be read,
// and its cause is wrapped too. Stream ends with the first error, of use, of reading or
// of ctx.
func (m *File) Stream(ctx context.Context, use func(part []byte) error) error {
	if m.sparse != nil {
		return m.sparse.chunks.stream(ctx, m.sparse.read, m.sparse.size, use)
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
