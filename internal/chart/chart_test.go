package chart_test

import (
	"encoding/xml"
	"errors"
	"html/template"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/internal/chart"
)

func draw(t *testing.T, c chart.Chart) chart.Figure {
	t.Helper()
	c.ID = "id"
	fig, err := c.Draw()
	if err != nil {
		t.Fatalf("Draw: got error %v", err)
	}
	for dec := xml.NewDecoder(strings.NewReader(string(fig.SVG))); ; {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return fig
		} else if err != nil {
			t.Fatalf("Draw: SVG is not XML: %v", err)
		}
	}
}

func TestDraw(t *testing.T) {
	t.Parallel()
	text := `<b> & "x"`
	fig := draw(t, chart.Chart{
		Title: text, Desc: text, X: chart.Axis{Label: text, Ticks: []chart.Tick{{Value: 1, Label: text}}}, Y: chart.Axis{Max: 1},
		Lines: []chart.Line{{Name: "one", Points: []chart.Point{{X: 0, Y: 1}, {X: 2, Y: 3}}}, {Name: "none"}},
		Bars:  []chart.Bar{{From: 0, To: 1, Height: 2}},
	})
	svg := string(fig.SVG)
	for _, want := range []string{`role="img"`, `aria-labelledby="id-title id-desc"`, "<title id=", "<desc id=", "var(--ink)", "var(--grid)", "var(--c0)"} {
		if !strings.Contains(svg, want) {
			t.Errorf("drawing lacks %q", want)
		}
	}
	for _, bad := range []string{"<b>", "#FEDC", "#000000", "Liberation"} {
		if strings.Contains(svg, bad) {
			t.Errorf("drawing contains %q", bad)
		}
	}
	want := []chart.Key{{Name: "one"}, {Name: "none", Color: 1, Dashes: "6 2"}}
	if diff := cmp.Diff(want, fig.Legend); diff != "" {
		t.Errorf("legend differs (-want +got):\n%s", diff)
	}
}

// No two of 32 lines look alike, in colour or not.
func TestDrawManyLines(t *testing.T) {
	t.Parallel()
	fig := draw(t, chart.Chart{Lines: make([]chart.Line, 32)})
	seen := map[chart.Key]bool{}
	for i, k := range fig.Legend {
		if seen[k] {
			t.Errorf("line %d has colour %d and dashes %q, as one before it", i, k.Color, k.Dashes)
		}
		seen[k] = true
	}
}

// An interval is drawn, and what cannot be drawn changes nothing.
func TestDrawPoints(t *testing.T) {
	t.Parallel()
	lines := func(points ...chart.Point) string {
		return string(draw(t, chart.Chart{Lines: []chart.Line{{Points: points}}}).SVG)
	}
	plain := lines(chart.Point{X: 1, Y: 2}, chart.Point{X: 2, Y: 3})
	if got := lines(chart.Point{X: 1, Y: 2, Low: 1, High: 3}, chart.Point{X: 2, Y: 3}); strings.Count(got, "<path") != strings.Count(plain, "<path")+3 {
		t.Errorf("a point with an interval adds %d paths, want 3: a bar and two caps", strings.Count(got, "<path")-strings.Count(plain, "<path"))
	}
	tests := map[string]chart.Point{
		"nan":               {X: 1, Y: math.NaN()},
		"inf":               {X: math.Inf(1), Y: 2},
		"opposite":          {X: math.Inf(1), Y: math.Inf(-1)},
		"interval of a nan": {X: 1, Y: math.NaN(), Low: 1, High: 2},
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := lines(p, chart.Point{X: 1, Y: 2}, chart.Point{X: 2, Y: 3}); got != plain {
				t.Errorf("a point that is not finite changes the drawing")
			}
		})
	}
	if got := lines(chart.Point{X: 1, Y: 2, Low: math.NaN(), High: 3}, chart.Point{X: 2, Y: 3}); got != plain {
		t.Errorf("an interval that is not finite changes the drawing")
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text, want string
		data       any
	}{
		"no figure": {`{{template "figure" .}}`, "", chart.Figure{Title: "x"}},
		"legend":    {`{{template "figure" .}}`, "&lt;b&gt;</li>", chart.Figure{SVG: "<svg></svg>", Legend: []chart.Key{{Name: "<b>"}}}},
		"functions": {`{{count 1234567}} {{clip .}} {{twice "a"}}`, "1,234,567 � aa", "\xff"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := chart.Parse(tc.text, template.FuncMap{"twice": func(s string) string { return s + s }})
			if err != nil {
				t.Fatalf("Parse(%q): got error %v", tc.text, err)
			}
			var b strings.Builder
			if err := page.Execute(&b, tc.data); err != nil {
				t.Fatalf("Execute: got error %v", err)
			}
			if got := b.String(); !strings.Contains(got, tc.want) || tc.want == "" && got != "" {
				t.Errorf("page is %q, want %q in it", got, tc.want)
			}
		})
	}
	if _, err := chart.Parse("{{", nil); err == nil {
		t.Error(`Parse("{{"): got no error`)
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                         "",
		strings.Repeat("é", 600):   strings.Repeat("é", 600),
		strings.Repeat("é", 601):   strings.Repeat("é", 600) + "…",
		strings.Repeat("x", 1<<20): strings.Repeat("x", 600) + "…",
	} {
		if got := chart.Clip(in); got != want {
			t.Errorf("Clip(%.20q, %d bytes): got %.20q, %d bytes, want %d bytes", in, len(in), got, len(got), len(want))
		}
	}
}

func TestRoundTicks(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		low, high int
		want      []string
	}{
		"few":  {1, 5, []string{"1", "2", "3", "4", "5"}},
		"many": {3, 4321, []string{"0", "1,000", "2,000", "3,000", "4,000"}},
		"one":  {7, 7, []string{"7"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, tick := range chart.RoundTicks(tc.low, tc.high) {
				got = append(got, tick.Label)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("RoundTicks(%d, %d) differs (-want +got):\n%s", tc.low, tc.high, diff)
			}
		})
	}
}

// The sheet has each colour in light, dark and print.
func TestStyle(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"--ink:", "--grid:", "--c0:", "--c7:"} {
		if got := strings.Count(string(chart.Style()), name); got != 3 {
			t.Errorf("style sheet sets %s %d times, want 3", name, got)
		}
	}
}
