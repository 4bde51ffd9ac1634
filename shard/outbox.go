package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"hsx/internal/atomicfile"
	"hsx/internal/mapped"
)

// Store is where a dataset can be written to when it is not a directory.
type Store interface {
	Objects
	// Upload makes an object of a local file, whole or not at all.
	Upload(ctx context.Context, name, path string) error
	// PutIf gives a small object its content if it is in the state of a version, "" being
	// that it does not exist, and returns the new version. The error wraps fs.ErrExist
	// when the object is in another state.
	PutIf(ctx context.Context, name string, data []byte, version string) (string, error)
	// List tells of each object whose name begins with prefix, and ends at each's error.
	List(ctx context.Context, prefix string, each func(name string, size int64, modified time.Time) error) error
}

// OpenObjectsWriter is [OpenWriter] for a dataset in a store, whose one writer nothing
// can lock out: of two that add at once, the second one to commit gets an error that
// wraps ErrConflict, and nothing of the dataset is lost. A shard is written in the
// system's temporary directory and uploaded while the next one is written. ctx ends
// all that is sent.
func OpenObjectsWriter(ctx context.Context, s Store, opt Options) (*Writer, error) {
	b := newBucket(ctx, s)
	_, _, err := b.manifest()
	if errors.Is(err, ErrNotDataset) {
		err = refuseForeignObjects(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	dir, l, err := stagingDir()
	if err != nil {
		return nil, err
	}
	if opt.fs == nil {
		opt.fs = unsynced{}
	}
	box := &outbox{ctx: ctx, store: s, dir: dir, committed: opt.Committed, listed: map[string]bool{}, files: map[string]string{}}
	opt.Committed = nil // the outbox knows when
	w, err := openWriter(b, dir, l, box, opt)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return w, nil
}

// refuseForeignObjects keeps a writer from settling among other things.
func refuseForeignObjects(ctx context.Context, s Store) error {
	return s.List(ctx, "", func(name string, _ int64, _ time.Time) error {
		if ownObject(name) {
			return nil
		}
		return fmt.Errorf("%s is neither empty nor a dataset: it holds %q and no %s", s, name, manifestName)
	})
}

// ownObject reports whether an object can be one of a dataset.
func ownObject(name string) bool {
	dir, base, ok := strings.Cut(name, "/")
	if ok {
		return dir == shardsDir && shardPattern().MatchString(base)
	}
	return name == manifestName || partPattern().MatchString(name)
}

const stagingPrefix = "hsx-staging-"

// stagingDir makes a directory for what is on its way to a store, and removes those
// whose writers were killed.
func stagingDir() (string, *os.File, error) {
	old, err := filepath.Glob(filepath.Join(os.TempDir(), stagingPrefix+"*"))
	if err != nil {
		return "", nil, err
	}
	for _, dir := range old {
		if l, err := lock(dir); err == nil { // it is nobody's
			_ = errors.Join(os.RemoveAll(dir), l.Close()) // the next writer tries again
		}
	}
	fresh, err := os.MkdirTemp("", "hsx-new-")
	if err != nil {
		return "", nil, err
	}
	l, err := lock(fresh)
	if err == nil {
		err = os.Mkdir(filepath.Join(fresh, shardsDir), 0o700)
	}
	// Others see it by a name for which they try its lock only now that it has one.
	dir := filepath.Join(os.TempDir(), stagingPrefix+strings.TrimPrefix(filepath.Base(fresh), "hsx-new-"))
	if err == nil {
		err = os.Rename(fresh, dir)
	}
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(fresh))
	}
	return dir, l, nil
}

// unsynced is a file system for what is durable only elsewhere.
type unsynced struct{ atomicfile.OS }

func (unsynced) OpenFile(name string, flag int, perm os.FileMode) (atomicfile.File, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return unsyncedFile{f}, nil
}

func (unsynced) SyncDir(string) error { return nil }

type unsyncedFile struct{ *os.File }

func (unsyncedFile) Sync() error { return nil }

// outbox brings the commits of a writer into a store, one at a time and in their
// order: new shards, then the lines, then the manifest, if nobody else has put
// another one there.
type outbox struct {
	ctx       context.Context //nolint:containedctx // of the writer, and all that it sends
	store     Store
	dir       string // of the writer's files
	committed func(rows int64)

	listed  map[string]bool   // shards that are in the store, or on their way
	files   map[string]string // of shards that have another name here
	sending chan error        // what is being sent ended with; nil when nothing is
	err     error             // of what was sent: nothing more can be

	// Of the sending goroutine.
	version          string // of the manifest in the store
	inputs, rejected []Part
}

// begin takes over what the store has.
func (o *outbox) begin(m *Manifest, version string) {
	for _, s := range m.Shards {
		o.listed[s.Name] = true
	}
	o.version, o.inputs, o.rejected = version, m.Inputs.Parts, m.Rejected.Parts
}

