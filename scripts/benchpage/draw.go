package main

import (
	"strings"

	"hsx/internal/chart"
)

// draw is the rates of the commands and of the machine's limits as a drawing that
// stands alone; nil when they were not measured.
func draw(all results) ([]byte, error) {
	c := chart.Chart{
		ID: "rates", Title: "Rates of hsx and of the machine's own limits",
		Desc: "GB/s of each command, and of copying memory, cat, cp and xxhsum in the same run",
		X:    chart.Axis{Ticks: []chart.Tick{}},
		Y:    chart.Axis{Label: "GB/s"},
	}
	for _, r := range all.under("Commands") {
		rate, ok := r.get("MB/s")
		if !ok {
			continue
		}
		at := float64(len(c.Bars))
		c.Bars = append(c.Bars, chart.Bar{From: at - 0.4, To: at + 0.4, Height: rate / 1e3})
		c.X.Ticks = append(c.X.Ticks, chart.Tick{Value: at, Label: r.name})
	}
	if len(c.Bars) == 0 {
		return nil, nil
	}
	fig, err := c.Draw()
	if err != nil {
		return nil, err
	}
	head, body, _ := strings.Cut(string(fig.SVG), ">")
	head = strings.Replace(head, "<svg", `<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"`, 1)
	style := "<style>" + string(chart.Style()) + "svg { background: var(--paper); } text { font-family: sans-serif; }</style>"
	return []byte(head + ">" + style + body + "\n"), nil
}
