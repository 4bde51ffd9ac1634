package server

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxEvent bounds one event, one line of it, and an answer that is not streamed.
const maxEvent = 64 << 20

// events reads a stream of server-sent events. It is our own, because a measurement
// needs what the libraries hide: when the bytes of an event arrived, whether the stream
// broke off inside one, and llama.cpp's "error:" lines. It allocates nothing per event.
type events struct {
	r        io.Reader
	buf      []byte // buf[from:to] was read and not yet used
	from, to int
	read     time.Time // of the last bytes
	skipLF   bool      // the line before ended in a CR, which may be half a CRLF
	begun    bool      // past a byte order mark
	data     []byte

	at     time.Time // when the last line of the event's data arrived
	broken bool      // the stream ended before the blank line that ends an event
}

func newEvents(r io.Reader) *events { return &events{r: r, buf: make([]byte, 8<<10)} }

// next returns the data of the next event, valid until the next call, and sets at.
// It ends with io.EOF, after an event that no blank line ended.
func (e *events) next() ([]byte, error) {
	e.data = e.data[:0]
	for {
		line, err := e.line()
		e.field(line)
		some := len(e.data) > 0
		switch {
		case errors.Is(err, io.EOF) && some:
			e.broken = true
		case err != nil:
			return nil, err
		case len(e.data) > maxEvent:
			return nil, tooLong()
		case len(line) > 0 || !some:
			continue
		}
		return e.data[:len(e.data)-1], nil
	}
}

// field adds a line's data to the event's, with an end of line.
func (e *events) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	if string(name) != "data" && string(name) != "error" { // the latter: llama.cpp until 2025
		return
	}
	e.data = append(append(e.data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
	e.at = e.read
}

// line returns the next line without its end, which is CR, LF or both. At the end of
// the stream it returns what is left, and io.EOF.
func (e *events) line() ([]byte, error) {
	for seen := 0; ; {
		if e.skipLF && e.from < e.to {
			e.skipLF = false
			if e.buf[e.from] == '\n' {
				e.from++
			}
		}
		rest := e.buf[e.from:e.to]
		end, found := len(rest), false
		if i := bytes.IndexByte(rest[seen:], '\n'); i >= 0 {
			end, found = seen+i, true
		}
		if i := bytes.IndexByte(rest[seen:end], '\r'); i >= 0 {
			end, found, e.skipLF = seen+i, true, true
		}
		if found {
			e.from += end + 1
			return e.first(rest[:end]), nil
		}
		seen = len(rest)
		if err := e.fill(); err != nil {
			rest = e.buf[e.from:e.to]
			e.from = e.to
			return e.first(rest), err
		}
	}
}

// first takes a byte order mark off the first line.
func (e *events) first(line []byte) []byte {
	if e.begun {
		return line
	}
	e.begun = true
	return bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
}

// fill reads once, making room first: the buffer grows with what came, never beyond
// the bound.
func (e *events) fill() error {
	if e.from > 0 {
		e.to = copy(e.buf, e.buf[e.from:e.to])
		e.from = 0
	}
	if e.to == len(e.buf) {
		if e.to > maxEvent {
			return tooLong()
		}
		e.buf = append(e.buf, make([]byte, len(e.buf))...)
	}
	n, err := e.r.Read(e.buf[e.to:])
	if n > 0 {
		e.to += n
		e.read = time.Now()
		return nil // an error comes again
	}
	if err == nil {
		return nil
	}
	return err
}

// peek is the first byte that is no white space, which is skipped.
func (e *events) peek() (byte, error) {
	for {
		for ; e.from < e.to; e.from++ {
			if b := e.buf[e.from]; b != ' ' && b != '\n' && b != '\r' && b != '\t' {
				return b, nil
			}
		}
		if err := e.fill(); err != nil {
			return 0, err
		}
	}
}

// rest is everything that is left.
func (e *events) rest() ([]byte, error) {
	for {
		if err := e.fill(); errors.Is(err, io.EOF) {
			return e.buf[e.from:e.to], nil
		} else if err != nil {
			return nil, err
		}
	}
}

func tooLong() error { return brokenError(fmt.Sprintf("event is longer than %d bytes", maxEvent)) }
