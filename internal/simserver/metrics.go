package simserver

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// metrics is Prometheus text in the making. With created it has the gauges that
// Python's client adds to each counter.
type metrics struct {
	b       strings.Builder
	faults  Faults
	created time.Time // zero: no such gauges
	plain   bool      // whole numbers without a decimal point
}

// sample is one line of a metric.
type sample struct {
	labels string // "" or as between the braces
	value  float64
}

func (s *Server) metrics() *metrics {
	return &metrics{faults: s.opt.Faults}
}

// family adds a metric with its samples.
func (m *metrics) family(name, kind, help string, samples ...sample) {
	if kind == "counter" && m.faults.MetricsNaN {
		samples = append(samples, sample{`engine="none"`, math.NaN()})
	}
	m.lines(name, kind, help, samples)
	if base, ok := strings.CutSuffix(name, "_total"); ok && !m.created.IsZero() {
		at := make([]sample, len(samples))
		for i, s := range samples {
			at[i] = sample{s.labels, float64(m.created.UnixNano()) / 1e9}
		}
		m.lines(base+"_created", "gauge", help, at)
	}
}

// counter adds a metric of one sample.
func (m *metrics) counter(name, help, labels string, n int64) {
	m.family(name, "counter", help, sample{labels, float64(n)})
}

// positions adds a counter by draft position for each set of labels.
func (m *metrics) positions(name, help string, labels []string, counts [][]int64) {
	var out []sample
	for i, l := range labels {
		if l != "" {
			l += ","
		}
		for k, n := range counts[i] {
			out = append(out, sample{fmt.Sprintf(`%sposition="%d"`, l, k), float64(n)})
		}
	}
	m.family(name, "counter", help, out...)
}

func (m *metrics) lines(name, kind, help string, samples []sample) {
	fmt.Fprintf(&m.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	for _, s := range samples {
		m.b.WriteString(name)
		if s.labels != "" {
			m.b.WriteString("{" + s.labels + "}")
		}
		m.b.WriteString(" " + m.number(s.value) + "\n")
	}
}

// number is v as Python's client writes it, or plain.
func (m *metrics) number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "+Inf"
	case v != math.Trunc(v) || math.Abs(v) >= 1e6:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case m.plain:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 1, 64)
}

// malformed adds a broken line of the metric of that name, where the fault is on.
func (m *metrics) malformed(name string) {
	if m.faults.Malformed {
		m.b.WriteString(name + `{engine="0" 12 - oops` + "\n")
	}
}

// escape is a label's value as the text format wants it.
func escape(v string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(v)
}

// writeMetrics answers with a text of metrics.
func writeMetrics(w http.ResponseWriter, contentType, text string) {
	w.Header().Set("Content-Type", contentType)
	_, _ = w.Write([]byte(text)) // a client that has left is not told
}

// vllmMetrics is what vLLM shows. Without speculation no series of it exists.
func (s *Server) vllmMetrics() string {
	v := s.shown()
	m := s.metrics()
	m.family("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.",
		sample{"", float64(v.started.UnixMilli()) / 1e3})
	m.created = v.started
	labels := make([]string, len(v.ranks))
	positions := make([][]int64, len(v.ranks))
	for i, c := range v.ranks {
		labels[i] = fmt.Sprintf(`engine="%d",model_name="%s"`, i, escape(s.opt.Model))
		positions[i] = c.positions
	}
	each := func(name, kind, help string, get func(i int, c counters) int64) {
		var out []sample
		for i, c := range v.ranks {
			out = append(out, sample{labels[i], float64(get(i, c))})
		}
		m.family(name, kind, help, out...)
	}
	if s.opt.Steps > 0 {
		each("vllm:spec_decode_num_drafts_total", "counter", "Number of spec decoding drafts.",
			func(_ int, c counters) int64 { return c.steps })
		each("vllm:spec_decode_num_draft_tokens_total", "counter", "Number of draft tokens.",
			func(_ int, c counters) int64 { return c.drafted })
		each("vllm:spec_decode_num_accepted_tokens_total", "counter", "Number of accepted tokens.",
			func(_ int, c counters) int64 { return c.accepted })
		m.positions("vllm:spec_decode_num_accepted_tokens_per_pos_total", "Accepted tokens per draft position.", labels, positions)
	}
	each("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", first(v.running))
	each("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", first(v.waiting))
	if s.opt.Faults.MetricsNaN {
		m.family("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", sample{labels[0], math.Inf(1)})
	}
	each("vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.",
		func(_ int, c counters) int64 { return c.prompt })
	each("vllm:generation_tokens_total", "counter", "Number of generation tokens processed.",
		func(_ int, c counters) int64 { return c.tokens })
	m.malformed("vllm:num_preemptions_total")
	var success []sample
	for i, c := range v.ranks {
		for _, r := range []struct {
			reason string
			n      int64
		}{{"stop", c.requests - c.cut}, {"length", c.cut}, {"abort", 0}, {"error", 0}, {"repetition", 0}} {
			l := strings.Replace(labels[i], ",", `,finished_reason="`+r.reason+`",`, 1)
			success = append(success, sample{l, float64(r.n)})
		}
	}
	m.family("vllm:request_success_total", "counter", "Count of successfully processed requests.", success...)
	return m.b.String()
}

// first gives the first rank n and the others 0.
func first(n int) func(int, counters) int64 {
	return func(i int, _ counters) int64 {
		if i > 0 {
			return 0
		}
		return int64(n)
	}
}
