package shard

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/internal/atomicfile"
)

// ErrOtherDevice means that shards cannot be linked because the datasets lie on
// different file systems.
var ErrOtherDevice = errors.New("datasets lie on different file systems")

// MergeOptions are the choices of a merge. The zero value is ready to use.
type MergeOptions struct {
	Copy      bool   // copy shards that cannot be linked
	WrittenBy string // for the manifest

	fs atomicfile.FS // set by tests
}

// merge is the state of one Merge.
type merge struct {
	opt      MergeOptions
	dir      string
	manifest Manifest
	inputs   *journal
	rejected *journal
	ids      map[xxh3.Uint128]int      // the source that holds an id
	paths    map[string]format.Input   // of the inputs seen
	lines    map[format.Rejection]bool // of rejected.jsonl
	sources  []string
}

// Merge makes a dataset of several in a new directory, without copying: the shards
// become hard links, which is safe since nobody modifies a shard. The datasets must
// hold the same capture (layers, norm, dtypes, producer) and no id twice. The order
// is that of the arguments, and of parts that of their partition. The error wraps
// ErrMismatch, ErrParts, ErrNotDataset or ErrOtherDevice, or os.ErrExist when dir holds
// a dataset, and then nothing was committed.
func Merge(dir string, sources []string, opt MergeOptions) (*Manifest, error) {
	if opt.fs == nil {
		opt.fs = atomicfile.OS{}
	}
	if len(sources) == 0 {
		return nil, fmt.Errorf("merge into %s: no datasets are named", dir)
	}
	if err := vacant(dir); err != nil {
		return nil, err
	}
	m := &merge{
		opt: opt, dir: dir, sources: slices.Clone(sources),
		inputs: &journal{name: inputsName}, rejected: &journal{name: rejectedName},
		ids: map[xxh3.Uint128]int{}, paths: map[string]format.Input{}, lines: map[format.Rejection]bool{},
	}
	parts := make([]*Manifest, len(sources))
	for i, src := range sources {
		ds, err := Open(src)
		if err != nil {
			return nil, err
		}
		parts[i] = ds.manifest
	}
	if err := arrange(m.sources, parts); err != nil {
		return nil, err
	}
	for i, part := range parts {
		if err := m.add(i, part); err != nil {
			return nil, fmt.Errorf("merge %s: %w", m.sources[i], err)
		}
	}
	if err := atomicfile.MkdirAll(opt.fs, filepath.Join(dir, shardsDir)); err != nil {
		return nil, err
	}
	l, err := lock(dir)
	if err != nil {
		return nil, err
	}
	if err = vacant(dir); err == nil { // still, and from now on
		err = m.write(parts)
	}
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return &m.manifest, nil
}

// vacant refuses a directory that holds a dataset, be it one that cannot be read, or
// other things.
func vacant(dir string) error {
	_, _, err := readManifest(directory(dir))
	switch {
	case err == nil:
		return fmt.Errorf("%s holds a dataset already: %w", dir, os.ErrExist)
	case !errors.Is(err, ErrNotDataset) && !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s holds a dataset already: %w", dir, err)
	}
	return refuseForeign(dir)
}

