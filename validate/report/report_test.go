package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"hsx/validate"
	"hsx/validate/report"
)

func share(v float64) *float64 { return &v }

// audit is one of a dataset with the given numbers of states, shards and rules that
// found something. Texts from the data hold text.
func audit(states, shards, rules int, text string) *validate.Audit {
	s := &validate.Stats{
		Total: validate.GroupStats{Samples: 12345, Tokens: 678901, Bytes: 3 << 30, SupervisedShare: share(0.625), Short: 2,
			Lengths: validate.LengthStats{Min: 0, P50: 55, Max: 4100, Bins: []validate.LengthBin{{From: 0, To: 1, Count: 2}, {From: 55, To: 56, Count: 12000}, {From: 4096, To: 4352, Count: 343}}}},
		Groups:     []validate.GroupStats{{Name: text, Samples: 12345, Tokens: 678901}, {Name: ".", SupervisedShare: share(1)}},
		Duplicates: 7,
		Short:      []validate.ShortSample{{ID: text, Shard: 1, Row: 2, Tokens: 3}},
		Vocabulary: validate.VocabStats{Size: 163840, Distinct: 1000, Share: share(0.006), Supervised: 900,
			Top:   []validate.TokenCount{{ID: 163585, Count: 4444, Supervised: 333}},
			Curve: []validate.RankShare{{IDs: 1, All: 0.2, Supervised: 0.1}, {IDs: 1000, All: 1, Supervised: 1}},
			Draft: &validate.DraftStats{Size: 32000, Unseen: 31000, Share: share(0.97), SupervisedShare: share(0.99), Missing: []validate.TokenCount{{ID: 777777, Count: 5}}}},
	}
	for i := range states {
		st := validate.StateStats{Column: fmt.Sprintf("layer_%d", i), Rows: 678901, RMS: float64(i) + 0.5, MaxAbs: 1e5,
			Channels: validate.ChannelStats{Rows: 100, MedianRMS: 1, Outliers: []validate.Channel{{Channel: 4096, RMS: 30, Ratio: 30, Energy: 0.4}}}}
		for b := range 12 {
			st.Positions = append(st.Positions, validate.PositionRMS{From: 1 << b >> 1, To: 1 << b, Rows: 10, RMS: float64(i) + 1/float64(b+1)})
		}
		s.States = append(s.States, st)
	}
	for j := range shards {
		sh := validate.ShardStats{Shard: j, Rows: 10, Tokens: 100}
		for i := range states {
			sh.RMS = append(sh.RMS, float64(i)+0.5+0.01*math.Sin(float64(j)))
		}
		s.Shards = append(s.Shards, sh)
	}
	r := &validate.Report{Verdict: validate.Unfit, Seconds: 1.5, NotRead: text, CouldNotRun: []string{text}}
	for i := range rules {
		g := validate.Group{Rule: fmt.Sprintf("rule-%d-%s", i, text), Severity: validate.Error, Count: 1234}
		for range 30 {
			g.Findings = append(g.Findings, validate.Finding{Rule: g.Rule, Severity: validate.Error, Sample: text, Column: text, Token: 17, Message: text, Do: text})
		}
		r.Groups = append(r.Groups, g)
	}
	return &validate.Audit{Version: text, Dataset: text, Report: r, Stats: s}
}

func write(t *testing.T, a *validate.Audit) string {
	t.Helper()
	var b bytes.Buffer
	if err := report.Write(&b, a); err != nil {
		t.Fatalf("Write: got error %v", err)
	}
	return b.String()
}

func TestWrite(t *testing.T) {
	t.Parallel()
	page := write(t, audit(4, 30, 2, "plain"))
	order := []string{
		"Audit of plain", "Unfit for training: errors from 2 rules", "12,345", "678,901", "3.00 GiB", "62.5 %",
		"rule-0-plain", "× 1,234", "10 of 1,234 findings", "rule-1-plain",
		"Sources and lengths", "(no directory)", "Sequence lengths", "no mask",
		"163,840", "covers 99.0 % of the supervised tokens and 97.0 % of all", "163585", "777777",
		"With NaN or Inf", "RMS of the states over position", "RMS of the states over shards", "Outlier channels", "4096", "30.0 ×",
	}
	at := 0
	for _, want := range order {
		i := strings.Index(page[at:], want)
		if i < 0 {
			t.Fatalf("page has no %q after what must come before it", want)
		}
		at += i
	}
}

