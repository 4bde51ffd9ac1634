package prompts

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxRow bounds what is held of the input at a time, in bytes.
const maxRow = 64 << 20

// Read reads a dataset of one JSON object a line, or of one JSON array of objects,
// which it reads one by one. A byte order mark, CRLF and blank lines are allowed. A row
// without an id of its own gets one of its place, "line-17" or "item-17"; an id that was
// there before gets "#2", "#3" and so on behind it. Errors name the line or the item.
// It is an error if a row has no prompt or an empty one, is not JSON or is longer than
// 64 MiB, and if there is no row at all.
func Read(r io.Reader, form Form) ([]Prompt, error) {
	s := set{form: form, ids: map[string]int{}}
	err := s.read(bufio.NewReader(r))
	if err == nil && len(s.prompts) == 0 {
		err = errors.New("no prompts")
	}
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	return s.prompts, nil
}

// set is what has been read so far.
type set struct {
	form    Form
	prompts []Prompt
	ids     map[string]int // id → the number last given to it
}

func (s *set) read(r *bufio.Reader) error {
	head, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	switch {
	case string(head) == "PAR1":
		return errors.New("is a Parquet file, want JSON lines or a JSON array")
	case bytes.HasPrefix(head, []byte("\ufeff")):
		_, _ = r.Discard(3) // cannot fail: they are in the buffer
	}
	for line := 1; ; {
		c, err := r.ReadByte()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case c == '\n':
			line++
		case c == ' ' || c == '\t' || c == '\r':
		case c == '[':
			return errors.Join(r.UnreadByte(), s.array(r))
		default:
			return errors.Join(r.UnreadByte(), s.lines(r, line))
		}
	}
}

// lines reads one row a line, the first of which is number line.
func (s *set) lines(r io.Reader, line int) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxRow)
	for ; sc.Scan() && sc.Err() == nil; line++ { // after an error of the reader comes half a line
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		if err := s.add(sc.Bytes(), "line-"+strconv.Itoa(line)); err != nil {
			return fmt.Errorf("line %d: %w", line, err)
		}
	}
	switch err := sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("line %d: %w", line, errTooLong())
	case err != nil:
		return fmt.Errorf("line %d: %w", line, err)
	}
	return nil
}

// array reads one row for each element of an array.
func (s *set) array(r io.Reader) error {
	m := &meter{r: r, left: maxRow}
	dec := json.NewDecoder(m)
	if _, err := dec.Token(); err != nil {
		return err
	}
	for n := 1; ; n++ {
		m.left = maxRow
		more, at := dec.More(), dec.InputOffset()
		var raw json.RawMessage
		var err error
		if more {
			err = dec.Decode(&raw)
		} else {
			_, err = dec.Token()
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		switch {
		case err != nil:
			return fmt.Errorf("item %d, from byte %d: %w", n, at, err)
		case !more:
			return end(dec)
		}
		if err := s.add(raw, "item-"+strconv.Itoa(n)); err != nil {
			return fmt.Errorf("item %d: %w", n, err)
		}
	}
}

// end checks that nothing follows.
func end(dec *json.Decoder) error {
	switch t, err := dec.Token(); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("byte %d: %w", dec.InputOffset(), err)
	default:
		return fmt.Errorf("byte %d: %v follows the array, want nothing", dec.InputOffset(), t)
	}
}

// meter ends with an error once left bytes were read.
type meter struct {
	r    io.Reader
	left int
}

func (m *meter) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, errTooLong()
	}
	n, err := m.r.Read(p[:min(len(p), m.left)])
	m.left -= n
	return n, err
}

func errTooLong() error { return fmt.Errorf("is longer than %d MiB", maxRow>>20) }

// add takes one row in, whose id is place if it has none.
func (s *set) add(raw []byte, place string) error {
	var r row
	if err := json.Unmarshal(raw, &r); err != nil {
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			return fmt.Errorf("byte %d: %w", syntax.Offset, err)
		}
		return fmt.Errorf("is JSON that begins with %q, want an object", bytes.TrimSpace(raw)[0])
	}
	p, err := r.prompt(s.form)
	if err != nil || len(p.Turns) == 0 {
		return err
	}
	if p.ID = r.id(); p.ID == "" {
		p.ID = place
	}
	p.ID = s.unique(p.ID)
	p.Category = r.category()
	s.prompts = append(s.prompts, p)
	return nil
}

// unique is id, with a number behind it if it was given before.
func (s *set) unique(id string) string {
	free := id
	for s.ids[free] > 0 {
		s.ids[id]++
		free = id + "#" + strconv.Itoa(s.ids[id])
	}
	s.ids[free] = 1
	return free
}
