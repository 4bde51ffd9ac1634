package bench_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
	"hsx/bench/prompts"
	"hsx/bench/server"
)

func TestRunMeasuresInTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // which also fails when a goroutine is left
		servers := &runServers{}
		p := runPlan("spec", "base")
		p.Levels = []bench.Level{{Concurrency: 1}}
		var preflights []string
		log, err := runToBuffer(t.Context(), t, p, bench.Options{Dial: servers.link, Preflight: func(a bench.ArmInfo) error {
			preflights = append(preflights, a.Arm)
			return nil
		}})
		if err != nil {
			t.Fatalf("Run: got error %v, want none", err)
		}
		warm := func(arm string) []string {
			return append(append([]string{"counters " + arm}, slices.Repeat([]string{"do " + arm + " [{user warm}]"}, 16)...), "settle "+arm)
		}
		run := func(arm string) []string {
			return []string{
				"counters " + arm,
				"do " + arm + " [{system Be short.} {user one}]",
				"do " + arm + " [{system Be short.} {user one} {assistant re: one} {user two}]",
				"do " + arm + " [{user three}]",
				"settle " + arm,
			}
		}
		want := slices.Concat([]string{"probe spec", "probe base"}, warm("spec"), warm("base"), run("spec"), run("base"), run("base"), run("spec"))
		if diff := cmp.Diff(want, servers.log); diff != "" {
			t.Errorf("what was asked (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"spec", "base"}, preflights); diff != "" {
			t.Errorf("preflights (-want +got):\n%s", diff)
		}
		slices.Sort(servers.closed)
		if diff := cmp.Diff([]string{"base", "spec"}, servers.closed); diff != "" {
			t.Errorf("closed links (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"spec w1", "base w1", "spec 1", "base 1", "base 2", "spec 2"}, runKeys(log)); diff != "" {
			t.Errorf("passes (-want +got):\n%s", diff)
		}
		if log.End == nil || log.End.Interrupted || log.End.Reason != "" {
			t.Errorf("end: got %+v, want one without a reason", log.End)
		}
	})
}

func TestRunTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers := &runServers{do: func(ctx context.Context, _ int, r server.Request) server.Outcome {
			return runAnswer(ctx, 100*time.Millisecond, r)
		}}
		p := runPlan("spec")
		p.Runs, p.WarmUpRuns = 1, 0
		log, err := runToBuffer(t.Context(), t, p, bench.Options{Dial: servers.link})
		if err != nil {
			t.Fatalf("Run: got error %v, want none", err)
		}
		pass := log.Passes[0]
		if want := 200 * time.Millisecond; pass.Wall != want { // two turns, and the other prompt beside them
			t.Errorf("wall time: got %v, want %v", pass.Wall, want)
		}
		if *pass.After.Finished != 3 {
			t.Errorf("counters after the pass: got %g finished requests, want to wait for all 3", *pass.After.Finished)
		}
		if pass.MaxTokens != 2048 || pass.Before.Source != "before" || pass.After.Source != "after" {
			t.Errorf("pass: got max tokens %d and counters %q and %q, want 2048, before, after", pass.MaxTokens, pass.Before.Source, pass.After.Source)
		}
		for _, r := range pass.Requests {
			want := time.Duration(r.Turn) * 100 * time.Millisecond
			if r.Due != want || r.Sent != want || r.Latency() != 100*time.Millisecond {
				t.Errorf("%s turn %d: due %v, sent %v, latency %v; want %v, %v, 100ms", r.Prompt, r.Turn, r.Due, r.Sent, r.Latency(), want, want)
			}
		}
	})
}

