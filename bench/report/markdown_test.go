package report_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestMarkdown(t *testing.T) {
	t.Parallel()
	text := write(t, "markdown", fieldCase("plain"))
	order := []string{
		"## Speculation on plainKimi-K2.5\n\n**Speculation does not pay: 0.63× (95 % CI 0.61–0.65) at concurrency 1**\n",
		"Gate: not met. speedup 0.63, wanted at least 1.2\n", "- speculation: simulated server: its speed is made up\n",
		"| concurrency 1 | speculation | does not pay | 56.8 (55.1–58.5) | 0.63× (0.61–0.65) | 5 | 210 ms, ",
		"| rate 2.5/s | baseline | – | 290 (281–299) | – | 5 | ",
		"### Accept length\n", `| speculation | all | sglang meta\_info | exact | 1.60 (1.55–1.66) |`, "| speculation | 2 | 21.3 % | 10.0 % | 80.0 % | 64.0 % |\n",
		"### Promise: broken\n", "- promised 2.95 at 3 steps (estimated), measured 1.60 (1.55–1.66)\n", "- they part at position 1\n",
		"### Break-even\n", "| concurrency 1 | speculation | 1.60 | 2.54 | 1.16× | 0.64× (0.63–0.66) | 79 of 80 | 98.8 % |\n",
		"### Sweep over steps\n", "| 3 | predicted | – | 88.5 | – | 1.66 |\n",
		"### Diagnosis\n", "- **resolver-mismatch**: plain\n  - what to do: plain\n",
		"### Validity\n", "| speculation | 535 | 12.4 % at 2,048 tokens | 2 | 3 | 1 | 1.30 % | 3.74 % | 1.02 | yes |\n",
		"### What was measured\n", "- Prompts: 80 prompts, plain, digest 0123abcd\n", "- Speculation: EAGLE3, steps 1, 16 asked for by ",
		"### To measure it again\n\n```\nhsx bench --url http://127.0.0.1:30000 plain\n```\n",
	}
	at := 0
	for _, want := range order {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("text has no %q after what must come before it:\n%s", want, text)
		}
		at += i
	}
}

func TestMarkdownOfPartialReports(t *testing.T) {
	t.Parallel()
	hole := regexp.MustCompile(`(?m)^#+ .*\n+(#|\z)|\n\n\n`)
	for name, r := range reports() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := write(t, "markdown", r)
			checkNumbers(t, text)
			columns(t, text)
			if at := hole.FindString(text); at != "" {
				t.Errorf("text has a hole: %q", at)
			}
		})
	}
}

// columns are those of each table line; those of a table must be as many.
func columns(t *testing.T, text string) []int {
	t.Helper()
	unescaped := strings.NewReplacer(`\\`, "", `\|`, "")
	var all []int
	last := 0
	for line := range strings.Lines(text) {
		n := strings.Count(unescaped.Replace(line), "|")
		if n > 0 && last > 0 && n != last {
			t.Errorf("table line has %d bars, the one before %d: %s", n, last, line)
		}
		last = n
		all = append(all, n)
	}
	return all
}

// Whatever servers and users wrote is text: it makes no line, column, element or fence,
// and mentions nobody.
func TestMarkdownEscapes(t *testing.T) {
	t.Parallel()
	clean := columns(t, write(t, "markdown", hostileReport("x")))
	markup := regexp.MustCompile("(^|[^\\\\])([`*_\\[<~])")
	for _, text := range hostile() {
		r := hostileReport(text)
		r.Plan.Command = "hsx bench"
		got := write(t, "markdown", r)
		if n := columns(t, got); !slices.Equal(n, clean) {
			t.Errorf("with text %q lines or columns differ from those without it", text)
		}
		if strings.Contains(got, "@somebody") || strings.Contains(got, "#12") {
			t.Errorf("with text %q somebody is mentioned", text)
		}
		for line := range strings.Lines(got) {
			if !strings.HasPrefix(line, "- or from") && !strings.HasPrefix(line, "- resolver") {
				line = strings.NewReplacer(`\\`, "", "**", "", "<!-- -->", "", "```", "").Replace(line)
				if found := markup.FindString(line); found != "" {
					t.Errorf("with text %q there is markup %q in %q", text, found, line)
				}
			}
		}
	}
}

func TestMarkdownFence(t *testing.T) {
	t.Parallel()
	r := fieldCase("plain")
	r.Plan.Command = "hsx bench\x1b[2J '```\n# out\n````'"
	want := "\n`````\nhsx bench[2J '```\n# out\n````'\n`````\n"
	if got := write(t, "markdown", r); !strings.HasSuffix(got, want) {
		t.Errorf("command with fences: got %q at the end, want %q", got[max(0, len(got)-80):], want)
	}
}
