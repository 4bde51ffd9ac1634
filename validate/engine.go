package validate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"hsx/format"
	"hsx/shard"
)

// scanSet makes scans, all of the same kinds in the same order.
type scanSet func() []scan

// runScans reads the samples at refs, nil for all, and reports what scans find in
// them. progress, if not nil, is told of the bytes of states read since it was told
// last, by one goroutine at a time.
func runScans(ctx context.Context, ds *shard.Dataset, refs []Ref, workers int, mk scanSet, out *Collector, progress func(bytes int64)) error {
	e := &engine{ds: ds, workers: workers, make: mk, out: out, progress: progress}
	scans, err := e.run(ctx, jobsOf(ds, refs))
	if err != nil {
		return err
	}
	return finishScans(ctx, ds, scans, out)
}

// shardJob is what is read of one shard.
type shardJob struct {
	shard int
	rows  []int // ascending; nil: all
}

// jobsOf groups places by shard, in the order of the dataset; nil is every shard.
func jobsOf(ds *shard.Dataset, refs []Ref) []shardJob {
	var jobs []shardJob
	if refs == nil {
		for i := range ds.Manifest().Shards {
			jobs = append(jobs, shardJob{shard: i})
		}
		return jobs
	}
	refs = slices.Clone(refs)
	slices.SortFunc(refs, compareRefs)
	for _, r := range slices.Compact(refs) {
		if n := len(jobs); n == 0 || jobs[n-1].shard != r.Shard {
			jobs = append(jobs, shardJob{shard: r.Shard})
		}
		j := &jobs[len(jobs)-1]
		j.rows = append(j.rows, r.Row)
	}
	return jobs
}

func compareRefs(a, b Ref) int {
	if a.Shard != b.Shard {
		return a.Shard - b.Shard
	}
	return a.Row - b.Row
}

// shardResult is what one shard gave.
type shardResult struct {
	scans []scan
	out   *Collector
	err   error
}

// engine runs scans over the shards of a dataset.
type engine struct {
	ds       *shard.Dataset
	workers  int
	make     scanSet
	out      *Collector
	progress func(bytes int64)                 // see runScans
	each     func(shard int, found *Collector) // if not nil, sees what each shard had, in the order of the jobs

	mu sync.Mutex // held while progress runs
}

// run runs jobs and returns the scans, not yet finished. Every shard has scans and a
// collector of its own, which are added in the order of the jobs, so that the result
// does not depend on the number of workers. At most twice as many shards as workers
// wait for that. Damage in the data is a finding of the rule damaged, and the rest
// goes on; the error is that of ctx, or a failure to look.
func (e *engine) run(ctx context.Context, jobs []shardJob) ([]scan, error) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan chan shardResult, max(1, e.workers))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		defer close(results)
		free := make(chan struct{}, max(1, e.workers))
		for _, j := range jobs {
			result := make(chan shardResult, 1)
			select {
			case <-ctx.Done():
				return
			case results <- result:
			}
			free <- struct{}{}
			running.Go(func() {
				defer func() { <-free }()
				result <- e.shard(ctx, j)
			})
		}
	})
	scans := e.make()
	for done := 0; ; done++ {
		result, more := <-results
		if !more {
			return scans, ctx.Err()
		}
		r := <-result
		if r.err != nil {
			return nil, r.err
		}
		for i, s := range scans {
			s.add(r.scans[i])
		}
		if e.each != nil {
			e.each(jobs[done].shard, r.out)
		}
		e.out.Merge(r.out)
	}
}

// shard runs scans of its own over one shard. When the file turns out to shrink
// meanwhile nothing of it counts but that.
func (e *engine) shard(ctx context.Context, j shardJob) (r shardResult) {
	fresh := func() shardResult {
		return shardResult{scans: e.make(), out: NewCollector(e.out.keep, e.out.enabled)}
	}
	r = fresh()
	err := shard.Guard(func() error { return e.rows(ctx, j, &r) })
	if shard.IsCorrupt(err) {
		r = fresh()
		r.out.Add(e.damage(j.shard, err))
		err = nil
	}
	r.err = err
	return r
}

