package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"hsx/format"
	"hsx/format/npy"
	"hsx/format/producer"
	"hsx/format/safetensors"
	"hsx/format/torch"
	"hsx/internal/atomicfile"
	"hsx/shard"
)

// workers write files side by side: while one waits for the disk, another encodes.
const workers = 2

// Result is what a run did.
type Result struct {
	Written int   // files, or directories of arrays
	Kept    int   // the same, which an earlier run had written
	Bytes   int64 // of what was written
}

// Run writes the export into a directory, which it makes if need be, and goes on where an
// earlier run of the same plan stopped. The error says why it stopped; what was written
// until then is complete and stays. When ctx ends, that is its error.
func (p *Plan) Run(ctx context.Context, dir string) (res Result, err error) {
	fsys := p.opt.fs
	if fsys == nil {
		fsys = atomicfile.OS{}
	}
	dir = filepath.Clean(dir)
	j, err := openJournal(fsys, dir, p.settings())
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, j.close()) }()
	meter := &meter{total: p.Bytes, report: p.opt.Progress}
	var todo []*unit
	for _, u := range p.units {
		if j.has(dir, u.name) {
			res.Kept++
			meter.add(p.stateBytes(u))
		} else {
			todo = append(todo, u)
		}
	}
	if len(todo) > 0 {
		// What an earlier run completed is not complete any more.
		if err := fsys.Remove(filepath.Join(dir, mappingName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return res, err
		}
	}
	res.Written, res.Bytes, err = p.writeUnits(ctx, fsys, dir, j, todo, meter)
	if err != nil {
		return res, err
	}
	return res, p.writeRest(fsys, dir)
}

// stateBytes is what a unit counts for in the progress.
func (p *Plan) stateBytes(u *unit) int64 {
	n := int64(0)
	if u.stream != tokenRows {
		for _, r := range u.rows {
			n += int64(r.tokens) * p.tokenBytes
		}
	}
	return n
}

