package receive

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// The bounds of a connection beside those of its bodies.
const (
	headerTime  = 10 * time.Second
	idleTime    = 2 * time.Minute
	headerBytes = 64 << 10
)

// Way is a way in beside that of HTTP/1: a server, whose handler hands what it receives
// to the same [Receiver], and where it listens.
type Way struct {
	Listener net.Listener
	Server   *http.Server
}

// Serve takes samples, on l over HTTP/1, until ctx is done or the store fails. Then it
// accepts nothing more, lets the bodies that are on their way come in for StopTimeout at
// most, commits and answers. Its error is nil when everything that was put is durable. It
// closes the listeners. All ways have the same bounds on connections, and the same TLS.
func (r *Receiver) Serve(ctx context.Context, l net.Listener, others ...Way) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true) // streams of HTTP/2 would go round the bound on connections
	ways := append([]Way{{l, &http.Server{Handler: http.NewCrossOriginProtection().Handler(r), Protocols: &protocols}}}, others...)
	quit, stored := make(chan struct{}), make(chan error, 1)
	go func() { stored <- r.run(context.WithoutCancel(ctx), quit) }()
	served := make(chan error, len(ways))
	for _, w := range ways {
		go func() { served <- r.serve(w) }()
	}

	var err error
	grace := r.opt.StopTimeout
	select {
	case <-ctx.Done():
	case <-r.dead:
		grace = min(grace, time.Second) // for the answers
	case err = <-served:
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	var stopping sync.WaitGroup
	for _, w := range ways {
		stopping.Go(func() {
			if w.Server.Shutdown(stop) != nil {
				_ = w.Server.Close() // who is late was not acknowledged
			}
		})
	}
	stopping.Wait()
	r.drain()
	close(quit)
	return errors.Join(<-stored, err)
}

// serve runs one server within the bounds of all.
func (r *Receiver) serve(w Way) error {
	l := &limited{Listener: w.Listener, slots: make(chan struct{}, r.opt.MaxConns), done: make(chan struct{})}
	srv, handler := w.Server, w.Server.Handler
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.handling.Add(1)
		defer r.handling.Add(-1)
		handler.ServeHTTP(w, req)
	})
	srv.ReadHeaderTimeout, srv.IdleTimeout, srv.MaxHeaderBytes = headerTime, idleTime, headerBytes
	srv.ErrorLog = log.New(io.Discard, "", 0) // what clients do wrong is told to them
	if r.opt.TLS == nil {
		return srv.Serve(l)
	}
	srv.TLSConfig = r.opt.TLS.Clone() // one for each protocol
	return srv.ServeTLS(l, "", "")
}

// drain waits for the handlers whose connections were closed.
func (r *Receiver) drain() {
	for r.handling.Load() > 0 {
		time.Sleep(time.Millisecond)
	}
}

// limited is a listener that accepts a bounded number of connections at a time.
type limited struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

// Accept waits for a connection to end when there are too many.
func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: c, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

// Close ends Accept.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	free func()
}

// Close makes room for another connection.
func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
