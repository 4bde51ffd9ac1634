package main

import (
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"hsx/bench"
)

// benchMeter is a bar of requests with rate and time left; in a pipe it shows nothing.
type benchMeter struct {
	w   *os.File // nil when there is no terminal
	bar *progressbar.ProgressBar
}

func newBenchMeter(w io.Writer) *benchMeter {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		f = nil
	}
	return &benchMeter{w: f}
}

// set shows how far a measurement is. What a terminal cannot show is no reason to stop.
func (m *benchMeter) set(p bench.Progress) {
	if m.w == nil {
		return
	}
	if m.bar == nil {
		m.bar = progressbar.NewOptions(p.Total,
			progressbar.OptionSetWriter(m.w),
			progressbar.OptionSetWidth(barWidth),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), // requests of a warm-up are not like the others
			progressbar.OptionClearOnFinish(),
		)
	}
	columns, _, err := term.GetSize(int(m.w.Fd()))
	if err != nil || columns <= 0 {
		columns = factWidth
	}
	m.bar.Describe(described(p, columns-barWidth-len("  100% || (/) ")-2*len(fmt.Sprint(p.Total))))
	_ = m.bar.Set(p.Done)
}

const barWidth = 8

// described is what stands before the bar, at most so wide that a line is not broken:
// what does not fit is left out.
func described(p bench.Progress, most int) string {
	what := fmt.Sprintf("%s, %s, run %d/%d", p.Arm, p.Level, p.Run, p.Runs)
	var more []string
	switch {
	case p.Starting:
		what, more = p.Arm+" is being started", []string{p.Waiting}
	case p.WarmUp:
		what = fmt.Sprintf("%s, %s, warm-up %d/%d", p.Arm, p.Level, p.Run, p.Runs)
	}
	if p.Left > 0 {
		more = append(more, p.Left.Round(time.Second).String()+" left")
	}
	if s := p.Elapsed.Seconds(); s > 0 && p.Tokens > 0 {
		more = append(more, fmt.Sprintf("%.0f tok/s", float64(p.Tokens)/s))
	}
	for _, part := range more {
		if part != "" && utf8.RuneCountInString(what+part)+2 <= most {
			what += ", " + part
		}
	}
	if r := []rune(what); len(r) > most {
		what = string(r[:max(most, 0)])
	}
	return what
}

// clear takes the bar away, so that a line can be printed, or for good.
func (m *benchMeter) clear() {
	if m.bar != nil {
		_ = m.bar.Clear()
	}
}
