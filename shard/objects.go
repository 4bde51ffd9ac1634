package shard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"

	"golang.org/x/sync/errgroup"

	"hsx/internal/mapped"
)

// Objects is where a dataset lies when it is not a directory: names that hold bytes,
// in a store that has no rename and no append. Several goroutines use it at once.
type Objects interface {
	// String is what the place is called in messages; it has no credentials.
	String() string
	// Get is the whole of a small object, and what PutIf knows this state of it by. The
	// error wraps fs.ErrNotExist when there is no such object.
	Get(ctx context.Context, name string) (data []byte, version string, err error)
	// ReadRange fills p from an offset. The error wraps fs.ErrNotExist, or
	// io.ErrUnexpectedEOF when the object ends before; an object that is replaced
	// meanwhile is an error too.
	ReadRange(ctx context.Context, name string, p []byte, off int64) error
	// Size is the size of an object. The error wraps fs.ErrNotExist when there is none.
	Size(ctx context.Context, name string) (int64, error)
}

// OpenObjects is [Open] for a dataset in a store. ctx ends all that is read of it.
// What is read of a shard is kept in a nameless file in the system's temporary
// directory until the shard is closed. An error that is not a *CorruptError says that
// the store did not answer.
func OpenObjects(ctx context.Context, o Objects) (*Dataset, error) {
	return open(newBucket(ctx, o))
}

// bucket is a place in a store.
type bucket struct {
	ctx     context.Context //nolint:containedctx // of the dataset, and all that is read of it
	objects Objects
	chunks  *mapped.Chunks
}

func newBucket(ctx context.Context, o Objects) *bucket {
	return &bucket{ctx: ctx, objects: o, chunks: mapped.NewChunks()}
}

func (b *bucket) String() string { return b.objects.String() }

func (b *bucket) manifest() (data []byte, version string, err error) {
	data, version, err = b.objects.Get(b.ctx, manifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", notDataset(b)
	}
	return data, version, err
}

// linesAtOnce is how many parts of a journal are read at once.
const linesAtOnce = 16

// lines reads a journal from its parts, or from the file that was copied into the store
// as it lay in a directory.
func (b *bucket) lines(name string, committed Lines) ([]byte, error) {
	parts := committed.in(name)
	pieces := make([][]byte, len(parts))
	g, ctx := errgroup.WithContext(b.ctx)
	g.SetLimit(linesAtOnce)
	for i, p := range parts {
		g.Go(func() error {
			data, _, err := b.objects.Get(ctx, p.Name)
			if errors.Is(err, fs.ErrNotExist) {
				return missing(p)
			}
			if err == nil && int64(len(data)) < p.Bytes {
				return short(p, data)
			}
			pieces[i] = data[:min(p.Bytes, int64(len(data)))]
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return bytes.Join(pieces, nil), nil
}

func (b *bucket) shard(info Info) (*mapped.File, error) {
	name := shardsDir + "/" + info.Name
	size, err := b.objects.Size(b.ctx, name)
	if err != nil {
		return nil, seen(err)
	}
	return b.chunks.Sparse(size, func(p []byte, off int64) error {
		return seen(b.objects.ReadRange(b.ctx, name, p, off))
	})
}

// seen tells what an object turned out to be, which may be damage, from a failure to
// look at it.
func seen(err error) error {
	if err == nil || errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	return &unread{err}
}

// unread is a failure to look at data, as opposed to damage in it.
type unread struct{ error }

func (u *unread) Unwrap() error { return u.error }
