package sglang

import (
	"bytes"
	"encoding/json"
	"iter"
)

// scanner walks one JSON text. On a text that encoding/json accepts it is exact; on
// other bytes it stays inside them, moves forward and ends, which is all that
// [Classify] needs. It never calls itself, so nesting costs it nothing.
type scanner struct {
	data []byte
	pos  int
}

// peek is the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.data); s.pos++ {
		switch c := s.data[s.pos]; c {
		case ' ', '\t', '\r', '\n':
		default:
			return c
		}
	}
	return 0
}

// take moves past c if it comes next, and on to what follows, so that pos is where
// a value begins whenever one is about to be read.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.pos++
	s.peek()
	return true
}

// members are the keys of the object that comes next. The loop's body has to move
// past the value of each.
func (s *scanner) members() iter.Seq[string] {
	return func(yield func(string) bool) {
		if !s.take('{') {
			return
		}
		for s.peek() == '"' {
			key := s.text()
			if !s.take(':') || !yield(key) || !s.take(',') {
				break
			}
		}
		s.take('}')
	}
}

// elements are the indices of the list that comes next. The loop's body has to move
// past each element.
func (s *scanner) elements() iter.Seq[int] {
	return func(yield func(int) bool) {
		if !s.take('[') || s.take(']') {
			return
		}
		for i := 0; yield(i) && s.take(','); i++ {
		}
		s.take(']')
	}
}

// text moves past a string and gives its value, "" if it is not a valid one.
func (s *scanner) text() string {
	start := s.pos
	s.skipString()
	quoted := s.data[start:s.pos]
	for _, c := range quoted {
		if c == '\\' || c < ' ' || c > '~' {
			var v string
			if json.Unmarshal(quoted, &v) != nil {
				return ""
			}
			return v
		}
	}
	return string(bytes.Trim(quoted, `"`))
}

// scalar moves past a number or a literal and gives its bytes.
func (s *scanner) scalar() []byte {
	s.peek()
	start := s.pos
	for ; s.pos < len(s.data); s.pos++ {
		switch s.data[s.pos] {
		case ',', ']', '}', ' ', '\t', '\r', '\n':
			return s.data[start:s.pos]
		}
	}
	return s.data[start:]
}

// skip moves past any value.
func (s *scanner) skip() {
	switch s.peek() {
	case '"':
		s.skipString()
		return
	case '[', '{':
	default:
		s.scalar()
		return
	}
	for depth := 0; s.pos < len(s.data); {
		switch s.data[s.pos] {
		case '"':
			s.skipString()
			continue
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		}
		s.pos++
		if depth == 0 {
			return
		}
	}
}

// skipString moves past the string that begins here.
func (s *scanner) skipString() {
	for s.pos++; s.pos < len(s.data); s.pos++ {
		switch s.data[s.pos] {
		case '\\':
			s.pos++
		case '"':
			s.pos++
			return
		}
	}
	s.pos = len(s.data)
}

// depth is the number of lists that open here one directly inside the other.
func (s *scanner) depth() int {
	ahead := *s
	n := 0
	for ahead.take('[') {
		n++
	}
	return n
}

// kind names the value that comes next, for messages.
func (s *scanner) kind() string {
	switch s.peek() {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "a list"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}
