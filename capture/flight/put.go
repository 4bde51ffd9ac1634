package flight

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"hsx/capture/receive"
	"hsx/format"
	"hsx/internal/arrowmsg"
	"hsx/internal/mapped"
)

// put is one DoPut: batches that come in, and those that wait for their commit.
type put struct {
	*server
	w      http.ResponseWriter
	rc     *http.ResponseController
	in     *bufio.Reader
	schema *schema
	n      int // batches that came in
	last   *receive.Body
	acks   chan ack

	deadline time.Time
	mu       sync.Mutex
	between  bool // two batches: nothing is lost when the stream ends
}

// ack is a batch that waits.
type ack struct {
	batch int
	rows  []waiting
}

// waiting is a sample of it.
type waiting struct {
	id   string
	wait func() (code int, reason string)
}

// result is the JSON document of a PutResult.
type result struct {
	Batch   int       `json:"batch"`   // of the stream, from 0
	Samples []outcome `json:"samples"` // one for each row, in their order
}

// outcome is what became of a sample.
type outcome struct {
	ID      string `json:"id"`
	Outcome string `json:"outcome"` // created, exists, conflict, rejected or failed
	Reason  string `json:"reason,omitempty"`
}

func newPut(s *server, w http.ResponseWriter, req *http.Request) *put {
	return &put{
		server: s, w: w, rc: http.NewResponseController(w), in: bufio.NewReaderSize(req.Body, 64<<10),
		acks: make(chan ack, maxPending),
	}
}

// run takes batches until the client ends the stream, and returns when all of them are
// answered.
func (p *put) run() error {
	ended := make(chan struct{})
	defer close(ended)
	go p.sendAway(ended)
	answered := make(chan error, 1)
	go func() { answered <- p.answer() }()
	err := p.receive()
	close(p.acks)
	if aerr := <-answered; err == nil {
		err = aerr
	}
	return err
}

// sendAway ends the wait for a batch when the server stops: it does not wait for a client
// that has nothing to send.
func (p *put) sendAway(ended <-chan struct{}) {
	select {
	case <-p.stop:
	case <-ended:
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.between {
		_ = p.rc.SetReadDeadline(time.Unix(1, 0)) // else the stream ends by itself
	}
}

// receive is nil at the end of the stream.
func (p *put) receive() error {
	for {
		if err := p.next(); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		var body *receive.Body
		m, err := readMessage(p.in, func(src io.Reader, n int64) (err error) {
			body, err = p.spool(src, n)
			return err
		})
		if body == nil { // a message without one is read as one with an empty one
			body = p.to.NewBody()
		}
		if err == nil {
			err = p.message(m, body)
		}
		body.Close()
		if err != nil {
			return p.explain(err)
		}
	}
}

// next waits for a message to begin.
func (p *put) next() error {
	p.setBetween(true)
	defer p.setBetween(false)
	if p.stopping() {
		return p.explain(http.ErrServerClosed)
	}
	if err := p.setDeadline(time.Now().Add(quiet)); err != nil {
		return err
	}
	if _, err := p.in.Peek(1); err != nil {
		return p.explain(err)
	}
	return p.setDeadline(time.Now().Add(fieldTime))
}

func (p *put) setBetween(between bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.between = between
}

// setDeadline sets when reading ends. Each costs a word with the goroutine of the
// connection, so a deadline that is near the last one is left at that.
func (p *put) setDeadline(t time.Time) error {
	if !t.IsZero() && t.After(p.deadline) && t.Sub(p.deadline) < time.Until(t)/8 {
		return nil
	}
	p.deadline = t
	return supported(p.rc.SetReadDeadline(t))
}

// supported leaves out that a recorder of a test has no deadlines.
func supported(err error) error {
	if errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	return err
}

// explain says how the stream ended.
func (p *put) explain(err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return err
	case p.stopping() && !errors.As(err, new(*callError)):
		return fail(unavailable, "receiver is stopping, what was answered is safe")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fail(tooSlow, "nothing came for %s, or too little of a message", quiet)
	}
	return err
}

// spool receives a body. The client's own last batch may be what fills the spool: it is
// waited for.
func (p *put) spool(src io.Reader, n int64) (*receive.Body, error) {
	for {
		b := p.to.NewBody()
		err := b.Receive(src, n, p.setDeadline)
		if err == nil {
			return b, p.setDeadline(time.Now().Add(fieldTime))
		}
		b.Close()
		switch code := receive.Code(err); {
		case code == http.StatusTooManyRequests && p.last != nil:
			<-p.last.Released()
			p.last = nil
			continue
		case code == http.StatusTooManyRequests || code == http.StatusInsufficientStorage:
			return nil, &callError{exhausted, err}
		case code == http.StatusRequestTimeout:
			return nil, &callError{tooSlow, err}
		case code == http.StatusRequestEntityTooLarge:
			p.refuse(n, err)
		}
		return nil, err
	}
}