// rows scans the rows of a job. Its error is not damage of the data.
func (e *engine) rows(ctx context.Context, j shardJob, r *shardResult) error {
	s, err := e.ds.Shard(j.shard)
	if err != nil {
		return e.lookedAt(j.shard, err, r)
	}
	defer func() { _ = s.Close() }() // opened for reading: nothing can be lost
	rows := j.rows
	if rows == nil {
		rows = make([]int, s.Rows())
		for i := range rows {
			rows[i] = i
		}
	}
	s.Ahead(j.rows)
	var f sampleFacts
	for _, row := range rows {
		if err := ctx.Err(); err != nil {
			return err
		}
		if row < 0 || row >= s.Rows() {
			return fmt.Errorf("row %d is asked for of shard %d, which has %d", row, j.shard, s.Rows())
		}
		sample, err := s.Sample(row)
		if err != nil {
			if err := e.lookedAt(j.shard, err, r); err != nil {
				return err
			}
			continue
		}
		e.tell(sample)
		f.Ref, f.Sample = Ref{j.shard, row}, sample
		scanSample(&f, r.scans, r.out)
	}
	return nil
}

// scanSample hands one sample to every scan, unless its parts do not fit together.
func scanSample(f *sampleFacts, scans []scan, out *Collector) {
	if !checkLengths(f.Sample, out) {
		return
	}
	f.States = factsOf(f.States, f.Sample)
	for _, s := range scans {
		s.sample(f, out)
	}
}

// tell reports the progress that reading a sample is.
func (e *engine) tell(s *format.Sample) {
	if e.progress != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.progress(readOf(s).Bytes)
	}
}

// lookedAt makes a finding of damage, and gives back any other error.
func (e *engine) lookedAt(i int, err error, r *shardResult) error {
	if !shard.IsCorrupt(err) {
		return err
	}
	r.out.Add(e.damage(i, err))
	return nil
}

func (e *engine) damage(i int, err error) Finding {
	f := Finding{Rule: "damaged", Severity: Error, Token: -1, Message: err.Error(),
		Do: "run hsx verify for the whole extent, then ingest these samples again"}
	var c *shard.CorruptError
	if errors.As(err, &c) {
		f.Sample = c.ID
		f.Message = fmt.Sprintf("shard %s: %v", e.ds.Manifest().Shards[i].Name, c.Err)
		if c.Row >= 0 {
			f.Message = fmt.Sprintf("shard %s, row %d: %v", e.ds.Manifest().Shards[i].Name, c.Row, c.Err)
		}
	}
	return f
}

// finishScans lets scans report what only all samples together show. Its error is
// that of ctx.
func finishScans(ctx context.Context, ds *shard.Dataset, scans []scan, out *Collector) error {
	var at shardAt
	defer at.close()
	open := func(ref Ref, use func(*format.Sample)) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return at.sample(ds, ref, use)
	}
	for _, s := range scans {
		s.finish(open, out)
	}
	return ctx.Err()
}

// shardAt keeps the shard open that was read last: what is read again often lies
// together. It is for one goroutine.
type shardAt struct {
	i    int
	open *shard.Shard
}

func (a *shardAt) close() {
	if a.open != nil {
		_ = a.open.Close() // opened for reading: nothing can be lost
		a.open = nil
	}
}

// sample is the opener that scans are finished with.
func (a *shardAt) sample(ds *shard.Dataset, ref Ref, use func(*format.Sample)) error {
	if a.open == nil || a.i != ref.Shard {
		a.close()
		s, err := ds.Shard(ref.Shard)
		if err != nil {
			return err
		}
		a.i, a.open = ref.Shard, s
	}
	if ref.Row < 0 || ref.Row >= a.open.Rows() {
		return fmt.Errorf("row %d is asked for of shard %d, which has %d", ref.Row, ref.Shard, a.open.Rows())
	}
	return shard.Guard(func() error {
		s, err := a.open.Sample(ref.Row)
		if err == nil {
			use(s)
		}
		return err
	})
}
