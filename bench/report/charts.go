package report

import (
	"fmt"
	"math"

	"hsx/bench"
	"hsx/internal/chart"
)

// charts are the plots of a report; those without data are left out. Those of a load end
// in its index.
func charts(r *bench.Report) []*chart.Chart {
	out := append(acceptance(r), sweep(r)...)
	for i := range r.Levels {
		l := &r.Levels[i]
		out = append(out, throughput(l, i)...)
		for _, m := range metrics() {
			out = append(out, latency(l, i, m)...)
		}
	}
	return out
}

// acceptance draws the positions of each arm against the promise, joint and conditional.
func acceptance(r *bench.Report) []*chart.Chart {
	joint := &chart.Chart{
		ID: "joint", Title: "Accepted with all before it",
		Desc: "Share of verify steps that accept a position and all before it. 1 + the sum over positions is the accept length.",
	}
	conditional := &chart.Chart{
		ID: "conditional", Title: "Accepted if the one before was",
		Desc: "Share of the verify steps that reach a position and accept it: the first that is too low is where to look.",
	}
	last := 0
	for i := range r.Accept {
		a := &r.Accept[i]
		if a.Level != "" {
			continue
		}
		rows := positions(a, promiseOf(r, i))
		last = max(last, len(rows))
		for _, line := range []struct {
			chart *chart.Chart
			name  string
			of    func(position) *float64
		}{
			{joint, a.Arm, func(p position) *float64 { return p.Joint }},
			{conditional, a.Arm, func(p position) *float64 { return p.Conditional }},
			{joint, "promised", func(p position) *float64 { return p.PromisedJoint }},
			{conditional, "promised", func(p position) *float64 { return p.PromisedCondition }},
		} {
			l := chart.Line{Name: line.name}
			for _, p := range rows {
				if v := line.of(p); v != nil {
					l.Points = append(l.Points, chart.Point{X: float64(p.Position), Y: *v})
				}
			}
			if len(l.Points) > 0 {
				line.chart.Lines = append(line.chart.Lines, l)
			}
		}
	}
	var out []*chart.Chart
	for _, c := range []*chart.Chart{joint, conditional} {
		c.X = chart.Axis{Label: "draft position", Ticks: whole(1, last), Min: 0.5, Max: float64(last) + 0.5}
		c.Y = chart.Axis{Label: "share of verify steps", Max: 1}
		for i := range 6 {
			c.Y.Ticks = append(c.Y.Ticks, chart.Tick{Value: float64(i) / 5, Label: fmt.Sprintf("%d %%", 20*i)})
		}
		if len(c.Lines) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// sweep draws the curve over steps, with the baseline as a level line.
func sweep(r *bench.Report) []*chart.Chart {
	if r.Sweep == nil || len(r.Sweep.Points) == 0 {
		return nil
	}
	measured, predicted := chart.Line{Name: "measured, with its interval"}, chart.Line{Name: "predicted, not measured"}
	low, high := math.MaxInt, 0
	for _, p := range r.Sweep.Points {
		low, high = min(low, p.Steps), max(high, p.Steps)
		switch t := p.Throughput; {
		case t.N == 0:
		case p.Predicted:
			predicted.Points = append(predicted.Points, chart.Point{X: float64(p.Steps), Y: t.Value})
		default:
			measured.Points = append(measured.Points, chart.Point{X: float64(p.Steps), Y: t.Value, Low: t.Low, High: t.High})
		}
	}
	c := &chart.Chart{
		ID: "sweep", Title: "Throughput by draft steps",
		Desc: "Tokens per second of each number of steps. What is predicted was not measured.",
		X:    chart.Axis{Label: "steps", Ticks: whole(low, high), Min: float64(low) - 0.5, Max: float64(high) + 0.5},
		Y:    chart.Axis{Label: "tok/s"},
	}
	for _, l := range []chart.Line{measured, predicted, baseline(r, c.X)} {
		if len(l.Points) > 0 {
			c.Lines = append(c.Lines, l)
		}
	}
	return []*chart.Chart{c}
}

// baseline is the throughput of the baseline under the load of a sweep, the first.
func baseline(r *bench.Report, x chart.Axis) chart.Line {
	l := chart.Line{Name: "baseline"}
	for _, level := range r.Levels[:min(1, len(r.Levels))] {
		for _, a := range level.Arms {
			if len(level.Compared) > 0 && a.Arm == level.Compared[0].Baseline && a.Throughput.N > 0 {
				l.Points = []chart.Point{{X: x.Min, Y: a.Throughput.Value}, {X: x.Max, Y: a.Throughput.Value}}
			}
		}
	}
	return l
}

// throughput draws each arm's runs under a load.
func throughput(l *bench.LevelReport, i int) []*chart.Chart {
	c := &chart.Chart{
		ID: fmt.Sprintf("runs-%d", i), Title: "Throughput by run",
		Desc: fmt.Sprintf("Tokens per second of each complete run at %s: a slow first run asks for more warm-up, a slope is a drift.", l.Level),
		Y:    chart.Axis{Label: "tok/s"},
	}
	last := 0
	for _, a := range l.Arms {
		line := chart.Line{Name: a.Arm}
		for run, v := range a.ByRun {
			line.Points = append(line.Points, chart.Point{X: float64(run + 1), Y: v})
		}
		if len(line.Points) > 0 {
			c.Lines = append(c.Lines, line)
		}
		last = max(last, len(a.ByRun))
	}
	if last == 0 {
		return nil
	}
	c.X = chart.Axis{Label: "run", Ticks: whole(1, last), Min: 0.5, Max: float64(last) + 0.5}
	return []*chart.Chart{c}
}

// latency draws the percentiles of a metric that is a time, in one unit for all arms.
func latency(l *bench.LevelReport, i int, m metric) []*chart.Chart {
	if m.Unit != "s" || m.Name == "due_to_sent_seconds" {
		return nil
	}
	unit, scale := "ms", 1e3
	for a := range l.Arms {
		if p := m.Of(&l.Arms[a]).P50; p != nil && *p >= 1 {
			unit, scale = "s", 1
		}
	}
	c := &chart.Chart{
		ID: fmt.Sprintf("%s-%d", m.Name, i), Title: m.Title,
		Desc: fmt.Sprintf("Percentiles at %s, as far as there are requests enough.", l.Level),
		X:    chart.Axis{Ticks: []chart.Tick{{Value: 1, Label: "p50"}, {Value: 2, Label: "p90"}, {Value: 3, Label: "p99"}}, Min: 0.75, Max: 3.25},
		Y:    chart.Axis{Label: unit, Max: 1e-3}, // from 0
	}
	for a := range l.Arms {
		s := m.Of(&l.Arms[a])
		line := chart.Line{Name: l.Arms[a].Arm}
		for x, p := range []*float64{s.P50, s.P90, s.P99} {
			if p != nil {
				line.Points = append(line.Points, chart.Point{X: float64(x + 1), Y: *p * scale})
			}
		}
		if len(line.Points) > 0 {
			c.Lines = append(c.Lines, line)
		}
	}
	if len(c.Lines) == 0 {
		return nil
	}
	return []*chart.Chart{c}
}

// whole marks whole numbers: each of a few.
func whole(low, high int) []chart.Tick {
	if n := high - low; n < 0 || n > 16 { // below 0 when too large for an int
		return chart.RoundTicks(low, high)
	}
	ticks := []chart.Tick{}
	for v := low; v <= high; v++ {
		ticks = append(ticks, chart.Tick{Value: float64(v), Label: chart.Count(v)})
	}
	return ticks
}
