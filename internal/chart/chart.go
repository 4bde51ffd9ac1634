// Package chart draws plots as SVG elements that take their colours from the page's
// style sheet, and holds that sheet: pages with them open offline, follow the reader's
// light or dark scheme and can be printed. It knows nothing of what is plotted.
package chart

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of a plot in points. On the page it is scaled to the width of its place.
const (
	plotWidth  = 480
	plotHeight = 240
)

// palette is the number of colours; lines beyond it repeat them with other dashes.
const palette = 8

// Chart is a plot to be drawn. Its axes are linear: what is to be on a log scale comes
// as logarithms, with ticks that say the values.
type Chart struct {
	ID    string // of the element, unique on its page: a plain word, not escaped
	Title string
	Desc  string // what is shown, for the caption and for those who cannot see it
	X, Y  Axis
	Lines []Line
	Bars  []Bar
}

// Axis is one axis of a plot.
type Axis struct {
	Label    string
	Ticks    []Tick  // nil: wherever the values are round
	Min, Max float64 // to be covered whatever the data; none when both are 0
}

// Tick is a mark on an axis.
type Tick = plot.Tick

// Line is a line through points, with a dot at each when they are few.
type Line struct {
	Name   string // in the legend
	Points []Point
}

// Point is a value and, where Low and High differ, the interval that it stands in. One
// that is not finite is left out.
type Point struct{ X, Y, Low, High float64 }

// Bar is one bar, from one x to another.
type Bar struct{ From, To, Height float64 }

// Figure is a drawn chart.
type Figure struct {
	Title, Desc string
	SVG         template.HTML
	Legend      []Key
}

// Key is the entry of a line in the legend.
type Key struct {
	Name   string
	Color  int
	Dashes string // as stroke-dasharray has them
}

// Draw makes an SVG element that takes its colours from the page's style sheet. Its
// error is that of the drawing library.
func (c *Chart) Draw() (Figure, error) {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	style(&p.X, c.X)
	style(&p.Y, c.Y)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = token(tokenGrid), token(tokenGrid)
	p.Add(grid)
	if len(c.Bars) > 0 {
		p.Add(histogram(c.Bars))
	}
	fig := Figure{Title: c.Title, Desc: c.Desc}
	for i, l := range c.Lines {
		fig.Legend = append(fig.Legend, Key{Name: l.Name, Color: i % palette, Dashes: dashText(i)})
		if err := l.add(p, i); err != nil {
			return Figure{}, fmt.Errorf("draw plot %q: %w", c.Title, err)
		}
	}
	cover(&p.X, c.X)
	cover(&p.Y, c.Y)
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return Figure{}, fmt.Errorf("draw plot %q: %w", c.Title, err)
	}
	svg, err := c.inline(b.String())
	fig.SVG = svg
	return fig, err
}

// add puts the i-th line of a chart on a plot.
func (l *Line) add(p *plot.Plot, i int) error {
	points, spans := finite(l.Points)
	if len(points) == 0 {
		return nil
	}
	drawn, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	drawn.Color, drawn.Width, drawn.Dashes = token(i%palette), vg.Points(1.6), dashes(i)
	if len(points) > 100 {
		drawn.Width = vg.Points(0.9)
	}
	p.Add(drawn)
	if len(spans.XYs) > 0 {
		bars, err := plotter.NewYErrorBars(spans)
		if err != nil {
			return err
		}
		bars.Color, bars.Width = token(i%palette), vg.Points(0.9)
		p.Add(bars)
	}
	if len(points) <= 40 {
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.Color, dots.Radius, dots.Shape = token(i%palette), vg.Points(1.8), draw.CircleGlyph{}
		p.Add(dots)
	}
	return nil
}

// intervals are the points that have one, in the form of the drawing library.
type intervals struct {
	plotter.XYs
	plotter.YErrors
}

