package bench

import (
	"fmt"
	"math"
	"strings"
	"time"

	"hsx/bench/stats"
)

// level reports all arms under one load. The sweep and the verdict rely on the order of
// Compared: that of the speculating arms.
func (a *analysis) level(l Level) LevelReport {
	r := LevelReport{Level: l, Arms: []ArmReport{}}
	for _, s := range a.sides {
		r.Arms = append(r.Arms, armReport(s.Name, s.passes[l], a.j.Confidence))
	}
	if a.base != nil {
		for _, s := range a.speculating() {
			r.Compared = append(r.Compared, a.compare(s, l))
		}
	}
	return r
}

func (l *LevelReport) arm(name string) *ArmReport {
	for i := range l.Arms {
		if l.Arms[i].Arm == name {
			return &l.Arms[i]
		}
	}
	return nil
}

func (l *LevelReport) compared(name string) *Comparison {
	for i := range l.Compared {
		if l.Compared[i].Arm == name {
			return &l.Compared[i]
		}
	}
	return nil
}

func armReport(name string, passes []*Pass, confidence float64) ArmReport {
	r := ArmReport{Arm: name, Runs: len(passes), ByRun: []float64{}, ByRunTimes: []time.Time{}}
	var v values
	for _, p := range passes {
		for i := range p.Requests {
			q := &p.Requests[i]
			r.Requests++
			if !q.good() {
				r.Failed++
				continue
			}
			if q.Usage {
				r.Tokens += int64(q.Tokens)
			}
			v.add(q)
		}
		r.ByRun = append(r.ByRun, throughput(p))
		r.ByRunTimes = append(r.ByRunTimes, p.Began)
	}
	r.Throughput = stats.GeoMean(r.ByRun, confidence)
	r.CV = stats.Summarise(r.ByRun).CV
	r.Request, r.Decode = stats.Summarise(v.request), stats.Summarise(v.decode)
	r.TTFT, r.TTFOT = stats.Summarise(v.ttft), stats.Summarise(v.ttfot)
	r.ITL, r.ICL = stats.Summarise(v.itl), stats.Summarise(v.icl)
	r.E2E, r.Delay = stats.Summarise(v.e2e), stats.Summarise(v.delay)
	if len(r.ByRun) > 1 {
		r.Spread = spreadClass(r.CV)
	}
	r.Warm, r.Burst = warm(r.ByRun), burst(&r)
	return r
}

// burst says of answers that come at once, long after they were asked for, that their
// first token and the rate of the rest are not the server's own.
func burst(r *ArmReport) string {
	share := over(r.TTFT.Median, r.E2E.Median)
	if share < 0.8 || r.Decode.N == 0 || r.Decode.Median < 5*r.Request.Median {
		return ""
	}
	return fmt.Sprintf("answers come in bursts: the first token after %s of the time; something between server and client holds the stream back, so TTFT, ITL and the decode rate are not the server's", percent(share))
}

// values are the figures of good requests, one of each kind per request but for the gaps.
type values struct{ request, decode, ttft, ttfot, itl, icl, e2e, delay []float64 }

func (v *values) add(q *Request) {
	latency := q.Latency().Seconds()
	v.e2e = append(v.e2e, latency)
	v.delay = append(v.delay, max(q.late(), 0).Seconds())
	if q.FirstToken > 0 {
		v.ttft = append(v.ttft, (q.FirstToken + q.queued()).Seconds())
	}
	if q.FirstAnswer > 0 {
		v.ttfot = append(v.ttfot, (q.FirstAnswer + q.queued()).Seconds())
	}
	for _, us := range q.GapsUS {
		v.icl = append(v.icl, float64(us)/1e6)
	}
	if !q.Usage || q.Tokens <= 0 {
		return
	}
	if latency > 0 {
		v.request = append(v.request, float64(q.Tokens)/latency)
	}
	first := 1
	if len(q.ChunkTokens) > 0 {
		first = q.ChunkTokens[0]
	}
	if n, d := q.Tokens-first, (q.LastToken - q.FirstToken).Seconds(); n > 0 && d > 0 {
		v.decode = append(v.decode, float64(n)/d)
		v.itl = append(v.itl, d/float64(n))
	}
}

// good reports whether the answer is whole; only such are measured.
func (r *Request) good() bool { return r.Fault == "" && r.Error == "" }

// late is how much later than due hsx itself sent the request.
func (r *Request) late() time.Duration { return r.Sent - r.Due - r.Waited }

// queued is what an open loop adds to offsets, so that they too count from when the
// request was due.
func (r *Request) queued() time.Duration { return r.Latency() - r.Done }

// tokensOf are the completion tokens of a pass's good requests, and the sum of their latencies.
func tokensOf(p *Pass) (tokens, latency float64) {
	for i := range p.Requests {
		if q := &p.Requests[i]; q.good() && q.Usage {
			tokens += float64(q.Tokens)
			latency += q.Latency().Seconds()
		}
	}
	return tokens, latency
}

// throughput leaves out what attempts and requests that failed took: in a closed loop,
// the share of the wall time for which their slots were lost.
func throughput(p *Pass) float64 {
	tokens, _ := tokensOf(p)
	wall := p.Wall.Seconds()
	if p.Level.Concurrency > 0 {
		var lost float64
		for i := range p.Requests {
			q := &p.Requests[i]
			lost += q.Waited.Seconds()
			if !q.good() {
				lost += q.Done.Seconds()
			}
		}
		wall -= lost / float64(p.Level.Concurrency)
	}
	return over(tokens, wall)
}

// speed is the figure of a run whose ratio is the speedup: throughput, but in an open
// loop, where the arrivals set the throughput, tokens over the sum of latencies.
func speed(p *Pass) float64 {
	if p.Level.Rate == 0 {
		return throughput(p)
	}
	return over(tokensOf(p))
}

// over divides, and gives 0 where there is nothing to divide by.
func over(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// spreadClass puts a word to the coefficient of variation of runs.
func spreadClass(cv float64) string {
	switch {
	case cv < 0.05:
		return "excellent"
	case cv < 0.1:
		return "good"
	case cv < 0.2:
		return "fair"
	}
	return "bad"
}

// warm says what the first run and the trend tell of the warm-up, "" when nothing.
func warm(rates []float64) string {
	var says []string
	switch slower, z, outlier := stats.FirstRun(rates); {
	case outlier && slower > 0:
		says = append(says, fmt.Sprintf("run 1 was %s slower than the median of the others: more warm-up is needed", percent(slower)))
	case outlier:
		says = append(says, fmt.Sprintf("run 1 was %s faster than the median of the others (robust z %.1f)", percent(-slower), z))
	}
	if slope, p := stats.Trend(rates); p < 0.05 && math.Abs(slope) >= 0.005 {
		verb := "rises"
		if slope < 0 {
			verb = "falls"
		}
		says = append(says, fmt.Sprintf("throughput %s by %s from run to run (p %.2g)", verb, percent(math.Abs(slope)), p))
	}
	return strings.Join(says, "; ")
}

// percent writes a share: "31 %", "4.5 %".
func percent(share float64) string {
	if share < 0.0995 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", 100*share), ".0") + " %"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
