package server

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
)

// LogWindow is one "Decode batch" line of SGLang's log: an average over the last
// decode_log_interval batches, 40 unless told otherwise.
type LogWindow struct {
	Running int     // requests in the last of these batches
	Accept  float64 // accept length, bonus included
}

// ReadLog reads the windows of a log, whatever else is in it. Windows span the same
// number of batches, so that the requests running weigh them: Σ Running × Accept ÷ Σ
// Running is the accept length, as far as the last batch stands for its window.
func ReadLog(r io.Reader) ([]LogWindow, error) {
	var windows []LogWindow
	_, err := scanLog(r, func(w LogWindow) { windows = append(windows, w) })
	return windows, err
}

// scanLog calls add for each window and returns how many bytes the whole lines had. A
// line without an end is left for the next read; one too long to be a window is skipped.
func scanLog(r io.Reader, add func(LogWindow)) (whole int64, err error) {
	const longest = 64 << 10
	window := regexp.MustCompile(`Decode batch.*#running-req: (\d+),.* accept len: ([0-9.]+)`)
	in := bufio.NewReaderSize(r, longest)
	size, skip := int64(0), false
	for {
		line, err := in.ReadSlice('\n')
		size += int64(len(line))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			skip = true
			continue
		case errors.Is(err, io.EOF):
			return whole, nil
		case err != nil:
			return whole, fmt.Errorf("read server log: %w", err)
		}
		whole = size
		if !skip && bytes.Contains(line, []byte("Decode batch")) {
			if m := window.FindSubmatch(line); m != nil {
				running, err1 := strconv.Atoi(string(m[1]))
				accept, err2 := strconv.ParseFloat(string(m[2]), 64)
				if errors.Join(err1, err2) == nil && running > 0 && running < 1e6 && accept >= 1 && accept < 1e3 {
					add(LogWindow{running, accept})
				}
			}
		}
		skip = false
	}
}

// logTail follows a log from where it ended at the first read.
type logTail struct {
	opened        bool
	offset        int64
	steps, tokens float64
}

// add puts the sums of all windows since the first read into s.
func (l *logTail) add(s *Snapshot, name string) {
	if name == "" {
		return
	}
	if err := l.read(name); err != nil {
		s.Problems = append(s.Problems, err.Error())
		return
	}
	steps, tokens := l.steps, l.tokens
	s.LogSteps, s.LogTokens = &steps, &tokens
}

func (l *logTail) read(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("read server log: %w", err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("read server log: %w", err)
	}
	if !l.opened {
		l.opened, l.offset = true, end
		return nil
	}
	if end < l.offset { // begun anew, by a restart or by rotation
		l.offset = 0
	}
	if _, err := f.Seek(l.offset, io.SeekStart); err != nil {
		return fmt.Errorf("read server log: %w", err)
	}
	whole, err := scanLog(f, func(w LogWindow) {
		l.steps += float64(w.Running)
		l.tokens += float64(w.Running) * w.Accept
	})
	l.offset += whole
	return err
}
