// Package live drives a running server that keeps hidden states, and takes them into a
// sink. It sends prompts, checks that every answer has one row for each token of its
// prompt, and removes a server's files after the commit that holds them.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
)

// Options are the choices of a capture. The zero value of all but URL works.
type Options struct {
	URL    string // of the server, without a route
	Engine string // VLLM, SGLang, or "" to ask the server
	Model  string // the name that the server has for it, "" for the first that it lists
	Key    string // bearer token, "" for none
	Client *http.Client
	Facts  producer.Facts // which layers the server stores
	Root   string         // the server's working directory, for paths relative to it

	Concurrency int           // requests at a time, 8 when 0
	Retries     int           // of a request that failed and may not fail again
	Timeout     time.Duration // of a request, 10 min when 0
	LockTimeout time.Duration // how long to wait for the server to write a file, 30 s when 0
	CommitEvery time.Duration // the longest time that a taken sample waits for a commit while others come, 30 s when 0
	CommitBytes int64         // how many bytes of states wait at most, 1 GiB when 0
	Pending     string        // a file that lists what is to be removed, for the run after a kill; "" for none is an error with vLLM

	// Has, if not nil, says whether the sink holds a prompt's sample.
	Has func(in format.Input) (bool, error)
	// Reject, if not nil, gets every prompt that is refused. Its error ends the work.
	Reject func(r format.Rejection) error
	// Warn, if not nil, gets what went wrong beside the samples.
	Warn func(message string)
	// OnProgress, if not nil, gets every change.
	OnProgress func(s Stats)
}

func (o Options) withDefaults() Options {
	o.Concurrency = cmp.Or(o.Concurrency, 8)
	o.Timeout = cmp.Or(o.Timeout, 10*time.Minute)
	o.LockTimeout = cmp.Or(o.LockTimeout, 30*time.Second)
	o.CommitEvery = cmp.Or(o.CommitEvery, 30*time.Second)
	o.CommitBytes = cmp.Or(o.CommitBytes, 1<<30)
	if o.Client == nil {
		o.Client = http.DefaultClient
	}
	return o
}

// Stats is what a capture did.
type Stats struct {
	Prompts  int   `json:"prompts"` // that were given
	Samples  int   `json:"samples"` // put in this run
	Tokens   int64 `json:"tokens"`  // of these samples
	Bytes    int64 `json:"bytes"`   // of their states
	Skipped  int   `json:"skipped"` // prompts that the sink holds already, or that were given twice
	Rejected int   `json:"rejected"`
	Retries  int   `json:"retries"`
	Removed  int   `json:"removed"` // files of the server, after the commit that holds their samples
}

// contentError is an answer that is there and cannot be taken. When the first few are
// like that, all others would be.
type contentError struct{ err error }

func (e *contentError) Error() string { return e.err.Error() }

func (e *contentError) Unwrap() error { return e.err }

// fatalError ends the work.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }

func (e *fatalError) Unwrap() error { return e.err }

// firstRefused is how many answers may be refused before one was taken.
const firstRefused = 3

// capturer is the state of one Run. The mutex guards all below it, and the store.
type capturer struct {
	client
	info  *Info
	store capture.Store

	mu      sync.Mutex
	stats   Stats
	pending *pending
	waiting int64     // bytes of states that were put since the last commit
	since   time.Time // when the first of them was put
	refused int       // answers, as long as none was taken
	err     error     // the first that ends the work
}

// Run sends the prompts to a server that Preflight approved, one before all others, and
// puts their samples into store, each under its prompt's id. When ctx ends, requests on
// their way are finished, for the server writes their files anyway. What was put is
// committed before Run returns.
func Run(ctx context.Context, prompts []Prompt, info *Info, opt Options, store capture.Store) (Stats, error) {
	c := &capturer{client: client{opt.withDefaults()}, info: info, store: store}
	c.stats.Prompts = len(prompts)
	if info.Engine == VLLM {
		var err error
		if c.pending, err = openPending(opt.Pending); err != nil {
			return c.stats, fmt.Errorf("open the list of files to remove: %w", err)
		}
		if err := c.removeFiles(); err != nil { // a killed run's
			return c.stats, errors.Join(err, c.pending.close())
		}
	}
	todo, err := c.missing(prompts)
	if err == nil {
		err = c.run(ctx, todo)
	}
	if cerr := c.commit(context.WithoutCancel(ctx)); err == nil {
		err = cerr
	}
	if c.pending != nil {
		if cerr := c.pending.close(); err == nil {
			err = cerr
		}
	}
	return c.stats, err
}

