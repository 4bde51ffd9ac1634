package shard

import (
	"context"
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

// ErrOtherDevice means that shards cannot be linked, because the datasets lie on
// different file systems, on one without links, or belong to another user.
var ErrOtherDevice = errors.New("shards cannot be linked there, only copied")

// MergeOptions are the choices of a merge. The zero value is ready to use.
type MergeOptions struct {
	Copy      bool   // copy shards that cannot be linked
	WrittenBy string // for the manifest

	fs atomicfile.FS // set by tests
}

// merge is what one Merge makes of its sources.
type merge struct {
	opt      MergeOptions
	manifest Manifest
	inputs   *journal
	rejected *journal
	ids      map[xxh3.Uint128]holder   // of an id
	paths    map[string]format.Input   // of the inputs seen
	lines    map[format.Rejection]bool // of rejected.jsonl
	sources  []*Dataset
}

// holder says where an id was seen.
type holder struct {
	source int
	input  string
}

// Merge makes a dataset of several in a new directory, without copying: the shards
// become hard links, which is safe since nobody modifies a shard. The datasets must
// hold the same capture (layers, norm, dtypes, producer) and no id twice. The order
// is that of the arguments, and of parts that of their partition. The error wraps
// ErrMismatch, ErrNames, ErrParts, ErrOtherDevice, or os.ErrExist when dir holds a dataset, and
// then nothing was committed.
func Merge(dir string, sources []*Dataset, opt MergeOptions) (*Manifest, error) {
	if opt.fs == nil {
		opt.fs = atomicfile.OS{}
	}
	if err := vacant(dir); err != nil {
		return nil, err
	}
	m, err := newMerge(sources, opt)
	if err != nil {
		return nil, err
	}
	if err := atomicfile.MkdirAll(opt.fs, filepath.Join(dir, shardsDir)); err != nil {
		return nil, err
	}
	l, err := lock(dir)
	if err != nil {
		return nil, err
	}
	if err = vacant(dir); err == nil { // still, and from now on
		err = m.write(dir)
	}
	if err := errors.Join(err, l.Close()); err != nil {
		return nil, err
	}
	return &m.manifest, nil
}

// newMerge holds the sources against each other, and puts together what the new
// dataset says of itself.
func newMerge(sources []*Dataset, opt MergeOptions) (*merge, error) {
	if len(sources) == 0 {
		return nil, errors.New("no datasets are named")
	}
	m := &merge{
		opt: opt, sources: slices.Clone(sources),
		inputs: &journal{name: inputsName}, rejected: &journal{name: rejectedName},
		ids: map[xxh3.Uint128]holder{}, paths: map[string]format.Input{}, lines: map[format.Rejection]bool{},
	}
	if err := arrange(m.sources); err != nil {
		return nil, err
	}
	for i, src := range m.sources {
		if err := m.add(i, src.manifest); err != nil {
			return nil, fmt.Errorf("merge %s: %w", src.place, err)
		}
	}
	return m, nil
}

// vacant refuses a directory that holds a dataset or other things.
func vacant(dir string) error {
	if err := noDataset(directory(dir)); err != nil {
		return err
	}
	return refuseForeign(dir)
}

// noDataset refuses a place that holds a dataset, be it one that cannot be read.
func noDataset(p place) error {
	_, _, err := readManifest(p)
	switch {
	case err == nil:
		return fmt.Errorf("%s holds a dataset already: %w", p, os.ErrExist)
	case IsCorrupt(err), errors.Is(err, ErrVersion):
		return fmt.Errorf("%s holds a dataset already: %w", p, err)
	case errors.Is(err, ErrForeign):
		return fmt.Errorf("%s is no dataset: %w", p, err)
	case errors.Is(err, ErrNotDataset), errors.Is(err, os.ErrNotExist):
		return nil
	}
	return err
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
			return fmt.Errorf("%s as in %s: %w", diff, m.sources[0].place, ErrMismatch)
		}
		if part.Producer != m.manifest.Producer {
			return fmt.Errorf("producer is %s, that of %s is %s: %w", part.Producer, m.sources[0].place, m.manifest.Producer, ErrMismatch)
		}
		if part.Shifted != m.manifest.Shifted {
			return fmt.Errorf("ids are shifted against the states: %t, those of %s: %t: %w", part.Shifted, m.sources[0].place, m.manifest.Shifted, ErrMismatch)
		}
		if err := agree(part.Target, m.manifest.Target); err != nil {
			return fmt.Errorf("%s %w: %w", m.sources[0].place, err, ErrMismatch)
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
	if _, err := eachLine(m.sources[i].place, inputsName, part.Inputs, takeInput); err != nil {
		return err
	}
	_, err := eachLine(m.sources[i].place, rejectedName, part.Rejected, m.takeRejection)
	return err
}

func (m *merge) takeInput(i int, e entry) error {
	if old, ok := m.paths[e.Path]; ok && old != e.Input {
		return fmt.Errorf("input %s was taken in two states, of %d bytes (%s) and of %d (%s): %w", e.Path, old.Bytes, stamp(old.ModTime), e.Bytes, stamp(e.ModTime), ErrNames)
	}
	m.paths[e.Path] = e.Input
	for _, id := range e.IDs {
		key := xxh3.HashString128(id)
		if h, ok := m.ids[key]; ok {
			return fmt.Errorf("id %q of %s is in %s too, of %s: %w", id, e.Path, m.sources[h.source].place, h.input, ErrNames)
		}
		m.ids[key] = holder{i, e.Path}
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
func (m *merge) write(dir string) error {
	fs := m.opt.fs
	// What an interrupted merge left must not survive in the new dataset.
	if err := removeUnlisted(fs, dir, &Manifest{}); err != nil {
		return err
	}
	for _, name := range []string{inputsName, rejectedName} {
		if err := fs.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	n := 0
	for _, src := range m.sources {
		for _, s := range src.manifest.Shards {
			if err := m.bring(src.place, s, filepath.Join(dir, shardsDir, m.manifest.Shards[n].Name)); err != nil {
				return err
			}
			n++
		}
	}
	if err := fs.SyncDir(filepath.Join(dir, shardsDir)); err != nil {
		return err
	}
	var err error
	if m.manifest.Inputs, err = m.inputs.write(fs, dir); err != nil {
		return err
	}
	if m.manifest.Rejected, err = m.rejected.write(fs, dir); err != nil {
		return err
	}
	data, err := m.manifest.encode()
	if err != nil {
		return err
	}
	return atomicfile.Write(fs, filepath.Join(dir, manifestName), data)
}

// bring gives the merged dataset a shard of a source: a link where there can be one.
func (m *merge) bring(from place, s Info, to string) error {
	dir, ok := from.(directory)
	if !ok {
		if !m.opt.Copy {
			return fmt.Errorf("link %s: %w", from, ErrOtherDevice)
		}
		return m.copy(from, s, to)
	}
	name := filepath.Join(string(dir), shardsDir, s.Name)
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.Size() != s.Bytes {
		return corrupt(name, "has %d bytes, its manifest calls for %d", info.Size(), s.Bytes)
	}
	err = m.opt.fs.Link(name, to)
	if err == nil || !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	if !m.opt.Copy {
		return fmt.Errorf("link %s: %w: %w", name, ErrOtherDevice, err)
	}
	return m.copy(from, s, to)
}

func (m *merge) copy(from place, s Info, to string) error {
	out, err := atomicfile.Create(m.opt.fs, to)
	if err != nil {
		return err
	}
	if err := copyShard(out, from, s); err != nil {
		return errors.Join(err, out.Discard())
	}
	return out.Commit()
}

// copyShard writes a shard, if it is what its manifest calls for.
func copyShard(w io.Writer, from place, s Info) error {
	f, err := from.shard(s)
	if err != nil {
		return err
	}
	sum, err := hashFile(context.Background(), f, func(part []byte) error {
		_, err := w.Write(part)
		return err
	})
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if sum != s.XXH3 {
		return corrupt(fmt.Sprintf("%s/%s/%s", from, shardsDir, s.Name), "has XXH3 %s, its manifest calls for %s", sum, s.XXH3)
	}
	return nil
}