// writeUnits writes units in their order, with several workers. When ctx ends, they
// finish what they are at.
func (p *Plan) writeUnits(ctx context.Context, fsys atomicfile.FS, dir string, j *journal, todo []*unit, m *meter) (written int, bytes int64, err error) {
	alive, failed := context.WithCancel(context.WithoutCancel(ctx))
	defer failed()
	c := &committer{fs: fsys, dir: dir, journal: j, full: make(chan []*output), failed: failed, made: map[string]bool{}, fresh: map[string]bool{}}
	work := make(chan *unit)
	g, broken := errgroup.WithContext(alive)
	g.Go(func() error {
		defer close(work)
		for _, u := range todo {
			select {
			case work <- u:
			case <-broken.Done():
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	var mu sync.Mutex
	for range workers {
		g.Go(func() (err error) {
			w := &worker{plan: p, c: c, src: source{ds: p.ds}}
			defer func() { err = errors.Join(err, w.src.close()) }()
			for u := range work {
				o, err := w.write(ctx, u)
				if err != nil {
					return err
				}
				mu.Lock()
				written++
				bytes += o.bytes()
				mu.Unlock()
				m.add(p.stateBytes(u))
				c.add(o)
			}
			return nil
		})
	}
	committed := make(chan error, 1)
	go func() { committed <- c.run() }()
	err = g.Wait()
	c.full <- c.batch
	close(c.full)
	if cerr := <-committed; cerr != nil {
		return written, bytes, cerr
	}
	return written, bytes, err
}

// meter adds up progress.
type meter struct {
	mu          sync.Mutex
	done, total int64
	report      func(done, total int64)
}

func (m *meter) add(n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done += n
	if m.report != nil {
		m.report(m.done, m.total)
	}
}

// source gives a worker the samples of a dataset. It keeps open the shard that it gave
// the last one from: to open one costs little beside a sample, also where each sample
// is of another.
type source struct {
	ds    *shard.Dataset
	index int // of shard
	shard *shard.Shard
}

func (s *source) at(r *row) (*shard.Shard, error) {
	if s.shard != nil && s.index == r.shard {
		return s.shard, nil
	}
	err := s.close()
	if err == nil {
		s.index = r.shard
		s.shard, err = s.ds.Shard(r.shard)
	}
	return s.shard, err
}

func (s *source) close() error {
	open := s.shard
	if s.shard = nil; open == nil {
		return nil
	}
	return open.Close()
}

// worker writes units, one after the other, with memory of its own.
type worker struct {
	plan   *Plan
	c      *committer
	src    source
	mem    shard.Memory
	buf    producer.Buffer
	normed []byte
}

// write writes a unit under temporary names.
func (w *worker) write(ctx context.Context, u *unit) (*output, error) {
	o := &output{unit: u}
	err := shard.Guard(func() error {
		switch u.stream {
		case tokenRows:
			return w.tokenRows(ctx, o)
		case stateRows:
			return w.stateRows(ctx, o)
		}
		return w.sample(o)
	})
	if err != nil {
		o.discard()
		return nil, err
	}
	return o, nil
}

// load is a sample with its final in the form in which it is written. It is valid until
// the next one is loaded.
func (w *worker) load(r *row) (*format.Sample, error) {
	sh, err := w.src.at(r)
	if err != nil {
		return nil, err
	}
	s, err := sh.SampleIn(&w.mem, r.row)
	if err != nil || w.plan.norm == nil {
		return s, err
	}
	final := &s.Hidden[len(s.Hidden)-1]
	data, _ := final.Rows.Contiguous() // those of a dataset are
	w.normed = slices.Grow(w.normed[:0], len(data))[:len(data)]
	if err := w.plan.norm.Apply(w.normed, data, final.Rows.DType, final.Rows.N); err != nil {
		return nil, fmt.Errorf("sample %q: %w", r.id, err)
	}
	final.Rows.Data, final.State.Norm = w.normed, format.NormPost
	return s, nil
}

// sample writes one sample as its reader wants it.
func (w *worker) sample(o *output) error {
	p, r := w.plan, o.unit.rows[0]
	s, err := w.load(r)
	if err != nil {
		return err
	}
	rec, err := producer.Emit(p.target.Name, s, producer.EmitOptions{Layers: p.Layers, Target: p.opt.Target, Buffer: &w.buf})
	if err == nil {
		err = w.encode(o, rec)
	}
	if err != nil {
		return fmt.Errorf("write sample %q: %w", r.id, err)
	}
	return nil
}

// encode writes a record into the container of the target.
func (w *worker) encode(o *output, rec *format.Record) error {
	tensors, facts := split(rec)
	if w.plan.target.Container == producer.Arrays {
		// A directory without its ids is no sample to anybody, so they get their name last.
		slices.Reverse(tensors)
		for _, t := range tensors {
			if err := w.file(o, o.unit.name+"/"+t.Name+".npy", func(f io.Writer) error { return npy.Encode(f, t) }); err != nil {
				return err
			}
		}
		return nil
	}
	return w.file(o, o.unit.name, func(f io.Writer) error {
		if w.plan.target.Container == producer.Torch {
			return torch.Encode(f, prefixOf(o.unit.name), rec)
		}
		return safetensors.Encode(f, tensors, facts)
	})
}

// split is the tensors of a record, and its strings.
func split(rec *format.Record) (tensors []*format.Tensor, facts map[string]string) {
	facts = map[string]string{}
	for _, f := range rec.Fields {
		switch v := f.Value.(type) {
		case *format.Tensor:
			tensors = append(tensors, v)
		case string:
			facts[f.Key] = v
		}
	}
	return tensors, facts
}

// file writes one file of a unit.
func (w *worker) file(o *output, name string, encode func(io.Writer) error) error {
	f, err := w.c.create(o, name)
	if err != nil {
		return err
	}
	return encode(f)
}
