package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// newProgress is a bar of bytes with rate and ETA on w when that is a terminal, and
// nil, which shows nothing, when it is not.
func newProgress(w io.Writer, what string, total int64) *progressbar.ProgressBar {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(f),
		progressbar.OptionSetDescription(what),
		progressbar.OptionShowBytes(true),
		progressbar.OptionSetWidth(20),
		progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionClearOnFinish(),
	)
}

// advance moves a bar to a position; a nil bar shows nothing. What a terminal cannot
// show is no reason to stop.
func advance(bar *progressbar.ProgressBar, to int64) {
	if bar != nil {
		_ = bar.Set64(to)
	}
}

func finish(bar *progressbar.ProgressBar) {
	if bar != nil {
		_ = bar.Finish()
	}
}

// meter is a bar whose total is learned with the first step.
type meter struct {
	w       io.Writer
	what    string
	learned bool
	bar     *progressbar.ProgressBar
}

func newMeter(w io.Writer, what string) *meter { return &meter{w: w, what: what} }

func (m *meter) set(done, total int64) {
	if !m.learned { // asking whether w is a terminal is a system call
		m.learned = true
		m.bar = newProgress(m.w, m.what, total)
	}
	advance(m.bar, done)
}

func (m *meter) finish() { finish(m.bar) }
