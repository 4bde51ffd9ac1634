package receive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/mapped"
)

// job is a sample on its way into the store.
type job struct {
	sample *format.Sample
	free   func()       // gives back what the sample takes until it is put
	done   chan *answer // of room for one: every job that was taken is answered
}

// committer is the goroutine that calls the store: a group of samples is put, then one
// commit makes them durable, then they are acknowledged.
type committer struct {
	*Receiver
	waiting []*job
	bytes   int64
	dirty   bool             // there is something to commit
	window  <-chan time.Time // ends with it; nil while nothing waits
	group   int              // samples of the last commit: about as many come at a time
	grown   bool             // there may be something to compact
	rough   bool             // the store could not be compacted
	err     error
}

// run takes jobs until quit is closed, when no handler is left, and returns why the
// store failed.
func (r *Receiver) run(ctx context.Context, quit <-chan struct{}) error {
	defer close(r.dead)
	c := &committer{Receiver: r}
	for c.err == nil {
		select {
		case j := <-r.jobs:
			c.take(ctx, j)
		case rej := <-r.rejects:
			c.reject(rej)
		case <-c.window:
			c.commit(ctx)
		case <-r.quiet:
		case <-quit:
			c.commit(ctx)
			return c.err
		}
		c.gathered(ctx)
		c.compact(ctx)
	}
	for _, j := range c.waiting {
		j.done <- r.failed()
	}
	return c.err
}

// take puts a sample.
func (c *committer) take(ctx context.Context, j *job) {
	size := j.sample.Bytes()
	a, err := c.put(ctx, j.sample)
	j.free()
	switch {
	case err != nil:
		c.fail(err)
		j.done <- c.failed()
	case a != nil:
		j.done <- a
	default:
		c.waiting = append(c.waiting, j)
		c.bytes += size
		c.pending.Add(1)
		c.touch()
	}
}

// put is nil, nil when the sample waits for a commit. Its error is the store's.
func (c *committer) put(ctx context.Context, s *format.Sample) (*answer, error) {
	known, same, err := c.store.Compare(ctx, s)
	switch {
	case err != nil:
		return &answer{code: http.StatusInternalServerError, reason: fmt.Sprintf("compare with what is stored: %v", err)}, nil
	case known && same:
		c.commit(ctx) // Compare did, if the other one was waiting
		c.known.Add(1)
		return &answer{code: http.StatusOK}, c.err
	case known:
		a := &answer{code: http.StatusConflict, reason: fmt.Sprintf("id %q is taken by a sample with other content", s.ID)}
		c.reject(rejection(s.Input, a))
		return a, c.err
	}
	err = mapped.Guard(func() error { return c.store.Put(ctx, s) })
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, format.ErrRefused):
		a := &answer{code: http.StatusUnprocessableEntity, reason: err.Error(), cause: err}
		c.reject(rejection(s.Input, a))
		return a, c.err
	case errors.Is(err, mapped.ErrFault):
		return noRoomAnswer(err), nil
	}
	return nil, err
}

// gathered commits when waiting longer would gather nothing more: nothing is on its
// way, and there is enough, or as much as the clients sent together the last time. A
// lone client is so answered at once, and many share a commit.
func (c *committer) gathered(ctx context.Context) {
	switch {
	case len(c.waiting) == 0 || c.receiving.Load() > 0:
	case c.bytes >= c.opt.CommitBytes || len(c.waiting) >= c.group:
		c.commit(ctx)
	}
}

// touch begins the window of the next commit.
func (c *committer) touch() {
	c.dirty = true
	if c.window == nil {
		c.window = time.After(c.opt.CommitWindow)
	}
}

func (c *committer) reject(rej format.Rejection) {
	c.rejected.Add(1)
	if err := c.store.Reject(rej); err != nil {
		c.fail(err)
		return
	}
	c.touch()
	if c.opt.Rejected != nil {
		c.opt.Rejected(rej)
	}
}

// commit makes what waits durable and acknowledges it.
func (c *committer) commit(ctx context.Context) {
	if !c.dirty || c.err != nil {
		return
	}
	start := time.Now()
	if err := c.store.Commit(ctx); err != nil {
		c.fail(err)
		return
	}
	took := time.Since(start)
	c.lastCommit.Store(int64(took))
	c.maxCommit.Store(max(c.maxCommit.Load(), int64(took)))
	c.commitSeconds.Observe(took.Seconds())
	c.commits.Add(1)
	c.rows.Add(int64(len(c.waiting)))
	c.samples.Add(int64(len(c.waiting)))
	c.Receiver.bytes.Add(c.bytes)
	c.group, c.grown = len(c.waiting), c.grown || len(c.waiting) > 0
	c.pending.Store(0)
	for _, j := range c.waiting {
		j.done <- &answer{code: http.StatusCreated}
	}
	c.waiting, c.bytes, c.dirty, c.window = nil, 0, false, nil
}

// compact mends what small commits left, after they were answered.
func (c *committer) compact(ctx context.Context) {
	if !c.grown || c.rough || c.dirty || c.err != nil {
		return
	}
	c.grown = false
	if err := c.store.Compact(ctx); err != nil {
		c.rough = true
		if c.opt.Uncompacted != nil {
			c.opt.Uncompacted(err)
		}
	}
}

func (c *committer) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// rejection is the line of rejected.jsonl. It has no time, so that a client that tries
// the same again makes no second one.
func rejection(in format.Input, a *answer) format.Rejection {
	rej := format.Rejection{Input: format.Input{Path: in.Path, Bytes: in.Bytes}, Reason: a.reason, Offset: -1}
	var d *format.DecodeError
	var f *producer.FieldError
	switch {
	case errors.As(a.cause, &d):
		rej.Offset, rej.Tensor = d.Offset, d.Tensor
	case errors.As(a.cause, &f):
		rej.Tensor = f.Tensor
	}
	return rej
}
