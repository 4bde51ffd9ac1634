package report_test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"hsx/bench"
	"hsx/bench/report"
)

func TestHTML(t *testing.T) {
	t.Parallel()
	page := write(t, "html", fieldCase("plain"))
	order := []string{
		"Speculation on plainKimi-K2.5", `class="verdict error"`, "Speculation does not pay: 0.63×", "Gate: not met.", "To be read with it", "Not everything was measured:",
		"speculation: simulated server: its speed is made up",
		"Accept length", "1.60 (1.55–1.66)", "20.0 %", "770,000", "sglang meta_info", "also 1.70 by sglang:spec_accept_length (trust: low)",
		"Promise: broken", "Promised at 3 steps, estimated", "2.95", "-1.35", "wrong layers, or another chat template",
		"Accepted if the one before was", "Accepted with all before it", "47.0 %", "80.0 %", "21.3 %", "10.0 %", "64.0 %", "from 8192", "plain coding",
		"Speedup and break-even", "does not pay", "0.63× (0.61–0.65)", "79 of 80 (p &lt; 0.001)", "98.8 %", "2.54", "1.16×", "Student t over 5 pairs; runs alternated; about 12 runs",
		"Sweep over steps", "Throughput by draft steps", "yes, best", "predicted", "21.1 ms to verify, and 900 µs for each draft position",
		"Diagnosis", "resolver-mismatch", "What to do:",
		"Figures by load", "concurrency 1", "Throughput by run", "1,234,567", "56.8 (55.1–58.5)", "2.40 %", "excellent", "Time to first token (TTFT)", "210 ms", "rate 2.5/s",
		"Validity", "12.4 % at 2,048 tokens", "1.30 %", "acceptance is synthetic", "use --max-tokens 8192", "1 request failed: cut",
		"What was measured", "80 prompts, plain, digest 0123abcd", "To measure it again:", "hsx bench --url", "EAGLE3, steps 1, 16 asked for by speculative_num_steps", "Its 2 arguments",
		"Arguments that differ", "cuda_graph_max_bs", "Events", "What the words mean", "accept_length",
	}
	at := 0
	for _, want := range order {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("page has no %q after what must come before it", want)
		}
		at += i
	}
	// 2 of positions, the sweep, and the runs and 5 latencies of 2 loads.
	if got := strings.Count(page, "<figure>"); got != 15 {
		t.Errorf("page has %d plots, want 15", got)
	}
}

// A reader offline, with a strict browser or with a screen reader loses nothing.
func TestHTMLIsSelfContained(t *testing.T) {
	t.Parallel()
	page := write(t, "html", fieldCase("plain"))
	for _, bad := range []string{"<script", "<link", "<img", "<iframe", "@import", "url(", " src=", " href=", "#FEDC", "#000000", "ZgotmplZ"} {
		if strings.Contains(page, bad) {
			t.Errorf("page contains %q", bad)
		}
	}
	for _, want := range []string{"prefers-color-scheme: dark", "@media print", "default-src 'none'", `lang="en"`} {
		if !strings.Contains(page, want) {
			t.Errorf("page lacks %q", want)
		}
	}
	if tables, captions := strings.Count(page, "<table>"), strings.Count(page, "<caption>"); tables == 0 || tables != captions {
		t.Errorf("page has %d tables and %d captions, want as many", tables, captions)
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="[^"]*"`).FindAllString(page, -1) {
		if ids[id] {
			t.Errorf("page has%s twice", id)
		}
		ids[id] = true
	}
}

// Every report, however little or odd, is a page without holes.
func TestHTMLOfPartialReports(t *testing.T) {
	t.Parallel()
	hole := regexp.MustCompile(`(<h[123][^>]*>\s*</h)|(</h2>\s*(</section>|<h2|<section))|<ul[^>]*>\s*</ul>|<dl[^>]*>\s*</dl>|<tbody>\s*</tbody>`)
	for name, r := range reports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := write(t, "html", r)
			checkNumbers(t, page)
			checkXML(t, page)
			if name == "empty parts" {
				return // Holes are what it is made of.
			}
			if at := hole.FindStringIndex(page); at != nil {
				t.Errorf("page has a hole: %q", page[at[0]:at[1]])
			}
		})
	}
}

