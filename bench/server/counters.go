package server

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// metricsLimit bounds one answer of /metrics: a server of many ranks and models sends
// some hundred kilobytes.
const metricsLimit = 32 << 20

// meter is what counters remember between two reads.
type meter struct {
	mu    sync.Mutex
	stats map[string]*iterationStats // by URL
	log   logTail
	last  []sample // of the last URL read: preflight looks for more than counts in them
}

func (m *meter) remember(at string, sums *iterationStats) {
	if m.stats == nil {
		m.stats = map[string]*iterationStats{}
	}
	m.stats[at] = sums
}

// Counters reads the server's counters of speculation, tokens and requests, and what it
// is busy with. What cannot be read is nil, and Problems say why; several metrics URLs
// are added up, and count only when all of them were read. Reading takes iterations
// from TensorRT-LLM's list, and only this client must do so.
func (c *Client) Counters(ctx context.Context) Snapshot {
	c.meter.mu.Lock()
	defer c.meter.mu.Unlock()
	s := c.scrape(ctx)
	known := c.info()
	if off := known.Speculation.Known && !known.Speculation.On; s.Steps == nil && known.Engine == SGLang && !off {
		if info, err := c.serverInfo(ctx); err == nil {
			s.Lifetime = info.lifetime()
		}
	}
	c.meter.log.add(&s, c.opt.LogFile)
	s.At = time.Now()
	return s
}

// Settle reads the counters until they stand still: for a quarter of a second when
// enough holds, else for three seconds, and in all no longer than ten. Some engines
// count a request only when it has ended, some a little later. A nil enough always holds.
func (c *Client) Settle(ctx context.Context, enough func(Snapshot) bool) Snapshot {
	const every, longest = 250 * time.Millisecond, 10 * time.Second
	begun := time.Now()
	last := c.Counters(ctx)
	still := 0
	for time.Since(begun) < longest {
		select {
		case <-ctx.Done():
			return last
		case <-time.After(every):
		}
		s := c.Counters(ctx)
		if still++; !sameCounts(last, s) {
			still = 0
		}
		for _, p := range last.Problems { // some are told once
			if !slices.Contains(s.Problems, p) {
				s.Problems = append(s.Problems, p)
			}
		}
		last = s
		if still >= 12 || still >= 1 && (enough == nil || enough(s)) {
			break
		}
	}
	return last
}

func sameCounts(a, b Snapshot) bool {
	same := func(a, b *float64) bool { return a == b || a != nil && b != nil && *a == *b }
	return same(a.Steps, b.Steps) && same(a.Accepted, b.Accepted) && same(a.Drafted, b.Drafted) &&
		same(a.Generated, b.Generated) && same(a.Finished, b.Finished) && slices.Equal(a.Positions, b.Positions)
}

// scrape reads every metrics URL.
func (c *Client) scrape(ctx context.Context) Snapshot {
	var sum Snapshot
	var windows []float64
	for i, at := range c.metricsURLs() {
		s, err := c.scrapeOne(ctx, at)
		if err != nil {
			return Snapshot{Problems: append(sum.Problems, err.Error())}
		}
		if i > 0 && s.Source != sum.Source {
			return Snapshot{Problems: append(sum.Problems, fmt.Sprintf("%s and %s cannot be added up", sum.Source, s.Source))}
		}
		sum.add(s)
		if s.Window != nil {
			windows = append(windows, *s.Window)
		}
	}
	sum.Window = average(windows)
	return sum
}

// metricsURLs are those given; one without a path is the root of a server.
func (c *Client) metricsURLs() []string {
	if len(c.opt.MetricsURLs) == 0 {
		return []string{c.at("/metrics")}
	}
	var urls []string
	for _, raw := range c.opt.MetricsURLs {
		if u, err := url.Parse(raw); err == nil && strings.Trim(u.Path, "/") == "" {
			u.Path = "/metrics"
			raw = u.String()
		}
		urls = append(urls, raw)
	}
	return urls
}

func (c *Client) scrapeOne(ctx context.Context, at string) (Snapshot, error) {
	body, status, err := c.get(ctx, at, metricsLimit)
	switch {
	case err != nil:
		return Snapshot{}, fmt.Errorf("counters: %w", err)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return Snapshot{}, fmt.Errorf("counters: %s refuses access (HTTP %d): it wants the key or a header, see --api-key-env and --header", redact(at), status)
	case status != http.StatusOK:
		return Snapshot{}, fmt.Errorf("counters: %s: HTTP %d %s", redact(at), status, c.scrub(serverMessage(body)))
	}
	if trimmed := bytes.TrimSpace(body); len(trimmed) > 0 && trimmed[0] == '[' {
		s, err := c.iterations(at, trimmed)
		if err != nil || s.Source != "" {
			return s, err
		}
		// No iteration was ever listed: the statistics are off, or nothing ran yet.
		body, status, err = c.get(ctx, strings.TrimSuffix(at, "/metrics")+"/prometheus/metrics", metricsLimit)
		if err != nil || status != http.StatusOK {
			return Snapshot{}, fmt.Errorf("counters: %s lists no iterations: TensorRT-LLM needs enable_iter_perf_stats: true", redact(at))
		}
	}
	samples, problem := parseProm(body)
	c.meter.last = samples
	e, ok := newExposition(samples, c.info().Model)
	if !ok {
		return Snapshot{}, fmt.Errorf("counters: %s has no metrics of a known engine", redact(at))
	}
	s := e.snapshot()
	for _, m := range samples {
		if m.name == "process_start_time_seconds" && finite(m.value) {
			s.Started = &m.value
		}
	}
	if problem != "" {
		s.Problems = append(s.Problems, problem)
	}
	return s, nil
}

// add adds the counters of another server of the same engine. A counter that one of
// them lacks is 0 there: some appear with their first event.
func (s *Snapshot) add(o Snapshot) {
	if s.Source == "" {
		*s = o
		return
	}
	s.Steps, s.Accepted, s.Drafted = plus(s.Steps, o.Steps), plus(s.Accepted, o.Accepted), plus(s.Drafted, o.Drafted)
	s.Generated, s.Finished = plus(s.Generated, o.Generated), plus(s.Finished, o.Finished)
	for i, n := range o.Positions {
		if i == len(s.Positions) {
			s.Positions = append(s.Positions, 0)
		}
		s.Positions[i] += n
	}
	if s.Started == nil || o.Started != nil && *o.Started > *s.Started {
		s.Started = o.Started // the latest changes whichever of them restarts
	}
	s.Load = Load{s.Load.Known && o.Load.Known, s.Load.Running + o.Load.Running, s.Load.Waiting + o.Load.Waiting}
	s.Ranks += o.Ranks
	s.Problems = append(s.Problems, o.Problems...)
}

func plus(a, b *float64) *float64 {
	if a == nil {
		return b
	}
	if b == nil {
		return a
	}
	sum := *a + *b
	return &sum
}
