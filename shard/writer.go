package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/zeebo/xxh3"

	"hsx/format"
	"hsx/internal/atomicfile"
	"hsx/internal/mapped"
)

// The sizes of DESIGN.md section 4.
const (
	DefaultShardBytes = 1 << 30
	DefaultBatchBytes = 64 << 20
)

// Options are the choices of a writer. The zero value is ready to use.
type Options struct {
	ShardBytes  int64         // where shards are cut, DefaultShardBytes when 0
	BatchBytes  int64         // where record batches are cut, DefaultBatchBytes when 0
	WrittenBy   string        // for the manifest
	Target      format.Target // what is known of it; zero fields are unknown
	SmallShards int           // when so many small shards lie at the end, Compact joins them, DefaultSmallShards when 0
	Compress    bool          // write compressed shards; what is there stays as it is
	Partition   *Partition    // which part of a whole the dataset is, nil when it is none; Done is not read

	// Committed, if not nil, is called after each commit with the manifest's rows.
	// It runs on the writer's own goroutine.
	Committed func(rows int64)

	fs atomicfile.FS // set by tests
}

// Writer adds samples to a dataset. Its methods are for one goroutine at a time.
//
// Put gathers samples into a batch; a goroutine of the writer's own encodes, hashes
// and writes full batches and commits full shards meanwhile. Both together hold at
// most two batches.
type Writer struct {
	opt   Options
	place place
	dir   string // of the files being written
	lock  *os.File
	box   *outbox // nil: the files lie where they stay

	layout   format.Layout
	origin   format.Origin
	ids      map[xxh3.Uint128]owner
	inputs   map[string]int32   // index into names
	alike    map[likeness]int32 // the same, once somebody asks for Renamed
	names    []known
	rejected map[format.Rejection]bool // lines that exist already
	rows     int64                     // put, by this writer and earlier ones
	seen     *Dataset                  // what Compare read last

	cur  *batch
	free chan *batch
	full chan task
	done sync.WaitGroup

	mu  sync.Mutex
	err error // the committer's first error: nothing more can be written
}

// task is what the committer gets: a batch, or something to be answered: a sample
// that is a batch of its own, a commit, or a commit and then a rewriting of shards.
type task struct {
	batch   *batch
	sample  *format.Sample
	rewrite func(*committer) error
	done    bool // the commit is the last
	answer  chan error
}

// owner says where an id was first seen.
type owner struct {
	row   int64 // of the dataset
	input int32
	old   bool // by an earlier writer
}

// OpenWriter opens a dataset for adding samples, or creates it. It takes the lock
// and removes what a killed writer left unfinished. The error wraps ErrLocked,
// ErrForeign, ErrVersion, or ErrMismatch when opt.Target or opt.Partition contradicts the dataset's.
func OpenWriter(dir string, opt Options) (*Writer, error) {
	if opt.fs == nil {
		opt.fs = atomicfile.OS{}
	}
	if err := refuseForeign(dir); err != nil {
		return nil, err
	}
	if err := atomicfile.MkdirAll(opt.fs, filepath.Join(dir, shardsDir)); err != nil {
		return nil, err
	}
	l, err := lock(dir)
	if err != nil {
		return nil, err
	}
	return openWriter(directory(dir), dir, l, nil, opt)
}

// openWriter is a writer of files in dir, which it has locked, for a dataset.
func openWriter(p place, dir string, l *os.File, box *outbox, opt Options) (*Writer, error) {
	if opt.ShardBytes <= 0 {
		opt.ShardBytes = DefaultShardBytes
	}
	if opt.BatchBytes <= 0 {
		opt.BatchBytes = DefaultBatchBytes
	}
	w := &Writer{
		opt: opt, place: p, dir: dir, lock: l, box: box,
		ids: map[xxh3.Uint128]owner{}, inputs: map[string]int32{}, rejected: map[format.Rejection]bool{},
		free: make(chan *batch, 1), full: make(chan task),
	}
	c, err := w.load()
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	w.cur = newBatch(opt.BatchBytes)
	w.free <- newBatch(opt.BatchBytes)
	w.done.Go(func() { w.run(c) })
	return w, nil
}

