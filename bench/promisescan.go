package bench

import (
	"bufio"
	"errors"
	"io"
	"strconv"
	"strings"
)

const (
	maxWord  = 200 // bytes of a word or key that are kept; longer ones are no metric's name
	maxDepth = 32  // of nested objects and lists that are followed
)

// metricScanner finds numbers with their names in whatever a trainer writes: JSON objects
// on one line or many, Python's dict, key=value, key: value, lists, and the lines that
// EAGLE and SpecForge print ("position 0,  Acc: 0.68"). JSON alone would not do: console
// output carries the same metrics between other text, and Python writes NaN into JSON.
// Its memory does not grow with the input.
type metricScanner struct {
	r    *bufio.Reader
	line int

	open     []opened
	word     string // last one, where nothing but a separator has followed
	key      string // a word that a separator has followed
	section  string // train or eval, as a word of this line says
	position int    // that a word of this line says, -1 without one
	named    bool   // the last word was "position"
}

// opened is an object or a list that is not closed yet.
type opened struct {
	key  string
	list bool
	next int
}

func newMetricScanner(r io.Reader) *metricScanner {
	return &metricScanner{r: bufio.NewReaderSize(r, 1<<16), line: 1, position: -1}
}

// metric is one number with the path of its name, in lower case.
type metric struct {
	path    []string
	section string // of the line, "" when it says none
	value   float64
	line    int
}

// next returns the next number that has a name. The error is io.EOF at the end.
func (s *metricScanner) next() (metric, error) {
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return metric{}, err
		}
		switch {
		case c == '\n' || c == '\r': // a progress bar is redrawn after \r
			if c == '\n' {
				s.line++
			}
			s.section, s.position, s.named = "", -1, false
		case c == ' ' || c == '\t':
		case c == 0x1b:
			s.skipColour()
		case c == ':' || c == '=':
			s.key, s.word = s.word, ""
		case c == ',' || c == ';':
			s.comma()
		case c == '{' || c == '[':
			s.push(c == '[')
		case c == '}' || c == ']':
			if len(s.open) > 0 {
				s.open = s.open[:len(s.open)-1]
			}
			s.word, s.key = "", ""
		case c == '"' || c == '\'':
			s.take(s.quoted(c), false)
		case isWordByte(c):
			w := s.bare(c)
			if m, ok := s.number(w); ok {
				return m, nil
			}
			s.take(w, true)
		default:
			s.word = ""
		}
	}
}

func (s *metricScanner) comma() {
	s.word, s.key = "", ""
	if n := len(s.open); n > 0 && s.open[n-1].list {
		s.open[n-1].next++
	}
}

func (s *metricScanner) push(list bool) {
	if len(s.open) == maxDepth { // what is outermost matters least
		s.open = append(s.open[:0], s.open[1:]...)
	}
	s.open = append(s.open, opened{key: s.key, list: list})
	s.word, s.key = "", ""
}

// take remembers a word: as a possible name, and for what it says of its line.
func (s *metricScanner) take(w string, bare bool) {
	s.word, s.key = w, ""
	if !bare {
		return
	}
	w = strings.ToLower(w)
	s.named = w == "position"
	if section := sectionOf(w); section != "" {
		s.section = section
	}
}

// number makes a metric of a word, if it is a number that has a name.
func (s *metricScanner) number(w string) (metric, bool) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(w, "%"), 64)
	if err != nil {
		return metric{}, false
	}
	if strings.HasSuffix(w, "%") {
		v /= 100
	}
	key := s.key
	if s.named && v >= 0 && v < maxPositions {
		s.position, s.named = int(v), false
		return metric{}, false
	}
	s.word, s.key = "", ""
	m := metric{section: s.section, value: v, line: s.line}
	for _, o := range s.open {
		if o.key != "" {
			m.path = append(m.path, strings.Split(strings.ToLower(o.key), "/")...)
		}
	}
	n := len(s.open)
	switch {
	case key != "" && s.position >= 0 && strings.EqualFold(key, "acc"):
		m.path = append(m.path, perPosition, strconv.Itoa(s.position))
	case key != "":
		m.path = append(m.path, strings.Split(strings.ToLower(key), "/")...)
	case n > 0 && s.open[n-1].list && s.open[n-1].key != "":
		m.path = append(m.path, strconv.Itoa(s.open[n-1].next))
	default:
		return metric{}, false
	}
	return m, true
}

// quoted reads to the closing quote, or to the end of the line: an apostrophe in a
// console's text closes nothing.
func (s *metricScanner) quoted(quote byte) string {
	var w []byte
	for {
		c, err := s.r.ReadByte()
		switch {
		case err != nil || c == quote:
			return string(w)
		case c == '\n':
			if s.r.UnreadByte() != nil {
				return ""
			}
			return string(w)
		case c == '\\':
			_, _ = s.r.ReadByte() // whatever is escaped is part of no metric's name
		case len(w) < maxWord:
			w = append(w, c)
		}
	}
}

// bare reads a word, an apostrophe within it too.
func (s *metricScanner) bare(first byte) string {
	w := []byte{first}
	for {
		c, err := s.r.ReadByte()
		if err != nil {
			return string(w)
		}
		if !isWordByte(c) && c != '\'' {
			if s.r.UnreadByte() != nil {
				return ""
			}
			return string(w)
		}
		if len(w) < maxWord {
			w = append(w, c)
		}
	}
}

// skipColour leaves out an escape sequence of a terminal, whose bracket opens no list.
func (s *metricScanner) skipColour() {
	for range 16 {
		c, err := s.r.ReadByte()
		if err != nil || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' {
			return
		}
	}
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '_' || c == '/' || c == '.' || c == '-' || c == '+' || c == '%' || c >= 0x80
}

// sectionOf is train or eval for a word that names one, "" for others.
func sectionOf(word string) string {
	switch word {
	case "eval", "evaluation", "evaluating", "val", "valid", "validation", "test":
		return sectionEval
	case "train", "training":
		return sectionTrain
	}
	return ""
}

// readMetrics gives each metric of r to use.
func readMetrics(r io.Reader, use func(metric)) error {
	s := newMetricScanner(r)
	for {
		m, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		use(m)
	}
}