// missing is the prompts that the sink does not hold, each once.
func (c *capturer) missing(prompts []Prompt) ([]Prompt, error) {
	var todo []Prompt
	seen := map[string]bool{}
	for _, p := range prompts {
		in := p.Input()
		held := seen[in.Path]
		seen[in.Path] = true
		if !held && c.opt.Has != nil {
			var err error
			if held, err = c.opt.Has(in); err != nil {
				return nil, err
			}
		}
		if held {
			c.stats.Skipped++
			continue
		}
		todo = append(todo, p)
	}
	return todo, nil
}

// run works on prompts until one of them ends the work.
func (c *capturer) run(ctx context.Context, todo []Prompt) error {
	for len(todo) > 0 && c.stats.Samples == 0 && ctx.Err() == nil {
		if c.one(ctx, &todo[0]); c.err != nil {
			return c.err
		}
		todo = todo[1:]
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	next := make(chan *Prompt)
	var workers sync.WaitGroup
	for range c.opt.Concurrency {
		workers.Go(func() {
			for p := range next {
				if !c.one(ctx, p) {
					stop()
				}
			}
		})
	}
	func() {
		defer close(next)
		for i := range todo {
			select {
			case next <- &todo[i]:
			case <-ctx.Done():
				return
			}
		}
	}()
	workers.Wait()
	if c.err != nil {
		return c.err
	}
	return ctx.Err()
}

// one asks for a prompt's states, again where that may help, and reports whether the
// work may go on.
func (c *capturer) one(ctx context.Context, p *Prompt) bool {
	ask := c.vllm
	if c.info.Engine == SGLang {
		ask = c.sglang
	}
	whole := context.WithoutCancel(ctx)
	err := ask(whole, p)
	var again *passing
	for try := 0; try < c.opt.Retries && errors.As(err, &again); try++ {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(max(again.wait, 250*time.Millisecond<<min(try, 6))):
		}
		c.mu.Lock()
		c.stats.Retries++
		c.mu.Unlock()
		err = ask(whole, p)
	}
	if err == nil {
		return true
	}
	if errors.As(err, &again) {
		if dead := c.alive(whole); dead != nil {
			err = &fatalError{fmt.Errorf("server does not answer any more: %w (%w)", err, dead)}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var content *contentError
	var fatal *fatalError
	if c.stats.Samples == 0 && errors.As(err, &content) {
		c.refused++
	}
	if errors.As(err, &fatal) || c.refused == firstRefused {
		c.err = cmp.Or(c.err, fmt.Errorf("prompt %q: %w", p.ID, err))
		return false
	}
	if err := c.reject(p, err); err != nil {
		c.err = cmp.Or(c.err, err)
		return false
	}
	return true
}

// reject hands a refusal on.
func (c *capturer) reject(p *Prompt, cause error) error {
	c.stats.Rejected++
	r := format.Rejection{Input: p.Input(), Reason: fmt.Sprintf("prompt %q: %v", p.ID, cause), Offset: -1}
	var d *format.DecodeError
	if errors.As(cause, &d) {
		r.Offset, r.Tensor = d.Offset, d.Tensor
	}
	c.progress()
	if c.opt.Reject != nil {
		return c.opt.Reject(r)
	}
	return nil
}

// put gives the store a sample, and a commit when it is time. The file that holds it is
// listed first, so that a run after a kill finds it.
func (c *capturer) put(ctx context.Context, s *format.Sample, f *file) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	if f != nil {
		if err := c.pending.add(*f); err != nil {
			return err
		}
	}
	if err := c.store.Put(ctx, s); err != nil {
		if f != nil && !errors.Is(err, format.ErrKnown) {
			return errors.Join(err, c.pending.drop()) // what was refused stays
		}
		return err
	}
	if c.waiting == 0 {
		c.since = time.Now()
	}
	c.waiting += s.Bytes()
	c.stats.Samples++
	c.stats.Tokens += int64(len(s.Tokens))
	c.stats.Bytes += s.Bytes()
	c.progress()
	if c.waiting >= c.opt.CommitBytes || time.Since(c.since) >= c.opt.CommitEvery {
		return c.commitLocked(ctx)
	}
	return nil
}

func (c *capturer) commit(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.commitLocked(ctx)
}

// commitLocked makes durable what was put, and removes the files that held it.
func (c *capturer) commitLocked(ctx context.Context) error {
	if err := c.store.Commit(ctx); err != nil {
		return err
	}
	c.waiting = 0
	return c.removeFiles()
}

func (c *capturer) removeFiles() error {
	if c.pending == nil {
		return nil
	}
	n, faults, err := c.pending.removeAll()
	c.stats.Removed += n
	for _, f := range faults {
		if c.opt.Warn != nil {
			c.opt.Warn("remove a file that is in the dataset: " + f.Error())
		}
	}
	return err
}

func (c *capturer) progress() {
	if c.opt.OnProgress != nil {
		c.opt.OnProgress(c.stats)
	}
}
