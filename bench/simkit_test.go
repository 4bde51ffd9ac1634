package bench_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"hsx/bench"
	"hsx/bench/prompts"
	"hsx/bench/server"
	"hsx/internal/simserver"
)

// TestMain lets clients reach servers in memory, whose time can be simulated: a client
// begins with a clone of the default transport.
func TestMain(m *testing.M) {
	web := http.DefaultTransport.(*http.Transport)
	dial := web.DialContext
	web.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if n, ok := ctx.Value(simKey{}).(*simNet); ok {
			return n.dial(network, addr)
		}
		return dial(ctx, network, addr)
	}
	m.Run()
}

type simKey struct{}

// simNet is a network in memory.
type simNet struct {
	hosts map[string]*simHost // by address
	open  atomic.Int64        // connections that clients have not closed
}

func (n *simNet) dial(network, addr string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	host := n.hosts[addr]
	if host == nil {
		return nil, refused
	}
	client, conn := net.Pipe()
	select {
	case host.conns <- conn:
		n.open.Add(1)
		return &simConn{Conn: client, closed: func() { n.open.Add(-1) }}, nil
	case <-host.down:
		return nil, refused
	}
}

// serve starts a web server on a new host, and returns what ends it.
func (n *simNet) serve(name string, h http.Handler) (stop func()) {
	host := &simHost{conns: make(chan net.Conn), down: make(chan struct{})}
	n.hosts[name+":80"] = host
	web := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = web.Serve(host) }() // it always ends with an error
	return func() { _ = web.Close() }   // which has nothing to say here
}

type simConn struct {
	net.Conn
	once   sync.Once
	closed func()
}

func (c *simConn) Close() error {
	c.once.Do(c.closed)
	return c.Conn.Close()
}

// simHost is a [net.Listener].
type simHost struct {
	conns chan net.Conn
	down  chan struct{}
	once  sync.Once
}

func (h *simHost) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.down:
		return nil, net.ErrClosed
	}
}

func (h *simHost) Close() error {
	h.once.Do(func() { close(h.down) })
	return nil
}

func (h *simHost) Addr() net.Addr { return &net.UnixAddr{Net: "memory"} }

// simArm is one simulated server and the way to it.
type simArm struct {
	simserver.Options
	client   server.Options                  // URL and Connections are set
	wrap     func(http.Handler) http.Handler // what stands between, nil for nothing
	replicas int                             // more servers behind the same URL, which share the requests: spec-1, spec-2, …
	steps    int                             // of a sweep
}

// simRun is a measurement of simulated servers in simulated time.
type simRun struct {
	spec, base *simArm             // nil: not there
	sweep      []*simArm           // instead of spec
	plan       func(p *bench.Plan) // nil: as it is
	options    bench.Options       // Dial is set
	interrupt  time.Duration       // when the user stops it, 0 never
}

// simResult is what came of it, and what really happened.
type simResult struct {
	log   *bench.Log
	err   error
	truth map[string]simserver.Truth // of the passes that count, by arm
	took  time.Duration
}

// report judges the log.
func (r *simResult) report() *bench.Report { return bench.Analyse(r.log, bench.Judgement{}) }

// simPrompts are n prompts of one turn.
func simPrompts(n int) []prompts.Prompt {
	var ps []prompts.Prompt
	for i := range n {
		ps = append(ps, prompts.Prompt{ID: fmt.Sprintf("p%02d", i), Category: []string{"even", "odd"}[i%2], Turns: []string{fmt.Sprintf("Say something about %d.", i)}})
	}
	return ps
}

// simPlan has 20 prompts, one of them with a second turn, two runs after a warm-up.
func simPlan() bench.Plan {
	p := bench.Plan{Levels: concurrency(1), Prompts: simPrompts(20), WarmUp: prompts.WarmUp(), Runs: 2, WarmUpRuns: 1, Seed: 7}
	p.Prompts[3].Turns = append(p.Prompts[3].Turns, "And now more of it.")
	return p
}