// rename gives a complete shard the name of its object, which no other content has.
func (o *outbox) rename(info *Info) {
	file := info.Name
	info.Name = rewrittenName(shardNumber(file), info.XXH3)
	o.files[info.Name] = file
}

// publish sends a commit once the one before it has arrived, and does not wait for it.
func (o *outbox) publish(m *Manifest) error {
	if err := o.wait(); err != nil {
		return err
	}
	next := *m
	var fresh []Info
	for _, s := range m.Shards {
		if !o.listed[s.Name] {
			o.listed[s.Name] = true
			fresh = append(fresh, s)
		}
	}
	o.sending = make(chan error, 1)
	paths := make([]string, len(fresh))
	for i, s := range fresh {
		file, ok := o.files[s.Name]
		if !ok {
			file = s.Name
		}
		delete(o.files, s.Name)
		paths[i] = filepath.Join(o.dir, shardsDir, file)
	}
	go func() { o.sending <- o.send(&next, fresh, paths) }()
	return nil
}

// wait returns when all that was published has arrived.
func (o *outbox) wait() error {
	if o.sending != nil {
		o.err = <-o.sending
		o.sending = nil
	}
	return o.err
}

func (o *outbox) send(m *Manifest, fresh []Info, paths []string) error {
	for i, s := range fresh {
		if err := upload(o.ctx, o.store, paths[i], s, shardsDir+"/"+s.Name); err != nil {
			return err
		}
	}
	var err error
	if o.inputs, err = o.sendLines(inputsName, o.inputs, m.Inputs); err != nil {
		return err
	}
	if o.rejected, err = o.sendLines(rejectedName, o.rejected, m.Rejected); err != nil {
		return err
	}
	m.Version, m.Inputs.Parts, m.Rejected.Parts = 2, o.inputs, o.rejected
	data, err := m.encode()
	if err != nil {
		return fmt.Errorf("encode %s: %w", manifestName, err)
	}
	o.version, err = o.store.PutIf(o.ctx, manifestName, data, o.version)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("commit to %s: %w: what it added is in the dataset, run again to add the rest", o.store, ErrConflict)
	}
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	if o.committed != nil {
		o.committed(m.Rows)
	}
	return nil
}

// upload makes an object of a shard, if the file is what was written.
func upload(ctx context.Context, to Store, path string, s Info, name string) error {
	f, err := mapped.Open(path)
	if err != nil {
		return err
	}
	sum, err := hashFile(ctx, f, func([]byte) error { return nil })
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if sum != s.XXH3 {
		return corrupt(path, "has XXH3 %s, its manifest calls for %s", sum, s.XXH3)
	}
	return to.Upload(ctx, name, path)
}

// partBytes is how long a part of a journal grows: each commit writes the last part
// anew, and a reader fetches all of them.
const partBytes = 1 << 20

// sendLines brings the parts of a journal up to what is to be committed.
func (o *outbox) sendLines(name string, parts []Part, want Lines) ([]Part, error) {
	start := int64(0)
	for _, p := range parts {
		start += p.Bytes
	}
	if start == want.Bytes {
		return parts, nil
	}
	parts = parts[:len(parts):len(parts)]
	if n := len(parts); n > 0 && parts[n-1].Bytes < partBytes {
		start -= parts[n-1].Bytes
		parts = parts[: n-1 : n-1]
	}
	f, err := os.Open(filepath.Join(o.dir, name))
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // opened for reading
	data, err := io.ReadAll(io.NewSectionReader(f, start, want.Bytes-start))
	if err != nil {
		return nil, err
	}
	part, err := sendPart(o.ctx, o.store, name, data)
	return append(parts, part), err
}

// sendPart makes an object of a part of the named journal. One that a commit which did
// not happen has left is written anew, so that nobody takes it for old.
func sendPart(ctx context.Context, to Store, name string, data []byte) (Part, error) {
	sum := Digest(xxh3.Hash128(data).Bytes())
	p := Part{Name: partName(name, sum), Bytes: int64(len(data))}
	_, err := to.PutIf(ctx, p.Name, data, "")
	if !errors.Is(err, fs.ErrExist) {
		return p, err
	}
	_, version, err := to.Get(ctx, p.Name)
	if err == nil {
		_, err = to.PutIf(ctx, p.Name, data, version)
	}
	if errors.Is(err, fs.ErrExist) { // another writer just did the same
		err = nil
	}
	return p, err
}

// close ends the sending and removes what lies here. An error of what was sent is of
// commits that nobody asked for.
func (o *outbox) close() {
	_ = o.wait()
	_ = os.RemoveAll(o.dir) // what is left, the next writer removes, if it is not at it already
}
