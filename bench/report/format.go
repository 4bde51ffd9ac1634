package report

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"hsx/bench"
	"hsx/bench/server"
	"hsx/bench/stats"
	"hsx/internal/chart"
)

// none stands for a figure that there is not.
const none = "–"

// number has three digits: 0.79, 71.3, 1250.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return none
	case a >= 1e9 || a > 0 && a < 0.00995:
		return fmt.Sprintf("%.2g", v)
	case a >= 99.95:
		return fmt.Sprintf("%.0f", v)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// setting is a number as it was set: 0, 0.95, 42.
func setting(v float64) string {
	if number(v) == none {
		return none
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// total is a count that may have come as a float.
func total(v float64) string {
	if !(math.Abs(v) < 1e15) {
		return number(v)
	}
	return chart.Count(int64(math.Round(v)))
}

// positive is a figure whose 0 means that there is none.
func positive(v float64) string {
	if v == 0 {
		return none
	}
	return number(v)
}

// interval is "1.31 (1.27–1.35)", or the value alone where there is no interval.
func interval(e stats.Estimate) string { return estimate(e, "") }

// times is "1.31× (1.27–1.35)".
func times(e stats.Estimate) string { return estimate(e, "×") }

func estimate(e stats.Estimate, unit string) string {
	switch {
	case e.N == 0:
		return none
	case !e.Bounded:
		return number(e.Value) + unit
	}
	return fmt.Sprintf("%s%s (%s–%s)", number(e.Value), unit, number(e.Low), number(e.High))
}

// percent writes a share; no share is a nil pointer.
func percent(share any) string {
	switch v := share.(type) {
	case *float64:
		if v != nil {
			return percent(*v)
		}
	case float64:
		if s := number(100 * v); s != none {
			return s + " %"
		}
	}
	return none
}

// chance writes a p-value.
func chance(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return number(p)
}

// seconds is a time for people: "1.50 s", "12.3 ms", "340 µs".
func seconds(v float64) string {
	a := math.Abs(v)
	switch {
	case number(v) == none:
		return none
	case a >= 0.9995 || a == 0:
		return number(v) + " s"
	case a >= 0.0009995:
		return number(1e3*v) + " ms"
	}
	return number(1e6*v) + " µs"
}

// when is a time to the second, in UTC.
func when(t time.Time) string {
	if t.IsZero() {
		return none
	}
	return t.UTC().Format(time.DateTime + " MST")
}

// orNone is a text, or a dash where there is none.
func orNone(s any) string {
	if text := fmt.Sprint(s); text != "" {
		return text
	}
	return none
}

// valid is a text that is shown whole, in UTF-8.
func valid(s string) string { return strings.ToValidUTF8(s, "�") }

// orAll names the load of an accept length.
func orAll(level string) string {
	if level == "" {
		return "all"
	}
	return level
}

// plural is "1 run", "2 runs".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func trust(t server.Trust) string {
	switch t {
	case server.Exact:
		return "exact"
	case server.Idle:
		return "exact if nobody else used the server"
	case server.Approx:
		return "approximate"
	case server.Proxy:
		return "a proxy"
	case server.Low:
		return "low"
	}
	return orNone(t)
}

// speculation is what a server says of its own.
func speculation(s server.Speculation) string {
	switch {
	case s.Synthetic != "":
		return "acceptance is faked by " + s.Synthetic
	case !s.Known:
		return "the server does not say"
	case !s.On:
		return "off"
	}
	parts := []string{"on"}
	if s.Method != "" {
		parts[0] = s.Method
	}
	add := func(n int, format string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf(format, n))
		}
	}
	add(s.Steps, "steps %d")
	if s.AskedSteps > 0 && s.AskedSteps != s.Steps {
		parts = append(parts, fmt.Sprintf("%d asked for by %s", s.AskedSteps, orNone(s.AskedBy)))
	}
	add(s.TopK, "top-k %d")
	add(s.DraftTokens, "draft tokens %d")
	if s.Draft != "" {
		parts = append(parts, "draft "+s.Draft)
	}
	return strings.Join(parts, ", ")
}

// engine is "sglang 0.5.4".
func engine(i server.Info) string {
	return orNone(strings.TrimSpace(string(i.Engine) + " " + i.Version))
}

// sampling is how answers were asked for.
func sampling(p server.Params) string {
	parts := []string{"max tokens auto", "temperature " + setting(p.Temperature)}
	if p.MaxTokens > 0 {
		parts[0] = fmt.Sprintf("max tokens %d", p.MaxTokens)
	}
	if p.TopP != 0 {
		parts = append(parts, "top_p "+setting(p.TopP))
	}
	if p.Seed != nil {
		parts = append(parts, fmt.Sprintf("seed %d", *p.Seed))
	}
	if p.IgnoreEOS {
		parts = append(parts, "ignore_eos")
	}
	if p.Thinking != "" {
		parts = append(parts, "thinking "+p.Thinking)
	}
	if len(p.Extra) > 0 {
		if extra, err := json.Marshal(p.Extra); err == nil {
			parts = append(parts, "extra "+string(extra))
		}
	}
	return strings.Join(parts, ", ")
}

// length is the answers of a bucket: "128–512", "from 8192".
func length(b bench.LengthBucket) string {
	if b.To == 0 {
		return fmt.Sprintf("from %d", b.From)
	}
	return fmt.Sprintf("%d–%d", b.From, b.To)
}
