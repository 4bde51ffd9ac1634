package report

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"

	"hsx/validate"
)

// charts are the plots of the statistics; those without data are left out.
func charts(s *validate.Stats) []*chart {
	out := []*chart{}
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
func lengths(l validate.LengthStats) *chart {
	counts := map[int]int64{}
	for _, b := range l.Bins {
		counts[halfOctave((b.From+b.To-1)/2)] += b.Count
	}
	c := &chart{
		id: "lengths", title: "Sequence lengths",
		desc: fmt.Sprintf("Samples by length: shortest %s, median %s, longest %s tokens.", count(l.Min), count(l.P50), count(l.Max)),
		x:    axis{label: "tokens in a sample"},
		y:    axis{label: "samples"},
	}
	low, high := halfOctave(l.Min), halfOctave(l.Max)
	for k := low; k <= high; k++ {
		if counts[k] > 0 {
			c.bars = append(c.bars, bar{from: float64(k) / 2, to: float64(k+1) / 2, height: float64(counts[k])})
		}
	}
	if low < 0 {
		c.x.ticks = []plot.Tick{{Value: -0.75, Label: "0"}}
	}
	step := max(1, (high-low)/20)
	for e := max(0, low/2); e <= high/2+1; e += step {
		c.x.ticks = append(c.x.ticks, plot.Tick{Value: float64(e), Label: count(1 << min(e, 62))})
	}
	c.y.ticks = countTicks(c.bars)
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
func countTicks(bars []bar) []plot.Tick {
	top := 1
	for _, b := range bars {
		top = max(top, int(b.height))
	}
	return roundTicks(0, top)
}

// roundTicks marks multiples of 1, 2 or 5 times a power of ten, about five of them.
func roundTicks(low, high int) []plot.Tick {
	step := 1
	for i := 0; (high-low)/step > 5; i++ {
		if i%3 == 1 {
			step = step / 2 * 5
		} else {
			step *= 2
		}
	}
	ticks := []plot.Tick{}
	for v := low / step * step; v <= high && len(ticks) < 8; v += step {
		ticks = append(ticks, plot.Tick{Value: float64(v), Label: count(v)})
	}
	return ticks
}

func coverage(v validate.VocabStats) *chart {
	c := &chart{
		id: "coverage", title: "Tokens covered by the most frequent ids",
		desc: "Share of all tokens, and of supervised tokens, that a vocabulary of the most frequent ids would cover.",
		x:    axis{label: "most frequent ids"},
		y:    axis{label: "share of tokens", min: 0, max: 1},
	}
	all, supervised := line{name: "all tokens"}, line{name: "supervised tokens"}
	for _, p := range v.Curve {
		x := math.Log10(float64(p.IDs))
		all.points = append(all.points, plotter.XY{X: x, Y: p.All})
		supervised.points = append(supervised.points, plotter.XY{X: x, Y: p.Supervised})
	}
	c.lines = []line{all}
	if v.Supervised > 0 {
		c.lines = append(c.lines, supervised)
	}
	c.x.ticks = decadeTicks(0, all.points[len(all.points)-1].X)
	for i := range 6 {
		c.y.ticks = append(c.y.ticks, plot.Tick{Value: float64(i) / 5, Label: fmt.Sprintf("%d %%", 20*i)})
	}
	return c
}

func positions(states []validate.StateStats) *chart {
	c := &chart{
		id: "positions", title: "RMS of the states over position",
		desc: "Mean RMS of the rows at each position, both axes logarithmic. Position 0 often carries massive activations.",
		x:    axis{label: "position in the sample"},
		y:    axis{label: "mean RMS"},
	}
	low, high, last := math.Inf(1), math.Inf(-1), 0
	for _, st := range states {
		l := line{name: st.Column}
		for _, p := range st.Positions {
			if p.RMS > 0 && p.From >= 0 {
				y := math.Log10(p.RMS)
				low, high, last = min(low, y), max(high, y), max(last, place(p.From))
				l.points = append(l.points, plotter.XY{X: float64(place(p.From)), Y: y})
			}
		}
		c.lines = append(c.lines, l)
	}
	for x := 0; x <= last; x += max(1, last/12) {
		c.x.ticks = append(c.x.ticks, plot.Tick{Value: float64(x), Label: count(1 << x >> 1)})
	}
	c.y.ticks = decadeTicks(low, high)
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
func decadeTicks(low, high float64) []plot.Tick {
	ticks := []plot.Tick{}
	if !(low <= high) || high-low > 100 {
		return ticks
	}
	for e := math.Floor(low); e <= high+1; e++ {
		for _, m := range []float64{1, 2, 5} {
			if m > 1 && high-low > 4 {
				continue
			}
			v := m * math.Pow(10, e)
			ticks = append(ticks, plot.Tick{Value: math.Log10(v), Label: tickNumber(v)})
		}
	}
	return ticks
}

func tickNumber(v float64) string {
	if v >= 1000 && v < 1e6 {
		return count(int(math.Round(v)))
	}
	return fmt.Sprintf("%.3g", v)
}

// mostPlaces is how many places of a line are drawn; between them the lowest and the
// highest shard stand for the rest.
const mostPlaces = 250

func shards(s *validate.Stats) *chart {
	c := &chart{
		id: "shards", title: "RMS of the states over shards",
		desc: "Mean RMS in each shard over that in all: a step is a part of the data that was captured otherwise.",
		x:    axis{label: "shard"},
		y:    axis{label: "RMS over mean", min: 0.9, max: 1.1},
	}
	for i, st := range s.States {
		l := line{name: st.Column}
		for _, sh := range s.Shards {
			if i < len(sh.RMS) && sh.RMS[i] > 0 && st.RMS > 0 {
				l.points = append(l.points, plotter.XY{X: float64(sh.Shard), Y: sh.RMS[i] / st.RMS})
			}
		}
		l.points = thin(l.points)
		c.lines = append(c.lines, l)
	}
	c.x.ticks = roundTicks(s.Shards[0].Shard, s.Shards[len(s.Shards)-1].Shard)
	return c
}

// thin keeps the extremes of each of a number of equal stretches.
func thin(points plotter.XYs) plotter.XYs {
	if len(points) <= 2*mostPlaces {
		return points
	}
	var out plotter.XYs
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
