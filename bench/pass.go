package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"hsx/bench/prompts"
	"hsx/bench/server"
)

const (
	maxInFlight = 4096 // conversations at once, unless an open loop may have other than that
	maxFailed   = 5    // requests in a row that fail before the server is looked at
)

// passRun is one pass under way.
type passRun struct {
	*runner
	link  *Link
	key   Key
	began time.Time
	stop  context.CancelCauseFunc
	work  sync.WaitGroup

	mu          sync.Mutex
	done        int
	good        int           // of those without a fault
	tokens      int           // that they gave
	first, last time.Duration // when the first request was due, and the last done
	failed      int           // requests in a row
	looking     bool          // at the server, whether it is there
}

// pass measures one pass over the prompts of its key. The counters are read before the
// first request, and after every answer is closed.
func (r *runner) pass(ctx context.Context, link *Link, key Key) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	conversations := r.plan.conversations(key)
	out := Pass{Key: key, MaxTokens: r.maxTokens, Before: link.Counters(ctx), Began: time.Now()}
	if err := r.journal.write(lineBegin, out); err != nil {
		return err
	}
	runs := r.plan.Runs
	if key.WarmUp {
		runs = r.plan.WarmUpRuns
	}
	r.tell(func(now *progress) { now.Key, now.Runs, now.Starting, now.Waiting = key, runs, false, "" }, true)
	p := &passRun{runner: r, link: link, key: key, began: out.Began}
	sending, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	p.stop = stop
	if key.Level.Rate != 0 {
		p.open(sending, conversations, arrivals(key.Level.Rate, len(conversations), r.plan.Seed, key.Run))
	} else {
		p.closed(sending, conversations, key.Level.Concurrency)
	}
	p.work.Wait()
	err := context.Cause(sending)
	var crash *crashError
	if errors.As(err, &crash) {
		panic(crash.text) // in Run's goroutine, where started servers are stopped
	}
	out.Wall = p.last - p.first
	if err == nil {
		out.After = link.Settle(ctx, func(now server.Snapshot) bool { return p.counted(out.Before, now) })
		err = ctx.Err()
	}
	switch {
	case err == nil:
		out.Complete = true
	case ctx.Err() != nil:
		out.Stopped = "interrupted"
	default:
		out.Stopped = err.Error()
	}
	r.tell(func(now *progress) { now.inPass, now.paced = now.inPass+time.Since(out.Began), now.paced+p.done }, true)
	if written := r.journal.commit(linePass, out); err == nil {
		err = written
	}
	return err
}

// closed keeps n conversations under way, taken in the order of the plan.
func (p *passRun) closed(ctx context.Context, conversations []prompts.Prompt, n int) {
	var next atomic.Int64
	for range min(n, len(conversations)) {
		p.start(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(conversations) {
					return
				}
				p.conversation(ctx, time.Since(p.began), conversations[i])
			}
		})
	}
}

