package report

import (
	"fmt"
	"math"

	"hsx/internal/chart"
	"hsx/validate"
)

// charts are the plots of the statistics; those without data are left out.
func charts(s *validate.Stats) []*chart.Chart {
	out := []*chart.Chart{}
	if s.Total.Samples > 0 {
		out = append(out, lengths(s.Total.Lengths))
	}
	if len(s.Vocabulary.Curve) > 1 {
		out = append(out, coverage(s.Vocabulary))
	}
	if len(s.States) > 0 && s.Total.Tokens > 0 {
		out = append(out, positions(s.States))
	}
	if len(s.Shards) > 1 {
		out = append(out, shards(s))
	}
	return out
}

// lengths draws two bars for each doubling of the length.
func lengths(l validate.LengthStats) *chart.Chart {
	counts := map[int]int64{}
	for _, b := range l.Bins {
		counts[halfOctave((b.From+b.To-1)/2)] += b.Count
	}
	c := &chart.Chart{
		ID: "lengths", Title: "Sequence lengths",
		Desc: fmt.Sprintf("Samples by length: shortest %s, median about %s, longest %s tokens.", chart.Count(l.Min), chart.Count(l.P50), chart.Count(l.Max)),
		X:    chart.Axis{Label: "tokens in a sample"},
		Y:    chart.Axis{Label: "samples"},
	}
	low, high := halfOctave(l.Min), halfOctave(l.Max)
	for k := low; k <= high; k++ {
		if counts[k] > 0 {
			c.Bars = append(c.Bars, chart.Bar{From: float64(k) / 2, To: float64(k+1) / 2, Height: float64(counts[k])})
		}
	}
	if low < 0 {
		c.X.Ticks = []chart.Tick{{Value: -0.75, Label: "0"}}
	}
	step := max(1, (high-low)/20)
	for e := max(0, low/2); e <= high/2+1; e += step {
		c.X.Ticks = append(c.X.Ticks, chart.Tick{Value: float64(e), Label: chart.Count(1 << min(e, 62))})
	}
	c.Y.Ticks = countTicks(c.Bars)
	return c
}

// halfOctave is the bar of a length: from 2^(k/2) up to 2^((k+1)/2); -2 is that of 0.
func halfOctave(n int) int {
	if n < 1 {
		return -2
	}
	return int(math.Floor(2*math.Log2(float64(n)) + 1e-9))
}

// countTicks marks a few round heights.
func countTicks(bars []chart.Bar) []chart.Tick {
	top := 1
	for _, b := range bars {
		top = max(top, int(b.Height))
	}
	return chart.RoundTicks(0, top)
}

func coverage(v validate.VocabStats) *chart.Chart {
	c := &chart.Chart{
		ID: "coverage", Title: "Tokens covered by the most frequent ids",
		Desc: "Share of all tokens, and of supervised tokens, that a vocabulary of the most frequent ids would cover.",
		X:    chart.Axis{Label: "most frequent ids"},
		Y:    chart.Axis{Label: "share of tokens", Min: 0, Max: 1},
	}
	all, supervised := chart.Line{Name: "all tokens"}, chart.Line{Name: "supervised tokens"}
	for _, p := range v.Curve {
		x := math.Log10(float64(p.IDs))
		all.Points = append(all.Points, chart.Point{X: x, Y: p.All})
		supervised.Points = append(supervised.Points, chart.Point{X: x, Y: p.Supervised})
	}
	c.Lines = []chart.Line{all}
	if v.Supervised > 0 {
		c.Lines = append(c.Lines, supervised)
	}
	c.X.Ticks = decadeTicks(0, all.Points[len(all.Points)-1].X)
	for i := range 6 {
		c.Y.Ticks = append(c.Y.Ticks, chart.Tick{Value: float64(i) / 5, Label: fmt.Sprintf("%d %%", 20*i)})
	}
	return c
}

