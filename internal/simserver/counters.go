package simserver

import (
	"slices"
	"time"
)

// counters are what one rank shows.
type counters struct {
	requests  int64 // answered to the end
	cut       int64 // of these, at the limit
	prompt    int64 // tokens
	tokens    int64
	steps     int64
	drafted   int64
	accepted  int64
	positions []int64
	decodes   int64 // steps of any kind, prefills too

	wholeRequests, wholeTokens int64 // of these, answered without a stream
}

// tally counts one step, or with the zero step a prefill.
func (c *counters) tally(st step) {
	c.decodes++
	c.tokens += int64(st.emits())
	if st.drafted == 0 {
		return
	}
	c.steps++
	c.drafted += int64(st.drafted)
	c.accepted += int64(st.accepted)
	for k := range st.accepted {
		c.positions[k]++
	}
}

// add adds d to c.
func (c *counters) add(d counters) {
	c.requests += d.requests
	c.cut += d.cut
	c.prompt += d.prompt
	c.tokens += d.tokens
	c.steps += d.steps
	c.drafted += d.drafted
	c.accepted += d.accepted
	c.decodes += d.decodes
	c.wholeRequests += d.wholeRequests
	c.wholeTokens += d.wholeTokens
	for k, n := range d.positions {
		c.positions[k] += n
	}
}

// count enters one step, or the prefill, of an answer into the truth, and into the
// counters of its rank where the engine counts by step.
func (s *Server) count(rank int, c counters) {
	s.mu.Lock()
	t := &s.truth
	t.Tokens += c.tokens
	t.Steps += c.steps
	t.Drafted += c.drafted
	t.Accepted += c.accepted
	for k, n := range c.positions {
		t.Positions[k] += n
	}
	s.windows[rank].add(c)
	s.iterate(c)
	s.mu.Unlock()
	if !s.dialect.late {
		s.show(rank, c)
	}
}

// show adds c to the counters of a rank, later where a fault wants it.
func (s *Server) show(rank int, c counters) {
	add := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ranks[rank].add(c)
	}
	if late := s.opt.Faults.LateCounters; late > 0 {
		time.AfterFunc(late, add)
		return
	}
	add()
}

// finish counts an answer that is whole, and returns the number of those.
func (s *Server) finish(x *exchange) int64 {
	c := counters{requests: 1}
	if x.answer.finish == "length" {
		c.cut = 1
	}
	if !x.ask.stream {
		c.wholeRequests, c.wholeTokens = 1, x.sofar.tokens
	}
	if s.dialect.late {
		x.sofar.add(c)
		c = x.sofar
	}
	s.show(x.rank, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.iterate(c)
	s.truth.Requests++
	if s.truth.Requests == int64(s.opt.Faults.ResetAfter) {
		s.started = time.Now()
		for i := range s.ranks {
			s.ranks[i] = counters{positions: make([]int64, s.opt.Steps)}
			s.windows[i] = window{}
		}
	}
	return s.truth.Requests
}

// shown is a copy of what the counters show now, others' use of the server included.
type shown struct {
	started          time.Time
	running, waiting int
	ranks            []counters
	windows          []window
}

func (s *Server) shown() shown {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := shown{
		started: s.started, running: s.running, waiting: s.waiting,
		ranks: make([]counters, len(s.ranks)), windows: slices.Clone(s.windows),
	}
	for i := range s.ranks {
		c := &v.ranks[i]
		c.positions = make([]int64, s.opt.Steps)
		c.add(s.ranks[i])
		others := int64(s.opt.Faults.Foreign * float64(c.tokens))
		c.tokens += others
		if s.opt.Steps > 0 {
			c.steps += others
			c.drafted += others * int64(s.opt.Steps)
		}
		if s.opt.Faults.StaleGauge {
			v.windows[i].last = 1 + float64(s.opt.Steps)
		}
	}
	return v
}

// sum adds up the ranks.
func (v shown) sum() counters {
	c := counters{positions: make([]int64, len(v.ranks[0].positions))}
	for _, r := range v.ranks {
		c.add(r)
	}
	return c
}

// windowSteps is the number of steps after which SGLang sets its gauges anew.
const windowSteps = 40

// window is the accept length of the last full window of steps of one rank, and of all
// full windows.
type window struct {
	steps, accepted         int64   // of the window that is not full
	last                    float64 // 0: none was full
	lifeSteps, lifeAccepted int64
}

func (w *window) add(c counters) {
	w.steps += c.steps
	w.accepted += c.accepted
	if w.steps < windowSteps {
		return
	}
	w.last = 1 + ratio(w.accepted, w.steps)
	w.lifeSteps += w.steps
	w.lifeAccepted += w.accepted
	w.steps, w.accepted = 0, 0
}