// open starts each conversation when it is due, however many are under way.
func (p *passRun) open(ctx context.Context, conversations []prompts.Prompt, starts []time.Duration) {
	slots := make(chan struct{}, p.options.MaxInFlight)
	full := false
	for i, due := range starts {
		if !await(ctx, p.began.Add(due)) {
			return
		}
		if len(slots) == cap(slots) && !full {
			full = true
			p.stopOn(p.event("%s, %s, run %d: %d conversations under way, the next ones start late", p.key.Arm, p.key.Level, p.key.Run, cap(slots)))
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		p.start(func() {
			defer func() { <-slots }()
			p.conversation(ctx, due, conversations[i])
		})
	}
}

// start runs f in a goroutine of the pass. A panic there would end the program without
// stopping the servers that it has started, so it is raised again by pass.
func (p *passRun) start(f func()) {
	p.work.Go(func() {
		defer func() {
			if v := recover(); v != nil {
				p.stop(&crashError{fmt.Sprintf("%v\n%s", v, debug.Stack())})
			}
		}()
		f()
	})
}

type crashError struct{ text string }

func (e *crashError) Error() string { return e.text }

// conversation sends a conversation's turns, each after the answer to the one before.
// Without that answer the rest cannot be sent, and has failed with it.
func (p *passRun) conversation(ctx context.Context, due time.Duration, c prompts.Prompt) {
	messages := make([]server.Message, 0, len(c.Before)+2*len(c.Turns))
	for _, m := range c.Before {
		messages = append(messages, server.Message(m))
	}
	params := p.plan.Params
	params.MaxTokens = p.maxTokens
	for turn, text := range c.Turns {
		messages = append(messages, server.Message{Role: "user", Content: text})
		out := p.link.Do(ctx, server.Request{Messages: messages, Params: params})
		p.keep(Request{Key: p.key, Prompt: c.ID, Category: c.Category, Turn: turn, Due: due, Outcome: out})
		if out.Fault == server.FaultStopped {
			return
		}
		p.watch(ctx, out)
		if out.Fault != server.FaultNone {
			for rest := turn + 1; rest < len(c.Turns); rest++ {
				unsent := server.Outcome{Sent: time.Now(), Fault: out.Fault, Error: fmt.Sprintf("not sent, as turn %d failed", turn+1)}
				p.keep(Request{Key: p.key, Prompt: c.ID, Category: c.Category, Turn: rest, Due: time.Since(p.began), Outcome: unsent})
			}
			return
		}
		messages = append(messages, server.Message{Role: "assistant", Content: out.Text})
		due = time.Since(p.began)
	}
}

// keep writes a finished request to the journal and counts it.
func (p *passRun) keep(r Request) {
	r.Sent = r.Outcome.Sent.Sub(p.began)
	if p.plan.KeepText {
		r.Answer, r.Thinking = r.Text, r.Reasoning
	}
	p.stopOn(p.journal.write(lineRequest, r))
	p.mu.Lock()
	if p.done == 0 || r.Due < p.first {
		p.first = r.Due
	}
	p.last = max(p.last, r.Sent+r.Done)
	p.done++
	if r.Fault == server.FaultNone {
		p.good++
		p.tokens += r.Tokens
	}
	p.mu.Unlock()
	p.tell(func(now *progress) { now.Done++; now.Tokens += int64(r.Tokens) }, false)
}

// counted reports whether a server's counters have taken in all good answers of the
// pass, as far as they can tell.
func (p *passRun) counted(before, now server.Snapshot) bool {
	if before.Finished != nil && now.Finished != nil {
		return *now.Finished-*before.Finished >= float64(p.good)
	}
	if before.Generated != nil && now.Generated != nil {
		return *now.Generated-*before.Generated >= float64(p.tokens)
	}
	return true
}

func (p *passRun) stopOn(err error) {
	if err != nil {
		p.stop(err)
	}
}

// watch looks at the server after several requests in a row that it may have failed
// for being dead, so that an hour of retries is not spent on one that is.
func (p *passRun) watch(ctx context.Context, out server.Outcome) {
	switch out.Fault {
	case server.FaultRefused, server.FaultProtocol: // the server is there
		return
	}
	p.mu.Lock()
	p.failed++
	if out.Fault == server.FaultNone {
		p.failed = 0
	}
	look := p.failed >= maxFailed && !p.looking
	p.looking = p.looking || look
	p.mu.Unlock()
	if !look {
		return
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := p.link.Probe(limited, p.plan.Params)
	p.mu.Lock()
	p.failed, p.looking = 0, false
	p.mu.Unlock()
	if err != nil {
		p.stop(&serverError{fmt.Errorf("the server does not answer any more: %d requests in a row failed, the last with %q, and a look at it: %w", maxFailed, out.Error, err)})
		return
	}
	p.stopOn(p.event("%s, %s, run %d: %d requests in a row failed, the last with %q, but the server answers again",
		p.key.Arm, p.key.Level, p.key.Run, maxFailed, out.Error))
}
