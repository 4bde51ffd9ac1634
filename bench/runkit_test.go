package bench_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/prompts"
	"hsx/bench/server"
)

// runPlan has three requests of two prompts, to every arm, twice.
func runPlan(arms ...string) bench.Plan {
	p := bench.Plan{
		Levels: []bench.Level{{Concurrency: 2}},
		Prompts: []prompts.Prompt{
			{ID: "p1", Before: []prompts.Message{{Role: "system", Content: "Be short."}}, Turns: []string{"one", "two"}},
			{ID: "p2", Turns: []string{"three"}},
		},
		WarmUp:     []prompts.Prompt{{ID: "w", Turns: []string{"warm"}}},
		Runs:       2,
		WarmUpRuns: 1,
		Seed:       7,
	}
	for i, name := range arms {
		p.Arms = append(p.Arms, bench.Arm{Name: name, Role: []bench.Role{bench.Spec, bench.Baseline}[i%2], URL: "http://" + name})
	}
	return p
}

// runServers is servers without a network: one for each arm, all alike.
type runServers struct {
	// do answers the n-th request, counted from 1 over all arms; nil is a good answer
	// after a millisecond.
	do func(ctx context.Context, n int, r server.Request) server.Outcome
	// probe answers a look at an arm's server; nil is a healthy one.
	probe func(arm string) (*server.Info, error)

	mu     sync.Mutex
	n      int
	log    []string // what was asked, in order
	closed []string
}

func (s *runServers) link(_ context.Context, arm bench.Arm) (*bench.Link, error) {
	t := &runTarget{s, arm.Name}
	return &bench.Link{Target: t, Meter: t, Close: func() { s.note(&s.closed, arm.Name) }}, nil
}

func (s *runServers) note(list *[]string, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, text)
}

type runTarget struct {
	servers *runServers
	arm     string
}

func (t *runTarget) Probe(context.Context, server.Params) (*server.Info, error) {
	t.servers.note(&t.servers.log, "probe "+t.arm)
	if t.servers.probe != nil {
		return t.servers.probe(t.arm)
	}
	return runInfo(t.arm), nil
}

func runInfo(arm string) *server.Info {
	return &server.Info{Engine: server.VLLM, Model: "m", Version: "1", Speculation: server.Speculation{Known: true, On: arm == "spec"}}
}

func (t *runTarget) Counters(context.Context) server.Snapshot {
	t.servers.note(&t.servers.log, "counters "+t.arm)
	return server.Snapshot{Source: "before", Finished: new(float64)}
}

func (t *runTarget) Settle(_ context.Context, enough func(server.Snapshot) bool) server.Snapshot {
	t.servers.note(&t.servers.log, "settle "+t.arm)
	for n := 0.0; ; n++ { // the counters come one request at a time
		if s := (server.Snapshot{Source: "after", Finished: &n}); enough(s) {
			return s
		}
	}
}

func (t *runTarget) Do(ctx context.Context, r server.Request) server.Outcome {
	s := t.servers
	s.mu.Lock()
	s.n++
	n := s.n
	s.log = append(s.log, fmt.Sprintf("do %s %v", t.arm, r.Messages))
	s.mu.Unlock()
	if s.do != nil {
		return s.do(ctx, n, r)
	}
	return runAnswer(ctx, time.Millisecond, r)
}

// runAnswer is a good answer after a time.
func runAnswer(ctx context.Context, after time.Duration, r server.Request) server.Outcome {
	sent := time.Now()
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return server.Outcome{Sent: sent, Attempts: 1, Done: time.Since(sent), Fault: server.FaultStopped, Error: "interrupted"}
	case <-timer.C:
	}
	return server.Outcome{
		Sent: sent, Attempts: 1, Status: 200, Done: time.Since(sent), Usage: true, Tokens: 10, FinishReason: "stop",
		Text: "re: " + r.Messages[len(r.Messages)-1].Content, Reasoning: "hm", GapsUS: []int{1, 2, 3},
	}
}

func runFault(f server.Fault) server.Outcome {
	return server.Outcome{Sent: time.Now(), Attempts: 1, Fault: f, Error: "request: " + string(f)}
}

// runToBuffer measures in memory and reads the journal back.
func runToBuffer(ctx context.Context, t *testing.T, p bench.Plan, o bench.Options) (*bench.Log, error) {
	t.Helper()
	var buf bytes.Buffer
	err := bench.Run(ctx, p, bench.NewJournal(&buf, "test.jsonl"), o)
	return runRead(t, buf.Bytes()), err
}

func runRead(t *testing.T, journal []byte) *bench.Log {
	t.Helper()
	log, err := bench.ReadLog(bytes.NewReader(journal))
	if err != nil {
		t.Fatalf("ReadLog of what Run wrote: got error %v\n%s", err, journal)
	}
	return log
}

// runKeys is the passes of a log as short text, such as "spec w1" or "base 2!" for an
// incomplete one.
func runKeys(log *bench.Log) []string {
	var out []string
	for _, p := range log.Passes {
		name := fmt.Sprint(p.Run)
		if p.WarmUp {
			name = "w" + name
		}
		if !p.Complete {
			name += "!"
		}
		out = append(out, p.Arm+" "+name)
	}
	return out
}

// runBroken is a file on a disk with room for so many bytes.
type runBroken struct {
	bytes.Buffer
	room int
	err  error
}

func (w *runBroken) Write(b []byte) (int, error) {
	n := min(len(b), w.room-w.Len())
	w.Buffer.Write(b[:n])
	if n < len(b) {
		return n, w.err
	}
	return n, nil
}
