package main

import (
	"fmt"
	"io"
	"os"
	"time"

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
			progressbar.OptionSetWidth(12),
			progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), // requests of a warm-up are not like the others
			progressbar.OptionClearOnFinish(),
		)
	}
	what := fmt.Sprintf("%s, %s, run %d/%d", p.Arm, p.Level, p.Run, p.Runs)
	switch {
	case p.Starting:
		what = p.Arm + " is being started"
		if p.Waiting != "" {
			what += ": " + p.Waiting
		}
	case p.WarmUp:
		what = fmt.Sprintf("%s, %s, warm-up %d/%d", p.Arm, p.Level, p.Run, p.Runs)
	}
	if s := p.Elapsed.Seconds(); s > 0 && p.Tokens > 0 {
		what += fmt.Sprintf(", %.0f tok/s", float64(p.Tokens)/s)
	}
	if p.Left > 0 {
		what += ", " + p.Left.Round(time.Second).String() + " left"
	}
	m.bar.Describe(what)
	_ = m.bar.Set(p.Done)
}

// clear takes the bar away, so that a line can be printed, or for good.
func (m *benchMeter) clear() {
	if m.bar != nil {
		_ = m.bar.Clear()
	}
}
