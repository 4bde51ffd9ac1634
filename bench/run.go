package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hsx/bench/prompts"
	"hsx/bench/server"
)

// Target is one server under test. [server.Client] is one.
type Target interface {
	// Probe finds out what runs there, and sends one request.
	Probe(ctx context.Context, p server.Params) (*server.Info, error)
	Do(ctx context.Context, r server.Request) server.Outcome
}

// Meter reads a server's counters. [server.Client] is one.
type Meter interface {
	Counters(ctx context.Context) server.Snapshot
	// Settle reads them until they stand still, since servers add to them late, and
	// waits longer while they are not enough.
	Settle(ctx context.Context, enough func(server.Snapshot) bool) server.Snapshot
}

// Link is the way to an arm's server.
type Link struct {
	Target
	Meter
	Close func() // nil: nothing to close
}

// Options are how a measurement is run and told about. Only Dial must be set. The
// callbacks are called one at a time.
type Options struct {
	// Dial opens the way to an arm's server. Where the arm has a command that starts it,
	// it does not run yet.
	Dial func(ctx context.Context, arm Arm) (*Link, error)
	// Preflight is told what was found out about every arm, before its first request;
	// an error ends the measurement.
	Preflight    func(ArmInfo) error
	Progress     func(Progress)    // at most ten times a second, and at the end of every pass
	Notice       func(text string) // what went otherwise than planned, as the journal has it
	Resume       *Log              // what [ResumeJournal] found in the journal: its complete passes are not measured again
	MaxInFlight  int               // conversations of an open loop at once, the next ones start late; 0 is 4096
	ReadyTimeout time.Duration     // for a server that is started; 0 is 30 minutes
	StopTimeout  time.Duration     // between asking a started server to end and making it; 0 is 30 seconds
}

// Run measures a plan and writes everything to j, which stays open. Servers that run
// already are measured run by run in turn; those with a command one after the other,
// each started, measured and stopped, with their output in a file beside the journal.
// When ctx ends, requests under way are dropped, and Run returns ctx's error. In every
// case the journal says how it ended, no started server is left, and what was measured
// can be read back. Run takes Digest and NumPrompts from the prompts.
func Run(ctx context.Context, p Plan, j *Journal, o Options) error {
	p.Digest, p.NumPrompts = prompts.Digest(p.Prompts), len(p.Prompts)
	o.MaxInFlight = cmp.Or(o.MaxInFlight, maxInFlight)
	o.ReadyTimeout = cmp.Or(o.ReadyTimeout, 30*time.Minute)
	o.StopTimeout = cmp.Or(o.StopTimeout, 30*time.Second)
	r := &runner{plan: &p, journal: j, options: o, began: time.Now(), maxTokens: p.Params.MaxTokens}
	if err := p.check(); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if err := r.open(); err != nil {
		return err
	}
	err := r.arms(ctx)
	end := End{At: time.Now()}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		end.Interrupted, err = true, ctx.Err()
	default:
		end.Reason = err.Error()
	}
	if written := j.commit(lineEnd, end); err == nil {
		err = written
	}
	return err
}

// runner is a measurement under way.
type runner struct {
	plan      *Plan
	journal   *Journal
	options   Options
	done      map[Key]bool // of the journal that is resumed
	maxTokens int          // of every answer; 0 until preflight has decided
	began     time.Time

	talk     sync.Mutex // held while a callback runs
	progress progress
}

// open writes the plan, or holds it against that of the journal that is resumed.
func (r *runner) open() error {
	old := r.options.Resume
	r.done = map[Key]bool{}
	if old == nil {
		if err := r.journal.commit(linePlan, journalHead{JournalVersion, r.began, r.plan.withoutSecrets()}); err != nil {
			return err
		}
		return r.scarce()
	}
	if err := old.Plan.same(r.plan.withoutSecrets()); err != nil {
		return fmt.Errorf("resume %s: %w", r.journal.name, err)
	}
	for _, p := range old.Passes {
		if p.Complete && !p.WarmUp {
			r.done[p.Key] = true
			r.maxTokens = p.MaxTokens
		}
	}
	return r.event("resumed with %d of %d runs complete", len(r.done), r.plan.Runs*len(r.plan.Arms)*len(r.plan.Levels))
}

