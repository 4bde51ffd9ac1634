package server

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sample is one line of Prometheus text. Its value may be NaN or infinite.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

// parseProm reads the Prometheus text format and OpenMetrics. The usual parsers give up
// at the first malformed line, and servers have shipped such lines (llama.cpp's issue
// 17384): here a bad line costs that line, and problem says how many there were. Colons
// in names become underscores, as they do in series that another collector passed on.
func parseProm(body []byte) (samples []sample, problem string) {
	bad, first := 0, ""
	for line := range bytes.Lines(body) {
		text := strings.TrimSpace(string(line))
		if text == "" || text[0] == '#' {
			continue
		}
		s, ok := parseSample(text)
		if !ok {
			if bad++; bad == 1 {
				first = printable(text, 80)
			}
			continue
		}
		samples = append(samples, s)
	}
	if bad > 0 {
		problem = fmt.Sprintf("%d malformed metrics lines left out, the first is %q", bad, first)
	}
	return samples, problem
}

// parseSample reads `name{label="value"} 1.5 1700000000 # {trace="x"} 1`: timestamp and
// exemplar are optional and not kept.
func parseSample(text string) (sample, bool) {
	end := strings.IndexAny(text, "{ \t")
	if end <= 0 || !metricName(text[:end]) {
		return sample{}, false
	}
	s := sample{name: strings.ReplaceAll(text[:end], ":", "_")}
	rest := strings.TrimLeft(text[end:], " \t")
	if strings.HasPrefix(rest, "{") {
		var ok bool
		if s.labels, rest, ok = parseLabels(rest[1:]); !ok {
			return sample{}, false
		}
	}
	if i := strings.IndexByte(rest, '#'); i >= 0 {
		rest = rest[:i]
	}
	fields := strings.Fields(rest)
	if len(fields) < 1 || len(fields) > 2 {
		return sample{}, false
	}
	for i, field := range fields { // ParseFloat takes what the format does, and forms that no format has
		v, err := strconv.ParseFloat(field, 64)
		if err != nil || strings.ContainsAny(field, "_xXpP") {
			return sample{}, false
		}
		if i == 0 {
			s.value = v
		}
	}
	return s, true
}

// parseLabels reads from behind the opening brace to behind the closing one.
func parseLabels(text string) (map[string]string, string, bool) {
	labels := map[string]string{}
	for {
		text = strings.TrimLeft(text, " \t,")
		if strings.HasPrefix(text, "}") {
			return labels, text[1:], true
		}
		name, rest, found := strings.Cut(text, "=")
		name, rest = strings.TrimSpace(name), strings.TrimLeft(rest, " \t")
		if !found || !metricName(name) || !strings.HasPrefix(rest, `"`) {
			return nil, "", false
		}
		var value strings.Builder
		i := 1
		for ; i < len(rest) && rest[i] != '"'; i++ {
			if rest[i] == '\\' && i+1 < len(rest) {
				i++
				if rest[i] == 'n' {
					value.WriteByte('\n')
					continue
				}
			}
			value.WriteByte(rest[i])
		}
		if i == len(rest) {
			return nil, "", false
		}
		labels[name] = value.String()
		text = rest[i+1:]
	}
}

func metricName(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c != '_' && c != ':' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return name != ""
}

// printable is at most limit runes of a text that a server sent, without what could
// disturb a terminal.
func printable(text string, limit int) string {
	var b strings.Builder
	for _, r := range text {
		if limit--; limit < 0 {
			b.WriteString("…")
			break
		}
		if !strconv.IsPrint(r) {
			r = ' '
		}
		b.WriteRune(r)
	}
	return b.String()
}

// finite tells numbers from those that are none, and from those that are absurd, of which
// a sum would be none.
func finite(v float64) bool { return math.Abs(v) <= 1e300 }
