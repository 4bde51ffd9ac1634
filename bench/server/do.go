package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Do sends one request and measures its answer. What goes wrong is in the outcome, with
// all that was known by then. A failure before the answer began is tried again when it
// may pass; times are those of the last attempt. When ctx ends, Do returns at once.
//
// A server that does not stream gives an outcome with counts and text, without times of
// tokens, and with a doubt that says so.
func (c *Client) Do(ctx context.Context, r Request) Outcome {
	ctx, cancel := context.WithTimeoutCause(ctx, c.opt.Timeout, causeTimeout)
	defer cancel()
	var retried []string
	var begun time.Time
	for n := 1; ; n++ {
		a := c.attempt(ctx, r)
		if begun.IsZero() {
			begun = a.out.Sent
		}
		if a.again && n <= c.opt.Retries {
			retried = append(retried, a.out.Error)
			if pause(ctx, max(a.after, backoff(n))) {
				continue
			}
			a.out.Fault, a.out.Error = c.halted(ctx, "waiting to try again after: "+a.out.Error)
		}
		a.out.Attempts, a.out.Retried, a.out.Waited = n, retried, a.out.Sent.Sub(begun)
		return a.out
	}
}

// attempt is one request as it went.
type attempt struct {
	out   Outcome
	again bool          // it may pass when tried again
	after time.Duration // which the server asked to wait
}

func (a *attempt) fail(fault Fault, format string, args ...any) {
	a.out.Fault, a.out.Error = fault, fmt.Sprintf(format, args...)
}

// attempt sends the request once.
func (c *Client) attempt(parent context.Context, r Request) (a attempt) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	idle := time.AfterFunc(c.opt.IdleTimeout, func() { cancel(causeStalled) })
	defer idle.Stop()

	info, renamed := c.info(), c.renamed.Load()
	rt, err := newRoute(r, info, renamed)
	var req *http.Request
	if err == nil {
		req, err = c.request(ctx, http.MethodPost, c.at(rt.path), rt.body)
	}
	a.out.Sent = time.Now()
	if err != nil {
		a.fail(FaultRefused, "make request: %v", err)
		return a
	}
	resp, err := c.http.Do(req)
	if resp != nil {
		a.out.Status = resp.StatusCode
	}
	if err != nil {
		c.unanswered(ctx, req, err, &a)
	} else {
		defer func() { _ = resp.Body.Close() }() // it was read as far as it matters
		if asked, got := redact(req.URL.String()), redact(resp.Request.URL.String()); asked != got {
			a.out.Redirect = got
		}
		if resp.StatusCode == http.StatusOK {
			st := stream{body: resp.Body, idle: idle, limit: c.opt.IdleTimeout, decode: rt.decode}
			st.answer = answer{out: &a.out, maxTokens: r.Params.MaxTokens, speculates: info.Speculation.On}
			c.read(ctx, &st)
		} else {
			refuse(resp, &a)
			if !renamed && a.out.Status == http.StatusBadRequest && strings.Contains(a.out.Error, "max_completion_tokens") && strings.Contains(a.out.Error, "instead") {
				// Not a failure, but how a server says which of two names it knows.
				c.renamed.Store(true)
				return c.attempt(parent, r)
			}
		}
	}
	a.out.Error = c.scrub(a.out.Error)
	if a.out.Done == 0 {
		a.out.Done = time.Since(a.out.Sent)
	}
	return a
}

// unanswered is a request without an answer, or with a redirect that is not followed.
func (c *Client) unanswered(ctx context.Context, req *http.Request, err error, a *attempt) {
	var redirected *redirectError
	switch {
	case ctx.Err() != nil:
		a.out.Fault, a.out.Error = c.halted(ctx, "waiting for an answer")
	case errors.As(err, &redirected):
		a.fail(FaultRefused, "%v", c.sentence(req, err))
	default:
		a.fail(FaultTransport, "%v", c.sentence(req, err))
		for _, passing := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE} {
			a.again = a.again || errors.Is(err, passing)
		}
	}
}

// refuse reads an answer of another status than 200.
func refuse(resp *http.Response, a *attempt) {
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // half a message is better than none
	fault := FaultRefused
	switch {
	case resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		fault = FaultBusy
		a.again, a.after = true, retryAfter(resp.Header.Get("Retry-After"))
	case resp.StatusCode < 400:
		fault = FaultProtocol
	}
	a.fail(fault, "server answered %s: %s", resp.Status, serverMessage(said))
}

// cause is why a request's context ended, when it was not the caller's doing.
type cause string

func (c cause) Error() string { return string(c) }

const (
	causeTimeout cause = "timeout"
	causeStalled cause = "stalled"
)

// halted is the fault of a context that ended, during something.
func (c *Client) halted(ctx context.Context, during string) (Fault, string) {
	switch why := context.Cause(ctx); {
	case errors.Is(why, causeTimeout):
		return FaultTimeout, fmt.Sprintf("took longer than %v, %s", c.opt.Timeout, during)
	case errors.Is(why, causeStalled):
		return FaultStalled, fmt.Sprintf("nothing came for %v, %s", c.opt.IdleTimeout, during)
	}
	return FaultStopped, "interrupted, " + during
}