func positions(states []validate.StateStats) *chart.Chart {
	c := &chart.Chart{
		ID: "positions", Title: "RMS of the states over position",
		Desc: "Mean RMS of the rows at each position, both axes logarithmic. Position 0 often carries massive activations.",
		X:    chart.Axis{Label: "position in the sample"},
		Y:    chart.Axis{Label: "mean RMS"},
	}
	low, high, last := math.Inf(1), math.Inf(-1), 0
	for _, st := range states {
		l := chart.Line{Name: st.Column}
		for _, p := range st.Positions {
			if p.RMS > 0 && p.From >= 0 {
				y := math.Log10(p.RMS)
				low, high, last = min(low, y), max(high, y), max(last, place(p.From))
				l.Points = append(l.Points, chart.Point{X: float64(place(p.From)), Y: y})
			}
		}
		c.Lines = append(c.Lines, l)
	}
	for x := 0; x <= last; x += max(1, last/12) {
		c.X.Ticks = append(c.X.Ticks, chart.Tick{Value: float64(x), Label: chart.Count(1 << x >> 1)})
	}
	c.Y.Ticks = decadeTicks(low, high)
	return c
}

// place is where a bin of positions stands: 0 for position 0, then one per doubling.
func place(from int) int {
	n := 0
	for ; from > 0; from >>= 1 {
		n++
	}
	return n
}

// decadeTicks marks 1, 2 and 5 of each decade in a range of logarithms, or the powers
// of ten alone where that would be many.
func decadeTicks(low, high float64) []chart.Tick {
	ticks := []chart.Tick{}
	if !(low <= high) || high-low > 100 {
		return ticks
	}
	for e := math.Floor(low); e <= high+1; e++ {
		for _, m := range []float64{1, 2, 5} {
			if m > 1 && high-low > 4 {
				continue
			}
			v := m * math.Pow(10, e)
			ticks = append(ticks, chart.Tick{Value: math.Log10(v), Label: tickNumber(v)})
		}
	}
	return ticks
}

func tickNumber(v float64) string {
	if v >= 1000 && v < 1e6 {
		return chart.Count(int(math.Round(v)))
	}
	return fmt.Sprintf("%.3g", v)
}

// mostPlaces is how many places of a line are drawn; between them the lowest and the
// highest shard stand for the rest.
const mostPlaces = 250

func shards(s *validate.Stats) *chart.Chart {
	c := &chart.Chart{
		ID: "shards", Title: "RMS of the states over shards",
		Desc: "Mean RMS in each shard over that in all: a step is a part of the data that was captured otherwise.",
		X:    chart.Axis{Label: "shard"},
		Y:    chart.Axis{Label: "RMS over mean", Min: 0.9, Max: 1.1},
	}
	for i, st := range s.States {
		l := chart.Line{Name: st.Column}
		for _, sh := range s.Shards {
			if i < len(sh.RMS) && sh.RMS[i] > 0 && st.RMS > 0 {
				l.Points = append(l.Points, chart.Point{X: float64(sh.Shard), Y: sh.RMS[i] / st.RMS})
			}
		}
		l.Points = thin(l.Points)
		c.Lines = append(c.Lines, l)
	}
	c.X.Ticks = chart.RoundTicks(s.Shards[0].Shard, s.Shards[len(s.Shards)-1].Shard)
	return c
}

// thin keeps the extremes of each of a number of equal stretches.
func thin(points []chart.Point) []chart.Point {
	if len(points) <= 2*mostPlaces {
		return points
	}
	var out []chart.Point
	for k := range mostPlaces {
		part := points[k*len(points)/mostPlaces : (k+1)*len(points)/mostPlaces]
		low, high := 0, 0
		for i, p := range part {
			if p.Y < part[low].Y {
				low = i
			}
			if p.Y > part[high].Y {
				high = i
			}
		}
		out = append(out, part[min(low, high)])
		if low != high {
			out = append(out, part[max(low, high)])
		}
	}
	return out
}
