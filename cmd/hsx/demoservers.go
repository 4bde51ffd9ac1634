package main

import (
	"errors"
	"net"
	"net/http"
	"time"

	"hsx/internal/simserver"
)

// demoServers are two simulated servers of one model: with a draft that is fed another
// first layer than it was trained on, and without one.
type demoServers struct {
	spec, baseline string // URLs
	stop           func()
}

func startDemoServers() (*demoServers, error) {
	plain := simserver.Options{Engine: simserver.SGLang, Step: 6 * time.Millisecond, MinTokens: 16, MaxTokens: 20}
	drafting := plain
	drafting.Steps, drafting.Accept, drafting.PerRequest = 3, []float64{0.2, 0.7, 0.65}, true
	drafting.Step, drafting.Draft = 12*time.Millisecond, 600*time.Microsecond
	spec, stopSpec, err := listen(drafting)
	if err != nil {
		return nil, err
	}
	baseline, stopBaseline, err := listen(plain)
	if err != nil {
		return nil, errors.Join(err, stopSpec())
	}
	return &demoServers{spec, baseline, func() {
		_, _ = stopSpec(), stopBaseline() // nothing is lost with them
	}}, nil
}

// listen serves a simulated server on a port of its own that only this machine reaches.
func listen(o simserver.Options) (url string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	web := &http.Server{Handler: simserver.New(o), ReadHeaderTimeout: time.Minute}
	go func() { _ = web.Serve(l) }() // it ends when it is stopped
	return "http://" + l.Addr().String(), web.Close, nil
}
