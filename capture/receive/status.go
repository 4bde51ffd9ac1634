package receive

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Status is the JSON document of GET /v1/status.
type Status struct {
	Rows              int64   `json:"rows"`                // durable, of the whole dataset
	Samples           int64   `json:"samples"`             // acknowledged with 201 by this receiver
	Bytes             int64   `json:"bytes"`               // of the states of these samples
	Known             int64   `json:"known"`               // acknowledged with 200: they were there
	Rejected          int64   `json:"rejected"`            // refused with 409, 413 or 422
	Receiving         int64   `json:"receiving"`           // requests whose sample is not put yet
	Pending           int64   `json:"pending"`             // samples that wait for their commit
	SpoolBytes        int64   `json:"spool_bytes"`         // reserved for bodies
	Commits           int64   `json:"commits"`             // by this receiver
	WindowSeconds     float64 `json:"window_seconds"`      // the longest wait for a commit to begin
	LastCommitSeconds float64 `json:"last_commit_seconds"` // what the last commit took
	MaxCommitSeconds  float64 `json:"max_commit_seconds"`  // what the longest commit took
	Flight            string  `json:"flight,omitempty"`    // the address of the Arrow Flight way in
	Failed            bool    `json:"failed"`              // the dataset cannot be written
}

// Status is how the receiver is doing.
func (r *Receiver) Status() Status {
	s := Status{
		Rows: r.rows.Load(), Samples: r.samples.Load(), Bytes: r.bytes.Load(), Known: r.known.Load(), Rejected: r.rejected.Load(),
		Receiving: r.receiving.Load(), Pending: r.pending.Load(), SpoolBytes: r.spool.bytes(), Commits: r.commits.Load(),
		WindowSeconds: r.opt.CommitWindow.Seconds(), Flight: r.opt.Flight,
		LastCommitSeconds: time.Duration(r.lastCommit.Load()).Seconds(), MaxCommitSeconds: time.Duration(r.maxCommit.Load()).Seconds(),
	}
	select {
	case <-r.dead:
		s.Failed = true
	default:
	}
	return s
}

// register makes the metrics, of a registry of their own: the receiver's and the process's.
func (r *Receiver) register() {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for name, m := range map[string]struct {
		help  string
		value func() int64
		gauge bool
	}{
		"samples_total":        {"Samples acknowledged with 201.", r.samples.Load, false},
		"bytes_total":          {"Bytes of the states of these samples.", r.bytes.Load, false},
		"known_total":          {"Samples that were there already, answered with 200.", r.known.Load, false},
		"rejected_total":       {"Samples refused with 409, 413 or 422.", r.rejected.Load, false},
		"rows":                 {"Durable rows of the dataset.", r.rows.Load, true},
		"receiving":            {"Requests whose sample is not put yet.", r.receiving.Load, true},
		"pending":              {"Samples that wait for their commit.", r.pending.Load, true},
		"spool_reserved_bytes": {"Bytes reserved for bodies on their way.", r.spool.bytes, true},
	} {
		value := func() float64 { return float64(m.value()) }
		name := "hsx_serve_" + name
		if m.gauge {
			reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: m.help}, value))
		} else {
			reg.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: m.help}, value))
		}
	}
	commits := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "hsx_serve_commit_seconds", Help: "What a commit takes.", Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
	})
	reg.MustRegister(commits)
	r.commitSeconds = commits
	r.metrics = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
}
