package server

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// A client of 256 streams decodes tens of thousands of chunks a second, of which it wants
// a few members. The functions here walk a JSON text and make no value of the rest; they
// check no more of it than they need, and leave what is rare to encoding/json.

// value cuts the first JSON value off a text, and the white space around it.
func value(text []byte) (v, rest []byte, ok bool) {
	text = bytes.TrimLeft(text, " \t\r\n")
	if len(text) == 0 {
		return nil, nil, false
	}
	end := 0
	switch text[0] {
	case '"':
		end = stringEnd(text)
	case '{', '[':
		end = nestEnd(text)
	default:
		end = bytes.IndexAny(text, ",:]}\" \t\r\n")
		if end < 0 {
			end = len(text)
		}
	}
	if end <= 0 {
		return nil, nil, false
	}
	return text[:end], bytes.TrimLeft(text[end:], " \t\r\n"), true
}

// stringEnd is the length of the string that begins a text, 0 when it does not end.
func stringEnd(text []byte) int {
	for end := 1; ; end++ {
		i := bytes.IndexByte(text[end:], '"')
		if i < 0 {
			return 0
		}
		end += i
		escapes := 0
		for text[end-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return end + 1
		}
	}
}

// nestEnd is the length of the object or array that begins a text, 0 when it does not end.
func nestEnd(text []byte) int {
	for i, depth := 0, 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			length := stringEnd(text[i:])
			if length == 0 {
				return 0
			}
			i += length - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// members visits each member of an object, its name without quotes and its value as it
// stands. It reports whether the text is one object and nothing else.
func members(text []byte, visit func(name, value []byte)) bool {
	return walk(text, '{', '}', func(rest []byte) ([]byte, bool) {
		name, rest, ok := value(rest)
		if !ok || name[0] != '"' || len(rest) == 0 || rest[0] != ':' {
			return nil, false
		}
		v, rest, ok := value(rest[1:])
		if ok {
			visit(name[1:len(name)-1], v)
		}
		return rest, ok
	})
}

// elements visits each element of an array, and reports whether the text is one.
func elements(text []byte, visit func(value []byte)) bool {
	return walk(text, '[', ']', func(rest []byte) ([]byte, bool) {
		v, rest, ok := value(rest)
		if ok {
			visit(v)
		}
		return rest, ok
	})
}

// walk takes one after the other what is between two brackets and divided by commas.
func walk(text []byte, opening, closing byte, take func([]byte) ([]byte, bool)) bool {
	text = bytes.Trim(text, " \t\r\n")
	if len(text) < 2 || text[0] != opening || text[len(text)-1] != closing {
		return false
	}
	rest := bytes.TrimLeft(text[1:], " \t\r\n")
	if rest[0] == closing {
		return len(rest) == 1
	}
	for {
		var ok bool
		if rest, ok = take(rest); !ok || len(rest) == 0 {
			return false
		}
		if rest[0] != ',' {
			return rest[0] == closing && len(rest) == 1
		}
		rest = rest[1:]
	}
}

func isNull(v []byte) bool { return string(v) == "null" }

// unquote is a JSON string's value, "" of null.
func unquote(v []byte) (string, bool) {
	switch {
	case isNull(v):
		return "", true
	case v[0] != '"':
		return "", false
	case bytes.IndexByte(v, '\\') < 0 && utf8.Valid(v):
		return string(v[1 : len(v)-1]), true
	}
	var s string
	err := json.Unmarshal(v, &s)
	return s, err == nil
}

// kind is what a JSON value is.
func kind(v []byte) string {
	switch v[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "bool"
	case 'n':
		return "null"
	}
	return "number"
}
