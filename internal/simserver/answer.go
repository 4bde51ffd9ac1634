package simserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// exchange is one request and its answer.
type exchange struct {
	s       *Server
	ask     ask
	answer  answer
	n       int64 // of the server's requests, counted from 1
	id      string
	created int64 // unix seconds
	rank    int
	emitted int       // tokens so far
	sofar   counters  // of this answer
	began   time.Time // slot taken
	first   time.Time // first token
	last    time.Time // last token so far
}

// finished reports whether all tokens are emitted.
func (x *exchange) finished() bool { return x.emitted == len(x.answer.tokens) }

// broken is how an answer ends early, but for the client's leaving.
type broken string

const (
	errCut   broken = "cut"
	errEvent broken = "error event"
)

func (b broken) Error() string { return string(b) }

// answer answers a request for an answer.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, rt route) {
	raw, err := readBody(w, r)
	if err != nil {
		return // the client left, or sent too much
	}
	if s.opt.Seen != nil {
		s.opt.Seen(r, raw)
	}
	s.mu.Lock()
	s.asked++
	n := s.asked
	s.mu.Unlock()
	if s.turnAway(w, r, n) {
		return
	}
	q, bad := s.parseAsk(rt, raw)
	if bad != nil {
		s.refuse(w, *bad)
		return
	}
	leave, err := s.enter(r.Context())
	if err != nil {
		return
	}
	defer leave()
	x := &exchange{
		s: s, ask: q, answer: s.compose(q, s.limit(q)), n: n,
		id:      fmt.Sprintf("%016x", newDice(s.opt.Seed, q.prompt).at(drawRequest, int(n), 0)),
		created: time.Now().Unix(),
		rank:    int(n) % s.opt.Ranks,
		sofar:   counters{positions: make([]int64, s.opt.Steps)},
		began:   time.Now(),
	}
	out := newOutput(w, s, q.stream)
	switch err := s.generate(r.Context(), x, out); {
	case errors.Is(err, errCut):
		panic(http.ErrAbortHandler)
	case errors.Is(err, errEvent):
		out.fail(s, refusal{http.StatusInternalServerError, "InternalServerError", "", "the engine met an error"})
		return
	case err != nil:
		return // the client left
	}
	leave()
	answered := s.finish(x)
	out.end(x)
	if answered == int64(s.opt.Faults.DieAfter) {
		s.crash()
	}
}

// generate emits the tokens of an answer in their time.
func (s *Server) generate(ctx context.Context, x *exchange, out *output) error {
	p := s.pace(x.n)
	if err := p.wait(ctx, s.dead, s.opt.Prefill); err != nil {
		return err
	}
	x.first = time.Now()
	out.events(s.dialect.open(x))
	if err := x.emit(step{}, out); err != nil {
		return err
	}
	trouble := s.opt.Faults.middle(x.n)
	for i, st := range x.answer.steps {
		if i >= len(x.answer.steps)/2 && trouble != faultNone {
			break
		}
		if err := p.wait(ctx, s.dead, s.stepTime(st)); err != nil {
			return err
		}
		if err := x.emit(st, out); err != nil {
			return err
		}
	}
	switch trouble {
	case faultCut:
		return errCut
	case faultError:
		return errEvent
	case faultStall:
		return s.stall(ctx, out)
	}
	return nil
}

// emit sends the tokens of one step and counts them.
func (x *exchange) emit(st step, out *output) error {
	s := x.s
	from := x.emitted
	x.emitted += st.emits()
	x.last = time.Now()
	c := counters{positions: make([]int64, s.opt.Steps)}
	c.tally(st)
	if from == 0 {
		c.prompt = int64(x.ask.promptLen)
	}
	x.sofar.add(c)
	s.count(x.rank, c)
	if s.opt.Faults.EmptyChoices {
		out.events([]any{map[string]any{"id": x.ident(), "object": x.object(true), "choices": []any{}}})
	}
	out.tokens(s.dialect.tokens(x, from, x.emitted))
	return out.flush()
}

// stall says nothing until the client leaves, the server is closed or it crashes.
func (s *Server) stall(ctx context.Context, out *output) error {
	tick := make(<-chan time.Time)
	if s.opt.Faults.KeepAlive {
		t := time.NewTicker(10 * time.Millisecond)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.dead:
			return errCut
		case <-s.closed:
			return errCut
		case <-tick:
			out.ping()
			if err := out.flush(); err != nil {
				return err
			}
		}
	}
}
