package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxLine bounds a line of a journal: the chunks of one answer, and its text.
const maxLine = 256 << 20

// ReadLog reads a journal back. What a kill leaves is no error: a last line without an
// end is dropped, and a pass that has no line of its own is not complete. Of two passes
// with the same key the later counts. Types and members that are not known are skipped.
// Texts of answers are left out: they are for other readers of the journal.
func ReadLog(r io.Reader) (*Log, error) {
	log, _, err := readLog(r)
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	return log, nil
}

// readLog also returns how many bytes whole lines have.
func readLog(r io.Reader) (*Log, int64, error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	l := logReader{log: &Log{}, current: map[Key]*Pass{}}
	var whole int64
	for n := 1; ; n++ {
		line, err := readLine(lines, maxLine)
		if errors.Is(err, io.EOF) {
			l.log.Torn = len(line) > 0
			break
		}
		if err == nil {
			err = l.add(line, n == 1)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("line %d: %w", n, err)
		}
		whole += int64(len(line))
	}
	if whole == 0 {
		return nil, 0, errors.New("no whole line in it, want a plan: nothing was measured yet")
	}
	for _, p := range l.passes {
		if l.current[p.Key] == p {
			l.log.Passes = append(l.log.Passes, *p)
		}
	}
	return l.log, whole, nil
}

// readLine returns a line of at most so many bytes, with its end; without one, the
// error is io.EOF.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > most {
			return nil, fmt.Errorf("is longer than %d bytes", most)
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

type logReader struct {
	log     *Log
	passes  []*Pass       // as they began
	current map[Key]*Pass // the last of each key
}

func (l *logReader) add(line []byte, first bool) error {
	var head struct {
		Type    string `json:"type"`
		Journal int    `json:"journal"`
	}
	if err := json.Unmarshal(line, &head); err != nil {
		return fmt.Errorf("no JSON object: %w", err)
	}
	if (head.Type == linePlan) != first {
		return fmt.Errorf("has type %q, want a plan in the first line and nowhere else", head.Type)
	}
	if first && head.Journal != JournalVersion {
		return fmt.Errorf("is of a journal of version %d, want %d", head.Journal, JournalVersion)
	}
	l.log.End = nil // it is the end only if nothing follows
	if err := l.take(head.Type, line); err != nil {
		return fmt.Errorf("%s: %w", head.Type, err)
	}
	return nil
}

func (l *logReader) take(kind string, line []byte) error {
	switch kind {
	case linePlan:
		var h journalHead
		if err := json.Unmarshal(line, &h); err != nil {
			return err
		}
		l.log.Plan, l.log.Began = h.Plan, h.Began
	case lineArm:
		var a ArmInfo
		if err := json.Unmarshal(line, &a); err != nil {
			return err
		}
		l.log.Arms = append(l.log.Arms, a)
	case lineBegin, linePass:
		var p Pass
		if err := json.Unmarshal(line, &p); err != nil {
			return err
		}
		l.pass(kind, p)
	case lineRequest:
		var r Request
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		r.Answer, r.Thinking = "", ""
		if l.current[r.Key] == nil {
			l.pass(lineBegin, Pass{Key: r.Key})
		}
		p := l.current[r.Key]
		p.Requests = append(p.Requests, r)
	case lineEvent:
		var e journalEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		l.log.Events = append(l.log.Events, e.Text)
	case lineEnd:
		var e End
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		l.log.End = &e
	}
	return nil
}

// pass takes in the line before or after the requests of a pass. One that has only the
// first is what a kill left.
func (l *logReader) pass(kind string, p Pass) {
	old := l.current[p.Key]
	if kind == linePass && old != nil {
		p.Requests = old.Requests
		*old = p
		return
	}
	if kind == lineBegin {
		p.Complete, p.Stopped = false, "killed"
	}
	l.passes = append(l.passes, &p)
	l.current[p.Key] = &p
}
