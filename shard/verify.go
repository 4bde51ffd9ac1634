package shard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"hsx/format"
	"hsx/internal/mapped"
)

// Verify compares every byte of the dataset with what was written: each listed
// shard with its size and XXH3-128, and both journals with the manifest (which Open
// checked by its seal). It goes on after damage and reports each piece of it, one
// call at a time; a shard that differs is searched for the rows to blame. progress,
// if not nil, gets the number of bytes done. The error is a failure to look, or ctx's.
func (d *Dataset) Verify(ctx context.Context, report func(*CorruptError), progress func(n int64)) error {
	for _, j := range []struct {
		name  string
		lines Lines
	}{{inputsName, d.manifest.Inputs}, {rejectedName, d.manifest.Rejected}} {
		var c *CorruptError
		if _, err := readCommitted(d.place, j.name, j.lines); errors.As(err, &c) {
			report(c)
		} else if err != nil {
			return err
		}
	}
	var mu sync.Mutex
	locked := func(c *CorruptError) { mu.Lock(); defer mu.Unlock(); report(c) }
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(min(4, runtime.GOMAXPROCS(0)))
	for i := range d.manifest.Shards {
		g.Go(func() error { return d.verifyShard(ctx, i, locked, progress) })
	}
	return g.Wait()
}

func (d *Dataset) verifyShard(ctx context.Context, i int, report func(*CorruptError), progress func(n int64)) error {
	info := d.manifest.Shards[i]
	file := shardsDir + "/" + info.Name
	f, err := d.place.shard(info)
	if errors.Is(err, os.ErrNotExist) {
		if d.replaced(info) {
			return fmt.Errorf("%s: %w", file, ErrReplaced)
		}
		report(corrupt(file, "is missing"))
		return nil
	}
	if err != nil {
		return err
	}
	size := int64(len(f.Bytes()))
	var sum Digest
	if size == info.Bytes { // else the size says enough
		sum, err = hashFile(ctx, f, func(part []byte) error {
			if progress != nil {
				progress(int64(len(part)))
			}
			return nil
		})
	}
	if err := errors.Join(err, f.Close()); err != nil {
		if errors.Is(err, mapped.ErrFault) {
			report(&CorruptError{File: file, Row: -1, Err: err})
			return nil
		}
		return err
	}
	if size != info.Bytes {
		report(corrupt(file, "has %d bytes, the manifest calls for %d", size, info.Bytes))
		return nil
	}
	if sum != info.XXH3 {
		report(corrupt(file, "has XXH3 %s, the manifest calls for %s", sum, info.XXH3))
		return d.blameRows(ctx, i, report)
	}
	return nil
}

// hashFile is the XXH3-128 of a whole file, each part of which it hands to use.
func hashFile(ctx context.Context, f *mapped.File, use func(part []byte) error) (Digest, error) {
	var h xxh3.Hasher
	err := f.Stream(ctx, func(part []byte) error {
		_, _ = h.Write(part) // never fails
		return use(part)
	})
	return Digest(h.Sum128().Bytes()), err
}

// blameRows reports what of a damaged shard can no longer be used. Damage between
// the columns, in padding, touches no row. Its error is a failure to look.
func (d *Dataset) blameRows(ctx context.Context, i int, report func(*CorruptError)) (err error) {
	d.shardSamples(ctx, i, &Memory{}, func(_ *format.Sample, serr error) bool {
		var c *CorruptError
		if errors.As(serr, &c) {
			report(c)
		} else if serr != nil {
			err = serr
		}
		return err == nil && ctx.Err() == nil
	})
	return err
}