// refuseForeign keeps a writer from settling in a directory that holds other things.
func refuseForeign(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	foreign := ""
	for _, e := range entries {
		switch e.Name() {
		case manifestName:
			if err := noDataset(directory(dir)); errors.Is(err, ErrForeign) {
				return err
			}
			return nil
		case manifestName + atomicfile.TempSuffix, shardsDir, lockName, inputsName, rejectedName:
		default:
			foreign = e.Name()
		}
	}
	if foreign != "" {
		return fmt.Errorf("directory %s is neither empty nor a dataset: it holds %q and no %s", dir, foreign, manifestName)
	}
	return nil
}

// load reads the committed state and clears what lies beside it.
func (w *Writer) load() (*committer, error) {
	m, version, err := readManifest(w.place)
	fresh := errors.Is(err, ErrNotDataset)
	switch {
	case fresh:
		m = &Manifest{Format: "hsx", Version: 1, Origin: format.Origin{Target: w.opt.Target}, States: []stateJSON{}, Partition: w.opt.Partition.begun(), Shards: []Info{}}
	case err != nil:
		return nil, err
	default:
		if err := agree(w.opt.Target, m.Target); err != nil {
			return nil, fmt.Errorf("dataset %s %w: %w", w.place, err, ErrMismatch)
		}
		if err := m.Partition.goOn(w.opt.Partition); err != nil {
			return nil, fmt.Errorf("dataset %s %w: %w", w.dir, err, ErrMismatch)
		}
		m.Target = m.Target.Or(w.opt.Target)
	}
	m.WrittenBy = w.opt.WrittenBy
	w.layout, w.origin = m.Layout(), m.Origin
	w.origin.Target = w.opt.Target.Or(m.Target) // the user's name for it counts
	if len(m.Shards) == 0 {
		w.layout = format.Layout{}
	}
	if err := removeUnlisted(w.opt.fs, w.dir, m); err != nil {
		return nil, err
	}
	c := &committer{opt: w.opt, place: w.place, dir: w.dir, manifest: m, fresh: fresh, box: w.box}
	if w.opt.Compress {
		c.pack = &packer{}
	}
	if w.box != nil {
		w.box.begin(m, version)
	}
	c.inputs, err = openJournal(w.opt.fs, w.place, w.dir, inputsName, m.Inputs, w.loadInput)
	if err != nil {
		return nil, err
	}
	c.rejected, err = openJournal(w.opt.fs, w.place, w.dir, rejectedName, m.Rejected, w.loadRejection)
	return c, err
}

// Put adds a sample. It copies what it keeps. An error that wraps format.ErrRefused
// or format.ErrKnown concerns this sample alone, and so does mapped.ErrFault: the
// file that the sample lies in changed. After any other error nothing more can be
// added. Durable is what a Commit has followed, or a full shard.
func (w *Writer) Put(ctx context.Context, s *format.Sample) error {
	if err := w.failed(); err != nil {
		return err
	}
	key := xxh3.HashString128(s.ID)
	if err := w.admit(s, key); err != nil {
		return err
	}
	s, err := withOwnMask(s)
	if err != nil {
		return err
	}
	s.Target = w.origin.Target.Or(s.Target)
	size := s.Bytes()
	// A sample of half a batch and more is a batch of its own, which is written from
	// where it lies.
	alone := size >= w.opt.BatchBytes/2
	if alone || w.cur.stateBytes+size > w.opt.BatchBytes {
		if err := w.flush(ctx); err != nil {
			return err
		}
	}
	if alone {
		if err := w.ask(ctx, task{sample: s}); err != nil {
			return err
		}
	} else if err := mapped.Guard(func() error { return w.cur.add(s) }); err != nil {
		return err
	}
	if len(w.layout.States) == 0 {
		w.layout = s.Layout()
		w.origin = s.Origin
	}
	w.origin.Target = s.Target
	w.ids[key] = owner{row: w.rows, input: w.input(s.Input, s.Last)}
	w.rows++
	return nil
}