// refuse notes a batch that is refused as a whole.
func (p *put) refuse(n int64, err error) {
	p.to.Refuse(format.Input{Path: fmt.Sprintf("flight:batch %d of a stream", p.n), Bytes: n}, err)
}

// message takes one message.
func (p *put) message(m message, b *receive.Body) error {
	if len(m.header) == 0 {
		return nil // metadata of the application alone
	}
	data := b.Bytes()
	msg, err := arrowmsg.Parse(m.header, data)
	switch {
	case err != nil:
	case msg.Kind == arrowmsg.Schema && p.schema == nil:
		p.schema, err = readSchema(msg)
	case msg.Kind == arrowmsg.Schema:
		err = errors.New("stream has two schemas")
	case p.schema == nil:
		err = errors.New("stream begins without a schema")
	case msg.Kind == arrowmsg.RecordBatch:
		err = p.batch(msg, b)
	default:
		err = fmt.Errorf("message is of kind %d, want a schema (%d) or a record batch (%d)", msg.Kind, arrowmsg.Schema, arrowmsg.RecordBatch)
	}
	switch {
	case errors.Is(err, mapped.ErrFault):
		return &callError{exhausted, err} // of the spool, not of what was sent
	case err != nil:
		p.refuse(int64(len(data)), err)
		return &callError{invalid, err}
	}
	return nil
}

// batch puts the samples of a record batch and leaves them to be answered.
func (p *put) batch(msg arrowmsg.Message, body *receive.Body) error {
	b, err := readBatch(msg, p.schema)
	if err != nil {
		return err
	}
	ids, problems, err := b.ids()
	if err != nil {
		return err
	}
	a, now := ack{batch: p.n, rows: make([]waiting, 0, b.rows)}, time.Now()
	p.n++
	for i, id := range ids {
		a.rows = append(a.rows, waiting{id, p.to.Take(body, func() (receive.Row, error) {
			row, err := b.sample(i, id, now)
			if problems[i] != nil {
				err = problems[i]
			}
			return row, err
		})})
	}
	p.last = body
	p.acks <- a
	return nil
}

// ids are the ids of all rows, and what is wrong with some. The error is one of the batch.
func (b *batch) ids() (ids []string, problems map[int]error, err error) {
	ids, problems = make([]string, b.rows), map[int]error{}
	err = mapped.Guard(func() error {
		total := 0
		for i := range ids {
			id, err := b.text(colID, i)
			if err != nil {
				problems[i] = err
			}
			ids[i] = id
			if total += len(id); total > maxIDs {
				return fmt.Errorf("record batch has more than %d bytes of ids", maxIDs)
			}
		}
		return nil
	})
	return ids, problems, err
}

// answer sends what became of each batch, in their order. After an error it goes on
// taking batches until the stream ends.
func (p *put) answer() (err error) {
	for a := range p.acks {
		r, end := a.result()
		if err == nil {
			err = p.send(r)
		}
		if err == nil {
			err = end
		}
	}
	return err
}

// result waits for all samples of a batch. Its error ends the stream: nothing is stored
// any more.
func (a *ack) result() (r result, end error) {
	r = result{Batch: a.batch, Samples: make([]outcome, len(a.rows))}
	for i, s := range a.rows {
		code, reason := s.wait()
		r.Samples[i] = outcome{ID: s.id, Outcome: word(code), Reason: strings.ToValidUTF8(reason, "\uFFFD")}
		if code == http.StatusServiceUnavailable {
			end = fail(unavailable, "%s", reason)
		}
	}
	return r, end
}

// word is what an HTTP status says of a sample.
func word(code int) string {
	switch code {
	case http.StatusCreated:
		return "created"
	case http.StatusOK:
		return "exists"
	case http.StatusConflict:
		return "conflict"
	case http.StatusUnprocessableEntity:
		return "rejected"
	}
	return "failed"
}

func (p *put) send(r result) error {
	doc, err := json.Marshal(r)
	if err != nil {
		return err
	}
	// A client that reads nothing must not hold the stream.
	if err := supported(p.rc.SetWriteDeadline(time.Now().Add(writeTime))); err != nil {
		return err
	}
	if _, err := p.w.Write(putResult(doc)); err != nil {
		return err
	}
	return p.rc.Flush()
}
