package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hsx/internal/atomicfile"
	"hsx/internal/mapped"
	"hsx/internal/objstore"
	"hsx/shard"
)

// place is where something that the user named lies: a path, or a place in a store.
type place struct {
	path  string   // "" in a store
	store *objects // nil on a file system
}

// placeOf finds out what a name on the command line means. file:// is a path like any
// other: only a file system renames and syncs.
func placeOf(ctx context.Context, name string) (place, error) {
	if objstore.Is(name) {
		s, err := objstore.Open(ctx, name, objstore.Options{})
		if err != nil {
			return place{}, err
		}
		return place{store: &objects{s}}, nil // in use until the process ends
	}
	scheme, path, isURL := strings.Cut(name, "://")
	switch {
	case !isURL || strings.ContainsAny(scheme, "/.") || scheme == "":
		return place{path: name}, nil
	case scheme != "file":
		return place{}, usagef("%s: %s:// is not known, want a path, s3://bucket/prefix or gs://bucket/prefix", name, scheme)
	case !filepath.IsAbs(path):
		return place{}, usagef("%s: want file:// and an absolute path", name)
	}
	return place{path: path}, nil
}

// onDisk is the path of an --out, for a command that keeps files of its own there.
func onDisk(name string) (string, error) {
	if objstore.Is(name) {
		return "", usagef("--out: %s is in a store, want a directory", name)
	}
	p, err := placeOf(context.Background(), name)
	return p.path, err
}

// openDataset opens the dataset that the user named.
func openDataset(ctx context.Context, name string) (*shard.Dataset, error) {
	ds, err := datasetAt(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open dataset: %w", err)
	}
	return ds, nil
}

// datasetAt is openDataset for who says himself what was opened.
func datasetAt(ctx context.Context, name string) (*shard.Dataset, error) {
	p, err := placeOf(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case p.store != nil:
		return shard.OpenObjects(ctx, p.store)
	}
	return shard.Open(p.path)
}

// openWriter opens the dataset that the user named for adding samples. What was put is
// sent to a store also when ctx ends meanwhile: an interrupted run commits.
func openWriter(ctx context.Context, name string, opt shard.Options) (w *shard.Writer, err error) {
	p, err := placeOf(ctx, name)
	switch {
	case err != nil:
	case p.store != nil:
		w, err = shard.OpenObjectsWriter(context.WithoutCancel(ctx), p.store, opt)
	default:
		w, err = shard.OpenWriter(p.path, opt)
	}
	if err != nil {
		return nil, fmt.Errorf("open dataset: %w", err)
	}
	return w, nil
}

// placeOfFile is placeOf for a single file, and its name in the store.
func placeOfFile(ctx context.Context, name string) (p place, base string, err error) {
	if !objstore.Is(name) {
		p, err = placeOf(ctx, name)
		return p, "", err
	}
	query := ""
	if i := strings.LastIndexByte(name, '?'); i >= 0 {
		name, query = name[:i], name[i:]
	}
	at := name
	if i := strings.LastIndexByte(name, '/'); i >= len("s3://") {
		at, base = name[:i], name[i+1:]
	}
	p, err = placeOf(ctx, at+query)
	if err == nil && base == "" {
		err = usagef("%s names no object, want one in it, such as %[1]s/NAME", p.store)
	}
	return p, base, err
}

// readFile is [os.ReadFile] for what the user named.
func readFile(ctx context.Context, name string) ([]byte, error) {
	p, base, err := placeOfFile(ctx, name)
	if err != nil {
		return nil, err
	}
	if p.store == nil {
		return os.ReadFile(p.path)
	}
	data, _, err := p.store.Get(ctx, base)
	return data, err
}

// writeFile writes what the user named: a file that is whole or as it was, an object, or
// a pipe or device.
func writeFile(ctx context.Context, name string, data []byte) error {
	p, base, err := placeOfFile(ctx, name)
	if err != nil {
		return err
	}
	if p.store == nil {
		path := behindLinks(p.path)
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return os.WriteFile(path, data, 0o644)
		}
		pending, err := atomicfile.Create(atomicfile.OS{}, fmt.Sprintf("%s.%d", path, os.Getpid()))
		if err != nil {
			return err
		}
		if _, err := pending.Write(data); err != nil {
			return errors.Join(err, pending.Discard())
		}
		return pending.CommitAs(path)
	}
	f, err := os.CreateTemp("", "hsx-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // nothing of it is needed
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return p.store.Upload(ctx, base, f.Name())
}

// objects is a store as package shard uses it.
type objects struct{ *objstore.Store }

// List tells of the objects whose names begin with prefix.
func (o *objects) List(ctx context.Context, prefix string, each func(name string, size int64, modified time.Time) error) error {
	for obj, err := range o.Store.List(ctx, prefix) {
		if err != nil {
			return err
		}
		if err := each(obj.Name, obj.Size, obj.Modified); err != nil {
			return err
		}
	}
	return nil
}

// Uploads tells of the uploads that were begun and not completed.
func (o *objects) Uploads(ctx context.Context, each func(name, id string, begun time.Time) error) error {
	for u, err := range o.Store.Uploads(ctx, "") {
		if err != nil {
			return err
		}
		if err := each(u.Name, u.ID, u.Begun); err != nil {
			return err
		}
	}
	return nil
}

// Abort ends such an upload.
func (o *objects) Abort(ctx context.Context, name, id string) error {
	return o.Store.Abort(ctx, objstore.Upload{Name: name, ID: id})
}

// CopyFrom has the store copy an object by itself.
func (o *objects) CopyFrom(ctx context.Context, from shard.Objects, fromName, name string) error {
	other, ok := from.(*objects)
	if !ok {
		return errors.ErrUnsupported
	}
	return o.Copy(ctx, other.Store, fromName, name)
}

// dumpTree is a store as package capture reads dumps from it.
type dumpTree struct {
	*objects
	chunks *mapped.Chunks
}

// List tells of all objects.
func (t dumpTree) List(ctx context.Context, each func(name string, size int64, modified time.Time) error) error {
	return t.objects.List(ctx, "", each)
}

// Open brings a whole object here.
func (t dumpTree) Open(ctx context.Context, name string) (*mapped.File, error) {
	size, err := t.Size(ctx, name)
	if err != nil {
		return nil, err
	}
	f, err := t.chunks.Sparse(size, func(p []byte, off int64) error { return t.ReadRange(ctx, name, p, off) })
	if err != nil {
		return nil, err
	}
	if err := f.Need(f.Bytes()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