// An open loop starts conversations when they are due, even while the server gives no
// answer, and their latency holds the time that they lost.
func TestRunOpenLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, most, rate, stall = 250, 200, 10, time.Minute
		began := time.Now()
		servers := &runServers{do: func(ctx context.Context, _ int, r server.Request) server.Outcome {
			return runAnswer(ctx, time.Until(began.Add(stall)), r)
		}}
		p := runPlan("spec", "base")
		p.Levels, p.Runs, p.WarmUpRuns, p.Prompts = []bench.Level{{Rate: rate}}, 1, 0, nil
		for i := range n {
			p.Prompts = append(p.Prompts, prompts.Prompt{ID: fmt.Sprint(i), Turns: []string{"x"}})
		}
		var notices []string
		log, err := runToBuffer(t.Context(), t, p, bench.Options{Dial: servers.link, MaxInFlight: most, Notice: func(text string) { notices = append(notices, text) }})
		if err != nil {
			t.Fatalf("Run: got error %v, want none", err)
		}
		due := map[string]map[string]time.Duration{"spec": {}, "base": {}}
		late := 0
		for _, pass := range log.Passes {
			for _, r := range pass.Requests {
				due[pass.Arm][r.Prompt] = r.Due
				if r.Sent > r.Due {
					late++
				}
				if pass.Arm == "spec" && r.Due+r.Latency() < stall {
					t.Fatalf("request %s: due %v, latency %v: want it to end after the stall of %v", r.Prompt, r.Due, r.Latency(), stall)
				}
			}
		}
		if diff := cmp.Diff(due["spec"], due["base"]); diff != "" || len(due["spec"]) != n {
			t.Errorf("due times of %d requests differ between the arms (-spec +base):\n%s", len(due["spec"]), diff)
		}
		if want := n - most; late != want { // no more are let out at once
			t.Errorf("requests sent late: got %d, want %d", late, want)
		}
		if !slices.ContainsFunc(notices, func(s string) bool { return strings.Contains(s, "200 conversations under way") }) {
			t.Errorf("notices: got %q, want one that says so", notices)
		}
		if diff := cmp.Diff(notices, log.Events); diff != "" {
			t.Errorf("notices and events of the journal differ (-notices +events):\n%s", diff)
		}
	})
}

func TestRunFailedTurn(t *testing.T) {
	t.Parallel()
	servers := &runServers{do: func(ctx context.Context, _ int, r server.Request) server.Outcome {
		if r.Messages[len(r.Messages)-1].Content == "one" {
			return runFault(server.FaultCut)
		}
		return runAnswer(ctx, 0, r)
	}}
	p := runPlan("spec")
	p.Runs, p.WarmUpRuns = 1, 0
	log, err := runToBuffer(t.Context(), t, p, bench.Options{Dial: servers.link})
	if err != nil {
		t.Fatalf("Run: got error %v, want none: every request was tried", err)
	}
	got := map[string]string{}
	for _, r := range log.Passes[0].Requests {
		got[fmt.Sprintf("%s/%d", r.Prompt, r.Turn)] = r.Error
	}
	want := map[string]string{"p1/0": "request: cut", "p1/1": "not sent, as turn 1 failed", "p2/0": ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if !log.Passes[0].Complete {
		t.Error("pass: got an incomplete one, want a complete one: a failure is a result")
	}
}

func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		servers := &runServers{do: func(ctx context.Context, n int, r server.Request) server.Outcome {
			if n == 16+2 { // the second of the first run
				cancel()
				return runAnswer(ctx, time.Hour, r)
			}
			return runAnswer(ctx, time.Millisecond, r)
		}}
		p := runPlan("spec")
		p.Levels = []bench.Level{{Concurrency: 1}}
		began := time.Now()
		log, err := runToBuffer(ctx, t, p, bench.Options{Dial: servers.link})
		if !errors.Is(err, context.Canceled) || time.Since(began) > time.Second {
			t.Errorf("Run: got error %v after %v, want %v at once", err, time.Since(began), context.Canceled)
		}
		if diff := cmp.Diff([]string{"spec w1", "spec 1!"}, runKeys(log)); diff != "" {
			t.Errorf("passes (-want +got):\n%s", diff)
		}
		last := log.Passes[1]
		if len(last.Requests) != 2 || last.Requests[1].Fault != server.FaultStopped || last.Stopped != "interrupted" {
			t.Errorf("stopped pass: got %+v, want two requests, the second interrupted", last)
		}
		if log.End == nil || !log.End.Interrupted || log.Torn {
			t.Errorf("end: got %+v, want it interrupted", log.End)
		}
	})
}

