package simserver

import (
	"net/http"
	"time"
)

// Faults are what goes wrong. Each is off by default, counts are of requests for an
// answer over the life of the server, and "every n" hits the n-th, 2n-th and so on.
type Faults struct {
	Busy           int    // the first n get 429 with Retry-After: 0; negative: all
	Fail503        int    // the next n get 503; negative: all
	RedirectTo     string // root of another server to which requests for an answer are sent on
	RedirectStatus int    // 0 is 307

	CutEvery   int    // the connection closes in the middle of the answer
	StallEvery int    // the answer falls silent in its middle, until the client leaves
	ErrorEvery int    // an error event ends the answer in its middle
	DieAfter   int    // after n answers all connections are dropped, now and later
	Die        func() // called then, to close the listener

	NoStream     bool // one JSON document instead of a stream
	NoDone       bool // streams end without [DONE]
	KeepAlive    bool // a ": ping" comment before each event, and every 10 ms of a stall
	EmptyChoices bool // an event with no choices and no usage before each with tokens
	BigLine      int  // bytes by which the first event with tokens is longer

	NoUsage          bool // no token counts in any answer
	WrongUsage       bool // more reasoning tokens than completion tokens
	TruncateSilently bool // "stop" for answers that were cut at the limit

	Loop      bool // answers repeat two words for ever, and all drafts are accepted
	Echo      bool // answers are the words of the prompt, over and over
	Synthetic bool // acceptance is forced: the same on every prompt, whatever the text

	MetricsAuth  bool          // metrics are refused whatever the key
	MetricsOpen  bool          // metrics need no key
	MetricsNaN   bool          // each counter has one more series, which is NaN, and a gauge of vLLM is +Inf
	Malformed    bool          // one line of the metrics is broken
	ResetAfter   int           // after n answers the counters begin anew, as after a restart
	LateCounters time.Duration // counters lag behind by it
	StaleGauge   bool          // the gauge of the accept length shows that of other days
	Foreign      float64       // others use the server: their tokens, as a share of ours, none of them drafted well
}

// fault is what befalls one answer in its middle.
type fault int

const (
	faultNone fault = iota
	faultCut
	faultStall
	faultError
)

// middle returns what befalls the n-th request, counted from 1.
func (f Faults) middle(n int64) fault {
	every := func(k int) bool { return k > 0 && n%int64(k) == 0 }
	switch {
	case every(f.CutEvery):
		return faultCut
	case every(f.StallEvery):
		return faultStall
	case every(f.ErrorEvery):
		return faultError
	}
	return faultNone
}

// turnAway answers the n-th request at once where a fault wants it, and reports
// whether it did.
func (s *Server) turnAway(w http.ResponseWriter, r *http.Request, n int64) bool {
	f := s.opt.Faults
	switch {
	case f.Busy < 0 || n <= int64(f.Busy):
		w.Header().Set("Retry-After", "0")
		s.refuse(w, refusal{http.StatusTooManyRequests, "RateLimitError", "", "too many requests"})
	case f.Fail503 < 0 || n <= int64(f.Busy+f.Fail503):
		s.refuse(w, refusal{http.StatusServiceUnavailable, "ServiceUnavailableError", "", "the engine is not ready"})
	case f.RedirectTo != "":
		status := f.RedirectStatus
		if status == 0 {
			status = http.StatusTemporaryRedirect
		}
		w.Header().Set("Location", f.RedirectTo+r.URL.Path)
		w.WriteHeader(status)
	default:
		return false
	}
	return true
}

// crash drops all connections, those of answers under way too.
func (s *Server) crash() {
	s.die.Do(func() {
		close(s.dead)
		if s.opt.Faults.Die != nil {
			// the caller may wait for connections to end, this one among them
			go s.opt.Faults.Die()
		}
	})
}