// finite are the points that can be drawn, and the intervals of them that can.
func finite(points []Point) (plotter.XYs, intervals) {
	var out plotter.XYs
	var spans intervals
	for _, p := range points {
		if !isFinite(p.X + p.Y) {
			continue
		}
		out = append(out, plotter.XY{X: p.X, Y: p.Y})
		if below, above := p.Y-p.Low, p.High-p.Y; p.Low != p.High && isFinite(below+above) {
			spans.XYs = append(spans.XYs, plotter.XY{X: p.X, Y: p.Y})
			spans.YErrors = append(spans.YErrors, struct{ Low, High float64 }{below, above})
		}
	}
	return out, spans
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// The colours of a drawing are tokens, replaced by variables of the style sheet: a
// colour that is fixed could be read in one scheme only.
const (
	tokenInk  = 0xe0
	tokenGrid = 0xe1
	tokenBar  = 0
)

func token(n int) color.Color { return color.NRGBA{0xfe, 0xdc, uint8(n), 0xff} }

func tokenText(n int) string { return fmt.Sprintf("#FEDC%02X", n) }

// inline turns a whole SVG document into an element of the page. All text in it was
// escaped by the canvas.
func (c *Chart) inline(doc string) (template.HTML, error) {
	start := strings.Index(doc, "<svg")
	end := strings.IndexByte(doc[max(0, start):], '>')
	if start < 0 || end < 0 {
		return "", fmt.Errorf("drawing of %d bytes has no svg element", len(doc))
	}
	body := doc[start+end+1:]
	replace := []string{
		tokenText(tokenInk), "var(--ink)", tokenText(tokenGrid), "var(--grid)",
		"font-family:Liberation Sans;font-variant:normal;font-weight:normal;font-style:normal;", "",
	}
	for i := range palette {
		replace = append(replace, tokenText(i), fmt.Sprintf("var(--c%d)", i))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-labelledby="%s-title %s-desc">`, plotWidth, plotHeight, c.ID, c.ID)
	fmt.Fprintf(&b, "<title id=\"%s-title\">%s</title><desc id=\"%s-desc\">%s</desc>\n",
		c.ID, template.HTMLEscapeString(c.Title), c.ID, template.HTMLEscapeString(c.Desc))
	b.WriteString(strings.NewReplacer(replace...).Replace(body))
	return template.HTML(b.String()), nil
}

func style(a *plot.Axis, with Axis) {
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	ink := token(tokenInk)
	a.Label.Text = with.Label
	a.Label.TextStyle.Font, a.Label.TextStyle.Color = font.From(sans, 10), ink
	a.Label.Padding = vg.Points(2)
	a.Color = ink
	a.Tick.Label.Font, a.Tick.Label.Color = font.From(sans, 9), ink
	a.Tick.Color = ink
	if with.Ticks != nil {
		a.Tick.Marker = plot.ConstantTicks(with.Ticks)
	}
}

// cover widens the range of an axis, and gives one to an axis without data.
func cover(a *plot.Axis, with Axis) {
	if with.Min != 0 || with.Max != 0 {
		a.Min, a.Max = min(a.Min, with.Min), max(a.Max, with.Max)
	}
	if !(a.Min <= a.Max) {
		a.Min, a.Max = 0, 1
	}
}

// dashes tell lines apart that share a colour, and all of them without colour.
func dashes(i int) []vg.Length {
	switch (i + i/palette) % 4 {
	case 1:
		return []vg.Length{6, 2}
	case 2:
		return []vg.Length{2, 2}
	case 3:
		return []vg.Length{7, 2, 2, 2}
	}
	return nil
}

func dashText(i int) string {
	var parts []string
	for _, d := range dashes(i) {
		parts = append(parts, fmt.Sprint(d.Points()))
	}
	return strings.Join(parts, " ")
}

// histogram draws bars of given edges.
type histogram []Bar

// Plot draws the bars.
func (h histogram) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	const gap = 0.4
	for _, b := range h {
		c.FillPolygon(token(tokenBar), []vg.Point{
			{X: x(b.From) + gap, Y: y(0)}, {X: x(b.From) + gap, Y: y(b.Height)},
			{X: x(b.To) - gap, Y: y(b.Height)}, {X: x(b.To) - gap, Y: y(0)},
		})
	}
}

// DataRange is what the bars cover.
func (h histogram) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = math.Inf(1), math.Inf(-1)
	for _, b := range h {
		xmin, xmax, ymax = min(xmin, b.From), max(xmax, b.To), max(ymax, b.Height)
	}
	return xmin, xmax, 0, ymax
}
