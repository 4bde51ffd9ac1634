package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// stream is the body of one answer as it comes.
type stream struct {
	body   io.Reader
	idle   *time.Timer // ends the request
	limit  time.Duration
	decode func([]byte, *piece) error
	answer answer
	piece  piece // the last, kept to be used again

	event time.Time // the last
	count int       // of events
}

// Read reads the body. Until the first token any byte is a sign of life, a keep-alive
// too, but not for ever; after it only an event is.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 && s.answer.out.FirstToken == 0 {
		s.idle.Reset(min(s.limit, 5*s.limit-time.Since(s.event)))
	}
	return n, err
}

// read takes an answer to its end, good or bad.
func (c *Client) read(ctx context.Context, s *stream) {
	out := s.answer.out
	s.event = out.Sent
	ev := newEvents(s)
	first, err := ev.peek()
	switch {
	case err != nil:
	case strings.IndexByte("{[<", first) >= 0:
		err = s.whole(ev)
	default:
		err = s.each(ev)
	}
	if out.Done == 0 {
		out.Done = time.Since(out.Sent)
	}
	var broken brokenError
	switch {
	case err == nil || errors.Is(err, io.EOF):
		out.Fault, out.Error = s.answer.verdict(s.count)
	case errors.As(err, &broken):
		out.Fault, out.Error = FaultProtocol, err.Error()
	case ctx.Err() != nil:
		out.Fault, out.Error = c.halted(ctx, fmt.Sprintf("after %d events", s.count))
	case s.answer.complete():
		s.answer.doubt("connection broke after the answer: %v", err)
	default:
		out.Fault, out.Error = FaultCut, fmt.Sprintf("stream was cut after %d events: %v", s.count, err)
	}
	s.answer.close()
}

// each reads events up to [DONE], or to the error that ends the stream.
func (s *stream) each(ev *events) error {
	out := s.answer.out
	for {
		data, err := ev.next()
		if err != nil {
			return err
		}
		s.count++
		s.event = ev.at
		s.idle.Reset(s.limit)
		at := max(ev.at.Sub(out.Sent), 1)
		if out.FirstChunk == 0 {
			out.FirstChunk = at
		}
		if string(bytes.TrimSpace(data)) == "[DONE]" {
			s.answer.ended, out.Done = true, at
			s.drain()
			return nil
		}
		if err := s.take(data, at); err != nil {
			if ev.broken {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
}

// whole reads an answer that is not streamed.
func (s *stream) whole(ev *events) error {
	data, err := ev.rest()
	if err != nil {
		return err
	}
	s.count = 1
	s.answer.whole, s.answer.ended = true, true
	s.answer.doubt("the server did not stream: no times of tokens")
	return s.take(data, 0)
}

// brokenError is what an answer cannot contain.
type brokenError string

func (e brokenError) Error() string { return string(e) }

// take decodes an event and adds it to the answer. A member of an unexpected type is
// left out, and is no more than a doubt.
func (s *stream) take(data []byte, at time.Duration) error {
	s.piece = piece{}
	err := s.decode(data, &s.piece)
	var part *misfitError
	if errors.As(err, &part) {
		s.answer.doubt("event %d: %v", s.count, part)
	} else if err != nil {
		return brokenError(fmt.Sprintf("event %d is no JSON: %v: %s", s.count, err, excerpt(data)))
	}
	return s.answer.add(&s.piece, at)
}

// drain waits a moment for the end of the body, without which the connection cannot be
// used again.
func (s *stream) drain() {
	s.idle.Reset(100 * time.Millisecond)
	_, _ = io.CopyN(io.Discard, s.body, 4<<10) // the answer is complete
}

// excerpt is the beginning of what a server sent.
func excerpt(data []byte) string { return printable(string(data[:min(len(data), 400)]), 80) }