func checkNumbers(t *testing.T, text string) {
	t.Helper()
	for _, bad := range []string{"NaN", "Inf", "nil>", "%!"} {
		if i := strings.Index(text, bad); i >= 0 {
			t.Errorf("found %q in %q", bad, text[max(0, i-60):min(len(text), i+20)])
		}
	}
}

func checkXML(t *testing.T, page string) {
	t.Helper()
	page = regexp.MustCompile(`<meta [^>]*>`).ReplaceAllString(page, "")
	for dec := xml.NewDecoder(strings.NewReader(page)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("page is not well formed: %v", err)
			return
		}
	}
}

// Whatever servers and users wrote is text on the page.
func TestHTMLEscapes(t *testing.T) {
	t.Parallel()
	clean := strings.Count(write(t, "html", hostileReport("x")), "<")
	for _, text := range []string{strings.Join(hostile(), " "), strings.Repeat("<", 100_000)} {
		page := write(t, "html", hostileReport(text))
		if got := strings.Count(page, "<"); got != clean {
			t.Errorf("with text %.40q the page has %d tags, want %d", text, got, clean)
		}
		checkXML(t, page)
	}
}

// hostileReport has a text in the names of its arms too.
func hostileReport(text string) *bench.Report {
	r := fieldCase(text)
	for i := range r.Levels {
		r.Levels[i].Arms[0].Arm = text
	}
	r.Accept[0].Arm, r.Accept[0].Source, r.Validity[0].Arm, r.Arms[0].Arm, r.Plan.Arms[0].Name = text, text, text, text, text
	r.Levels[0].Compared[0].Arm, r.Validity[0].Faults = text, map[string]int{text: 1}
	r.Promise.Source, r.Plan.Command, r.Verdict.Sentence = text, "hsx bench "+text[:min(len(text), 200)], text
	r.Arms[0].Info.Version, r.Arms[0].Info.URL = text, text
	return r
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		outcome        bench.Outcome
		html, markdown string
	}{
		"pays":         {bench.Pays, `<p class="verdict ">The sentence</p>`, "**The sentence**"},
		"does not pay": {bench.DoesNotPay, `<p class="verdict error">The sentence</p>`, "**The sentence**"},
		"inconclusive": {bench.Inconclusive, `<p class="verdict warning">The sentence</p>`, "**The sentence**"},
		"measured":     {bench.Measured, `<p class="verdict info">The sentence</p>`, "**The sentence**"},
		"void":         {bench.Void, `<p class="verdict void"><span class="badge warning">void</span> The sentence</p>`, "**Void. The sentence**\n\n- the reason\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := fieldCase("plain")
			r.Verdict = bench.Verdict{Outcome: tc.outcome, Sentence: "The sentence"}
			if tc.outcome == bench.Void {
				r.Verdict.Void = []string{"the reason"}
			}
			for form, want := range map[string]string{"html": tc.html, "markdown": tc.markdown, "csv": fmt.Sprintf("\n,,outcome,%s,1,\n", tc.outcome)} {
				if got := write(t, form, r); !strings.Contains(got, want) {
					t.Errorf("%s of a verdict lacks %q", form, want)
				}
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriteError(t *testing.T) {
	t.Parallel()
	for form, write := range forms() {
		if err := write(brokenWriter{}, fieldCase("plain")); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("%s to a broken writer: got error %v, want %v", form, err, io.ErrShortWrite)
		}
	}
}

func BenchmarkHTML(b *testing.B) {
	r := fieldCase("plain")
	b.ReportAllocs()
	for b.Loop() {
		if err := report.HTML(io.Discard, r); err != nil {
			b.Fatal(err)
		}
	}
}