// add takes over what one dataset says, in memory.
func (m *merge) add(i int, part *Manifest) error {
	if len(m.manifest.Shards) == 0 { // an empty dataset says nothing of the capture
		m.manifest = *part
		m.manifest.WrittenBy, m.manifest.Partition = m.opt.WrittenBy, nil
		m.manifest.setShards([]Info{})
		m.manifest.Inputs, m.manifest.Rejected = Lines{}, Lines{}
	} else if len(part.Shards) > 0 {
		if diff := m.manifest.Layout().Diff(part.Layout()); diff != "" {
			return fmt.Errorf("%s as in %s: %w", diff, m.sources[0], ErrMismatch)
		}
		if part.Producer != m.manifest.Producer {
			return fmt.Errorf("producer is %s, that of %s is %s: %w", part.Producer, m.sources[0], m.manifest.Producer, ErrMismatch)
		}
		if part.Shifted != m.manifest.Shifted {
			return fmt.Errorf("ids are shifted against the states: %t, those of %s: %t: %w", part.Shifted, m.sources[0], m.manifest.Shifted, ErrMismatch)
		}
		if err := agree(part.Target, m.manifest.Target); err != nil {
			return fmt.Errorf("%s %w: %w", m.sources[0], err, ErrMismatch)
		}
		m.manifest.Target = m.manifest.Target.Or(part.Target)
	}
	shards := m.manifest.Shards
	for _, s := range part.Shards {
		s.Name = shardName(len(shards))
		shards = append(shards, s)
	}
	m.manifest.setShards(shards)
	takeInput := func(e entry) error { return m.takeInput(i, e) }
	if _, err := eachLine(directory(m.sources[i]), inputsName, part.Inputs, takeInput); err != nil {
		return err
	}
	_, err := eachLine(directory(m.sources[i]), rejectedName, part.Rejected, m.takeRejection)
	return err
}

func (m *merge) takeInput(i int, e entry) error {
	if old, ok := m.paths[e.Path]; ok && old != e.Input {
		return fmt.Errorf("input %s was taken in two states, of %d and of %d bytes: %w", e.Path, old.Bytes, e.Bytes, ErrMismatch)
	}
	m.paths[e.Path] = e.Input
	for _, id := range e.IDs {
		key := xxh3.HashString128(id)
		if j, ok := m.ids[key]; ok {
			return fmt.Errorf("id %q is in %s too: %w", id, m.sources[j], ErrMismatch)
		}
		m.ids[key] = i
	}
	return m.inputs.add(e)
}

func (m *merge) takeRejection(r format.Rejection) error {
	if m.lines[r] {
		return nil
	}
	m.lines[r] = true
	return m.rejected.add(r)
}

// write puts the merged dataset on disk, the manifest last.
func (m *merge) write(parts []*Manifest) error {
	fs := m.opt.fs
	// What an interrupted merge left must not survive in the new dataset.
	if err := removeUnlisted(fs, m.dir, &Manifest{}); err != nil {
		return err
	}
	for _, name := range []string{inputsName, rejectedName} {
		if err := fs.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	n := 0
	for i, part := range parts {
		for _, s := range part.Shards {
			if err := m.link(filepath.Join(m.sources[i], shardsDir, s.Name), m.manifest.Shards[n]); err != nil {
				return err
			}
			n++
		}
	}
	if err := fs.SyncDir(filepath.Join(m.dir, shardsDir)); err != nil {
		return err
	}
	var err error
	if m.manifest.Inputs, err = m.inputs.write(fs, m.dir); err != nil {
		return err
	}
	if m.manifest.Rejected, err = m.rejected.write(fs, m.dir); err != nil {
		return err
	}
	data, err := m.manifest.encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(fs, filepath.Join(m.dir, manifestName), data)
}

// link gives the merged dataset a shard of a source.
func (m *merge) link(from string, s Info) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if info.Size() != s.Bytes {
		return corrupt(from, "has %d bytes, its manifest calls for %d", info.Size(), s.Bytes)
	}
	to := filepath.Join(m.dir, shardsDir, s.Name)
	err = m.opt.fs.Link(from, to)
	if err == nil || !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	if !m.opt.Copy {
		return fmt.Errorf("link %s: %w: %w", from, ErrOtherDevice, err)
	}
	return m.copy(from, to, s)
}

func (m *merge) copy(from, to string, s Info) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }() // opened for reading
	out, err := atomicfile.Create(m.opt.fs, to)
	if err != nil {
		return err
	}
	var h xxh3.Hasher
	if _, err := io.Copy(io.MultiWriter(&h, out), in); err != nil {
		return errors.Join(err, out.Discard())
	}
	if sum := Digest(h.Sum128().Bytes()); sum != s.XXH3 {
		return errors.Join(corrupt(from, "has XXH3 %s, its manifest calls for %s", sum, s.XXH3), out.Discard())
	}
	return out.Commit()
}
