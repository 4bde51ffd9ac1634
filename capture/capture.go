// Package capture receives dumps and pushes their samples into a Sink. It finds the
// files, opens them without trusting them, has their producer recognised, and tells
// good inputs from bad ones. It does not know how samples are stored.
package capture

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/mapped"
)

// Sink takes samples, one call at a time. It must not keep a sample after Put
// returns: the states alias a mapped file. An error that wraps format.ErrRefused or
// format.ErrKnown concerns that sample alone; any other ends the work.
type Sink interface {
	Put(ctx context.Context, s *format.Sample) error
}

// Options are the choices of a run. The zero value reads everything that is given.
type Options struct {
	Facts           producer.Facts // what the dumps do not say
	Tree            Tree           // where the dumps lie; nil is the file system, whose paths a plan gets
	Root            string         // sources are named relative to it; "" is the deepest directory common to the paths
	Exclude         string         // a directory that is not looked into: the dataset itself
	Part, Parts     int            // this run takes share Part, from 1, of Parts; 0 of 0 is all
	Workers         int            // inputs that are open at a time, 2 when 0
	LockTimeout     time.Duration  // how long to wait for the writer of a locked file, 10 s when 0
	StopAtRejection bool           // end the work at the first bad input

	// Has, if not nil, says whether an input's samples are all in the sink. Its error
	// says how the input differs from what the sink took.
	Has func(in format.Input) (bool, error)
	// Renamed, if not nil, names an input that the sink holds which may be this one under
	// the name that it has below another directory; "" when there is none. Unless that is
	// an input of its own, this one is refused: its samples would be there twice.
	Renamed func(in format.Input) string
	// Reject, if not nil, gets every input or sample that is refused. Its error ends
	// the work.
	Reject func(r format.Rejection) error
	// Warn, if not nil, gets what is worth telling about an input that is taken, or
	// about a file that is none.
	Warn func(input, message string)
	// Recognised, if not nil, gets every dump whose producer is known, and the number
	// of its samples, before the good ones among them are put.
	Recognised func(in format.Input, m *producer.Match, samples int)
}

// Progress is how far a run is.
type Progress struct {
	Inputs, TotalInputs int
	Bytes, TotalBytes   int64
	Samples             int
}

// Stats is what a run did.
type Stats struct {
	Inputs   int   // dumps that were looked at
	Taken    int   // dumps of which at least one sample was put
	Samples  int   // samples that were put
	Tokens   int64 // of these samples
	Bytes    int64 // of the dumps they came from
	Rejected int   // inputs and samples that were refused
	Skipped  int   // inputs that the sink holds already
	Side     int   // files that a producer writes beside its samples
	Ignored  int   // files that are no dumps
	Warnings int
}

// ErrRejected means that Options.StopAtRejection ended the work.
var ErrRejected = errors.New("stopped at the first bad input")

// run is the state of one Plan.Run.
type run struct {
	opt   Options
	plan  *Plan
	sink  Sink
	stats Stats
}

// Run reads the inputs of the plan in their order and puts their samples into sink.
// Inputs are opened and checked by several goroutines, a few ahead; sink and the
// functions of the options are called from this one.
func (p *Plan) Run(ctx context.Context, sink Sink) (Stats, error) {
	r := &run{opt: p.opt, plan: p, sink: sink}
	defer p.closeDatasets()
	for _, w := range p.warnings {
		r.warn(w.input, w.message)
	}
	for _, f := range p.refused {
		if err := r.reject(f.input, f.err); err != nil {
			return r.stats, err
		}
	}
	progress := Progress{TotalInputs: len(p.units), TotalBytes: p.bytes}
	step := func(in format.Input) { // as it was listed, so that the sum is TotalBytes
		progress.Inputs++
		progress.Bytes += in.Bytes
		progress.Samples = r.stats.Samples
		if p.progress != nil {
			p.progress(progress)
		}
	}
	units, err := r.missing(p.units, step)
	if err != nil {
		return r.stats, err
	}
	ctx, cancel := context.WithCancel(ctx)
	opened := p.open(ctx, units)
	defer func() {
		cancel()
		for ch := range opened { // close what was opened ahead
			(<-ch).close()
		}
	}()
	i := 0
	for ch := range opened {
		l := <-ch
		err := r.take(ctx, l)
		l.close()
		if err != nil {
			return r.stats, err
		}
		step(units[i].input)
		i++
	}
	return r.stats, ctx.Err()
}

