// Package receive takes samples over HTTP and answers when they are durable. It does
// not know how a Store keeps them.
package receive

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
)

// Store keeps samples. One goroutine calls it. What Put took is durable when Commit
// returned nil; after an error of Commit, or one of Put that does not concern the
// sample alone, nothing more can be added.
type Store interface {
	capture.Sink
	// Compare reports whether a sample of the same id was put, and whether it has the
	// same content and is durable.
	Compare(ctx context.Context, s *format.Sample) (known, same bool, err error)
	Reject(r format.Rejection) error
	Commit(ctx context.Context) error
	// Compact mends what many small commits leave, when there is enough of it to be
	// worth the time. After its error the store is as it was.
	Compact(ctx context.Context) error
}

// Options are the choices of a receiver. The zero value but for Spool works.
type Options struct {
	Facts          producer.Facts // what the bodies do not say
	Spool          string         // the directory that bodies are written to until they are put
	SpoolBytes     int64          // bodies there at a time, 8 GiB when 0; more is answered with 429
	MaxBody        int64          // one body, 4 GiB when 0 and at most SpoolBytes; more is answered with 413
	AllowNonFinite bool           // take states with infinities and NaNs

	CommitBytes  int64         // commit when so much waits and nothing else is on its way, 16 MiB when 0
	CommitWindow time.Duration // wait so long for others after the first sample that waits, 100 ms when 0
	Rows         int64         // that the store holds already, for the status
	Flight       string        // the address of another way in, for the status; "" is none

	Token       string        // that clients must bear; "" is none
	TLS         *tls.Config   // nil is plain HTTP
	MaxConns    int           // connections at a time, 256 when 0; more wait to be accepted
	BodyTimeout time.Duration // without a byte of a body, and before MinRate counts, 30 s when 0
	MinRate     int64         // bytes a second of a body on average, 1 MiB when 0
	StopTimeout time.Duration // for bodies that are on their way when the receiver is stopped, 30 s when 0

	// Rejected, if not nil, is told of each sample that is refused. It runs on the
	// goroutine that calls the Store.
	Rejected func(r format.Rejection)
	// Uncompacted, if not nil, is told why the store could not be compacted; it is not
	// tried again. It runs there too.
	Uncompacted func(err error)
}

// Receiver is an HTTP handler that puts samples into a Store. [Receiver.Serve] runs it.
type Receiver struct {
	opt     Options
	store   Store
	spool   *spool
	jobs    chan *job
	rejects chan format.Rejection
	dead    chan struct{} // closed when nobody calls the store any more: it failed, or the receiver ends
	quiet   chan struct{} // of room for one: nothing is on its way any more
	slots   chan struct{} // for samples between decoding and Put: what they take of the heap is bounded
	metrics http.Handler

	stats
}

// stats is what a receiver counts, for its status and its metrics.
type stats struct {
	rows, samples, bytes, known, rejected, commits atomic.Int64
	handling, receiving, pending                   atomic.Int64
	lastCommit, maxCommit                          atomic.Int64 // nanoseconds
	commitSeconds                                  observer
}

type observer interface{ Observe(float64) }

// New makes a receiver. It takes the spool directory, which must not be another
// receiver's, and removes the bodies that a killed one left there: they were never
// acknowledged.
func New(store Store, opt Options) (*Receiver, error) {
	opt.SpoolBytes = cmp.Or(opt.SpoolBytes, 8<<30)
	opt.MaxBody = min(cmp.Or(opt.MaxBody, 4<<30), opt.SpoolBytes)
	opt.CommitBytes = cmp.Or(opt.CommitBytes, 16<<20)
	opt.CommitWindow = cmp.Or(opt.CommitWindow, 100*time.Millisecond)
	opt.MaxConns = cmp.Or(opt.MaxConns, 256)
	opt.BodyTimeout = cmp.Or(opt.BodyTimeout, 30*time.Second)
	opt.MinRate = cmp.Or(opt.MinRate, 1<<20)
	opt.StopTimeout = cmp.Or(opt.StopTimeout, 30*time.Second)
	sp, err := openSpool(opt.Spool, opt.SpoolBytes, opt.MaxBody)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	r := &Receiver{
		opt: opt, store: store, spool: sp,
		jobs: make(chan *job), rejects: make(chan format.Rejection), dead: make(chan struct{}), quiet: make(chan struct{}, 1),
		slots: make(chan struct{}, min(8, runtime.GOMAXPROCS(0))),
	}
	r.rows.Store(opt.Rows)
	r.register()
	return r, nil
}

// Close removes the spool directory if it is empty, and lets go of it.
func (r *Receiver) Close() error { return r.spool.close() }