// scarce says where a level has more slots than there are conversations to fill them.
func (r *runner) scarce() error {
	for _, level := range r.plan.Levels {
		if n := len(r.plan.Prompts); level.Concurrency > n {
			if err := r.event("%s: never more than %d requests at once, as there are no more prompts", level, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// group is arms that are measured in turn: all that run already, or one that is started.
type group []Arm

func (p *Plan) groups() []group {
	var running group
	var started []group
	for _, arm := range p.Arms {
		if arm.Launch == "" {
			running = append(running, arm)
		} else {
			started = append(started, group{arm})
		}
	}
	return append([]group{running}, started...)
}

// serverError means that a server does not serve.
type serverError struct{ err error }

func (e *serverError) Error() string { return e.err.Error() }

func (e *serverError) Unwrap() error { return e.err }

// arms measures every arm. Where one of those that run already dies, there is nothing
// left to compare; the servers of a sweep do not depend on each other.
func (r *runner) arms(ctx context.Context) error {
	groups := r.plan.groups()
	for _, g := range groups {
		for _, key := range schedule(g, r.plan, r.done) {
			r.progress.Total += turns(r.plan.conversations(key))
		}
	}
	if err := r.running(ctx, groups[0]); err != nil {
		return err
	}
	var failed []error
	for _, g := range groups[1:] {
		err := r.started(ctx, g)
		var dead *serverError
		if errors.As(err, &dead) {
			failed = append(failed, err, r.event("%v", err))
		} else if err != nil {
			return errors.Join(append(failed, err)...)
		}
	}
	return errors.Join(failed...)
}

// running measures servers that run already.
func (r *runner) running(ctx context.Context, g group) error {
	keys := schedule(g, r.plan, r.done)
	links := map[string]*Link{}
	var infos []*server.Info
	for _, arm := range g {
		if !slices.ContainsFunc(keys, func(key Key) bool { return key.Arm == arm.Name }) {
			continue // all of it is in the journal
		}
		link, err := r.options.Dial(ctx, arm)
		if err != nil {
			return fmt.Errorf("%s: %w", arm.Name, err)
		}
		defer link.close()
		info, err := link.Probe(ctx, r.plan.Params)
		if err != nil {
			return fmt.Errorf("%s: %w", arm.Name, err)
		}
		if err := r.preflight(arm, info); err != nil {
			return err
		}
		links[arm.Name], infos = link, append(infos, info)
	}
	return r.passes(ctx, keys, links, infos)
}

// started measures one server that is started for it.
func (r *runner) started(ctx context.Context, g group) error {
	arm, keys := g[0], schedule(g, r.plan, r.done)
	if len(keys) == 0 {
		return nil
	}
	link, err := r.options.Dial(ctx, arm)
	if err != nil {
		return fmt.Errorf("%s: %w", arm.Name, err)
	}
	defer link.close()
	if err := r.free(ctx, arm, link); err != nil {
		return err
	}
	p, err := launch(arm.Launch, r.journal.logName(arm.Name), r.options.StopTimeout)
	if err != nil {
		return fmt.Errorf("%s: %w", arm.Name, err)
	}
	defer p.stop()
	info, err := r.ready(ctx, arm, link, p)
	if err != nil {
		return err
	}
	if err := r.preflight(arm, info); err != nil {
		return err
	}
	err = r.passes(ctx, keys, map[string]*Link{arm.Name: link}, []*server.Info{info})
	if ended := p.state(); err != nil && ended != nil {
		return fmt.Errorf("%w; %w", err, ended)
	}
	return err
}

func (r *runner) preflight(arm Arm, info *server.Info) error {
	found := ArmInfo{Arm: arm.Name, At: time.Now(), Info: *info}
	if r.options.Resume != nil {
		if err := r.options.Resume.sameServer(found); err != nil {
			return fmt.Errorf("resume %s: %w", r.journal.name, err)
		}
	}
	if err := r.journal.write(lineArm, found); err != nil {
		return err
	}
	if r.options.Preflight == nil {
		return nil
	}
	return r.options.Preflight(found)
}

// passes measures what is scheduled for arms whose servers are ready.
func (r *runner) passes(ctx context.Context, keys []Key, links map[string]*Link, infos []*server.Info) error {
	if len(keys) != 0 && r.maxTokens == 0 {
		r.maxTokens = answerLimit(r.plan.Prompts, infos)
		if err := r.event("max_tokens: %d for every answer, as none was given", r.maxTokens); err != nil {
			return err
		}
	}
	for _, key := range keys {
		if err := r.pass(ctx, links[key.Arm], key); err != nil {
			return fmt.Errorf("%s, %s, run %d: %w", key.Arm, key.Level, key.Run, err)
		}
	}
	return nil
}

// event keeps for the report what a reader of the results has to know, and tells it.
func (r *runner) event(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if r.options.Notice != nil {
		r.talk.Lock()
		r.options.Notice(text)
		r.talk.Unlock()
	}
	return r.journal.write(lineEvent, journalEvent{time.Now(), text})
}

func (l *Link) close() {
	if l.Close != nil {
		l.Close()
	}
}
