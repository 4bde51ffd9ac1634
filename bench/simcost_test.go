package bench_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hsx/bench"
	"hsx/bench/prompts"
	"hsx/bench/server"
	"hsx/bench/stats"
	"hsx/internal/simserver"
)

// simLoad is streams at once, each of chunks with a time between them.
type simLoad struct {
	streams, chunks int
	every           time.Duration
}

// delays returns, for each chunk, the time from when a server in the same process began
// to send it to what a client took down.
func (l simLoad) delays(tb testing.TB, client func(tb testing.TB, url string, prompts []prompts.Prompt) []simOutcome) []time.Duration {
	tb.Helper()
	stamps := simStamps{sent: map[string][]time.Time{}}
	s := simserver.New(simserver.Options{
		MinTokens: l.chunks, Prefill: l.every, Step: l.every,
		Spread: 0.2, // not all at the same moment
	})
	web := httptest.NewServer(stamps.wrap(s))
	defer web.Close()
	defer s.Close()
	var ps []prompts.Prompt
	for i := range l.streams {
		name := fmt.Sprintf("stream-%04d", i)
		ps = append(ps, prompts.Prompt{ID: name, Turns: []string{name}})
	}
	outcomes := client(tb, web.URL, ps)
	web.Close() // after its last handler has noted its times
	var delays []time.Duration
	for _, o := range outcomes {
		if n := len(o.at); n != l.chunks-1 { // the end token has no text
			tb.Fatalf("%s: got %d chunks, want %d; %s", o.prompt, n, l.chunks-1, o.fault)
		}
		for i, at := range o.at {
			delays = append(delays, at.Sub(stamps.sent[o.prompt][i]))
		}
	}
	if len(delays) != l.streams*(l.chunks-1) {
		tb.Fatalf("got %d chunks, want %d of each of %d streams", len(delays), l.chunks-1, l.streams)
	}
	slices.Sort(delays)
	return delays
}

// simOutcome is when a client took down each chunk of an answer.
type simOutcome struct {
	prompt string
	at     []time.Time
	fault  string
}

// hsxClient is a whole run with its journal in a file.
func hsxClient(tb testing.TB, url string, ps []prompts.Prompt) []simOutcome {
	tb.Helper()
	p := runPlan("spec")
	p.Arms[0].URL, p.Levels, p.Runs, p.WarmUpRuns, p.Prompts = url, concurrency(len(ps)), 1, 0, ps
	j, err := bench.CreateJournal(filepath.Join(tb.TempDir(), "bench.jsonl"))
	if err != nil {
		tb.Fatal(err)
	}
	taken := &simTaken{}
	err = bench.Run(tb.Context(), p, j, bench.Options{Dial: func(_ context.Context, arm bench.Arm) (*bench.Link, error) {
		c, err := server.New(server.Options{URL: arm.URL, Connections: len(ps)})
		if err != nil {
			return nil, err
		}
		taken.Client = c
		return &bench.Link{Target: taken, Meter: c, Close: c.Close}, nil
	}})
	if err := errors.Join(err, j.Close()); err != nil {
		tb.Fatalf("Run: got error %v, want none", err)
	}
	return taken.outcomes
}

// simTaken keeps what a client measured, with the clock of the process.
type simTaken struct {
	*server.Client
	mu       sync.Mutex
	outcomes []simOutcome
}

func (t *simTaken) Do(ctx context.Context, r server.Request) server.Outcome {
	out := t.Client.Do(ctx, r)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcomes = append(t.outcomes, simOutcome{r.Messages[0].Content, chunkTimes(&out), out.Error})
	return out
}

// chunkTimes are those of an outcome. What its gaps lose to whole microseconds is shared
// out among them.
func chunkTimes(out *server.Outcome) []time.Time {
	gaps, sum := len(out.GapsUS), 0
	for _, us := range out.GapsUS {
		sum += us
	}
	lost := out.LastToken - out.FirstToken - time.Duration(sum)*time.Microsecond
	times := []time.Time{out.Sent.Add(out.FirstToken)}
	sum = 0
	for i, us := range out.GapsUS {
		sum += us
		times = append(times, out.Sent.Add(out.FirstToken+time.Duration(sum)*time.Microsecond+lost*time.Duration(i+1)/time.Duration(gaps)))
	}
	return times
}