// missing is the units that the sink does not hold yet.
func (r *run) missing(units []unit, step func(format.Input)) ([]unit, error) {
	if r.opt.Has == nil {
		return units, nil
	}
	var todo []unit
	for _, u := range units {
		held, err := r.opt.Has(u.input)
		if !held && err == nil {
			err = r.renamed(u.input)
		}
		switch {
		case err != nil:
			r.stats.Inputs++
			if err := r.reject(u.input, err); err != nil {
				return nil, err
			}
			step(u.input)
		case held:
			r.stats.Skipped++
			step(u.input)
		default:
			todo = append(todo, u)
		}
	}
	return todo, nil
}

// renamed refuses an input that the sink holds under another name.
func (r *run) renamed(in format.Input) error {
	if r.opt.Renamed == nil {
		return nil
	}
	as := r.opt.Renamed(in)
	if as == "" || r.plan.lists(as) {
		return nil
	}
	return fmt.Errorf("it was taken as %s, by its size, its time and the end of its name: sources are named relative to the deepest directory common to the paths, or to --root (if it is another file, touch it)", as)
}

func (r *run) warn(input, message string) {
	r.stats.Warnings++
	if r.opt.Warn != nil {
		r.opt.Warn(input, message)
	}
}

// take deals with one opened input.
func (r *run) take(ctx context.Context, l *loaded) error {
	var u *unreachable
	switch {
	case l.err != nil && ctx.Err() != nil:
		return ctx.Err()
	case errors.As(l.err, &u):
		return fmt.Errorf("read %s: %w", l.input.Path, l.err)
	case l.err != nil:
		r.stats.Inputs++
		return r.reject(l.input, l.err)
	case l.side != "":
		r.stats.Side++
		return nil
	case l.ignored != "":
		r.stats.Ignored++
		r.warn(l.input.Path, "ignored: "+l.ignored)
		return nil
	}
	r.stats.Inputs++
	if r.opt.Recognised != nil {
		r.opt.Recognised(l.input, l.match, len(l.items))
	}
	for _, note := range l.notes {
		r.warn(l.input.Path, note)
	}
	taken, refused := false, false
	for i, it := range l.items {
		err := it.err
		if err == nil {
			// An input of which something was refused is looked at again by the next run.
			it.sample.Last = i == len(l.items)-1 && !refused
			err = mapped.Guard(func() error { return r.sink.Put(ctx, it.sample) })
		}
		switch {
		case err == nil:
			taken = true
			r.stats.Samples++
			r.stats.Tokens += int64(len(it.sample.Tokens))
			continue
		case errors.Is(err, format.ErrKnown):
			continue
		case it.err == nil && !errors.Is(err, format.ErrRefused) && !errors.Is(err, mapped.ErrFault):
			return err // the sink's own
		}
		refused = true
		if len(l.items) > 1 {
			err = fmt.Errorf("sample %d: %w", i, err)
		}
		if err := r.reject(l.input, err); err != nil {
			return err
		}
	}
	if taken {
		r.stats.Taken++
		r.stats.Bytes += l.input.Bytes
	}
	return nil
}

// reject hands a refusal on.
func (r *run) reject(in format.Input, err error) error {
	r.stats.Rejected++
	in.Path = strings.ToValidUTF8(in.Path, "\uFFFD")
	rej := format.Rejection{Input: in, Reason: err.Error(), Offset: -1}
	var d *format.DecodeError
	var f *producer.FieldError
	switch {
	case errors.As(err, &d):
		rej.Offset, rej.Tensor = d.Offset, d.Tensor
	case errors.As(err, &f):
		rej.Tensor = f.Tensor
	}
	if r.opt.Reject != nil {
		if err := r.opt.Reject(rej); err != nil {
			return err
		}
	}
	if r.opt.StopAtRejection {
		return fmt.Errorf("read %s: %w: %w", in.Path, err, ErrRejected)
	}
	return nil
}