// A reader offline, with a strict browser or with a screen reader loses nothing.
func TestWriteIsSelfContained(t *testing.T) {
	t.Parallel()
	page := write(t, audit(12, 5000, 40, "x"))
	if len(page) > 2<<20 {
		t.Errorf("page has %d bytes, want at most 2 MiB", len(page))
	}
	for _, bad := range []string{"<script", "<link", "<img", "<iframe", "@import", "url(", " src=", " href=", "://", "#FEDC", "#000000", "Liberation Sans;", "ZgotmplZ"} {
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
	plots := 0
	for rest := page; ; plots++ {
		i := strings.Index(rest, `<svg viewBox="0 0 480`)
		if i < 0 {
			break
		}
		end := strings.Index(rest[i:], "</svg>") + len("</svg>")
		drawing := rest[i : i+end]
		rest = rest[i+end:]
		if !strings.Contains(drawing, "<title id=") || !strings.Contains(drawing, "<desc id=") || !strings.Contains(drawing, `role="img"`) {
			t.Errorf("plot lacks a title, a description or its role: %.200s", drawing)
		}
		checkXML(t, drawing)
	}
	if plots != 4 {
		t.Errorf("page has %d plots, want 4", plots)
	}
}

func checkXML(t *testing.T, text string) {
	t.Helper()
	for dec := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("plot is not XML: %v", err)
			return
		}
	}
}

// Whatever stands in the data is text on the page.
func TestWriteEscapes(t *testing.T) {
	t.Parallel()
	clean := tags(write(t, audit(4, 3, 2, "x")))
	for _, text := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `</style></title></svg><b>`, `'; } * { display: none } /*`,
		"{{.Stats}}", "<!--", "]]>", "\xff\x00\xfe", strings.Repeat("<", 100_000),
	} {
		a := audit(4, 3, 2, text)
		for i := range a.Stats.States {
			a.Stats.States[i].Column = text
		}
		page := write(t, a)
		if got := tags(page); got != clean {
			t.Errorf("with text %.40q the page has %d tags, want %d", text, got, clean)
		}
		if len(page) > 2<<20 {
			t.Errorf("with text %.40q the page has %d bytes, want at most 2 MiB", text, len(page))
		}
	}
}

func tags(page string) int { return strings.Count(page, "<") }

func TestWriteVerdicts(t *testing.T) {
	t.Parallel()
	warning := validate.Group{Rule: "w", Severity: validate.Warning, Count: 2, Findings: []validate.Finding{{Token: -1, Do: "first"}, {Token: 0, Do: "second"}}}
	tests := map[string]struct {
		report *validate.Report
		want   []string
	}{
		"sound":    {&validate.Report{Verdict: validate.Sound}, []string{`class="verdict "`, "Sound: no rule", "None."}},
		"doubtful": {&validate.Report{Verdict: validate.Doubtful, Groups: []validate.Group{warning}}, []string{`class="verdict warning"`, "warnings from 1 rule, no errors", "first", "second", "All findings of w"}},
		"unknown":  {&validate.Report{Verdict: "else"}, []string{"else"}},
		"none":     {nil, []string{"Findings"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := write(t, &validate.Audit{Report: tc.report, Stats: &validate.Stats{}})
			for _, want := range tc.want {
				if !strings.Contains(page, want) {
					t.Errorf("page lacks %q", want)
				}
			}
		})
	}
}

// Figures that no sound dataset gives are drawn, or left out.
func TestWriteOddFigures(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]float64{"zero": 0, "tiny": 1e-300, "huge": 1e300, "nan": math.NaN(), "inf": math.Inf(1), "negative": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := audit(2, 3, 0, "x")
			for i := range a.Stats.States {
				st := &a.Stats.States[i]
				st.RMS, st.MaxAbs, st.Channels.MedianRMS = v, v, v
				st.Positions[2].RMS = v
				a.Stats.Shards[1].RMS[i] = v
			}
			a.Stats.Vocabulary.Curve[1].All = v
			write(t, a)
		})
	}
	t.Run("one of all", func(t *testing.T) {
		t.Parallel()
		a := audit(1, 2, 0, "x")
		a.Stats.States[0].Positions = a.Stats.States[0].Positions[:1]
		a.Stats.Total.Lengths = validate.LengthStats{Min: 1 << 40, P50: 1 << 40, Max: 1 << 40, Bins: []validate.LengthBin{{From: 1 << 40, To: 1<<40 + 1, Count: 1}}}
		a.Stats.Shards[1].Shard = math.MaxInt
		write(t, a)
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestWriteError(t *testing.T) {
	t.Parallel()
	if err := report.Write(brokenWriter{}, audit(1, 1, 1, "x")); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("Write to a broken writer: got %v, want %v", err, io.ErrShortWrite)
	}
}

func BenchmarkWrite(b *testing.B) {
	a := audit(4, 4600, 20, "text")
	b.ReportAllocs()
	for b.Loop() {
		if err := report.Write(io.Discard, a); err != nil {
			b.Fatal(err)
		}
	}
}
