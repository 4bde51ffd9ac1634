package objstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"
	"os"
)

// errOther is the state that a conditional write met.
var errOther = fmt.Errorf("%w in another state: somebody else wrote it", fs.ErrExist)

// putKey names the metadata by which a PutIf knows its own object.
const putKey = "hsx-put"

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// Upload writes a local file as an object, in parts and with bounded memory, and
// replaces what had the name. The object is whole or absent: its CRC-32C is declared to
// the store, and size and CRC are compared with what the store then says of it.
func (s *Store) Upload(ctx context.Context, name, path string) error {
	key, err := s.key("write", name)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // opened for reading
	sum := crc32.New(castagnoli())
	size, err := io.Copy(sum, f)
	if err != nil {
		return fmt.Errorf("upload %s: %w", path, err)
	}
	err = s.vendor.write(ctx, key, write{body: f, size: size, crc: sum.Sum32()})
	if err != nil && !s.unsure(ctx, err) {
		return s.fail("write", key, err)
	}
	st, serr := s.vendor.stat(ctx, key)
	switch whole := st.size == size && (!st.summed || st.crc == sum.Sum32()); {
	case err != nil && (serr != nil || !whole || !st.summed):
		return s.fail("write", key, err)
	case serr != nil:
		return s.fail("check", key, serr)
	case !whole:
		return s.fail("check", key, fmt.Errorf("store has %d bytes with CRC-32C %08x, want %d with %08x", st.size, st.crc, size, sum.Sum32()))
	}
	s.version.forget(key)
	return nil
}

// unsure reports whether a write that failed may have been done all the same: its
// answer was lost, or an attempt after the one that did it was refused.
func (s *Store) unsure(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errors.As(s.cause(err), new(*refusal))
}

// PutIf writes a small object if it still has the version that [Store.Get] or PutIf
// returned, or, when version is empty, if there is none. Of several that try, one wins;
// the error of the others wraps [fs.ErrExist]. It returns the version that it wrote.
func (s *Store) PutIf(ctx context.Context, name string, data []byte, version string) (string, error) {
	key, err := s.key("write", name)
	if err != nil {
		return "", err
	}
	w := write{body: bytes.NewReader(data), size: int64(len(data)), crc: crc32.Checksum(data, castagnoli()), put: rand.Text(), is: &version}
	err = s.vendor.write(ctx, key, w)
	if err != nil && !s.unsure(ctx, err) {
		return "", s.fail("write", key, err)
	}
	s.version.forget(key)
	// Only the object itself can tell. A first attempt whose answer was lost makes the
	// second one fail, and what was written may have been replaced by now.
	st, serr := s.vendor.stat(ctx, key)
	switch {
	case serr == nil && st.put == w.put:
		return st.version, nil
	case err == nil && serr != nil:
		return "", s.fail("check", key, serr)
	case err == nil, // it was replaced since
		serr == nil && st.version != version, version != "" && s.missing(serr), // it cannot be written
		errors.Is(s.cause(err), errPrecondition), s.missing(err):
		err = errOther
	}
	return "", s.fail("write", key, err)
}

// Copy copies an object within what serves both stores, without bringing its bytes
// here. The error wraps [errors.ErrUnsupported] where two services hold them.
func (s *Store) Copy(ctx context.Context, from *Store, srcName, dstName string) error {
	src, err := from.key("copy", srcName)
	if err != nil {
		return err
	}
	dst, err := s.key("write", dstName)
	if err != nil {
		return err
	}
	if !s.at.sameStore(from.at) {
		return fmt.Errorf("copy %s to %s: %w between two services", from.at.of(src), s.at.of(dst), errors.ErrUnsupported)
	}
	was, err := from.vendor.stat(ctx, src)
	if err != nil {
		return from.fail("copy", src, from.unseen(ctx, src, err))
	}
	err = s.vendor.copyFrom(ctx, from.at.bucket, src, dst, was)
	if err != nil && !s.unsure(ctx, err) {
		return s.fail("write", dst, err)
	}
	st, serr := s.vendor.stat(ctx, dst)
	summed := st.summed && was.summed
	whole := serr == nil && st.size == was.size && (!summed || st.crc == was.crc)
	switch {
	case err != nil && (!whole || !summed):
		return s.fail("write", dst, err)
	case serr != nil:
		return s.fail("check", dst, serr)
	case !whole:
		return s.fail("check", dst, fmt.Errorf("copy has %d bytes, want the %d of %s", st.size, was.size, from.at.of(src)))
	}
	s.version.forget(dst)
	return nil
}

// Remove removes an object. One that is not there is removed already.
func (s *Store) Remove(ctx context.Context, name string) error {
	key, err := s.key("remove", name)
	if err != nil {
		return err
	}
	s.version.forget(key)
	err = s.bucket.Delete(ctx, key)
	if err == nil || s.missing(err) {
		return nil
	}
	if s.unsure(ctx, err) {
		if _, serr := s.vendor.stat(ctx, key); s.missing(serr) {
			return nil
		}
	}
	return s.fail("remove", key, err)
}

// missing reports whether an error says that there is no such object or upload.
func (s *Store) missing(err error) bool { return err != nil && errors.Is(s.cause(err), fs.ErrNotExist) }

// Uploads lists the multipart uploads below a prefix that were begun and neither
// completed nor aborted, also those that are on their way. Google's store has none: its
// sessions end by themselves after a week and take no space.
func (s *Store) Uploads(ctx context.Context, prefix string) iter.Seq2[Upload, error] {
	return func(yield func(Upload, error) bool) {
		for u, err := range s.vendor.uploads(ctx, s.at.prefix+prefix) {
			if err != nil {
				yield(Upload{}, s.fail("list uploads of", s.at.prefix+prefix, err))
				return
			}
			u.Name = u.Name[len(s.at.prefix):]
			if !yield(u, nil) {
				return
			}
		}
	}
}

// Abort ends an upload and frees what it holds. One that is not there is ended already.
func (s *Store) Abort(ctx context.Context, u Upload) error {
	key, err := s.key("abort upload of", u.Name)
	if err != nil {
		return err
	}
	if err := s.vendor.abort(ctx, key, u.ID); err != nil && !s.missing(err) {
		return s.fail("abort upload of", key, err)
	}
	return nil
}