// simulate measures. It fails when a goroutine or a connection is left behind.
func simulate(t *testing.T, run simRun) *simResult {
	t.Helper()
	result := &simResult{truth: map[string]simserver.Truth{}}
	synctest.Test(t, func(t *testing.T) {
		p, network := simPlan(), &simNet{hosts: map[string]*simHost{}}
		arms, metered := map[string]*simArm{}, map[string]*simMeter{}
		add := func(name string, role bench.Role, arm *simArm) {
			if arm == nil {
				return
			}
			arms[name] = arm
			metered[name] = &simMeter{servers: arm.start(t, network, name)}
			p.Arms = append(p.Arms, bench.Arm{Name: name, Role: role, URL: "http://" + name, Steps: arm.steps})
		}
		add("spec", bench.Spec, run.spec)
		for _, arm := range run.sweep {
			add(fmt.Sprint("steps=", arm.steps), bench.Spec, arm)
		}
		add("base", bench.Baseline, run.base)
		if run.plan != nil {
			run.plan(&p)
		}
		o := run.options
		o.Dial = func(_ context.Context, arm bench.Arm) (*bench.Link, error) {
			c := arms[arm.Name].client
			c.URL, c.Connections = arm.URL, 64
			client, err := server.New(c)
			if err != nil {
				return nil, err
			}
			m := metered[arm.Name]
			m.Meter = client
			return &bench.Link{Target: client, Meter: m, Close: client.Close}, nil
		}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), simKey{}, network))
		defer cancel()
		if run.interrupt > 0 {
			defer time.AfterFunc(run.interrupt, cancel).Stop()
		}
		began := time.Now()
		result.log, result.err = runToBuffer(ctx, t, p, o)
		result.took = time.Since(began)
		synctest.Wait()
		if n := network.open.Load(); n != 0 {
			t.Errorf("connections: got %d still open after Run, want none", n)
		}
		for name, m := range metered {
			result.truth[name] = m.counting(result.log, name)
		}
	})
	return result
}

// start starts the servers of an arm, and what stands before them, until the test ends.
func (a *simArm) start(t *testing.T, network *simNet, name string) []*simserver.Server {
	var servers []*simserver.Server
	var stop func()
	serve := func(name string, h http.Handler) {
		stop = network.serve(name, h)
		t.Cleanup(stop)
	}
	for i := range 1 + a.replicas {
		o := a.Options
		if o.Faults.DieAfter > 0 {
			o.Faults.Die = func() { stop() }
		}
		s := simserver.New(o)
		t.Cleanup(s.Close)
		servers = append(servers, s)
		if i > 0 {
			serve(fmt.Sprint(name, "-", i), s)
		}
	}
	var h http.Handler = servers[0]
	if a.replicas > 0 {
		h = simBalance(servers)
	}
	if a.wrap != nil {
		h = a.wrap(h)
	}
	serve(name, h)
	return servers
}

// simMeter notes what really happened in each pass.
type simMeter struct {
	bench.Meter
	servers []*simserver.Server
	before  simserver.Truth
	passes  []simserver.Truth
}

func (m *simMeter) truth() simserver.Truth {
	var sum simserver.Truth
	for _, s := range m.servers {
		sum = simAdd(sum, s.Truth(), 1)
	}
	return sum
}

func (m *simMeter) Counters(ctx context.Context) server.Snapshot {
	m.before = m.truth()
	return m.Meter.Counters(ctx)
}

func (m *simMeter) Settle(ctx context.Context, enough func(server.Snapshot) bool) server.Snapshot {
	m.passes = append(m.passes, simAdd(m.truth(), m.before, -1))
	return m.Meter.Settle(ctx, enough)
}

// counting adds up the passes that count.
func (m *simMeter) counting(log *bench.Log, arm string) simserver.Truth {
	var sum simserver.Truth
	i := 0
	for _, p := range log.Passes {
		if p.Arm != arm {
			continue
		}
		if p.Complete && !p.WarmUp && i < len(m.passes) {
			sum = simAdd(sum, m.passes[i], 1)
		}
		i++
	}
	return sum
}

// simAdd is a + sign·b.
func simAdd(a, b simserver.Truth, sign int64) simserver.Truth {
	a.Requests += sign * b.Requests
	a.Tokens += sign * b.Tokens
	a.Steps += sign * b.Steps
	a.Drafted += sign * b.Drafted
	a.Accepted += sign * b.Accepted
	at := make([]int64, max(len(a.Positions), len(b.Positions)))
	copy(at, a.Positions)
	for i, n := range b.Positions {
		at[i] += sign * n
	}
	a.Positions = at
	return a
}

// simTau is the true accept length.
func simTau(truth simserver.Truth) float64 { return 1 + float64(truth.Accepted)/float64(truth.Steps) }