func TestRunServerDies(t *testing.T) {
	t.Parallel()
	dead := errors.New("connection refused")
	tests := map[string]struct {
		fault  server.Fault
		probe  error // from the second look on
		passes []string
		err    string
		event  string
	}{
		"dead":            {server.FaultTransport, dead, []string{"spec w1", "base w1", "spec 1", "base 1!"}, "base, concurrency 1, run 1: the server does not answer any more: 5 requests in a row failed, the last with \"request: transport\", and a look at it: connection refused", ""},
		"busy for ever":   {server.FaultBusy, errors.New("first request: 429"), []string{"spec w1", "base w1", "spec 1", "base 1!"}, "a look at it: first request: 429", ""},
		"back again":      {server.FaultStalled, nil, []string{"spec w1", "base w1", "spec 1", "base 1"}, "", "but the server answers again"},
		"refuses prompts": {server.FaultRefused, dead, []string{"spec w1", "base w1", "spec 1", "base 1"}, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				looks := 0
				servers := &runServers{}
				servers.do = func(ctx context.Context, n int, r server.Request) server.Outcome {
					if n > 2*16+10 {
						return runFault(tt.fault)
					}
					return runAnswer(ctx, time.Millisecond, r)
				}
				servers.probe = func(arm string) (*server.Info, error) {
					if looks++; looks <= 2 {
						return runInfo(arm), nil
					}
					return runInfo(arm), tt.probe
				}
				p := runPlan("spec", "base")
				p.Runs, p.Levels, p.Prompts = 1, []bench.Level{{Concurrency: 1}}, nil
				for i := range 8 {
					p.Prompts = append(p.Prompts, prompts.Prompt{ID: fmt.Sprint(i), Turns: []string{"x"}})
				}
				log, err := runToBuffer(t.Context(), t, p, bench.Options{Dial: servers.link})
				if got := fmt.Sprint(err); tt.err == "" && err != nil || !strings.Contains(got, tt.err) {
					t.Errorf("Run: got error %v, want %q", err, tt.err)
				}
				if diff := cmp.Diff(tt.passes, runKeys(log)); diff != "" {
					t.Errorf("passes (-want +got):\n%s", diff)
				}
				if err != nil && log.End.Reason != err.Error() {
					t.Errorf("end: got reason %q, want %q", log.End.Reason, err)
				}
				if got := strings.Join(log.Events, "\n"); !strings.Contains(got, tt.event) {
					t.Errorf("events: got %q, want %q in them", got, tt.event)
				}
			})
		})
	}
}

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	bad := errors.New("no usage")
	level := func(l ...bench.Level) func(*bench.Plan, *bench.Options) {
		return func(p *bench.Plan, _ *bench.Options) { p.Levels = l }
	}
	tests := map[string]struct {
		change func(p *bench.Plan, o *bench.Options)
		want   string
	}{
		"no arm":            {func(p *bench.Plan, _ *bench.Options) { p.Arms = nil }, "plan: has 0 arms, 1 level and 2 prompts, want at least one of each"},
		"no run":            {func(p *bench.Plan, _ *bench.Options) { p.Runs = 0 }, "plan: has 0 runs and 1 warm-up runs, want at least 1 and 0"},
		"no warm-up prompt": {func(p *bench.Plan, _ *bench.Options) { p.WarmUp = nil }, "plan: has warm-up runs and no prompts for them"},
		"arm twice":         {func(p *bench.Plan, _ *bench.Options) { p.Arms[1].Name = "spec" }, `plan: arm "spec": want a name of its own`},
		"secret left out":   {func(p *bench.Plan, _ *bench.Options) { p.Arms[0].URL = "http://me:xxxxx@host" }, `plan: arm "spec": its URL or command is as a journal keeps it`},
		"prompt twice":      {func(p *bench.Plan, _ *bench.Options) { p.Prompts[1].ID = "p1" }, `plan: prompt "p1": want a turn, and an id of its own`},
		"no turn":           {func(p *bench.Plan, _ *bench.Options) { p.Prompts[1].Turns = nil }, `plan: prompt "p2": want a turn, and an id of its own`},
		"no load":           {level(bench.Level{}), "plan: level of concurrency 0 and rate 0: want"},
		"two loads in one":  {level(bench.Level{Concurrency: 1, Rate: 1}), "plan: level of concurrency 1 and rate 1: want"},
		"too slow":          {level(bench.Level{Rate: 1e-300}), "plan: level of concurrency 0 and rate 1e-300: want"},
		"level twice":       {level(bench.Level{Rate: 1}, bench.Level{Rate: 1}), "plan: level of concurrency 0 and rate 1: want, once"},
		"preflight":         {func(_ *bench.Plan, o *bench.Options) { o.Preflight = func(bench.ArmInfo) error { return bad } }, "no usage"},
		"dial": {func(_ *bench.Plan, o *bench.Options) {
			o.Dial = func(context.Context, bench.Arm) (*bench.Link, error) { return nil, bad }
		}, "spec: no usage"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := &runServers{}
			p, o := runPlan("spec", "base"), bench.Options{Dial: servers.link}
			tt.change(&p, &o)
			err := bench.Run(t.Context(), p, bench.NewJournal(&runBroken{room: 1 << 20}, "x"), o)
			if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("Run: got error %v, want %s", err, tt.want)
			}
			if servers.n != 0 {
				t.Errorf("requests sent: got %d, want none", servers.n)
			}
		})
	}
}

