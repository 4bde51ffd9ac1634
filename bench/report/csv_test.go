package report_test

import (
	"encoding/csv"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
)

// readBack are the rows by all of their cells but the value, with their values.
func readBack(t *testing.T, text string) map[string]float64 {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatalf("read back: got error %v", err)
	}
	if diff := cmp.Diff([]string{"level", "arm", "metric", "statistic", "value", "unit"}, rows[0]); diff != "" {
		t.Errorf("header differs (-want +got):\n%s", diff)
	}
	values := map[string]float64{}
	for _, row := range rows[1:] {
		v, err := strconv.ParseFloat(row[4], 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			t.Errorf("row %q: value is no plain number", row)
		}
		key := strings.Join(append(row[:4:4], row[5]), "/")
		if _, twice := values[key]; twice {
			t.Errorf("row %q is there twice", row)
		}
		values[key] = v
	}
	return values
}

func TestCSV(t *testing.T) {
	t.Parallel()
	got := readBack(t, write(t, "csv", fieldCase("plain")))
	for key, want := range map[string]float64{
		"//outcome/does not pay/":                                          1,
		"concurrency 1/speculation/tokens_per_second/value/tok/s":          56.8,
		"concurrency 1/speculation/tokens_per_second/low/tok/s":            55.096,
		"concurrency 1/baseline/tokens_per_second/run 3/tok/s":             90,
		"concurrency 1/baseline/completion_tokens/total/tokens":            1_234_567,
		"concurrency 1/speculation/ttft_seconds/median/s":                  0.21,
		"concurrency 1/speculation/outcome/does not pay/":                  1,
		"concurrency 1/speculation/speedup/value/ratio":                    0.6311,
		"concurrency 1/speculation/break_even_accept_length/value/tokens":  2.5352,
		"concurrency 1/speculation/wilcoxon_p/value/p":                     1e-9,
		"concurrency 1/steps=3/predicted_tokens_per_second/value/tok/s":    88.5,
		"rate 2.5/s/baseline/runs/total/runs":                              5,
		"/speculation/accept_length/high/tokens":                           1.66,
		"/speculation/conditional/position 2/share":                        0.2128,
		"/speculation/promised_conditional/position 2/share":               0.8,
		"/speculation/promised_joint/position 2/share":                     0.64,
		"/speculation/promised_accept_length/value/tokens":                 2.95,
		"concurrency 1/speculation/accept_length/value/tokens":             1.6,
		"/speculation/truncated/value/share":                               0.124,
		"/speculation/failed/stalled/requests":                             1,
		"/baseline/max_tokens_to_use/value/tokens":                         8192,
		"concurrency 1/speculation/due_to_sent_seconds/n/":                 533,
		"concurrency 1/speculation/speedup_by_prompt/n/":                   80,
		"concurrency 1/speculation/equal_text/value/share":                 0.9875,
		"concurrency 1/speculation/icl_seconds/n/":                         9000,
		"concurrency 1/speculation/prompts_slower/total/prompts":           79,
		"concurrency 1/speculation/tokens_per_second/cv/share":             0.024,
		"concurrency 1/speculation/request_tokens_per_second/median/tok/s": 56.8,
		"concurrency 1/steps=3/predicted_accept_length/value/tokens":       1.66,
		"concurrency 1/speculation/runs_to_settle/value/runs":              12,
		"concurrency 1/speculation/drafted_per_step/value/tokens":          3,
		"concurrency 1/speculation/speedup_at_promise/value/ratio":         1.1636,
		"concurrency 1/speculation/accept_length_macro/value/tokens":       1.62,
		"concurrency 1/speculation/acceptance_rate/value/share":            0.2,
		"/speculation/foreign_tokens/value/share":                          0.013,
	} {
		if v, ok := got[key]; !ok || math.Abs(v-want) > 1e-12*want {
			t.Errorf("row %s: got %v (there: %v), want %v", key, v, ok, want)
		}
	}
}

func TestCSVOfPartialReports(t *testing.T) {
	t.Parallel()
	for name, r := range reports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readBack(t, write(t, "csv", r))
		})
	}
}

// A name that somebody chose is no formula, and makes no row or column.
func TestCSVEscapes(t *testing.T) {
	t.Parallel()
	for _, text := range hostile() {
		r := &bench.Report{Validity: []bench.ValidityReport{{Arm: text}}}
		for key := range readBack(t, write(t, "csv", r)) {
			if arm := strings.Split(key, "/")[1]; strings.ContainsAny(arm[:1], "=+-@") {
				t.Errorf("arm %q begins as a formula", arm)
			}
		}
	}
}
