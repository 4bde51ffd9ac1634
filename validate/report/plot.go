package report

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

// chart is a plot to be drawn. Its axes are linear: what is to be on a log scale comes
// as logarithms, with ticks that say the values.
type chart struct {
	id, title, desc string
	x, y            axis
	lines           []line
	bars            []bar
}

type axis struct {
	label    string
	ticks    []plot.Tick
	min, max float64 // to be covered whatever the data; none when both are 0
}

type line struct {
	name   string
	points plotter.XYs
}

type bar struct{ from, to, height float64 }

// figure is a drawn chart.
type figure struct {
	Title, Desc string
	SVG         template.HTML
	Legend      []key
}

// key is the entry of a line in the legend.
type key struct {
	Name   string
	Color  int
	Dashes string // as stroke-dasharray has them
}

// draw makes an SVG element that takes its colours from the page's style sheet.
func (c *chart) draw() (figure, error) {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	style(&p.X, c.x)
	style(&p.Y, c.y)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = token(tokenGrid), token(tokenGrid)
	p.Add(grid)
	if len(c.bars) > 0 {
		p.Add(histogram(c.bars))
	}
	fig := figure{Title: c.title, Desc: c.desc}
	for i, l := range c.lines {
		points := finite(l.points)
		fig.Legend = append(fig.Legend, key{Name: l.name, Color: i % palette, Dashes: dashText(i)})
		if len(points) == 0 {
			continue
		}
		drawn, err := plotter.NewLine(points)
		if err != nil {
			return figure{}, err
		}
		drawn.Color, drawn.Width, drawn.Dashes = token(i%palette), vg.Points(1.6), dashes(i)
		if len(points) > 100 {
			drawn.Width = vg.Points(0.9)
		}
		p.Add(drawn)
		if len(points) <= 40 {
			dots, err := plotter.NewScatter(points)
			if err != nil {
				return figure{}, err
			}
			dots.Color, dots.Radius, dots.Shape = token(i%palette), vg.Points(1.8), draw.CircleGlyph{}
			p.Add(dots)
		}
	}
	cover(&p.X, c.x)
	cover(&p.Y, c.y)
	canvas := vgsvg.New(plotWidth, plotHeight)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return figure{}, err
	}
	svg, err := c.inline(b.String())
	fig.SVG = svg
	return fig, err
}

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
func (c *chart) inline(doc string) (template.HTML, error) {
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
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-labelledby="%s-title %s-desc">`, plotWidth, plotHeight, c.id, c.id)
	fmt.Fprintf(&b, "<title id=\"%s-title\">%s</title><desc id=\"%s-desc\">%s</desc>\n",
		c.id, template.HTMLEscapeString(c.title), c.id, template.HTMLEscapeString(c.desc))
	b.WriteString(strings.NewReplacer(replace...).Replace(body))
	return template.HTML(b.String()), nil
}

func style(a *plot.Axis, with axis) {
	sans := font.Font{Typeface: "Liberation", Variant: "Sans"}
	ink := token(tokenInk)
	a.Label.Text = with.label
	a.Label.TextStyle.Font, a.Label.TextStyle.Color = font.From(sans, 10), ink
	a.Label.Padding = vg.Points(2)
	a.Color = ink
	a.Tick.Label.Font, a.Tick.Label.Color = font.From(sans, 9), ink
	a.Tick.Color = ink
	if with.ticks != nil {
		a.Tick.Marker = plot.ConstantTicks(with.ticks)
	}
}

// cover widens the range of an axis, and gives one to an axis without data.
func cover(a *plot.Axis, with axis) {
	if with.min != 0 || with.max != 0 {
		a.Min, a.Max = min(a.Min, with.min), max(a.Max, with.max)
	}
	if !(a.Min <= a.Max) {
		a.Min, a.Max = 0, 1
	}
}

func finite(points plotter.XYs) plotter.XYs {
	var out plotter.XYs
	for _, p := range points {
		if sum := p.X + p.Y; !math.IsNaN(sum) && !math.IsInf(sum, 0) {
			out = append(out, p)
		}
	}
	return out
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
type histogram []bar

// Plot draws the bars.
func (h histogram) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	const gap = 0.4
	for _, b := range h {
		c.FillPolygon(token(tokenBar), []vg.Point{
			{X: x(b.from) + gap, Y: y(0)}, {X: x(b.from) + gap, Y: y(b.height)},
			{X: x(b.to) - gap, Y: y(b.height)}, {X: x(b.to) - gap, Y: y(0)},
		})
	}
}

// DataRange is what the bars cover.
func (h histogram) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = math.Inf(1), math.Inf(-1)
	for _, b := range h {
		xmin, xmax, ymax = min(xmin, b.from), max(xmax, b.to), max(ymax, b.height)
	}
	return xmin, xmax, 0, ymax
}
