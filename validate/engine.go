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

// engine runs scans over the shards of a dataset.
type engine struct {
	ds        *shard.Dataset
	workers   int
	make      scanSet
	out       *Collector
	progress  func(bytes int64)                 // if not nil, told of bytes of states that were read, by one goroutine at a time
	each      func(shard int, found *Collector) // if not nil, sees what each shard had, in the order of the jobs
	spanBytes int64                             // the constant when 0

	mu sync.Mutex // held while progress runs
}

// run runs jobs and returns the scans, not yet finished. Every span of a shard has scans
// and a collector of its own, which are added in the order of the dataset, so that the
// result does not depend on the number of workers. At most twice as many spans as workers
// wait for that. Damage in the data is a finding of the rule damaged, and the rest
// goes on; the error is that of ctx, or a failure to look.
func (e *engine) run(ctx context.Context, jobs []shardJob) ([]scan, error) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan chan *spanResult, max(1, e.workers))
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() {
		defer close(results)
		e.read(ctx, jobs, results, &running)
	})
	scans := e.make()
	var whole *spanResult
	done := 0
	for result := range results {
		r := <-result
		switch {
		case r.err != nil:
			return nil, r.err
		case whole == nil:
			whole = r
		default:
			whole.add(r)
		}
		if !r.last {
			continue
		}
		j := jobs[done]
		if whole.fault != nil {
			fault := whole.fault
			whole = e.fresh()
			whole.out.Add(e.damage(j.shard, fault))
		}
		for i, s := range scans {
			s.add(whole.scans[i])
		}
		if e.each != nil {
			e.each(j.shard, whole.out)
		}
		e.out.Merge(whole.out)
		whole, done = nil, done+1
	}
	return scans, ctx.Err()
}

// read gives the results of all spans of jobs, in their order, until ctx ends. What it
// starts is counted by running.
func (e *engine) read(ctx context.Context, jobs []shardJob, results chan<- chan *spanResult, running *sync.WaitGroup) {
	free := make(chan struct{}, max(1, e.workers))
	for _, j := range jobs {
		if ctx.Err() != nil {
			return
		}
		file := &sharedShard{open: func() (*shard.Shard, error) { return e.ds.Shard(j.shard) }, ahead: j.rows}
		var reading sync.WaitGroup
		for _, s := range e.spans(j) {
			result := make(chan *spanResult, 1)
			select {
			case <-ctx.Done():
			case results <- result:
				free <- struct{}{}
				reading.Go(func() {
					defer func() { <-free }()
					result <- e.span(ctx, j, s, file)
				})
			}
		}
		running.Go(func() {
			reading.Wait()
			file.close()
		})
	}
}

// span runs scans of its own over one span. When the file turns out to shrink
// meanwhile nothing of the shard counts but that.
func (e *engine) span(ctx context.Context, j shardJob, s span, file *sharedShard) *spanResult {
	r := e.fresh()
	r.span = s
	err := shard.Guard(func() error { return e.rows(ctx, j, file, r) })
	if shard.IsCorrupt(err) {
		r.fault, err = err, nil
	}
	r.err = err
	return r
}

// rows scans the rows of a span. Its error is not damage of the data.
func (e *engine) rows(ctx context.Context, j shardJob, file *sharedShard, r *spanResult) error {
	s, err := file.get()
	if err != nil {
		if r.from > 0 && shard.IsCorrupt(err) {
			return nil // which the first span reports
		}
		return e.lookedAt(j.shard, err, r)
	}
	var f sampleFacts
	var m shard.Memory
	for row := r.from; row < r.to; row++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		at := row
		if j.rows != nil {
			at = j.rows[row]
		}
		if at < 0 || at >= s.Rows() {
			return fmt.Errorf("row %d is asked for of shard %d, which has %d", at, j.shard, s.Rows())
		}
		f.begin(len(e.ds.Manifest().States))
		sample, err := s.Scan(&m, at, f.see)
		if err != nil {
			if err := e.lookedAt(j.shard, err, r); err != nil {
				return err
			}
			continue
		}
		e.tell(sample)
		f.Ref, f.Sample = Ref{j.shard, at}, sample
		scanSample(&f, r.scans, r.out)
	}
	return nil
}

// scanSample hands one sample, with its facts, to every scan, unless its parts do not fit together.
func scanSample(f *sampleFacts, scans []scan, out *Collector) {
	if !checkLengths(f.Sample, out) {
		return
	}
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
func (e *engine) lookedAt(i int, err error, r *spanResult) error {
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
