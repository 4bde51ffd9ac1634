package bench

import "time"

// Progress is how far a measurement is.
type Progress struct {
	Key                    // of the pass under way
	Runs     int           // that Run of Key counts up to
	Starting bool          // the arm's server was started and is not ready, so that no pass is under way
	Waiting  string        // why it is not ready yet
	Done     int           // requests, those of warm-ups too
	Total    int           // requests that this measurement sends; those of a resumed journal are not in it
	Tokens   int64         // that were answered
	Elapsed  time.Duration // since Run began
	Left     time.Duration // estimated from the pace of the passes so far, starts of servers left out; 0 before the first is done
}

// progress is what Progress is derived from.
type progress struct {
	Progress
	told   time.Time
	inPass time.Duration // of passes that are done
	paced  int           // requests of them
}

// tell calls the callback after a change, unless it was called just now.
func (r *runner) tell(change func(*progress), always bool) {
	r.talk.Lock()
	defer r.talk.Unlock()
	p := &r.progress
	change(p)
	if r.options.Progress == nil || !always && time.Since(p.told) < 100*time.Millisecond {
		return
	}
	p.told = time.Now()
	p.Elapsed = p.told.Sub(r.began)
	if p.paced > 0 {
		p.Left = time.Duration(float64(p.inPass) / float64(p.paced) * float64(p.Total-p.Done))
	}
	r.options.Progress(p.Progress)
}

// waiting tells that a server was started, and what is missing.
func (r *runner) waiting(arm Arm, why error) {
	r.tell(func(p *progress) { p.Key, p.Starting, p.Waiting = Key{Arm: arm.Name}, true, why.Error() }, true)
}
