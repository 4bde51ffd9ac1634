// Package faultproxy is a proxy between a client and a store, for tests: it delays,
// refuses, cuts bodies and loses answers, the same way each time for the same requests,
// and counts what passes.
package faultproxy

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// Fault is what happens to one request. The zero value lets it pass.
type Fault struct {
	Delay time.Duration // before anything else
	Busy  bool          // 503 SlowDown; the store never sees the request
	Lost  bool          // the store does what is asked, and the connection ends without an answer
	Cut   bool          // the connection ends after some bytes of the body: the request's if it has one, else the answer's
	After int64         // how many bytes pass before a cut; a shorter body is not cut
}

// Choose decides on the nth request, from 0, of those that ask for the same.
type Choose func(r *http.Request, nth int) Fault

// Random gives shares of the requests their faults, by a seed, and none to the same
// request more than three times. Cuts come within the first MiB, most of them early.
func Random(seed uint64, busy, lost, cut float64, delay time.Duration) Choose {
	return func(r *http.Request, nth int) (f Fault) {
		h := fnv.New64a()
		_, _ = fmt.Fprintln(h, identity(r), nth) // a hash takes all
		rng := rand.New(rand.NewPCG(seed, h.Sum64()))
		if delay > 0 {
			f.Delay = rand.N(delay)
		}
		if nth >= 3 {
			return f
		}
		switch x := rng.Float64(); {
		case x < busy:
			f.Busy = true
		case x < busy+lost:
			f.Lost = true
		case x < busy+lost+cut:
			f.Cut, f.After = true, rng.Int64N(1<<rng.IntN(21))
		}
		return f
	}
}

// Count is what passed of one kind of requests.
type Count struct {
	Requests, Faults int
	Sent, Received   int64 // bytes of bodies, to and from the store
}

// Proxy is the handler of such a proxy.
type Proxy struct {
	forward *httputil.ReverseProxy
	choose  Choose

	mu     sync.Mutex
	seen   map[string]int
	counts map[string]Count
}

// New makes a proxy to the server at a URL. A nil choose lets all pass.
func New(target string, choose Choose) (*Proxy, error) {
	to, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	if choose == nil {
		choose = func(*http.Request, int) Fault { return Fault{} }
	}
	p := &Proxy{choose: choose, seen: map[string]int{}, counts: map[string]Count{}}
	p.forward = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
		FlushInterval: -1, // what comes before a cut arrives
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:      log.New(io.Discard, "", 0), // cuts are meant
	}
	return p, nil
}

// identity is what makes two requests the same: an upload's id differs in each run.
func identity(r *http.Request) string {
	q := r.URL.Query()
	q.Del("uploadId")
	return r.Method + " " + r.URL.Path + "?" + q.Encode() + " " + r.Header.Get("Range")
}

// Kind names what a request of S3 asks for.
func Kind(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case q.Has("list-type"):
		return "LIST"
	case q.Has("partNumber"):
		return r.Method + " part"
	case q.Has("uploadId"), q.Has("uploads"):
		return r.Method + " upload"
	}
	return r.Method
}

var errCut = errors.New("cut by the fault proxy")

// ServeHTTP passes a request on, or not.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, kind := identity(r), Kind(r)
	p.mu.Lock()
	fault := p.choose(r, p.seen[id])
	p.seen[id]++
	p.mu.Unlock()
	p.count(kind, func(c *Count) {
		c.Requests++
		if fault.Busy || fault.Lost || fault.Cut {
			c.Faults++
		}
	})
	select {
	case <-time.After(fault.Delay):
	case <-r.Context().Done():
	}
	if fault.Busy {
		_, _ = io.Copy(io.Discard, r.Body) // else the client sees a cut connection
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
		return
	}
	out := *p.forward
	sent, received := int64(-1), int64(-1)
	if fault.Cut && r.ContentLength != 0 {
		sent = fault.After
	} else if fault.Cut {
		received = fault.After
	}
	r.Body = &body{r.Body, sent, func(n int) { p.count(kind, func(c *Count) { c.Sent += int64(n) }) }}
	out.ModifyResponse = func(resp *http.Response) error {
		if fault.Lost {
			return errCut
		}
		resp.Body = &body{resp.Body, received, func(n int) { p.count(kind, func(c *Count) { c.Received += int64(n) }) }}
		return nil
	}
	out.ServeHTTP(w, r)
}

func (p *Proxy) count(kind string, add func(*Count)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.counts[kind]
	add(&c)
	p.counts[kind] = c
}

// Counts are what passed so far, by [Kind].
func (p *Proxy) Counts() map[string]Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// body counts, and ends with an error when left bytes were read; -1 never does.
type body struct {
	io.ReadCloser
	left int64
	seen func(n int)
}

func (b *body) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errCut
	}
	if b.left > 0 {
		p = p[:min(int64(len(p)), b.left)]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= int64(n)
	}
	b.seen(n)
	return n, err
}
