package receive

import (
	"context"
	"crypto/tls"
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

// Serve takes samples until ctx is done or the store fails. Then it accepts nothing
// more, lets the bodies that are on their way come in for StopTimeout at most, commits
// and answers. Its error is nil when everything that was put is durable. It closes
// the listener.
func (r *Receiver) Serve(ctx context.Context, l net.Listener) error {
	l = &limited{Listener: l, slots: make(chan struct{}, r.opt.MaxConns), done: make(chan struct{})}
	if r.opt.TLS != nil {
		l = tls.NewListener(l, r.opt.TLS)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // streams of HTTP/2 would go round the bound on connections
	srv := &http.Server{
		Handler: http.NewCrossOriginProtection().Handler(r), Protocols: &protocols,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: headerBytes,
		ErrorLog: log.New(io.Discard, "", 0), // what clients do wrong is told to them
	}
	quit, stored := make(chan struct{}), make(chan error, 1)
	go func() { stored <- r.run(context.WithoutCancel(ctx), quit) }()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()

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
	if srv.Shutdown(stop) != nil {
		_ = srv.Close() // who is late was not acknowledged
		r.drain()
	}
	close(quit)
	return errors.Join(<-stored, err)
}

// drain waits for the handlers whose connections were closed.
func (r *Receiver) drain() {
	for r.receiving.Load() > 0 {
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