// withOwnMask is the sample with a copy of its mask, which is small. The states are
// read where a fault of the mapped memory leaves no trace; the mask is not.
func withOwnMask(s *format.Sample) (*format.Sample, error) {
	own := *s
	err := mapped.Guard(func() error { own.LossMask = bytes.Clone(s.LossMask); return nil })
	return &own, err
}

// admit refuses what would make the dataset other than its manifest says.
func (w *Writer) admit(s *format.Sample, key xxh3.Uint128) error {
	if err := s.Check(); err != nil {
		return refusal{err}
	}
	if len(s.Tokens) == 0 {
		return refuse("sample %q has no tokens", s.ID)
	}
	if o, ok := w.ids[key]; ok {
		first := w.names[o.input].Path
		if o.old && first == s.Input.Path {
			return format.ErrKnown
		}
		return refuse("id %q is taken already by a sample of %s", s.ID, first)
	}
	if err := oneTarget(w.origin.Target, s.Target); err != nil {
		return refusal{err}
	}
	if len(w.layout.States) == 0 {
		return nil
	}
	if diff := w.layout.Diff(s.Layout()); diff != "" {
		return refuse("%s as the dataset has it: one dataset holds one capture", diff)
	}
	if s.Producer != w.origin.Producer {
		return refuse("producer is %s, the dataset's is %s: one dataset holds one capture", s.Producer, w.origin.Producer)
	}
	if s.Shifted != w.origin.Shifted {
		return refuse("ids are shifted against the states: %t, the dataset's: %t: one dataset holds one capture", s.Shifted, w.origin.Shifted)
	}
	return nil
}

// Reject notes an input that was refused, for rejected.jsonl. A line that is there
// already is not written twice.
func (w *Writer) Reject(r format.Rejection) error {
	if err := w.failed(); err != nil {
		return err
	}
	if !w.rejected[r] {
		w.rejected[r] = true
		w.cur.rejects = append(w.cur.rejects, r)
	}
	return nil
}

// Commit makes everything put so far durable and visible. It closes the current
// shard, so frequent commits make small shards.
func (w *Writer) Commit(ctx context.Context) error {
	if err := w.flush(ctx); err != nil {
		return err
	}
	return w.ask(ctx, task{})
}

// ask hands the committer a task and waits for its answer.
func (w *Writer) ask(ctx context.Context, t task) error {
	t.answer = make(chan error, 1)
	select {
	case w.full <- t:
		return <-t.answer
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends the writer and drops the lock. Samples since the last commit are gone.
func (w *Writer) Close() error {
	close(w.full)
	w.done.Wait()
	if w.box != nil {
		w.box.close()
	}
	return w.lock.Close()
}

// flush hands the current batch over and takes a free one.
func (w *Writer) flush(ctx context.Context) error {
	if err := w.failed(); err != nil {
		return err
	}
	if w.cur.rowsInBatch == 0 && len(w.cur.rejects) == 0 {
		return nil
	}
	select {
	case next := <-w.free:
		w.full <- task{batch: w.cur} // the committer waits for it: it gave the free one back
		w.cur = next
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// run is the committer's goroutine. After an error it only gives batches back.
func (w *Writer) run(c *committer) {
	for t := range w.full {
		err := w.failed()
		if err == nil {
			err = c.do(t)
			if err != nil && !harmless(err) {
				w.mu.Lock()
				w.err = err
				w.mu.Unlock()
			}
		}
		if t.batch != nil {
			t.batch.reset()
			w.free <- t.batch
		}
		if t.answer != nil {
			t.answer <- err
		}
	}
	c.abandon()
}

// harmless tells an error that leaves the shards as they were: a fault concerns one
// sample, a rewriting that failed nothing at all.
func harmless(err error) bool {
	var u unchanged
	return errors.Is(err, mapped.ErrFault) || errors.As(err, &u)
}

func (w *Writer) loadInput(e entry) error {
	i := w.input(e.Input, e.Done)
	for _, id := range e.IDs { // in the order of the rows
		w.ids[xxh3.HashString128(id)] = owner{row: w.rows, input: i, old: true}
		w.rows++
	}
	return nil
}

func (w *Writer) loadRejection(r format.Rejection) error {
	w.rejected[r] = true
	return nil
}