func TestRunProgress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		servers := &runServers{do: func(ctx context.Context, _ int, r server.Request) server.Outcome {
			return runAnswer(ctx, 10*time.Millisecond, r)
		}}
		p := runPlan("spec", "base")
		p.Levels = []bench.Level{{Concurrency: 1}}
		var all []bench.Progress
		if _, err := runToBuffer(t.Context(), t, p, bench.Options{Dial: servers.link, Progress: func(p bench.Progress) { all = append(all, p) }}); err != nil {
			t.Fatalf("Run: got error %v, want none", err)
		}
		const total, passes = 2*16 + 2*2*3, 6
		last := all[len(all)-1]
		if last.Done != total || last.Total != total || last.Tokens != 10*total || last.Elapsed != total*10*time.Millisecond || last.Left != 0 {
			t.Errorf("last progress: got %+v, want all %d requests of 10 tokens done in 10 ms each", last, total)
		}
		if most := passes*2 + total/10; len(all) > most {
			t.Errorf("progress: told %d times, want at most %d: ten times a second, and twice a pass", len(all), most)
		}
		for i, now := range all {
			left := time.Duration(total-now.Done) * 10 * time.Millisecond
			if now.Done > 16 && now.Left != left {
				t.Errorf("progress %d, %d done: got %v left, want %v", i, now.Done, now.Left, left)
			}
			runs := 2
			if now.WarmUp {
				runs = 1
			}
			if now.Runs != runs || now.Starting || i > 0 && now.Done < all[i-1].Done {
				t.Errorf("progress %d: got %+v after %+v", i, now, all[max(0, i-1)])
			}
		}
	})
}

func TestRunConcurrencyAbovePrompts(t *testing.T) {
	t.Parallel()
	servers := &runServers{}
	p := runPlan("spec")
	p.Levels = []bench.Level{{Concurrency: 20}}
	log, err := runToBuffer(t.Context(), t, p, bench.Options{Dial: servers.link})
	if err != nil {
		t.Fatalf("Run: got error %v, want none", err)
	}
	if want := "concurrency 20: never more than 2 requests at once, as there are no more prompts"; !slices.Contains(log.Events, want) {
		t.Errorf("events: got %q, want %q", log.Events, want)
	}
	if got := len(log.Passes[0].Requests); got != 20 {
		t.Errorf("warm-up: got %d requests, want one for each slot, 20", got)
	}
}
