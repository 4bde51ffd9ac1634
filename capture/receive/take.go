package receive

import (
	"errors"
	"net/http"

	"hsx/format"
	"hsx/internal/mapped"
)

// Row is one sample of a body that holds several, as its client named it.
type Row struct {
	Input    format.Input // where the sample came from, also of one that is refused
	ID       string
	Record   *format.Record               // its tensors, which alias the body, as the Python hook names them
	Metadata map[string]string            // hsx.id and the other facts that the hook writes
	Check    func(s *format.Sample) error // beside what every sample is checked for; nil is nothing
}

// Take puts a sample that lies in a body which was received, and refuses one that read
// does not make. It returns when the body may be asked for the next one; wait returns what a
// POST of the sample would: 201 once it is durable, or another code with the reason.
func (r *Receiver) Take(b *Body, read func() (Row, error)) (wait func() (code int, reason string)) {
	done := r.take(b, func() (*format.Sample, format.Input, error) {
		row, err := read()
		if err != nil {
			return nil, row.Input, err
		}
		s, err := sample(row.Record, row.Metadata, row.ID, r.opt.Facts, r.opt.AllowNonFinite)
		if err == nil && row.Check != nil {
			err = row.Check(s)
		}
		return s, row.Input, err
	})
	return func() (int, string) {
		a := <-done
		return a.code, a.reason
	}
}

// take decodes a sample and hands it to the goroutine of the store, which puts it. The
// channel gets the answer, after the commit that holds the sample.
func (r *Receiver) take(b *Body, decode func() (*format.Sample, format.Input, error)) <-chan *answer {
	done := make(chan *answer, 1)
	r.slots <- struct{}{}
	b.holders.Add(1)
	free := func() {
		<-r.slots
		b.release()
	}
	var s *format.Sample
	var in format.Input
	err := mapped.Guard(func() (err error) {
		s, in, err = decode()
		return err
	})
	switch {
	case errors.Is(err, mapped.ErrFault):
		done <- noRoomAnswer(err)
	case err != nil:
		a := &answer{code: http.StatusUnprocessableEntity, reason: err.Error(), cause: err}
		r.refuse(rejection(in, a))
		done <- a
	default:
		s.Input = in
		select {
		case r.jobs <- &job{sample: s, free: free, done: done}:
			return done
		case <-r.dead:
			done <- r.failed()
		}
	}
	free()
	return done
}

// Refuse notes what was refused and is no sample yet: a body too big, or damaged.
func (r *Receiver) Refuse(in format.Input, err error) {
	r.refuse(rejection(in, &answer{reason: err.Error(), cause: err}))
}

// refuse hands a refusal to the goroutine of the store.
func (r *Receiver) refuse(rej format.Rejection) {
	select {
	case r.rejects <- rej:
	case <-r.dead:
	}
}

// Code is the HTTP status that stands for an error of [Body.Receive].
func Code(err error) int {
	if a, ok := errors.AsType[*answer](err); ok {
		return a.code
	}
	return http.StatusBadRequest
}
