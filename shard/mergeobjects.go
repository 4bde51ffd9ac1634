package shard

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"
)

// Copier is a store that can copy an object of another one by itself.
type Copier interface {
	// CopyFrom makes an object of one that lies elsewhere. The error wraps
	// errors.ErrUnsupported when that is beyond the store's reach.
	CopyFrom(ctx context.Context, from Objects, fromName, name string) error
}

// mergeUploads is how many shards are brought into a store at once.
const mergeUploads = 4

// MergeObjects is [Merge] into a store. A shard that the store can copy by itself, being
// a [Copier], does not come here; another one is uploaded, if it is what its manifest
// calls for. Of a merge that does not come to its end nothing is committed, and what was
// brought stays until it is swept.
func MergeObjects(ctx context.Context, to Store, sources []*Dataset, opt MergeOptions) (*Manifest, error) {
	if err := noDataset(newBucket(ctx, to)); err != nil {
		return nil, err
	}
	if err := refuseForeignObjects(ctx, to); err != nil {
		return nil, err
	}
	m, err := newMerge(sources, opt)
	if err != nil {
		return nil, err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(mergeUploads)
	n := 0
	for _, src := range m.sources {
		for _, s := range src.manifest.Shards {
			name := rewrittenName(n, s.XXH3)
			m.manifest.Shards[n].Name = name
			n++
			g.Go(func() error { return bringObject(gctx, to, src.place, s, shardsDir+"/"+name) })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if m.manifest.Inputs, err = m.inputs.send(ctx, to); err != nil {
		return nil, err
	}
	if m.manifest.Rejected, err = m.rejected.send(ctx, to); err != nil {
		return nil, err
	}
	m.manifest.Version = 2
	data, err := m.manifest.encode()
	if err != nil {
		return nil, err
	}
	_, err = to.PutIf(ctx, manifestName, data, "")
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s holds a dataset by now: %w", to, ErrConflict)
	}
	return &m.manifest, err
}

// bringObject gives a store a shard that lies elsewhere.
func bringObject(ctx context.Context, to Store, from place, s Info, name string) error {
	b, remote := from.(*bucket)
	c, can := to.(Copier)
	if remote && can {
		err := c.CopyFrom(ctx, b.objects, shardsDir+"/"+s.Name, name)
		if !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	if dir, ok := from.(directory); ok {
		return upload(ctx, to, filepath.Join(string(dir), shardsDir, s.Name), s, name)
	}
	f, err := os.CreateTemp("", "hsx-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it is in the store, or of no use
	err = copyShard(f, from, s)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return to.Upload(ctx, name, f.Name())
}

// send brings all lines into a store.
func (j *journal) send(ctx context.Context, to Store) (Lines, error) {
	lines := Lines{Lines: j.added, Bytes: int64(len(j.pending)), XXH3: Digest(xxh3.Hash128(j.pending).Bytes())}
	if j.added == 0 {
		return Lines{}, nil
	}
	for at := int64(0); at < lines.Bytes; at += partBytes {
		part, err := sendPart(ctx, to, j.name, j.pending[at:min(at+partBytes, lines.Bytes)])
		if err != nil {
			return Lines{}, err
		}
		lines.Parts = append(lines.Parts, part)
	}
	return lines, nil
}