// bareClient does nothing but take down when each line with a token came.
func bareClient(tb testing.TB, url string, ps []prompts.Prompt) []simOutcome {
	tb.Helper()
	web := &http.Client{Transport: &http.Transport{}}
	defer web.CloseIdleConnections()
	outcomes := make([]simOutcome, len(ps))
	var work sync.WaitGroup
	for i := range ps {
		work.Go(func() {
			o := &outcomes[i]
			o.prompt = ps[i].ID
			body := fmt.Sprintf(`{"messages":[{"role":"user","content":%q}],"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`, o.prompt)
			resp, err := web.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
			if err != nil {
				o.fault = err.Error()
				return
			}
			defer func() { _ = resp.Body.Close() }() // it was read to its end
			lines := bufio.NewScanner(resp.Body)
			for lines.Scan() {
				at := time.Now()
				if bytes.Contains(lines.Bytes(), []byte(`"delta":{"content":" `)) {
					o.at = append(o.at, at)
				}
			}
		})
	}
	work.Wait()
	return outcomes
}

// p99 of sorted delays.
func p99(delays []time.Duration) time.Duration {
	values := make([]float64, len(delays))
	for i, d := range delays {
		values[i] = float64(d)
	}
	return time.Duration(stats.Quantile(values, 0.99))
}

// simStamps notes when a server sends each of its writes, by prompt.
type simStamps struct {
	mu   sync.Mutex
	sent map[string][]time.Time
}

func (s *simStamps) wrap(h http.Handler) http.Handler {
	name := regexp.MustCompile(`stream-\d+`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client left
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		stamped := &simStamped{ResponseWriter: w}
		h.ServeHTTP(stamped, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent[string(name.Find(body))] = stamped.at
	})
}

type simStamped struct {
	http.ResponseWriter
	at []time.Time
}

func (w *simStamped) Write(b []byte) (int, error) {
	w.at = append(w.at, time.Now())
	return w.ResponseWriter.Write(b)
}

func (w *simStamped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestSimOwnCost bounds generously what [BenchmarkOwnCost256] measures, as a busy machine
// must not fail it, and looks for goroutines that a whole run leaves behind. Nothing of
// this package runs beside it.
func TestSimOwnCost(t *testing.T) {
	const tries, most = 5, 50 * time.Millisecond
	best := time.Hour
	for i := 0; i < tries && best >= most; i++ {
		best = min(best, p99(simLoad{32, 25, 20 * time.Millisecond}.delays(t, tidyClient)))
	}
	if best >= most {
		t.Errorf("delay of 99 %% of chunks: got up to %v at best, want below %v", best, most)
	}
}

// tidyClient is hsxClient, and waits for its goroutines to end while the server goes on.
func tidyClient(tb testing.TB, url string, ps []prompts.Prompt) []simOutcome {
	tb.Helper()
	before := runtime.NumGoroutine()
	outcomes := hsxClient(tb, url, ps)
	left := runtime.NumGoroutine()
	for wait := time.Millisecond; left > before && wait < 4*time.Second; wait *= 2 {
		time.Sleep(wait) // what was closed ends a little later
		left = runtime.NumGoroutine()
	}
	if left > before {
		stacks := make([]byte, 1<<20)
		tb.Errorf("goroutines: got %d, before the run %d:\n%s", left, before, stacks[:runtime.Stack(stacks, true)])
	}
	return outcomes
}

// BenchmarkOwnCost256 measures 256 streams of 100 chunks a second each, of a server in
// the same process: from the server's write to the time that hsx notes, and the same of
// a client that does nothing else. What hsx adds is the difference.
func BenchmarkOwnCost256(b *testing.B) {
	load := simLoad{256, 100, 10 * time.Millisecond}
	var hsx, bare []time.Duration
	for b.Loop() {
		hsx = append(hsx, load.delays(b, hsxClient)...)
		bare = append(bare, load.delays(b, bareClient)...)
	}
	slices.Sort(hsx)
	slices.Sort(bare)
	for _, m := range []struct {
		name  string
		delay time.Duration
	}{
		{"p50-ms", hsx[len(hsx)/2]}, {"added-p50-ms", hsx[len(hsx)/2] - bare[len(bare)/2]},
		{"p99-ms", p99(hsx)}, {"added-p99-ms", p99(hsx) - p99(bare)},
	} {
		b.ReportMetric(float64(m.delay)/1e6, m.name)
	}
}
