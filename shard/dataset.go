package shard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"hsx/format"
	"hsx/internal/mapped"
)

// Dataset is a committed state of a dataset, open for reading. Writers do not disturb
// it: it goes on seeing the manifest that it read.
type Dataset struct {
	place    place
	manifest *Manifest
}

// Open reads the manifest of a dataset and nothing that it does not list. The error
// wraps ErrNotDataset when there is none, ErrForeign or ErrVersion when this hsx cannot
// know what is there, and is a *CorruptError when it is damaged.
func Open(dir string) (*Dataset, error) { return open(directory(dir)) }

func open(p place) (*Dataset, error) {
	m, _, err := readManifest(p)
	if err != nil {
		return nil, err
	}
	return &Dataset{place: p, manifest: m}, nil
}

// Manifest is what the dataset says of itself. It must not be changed.
func (d *Dataset) Manifest() *Manifest { return d.manifest }

// Samples yields every sample in the order in which it was put, checked against its
// shard's index hash and its own digest. A damaged row or shard yields a
// *CorruptError in its place, and the rest goes on.
//
// A sample's memory is mapped, or used again: it is valid until the next one is asked
// for, and should be read under Guard when the files may shrink meanwhile.
func (d *Dataset) Samples(ctx context.Context) iter.Seq2[*format.Sample, error] {
	return func(yield func(*format.Sample, error) bool) {
		var m Memory
		for i := range d.manifest.Shards {
			if !d.shardSamples(ctx, i, &m, yield) {
				return
			}
		}
	}
}

func (d *Dataset) shardSamples(ctx context.Context, i int, m *Memory, yield func(*format.Sample, error) bool) (more bool) {
	s, err := d.Shard(i)
	if err != nil {
		return yield(nil, err)
	}
	defer func() {
		if err := s.Close(); err != nil && more {
			more = yield(nil, err)
		}
	}()
	s.Ahead(nil)
	for row := range s.Rows() {
		if err := ctx.Err(); err != nil {
			yield(nil, err)
			return false
		}
		if !yield(s.SampleIn(m, row)) {
			return false
		}
	}
	return true
}

// Shard is one shard, open for reading its rows in any order. Its methods but Close
// can be called by several goroutines.
type Shard struct {
	file    string // for errors
	r       *reader
	batches []*rows
	first   []int // the row that each batch begins with
	n       int
	ahead   *ahead // nil: nothing is fetched ahead
}

// Head is a row without its states.
type Head struct {
	ID, Source string
	Tokens     []int32
	LossMask   []byte // nil when the row has none
	Digest     Digest // of ids and states: equal digests are the same capture of the same tokens
}

// Shard opens shard i of the manifest and checks all of it but the states, which
// Sample checks row by row. The error is a *CorruptError, wraps ErrReplaced, or says that
// the file could not be opened or a store did not answer.
func (d *Dataset) Shard(i int) (*Shard, error) {
	info := d.manifest.Shards[i]
	s := &Shard{file: shardsDir + "/" + info.Name}
	r, err := openShardFile(d.place, info, d.manifest.Layout())
	if err != nil {
		if d.replaced(info) {
			return nil, fmt.Errorf("%s: %w", s.file, ErrReplaced)
		}
		return nil, s.corrupt(-1, "", err)
	}
	s.r = r
	if err := s.load(d.manifest); err != nil {
		_ = r.close() // the damage is what counts
		return nil, s.corrupt(-1, "", err)
	}
	return s, nil
}

// replaced reports whether the dataset no longer lists a shard: then its absence is no
// damage.
func (d *Dataset) replaced(info Info) bool {
	m, _, err := readManifest(d.place)
	return err == nil && !slices.ContainsFunc(m.Shards, func(s Info) bool { return s.Name == info.Name && s.XXH3 == info.XXH3 })
}

func (s *Shard) load(m *Manifest) error {
	if err := s.r.checkIndex(); err != nil {
		return err
	}
	for k := range s.r.batch {
		b, err := s.r.decode(k)
		if err != nil {
			return err
		}
		b.origin = m.Origin
		s.batches, s.first = append(s.batches, b), append(s.first, s.n)
		s.n += b.n
	}
	return nil
}

func (s *Shard) corrupt(row int, id string, err error) error {
	var u *unread
	if errors.As(err, &u) {
		return fmt.Errorf("read %s: %w", s.file, u.error)
	}
	if errors.Is(err, mapped.ErrUnkept) {
		return fmt.Errorf("read %s: %w", s.file, err)
	}
	return &CorruptError{File: s.file, Row: row, ID: id, Err: err}
}

// Rows is the number of rows.
func (s *Shard) Rows() int { return s.n }

// find is the batch of a row, and the row's place in it.
func (s *Shard) find(row int) (*rows, int) {
	k, exact := slices.BinarySearch(s.first, row)
	if !exact {
		k--
	}
	s.ahead.read(k)
	return s.batches[k], row - s.first[k]
}

// Head is row i without its states, in memory of its own.
func (s *Shard) Head(row int) (Head, error) {
	b, i := s.find(row)
	h, err := b.head(i)
	if err != nil {
		return Head{}, s.corrupt(row, h.ID, err)
	}
	return h, nil
}

// Sample is row i, checked against its digest. Its mask, and its states where they are
// stored as they are, alias the map until Close; read them under Guard when the files
// may shrink meanwhile. States of a compressed shard have memory of their own. The
// error is a *CorruptError, unless a store did not answer.
func (s *Shard) Sample(row int) (*format.Sample, error) { return s.Scan(nil, row, nil) }

// SampleIn is Sample with the states of a compressed shard in m, which are valid until
// the next sample is made there.
func (s *Shard) SampleIn(m *Memory, row int) (*format.Sample, error) { return s.Scan(m, row, nil) }

// Scan is SampleIn for who looks at all states: it shows them to look on their way into
// the digest, so that memory is read once. What look saw counts only when there is no
// error.
func (s *Shard) Scan(m *Memory, row int, look Look) (*format.Sample, error) {
	b, i := s.find(row)
	out, err := b.sample(i, m, look)
	if err != nil {
		id := ""
		if out != nil {
			id = out.ID
		}
		return nil, s.corrupt(row, id, err)
	}
	return out, nil
}

// Close unmaps the shard: what aliases it must not be used after.
func (s *Shard) Close() error {
	s.ahead.close()
	if err := s.r.close(); err != nil {
		return s.corrupt(-1, "", err)
	}
	return nil
}

// IsCorrupt reports whether err is damage in the data, as opposed to a failure to
// look at it.
func IsCorrupt(err error) bool {
	var c *CorruptError
	return errors.As(err, &c)
}

// Guard runs fn, which reads samples, and returns a *CorruptError if a file that they
// lie in shrank meanwhile or its disk failed; without it the process would end. fn
// must keep its own data consistent when it is left at any read.
func Guard(fn func() error) error {
	err := mapped.Guard(fn)
	if errors.Is(err, mapped.ErrFault) && !IsCorrupt(err) {
		return corrupt(shardsDir, "%w", err)
	}
	return err
}
