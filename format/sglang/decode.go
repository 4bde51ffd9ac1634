package sglang

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"hsx/format"
)

const (
	jsonFormat = "sglang json"
	maxQuote   = 64 // bytes of the input in a message
)

// decoder reads one JSON text whose syntax is known to be right.
type decoder struct {
	scanner
	item int // the answer of a list that is read, -1 without a list
}

// syntax accepts any JSON value and keeps nothing of it.
type syntax struct{}

func (syntax) UnmarshalJSON([]byte) error { return nil }

// newDecoder checks the syntax of the whole text, so that all reading after it may
// take it for granted. encoding/json also bounds how deep the text nests.
func newDecoder(data []byte) (*decoder, error) {
	d := &decoder{scanner: scanner{data: data}, item: -1}
	if json.Valid(data) {
		return d, nil
	}
	// Once more for the reason, which takes a second pass even over good text.
	err := json.Unmarshal(data, new(syntax))
	var se *json.SyntaxError
	if !errors.As(err, &se) {
		return nil, d.refuse(format.ErrCorrupt, -1, "", "file is not JSON: %w", err)
	}
	at := max(0, int(se.Offset)-1) // Offset counts the byte that is wrong
	switch msg := se.Error(); {
	case strings.HasPrefix(msg, "unexpected end"):
		return nil, d.refuse(format.ErrCorrupt, len(data), "", "file is truncated: its JSON does not end within %d bytes", len(data))
	case strings.Contains(msg, "max depth"):
		return nil, d.refuse(format.ErrLimit, at, "", "file nests too deep: hidden states nest lists 3 deep, at most 4")
	case bytes.HasPrefix(data[at:], []byte("NaN")) || bytes.HasPrefix(data[at:], []byte("Infinity")):
		return nil, d.refuse(format.ErrCorrupt, at, "", "file is not JSON: it holds NaN or Infinity, which JSON has no word for")
	}
	return nil, d.refuse(format.ErrCorrupt, at, "", "file is not JSON: %w", err)
}

// count reads a number of tokens; null says nothing, as if the key were not there.
func (d *decoder) count(key string) (n int, known bool, err error) {
	if d.peek() == 'n' {
		d.skip()
		return 0, false, nil
	}
	at := d.pos
	v, err := d.integer(key)
	if err == nil && (v < 0 || v > math.MaxInt32) {
		return 0, false, d.refuse(format.ErrCorrupt, at, key, "%s is %d, want 0 to %d", key, v, math.MaxInt32)
	}
	return int(v), true, err
}

// integer reads one integer, named what in messages.
func (d *decoder) integer(what string) (int64, error) {
	if k := d.kind(); k != "a number" {
		return 0, d.refuse(format.ErrCorrupt, d.pos, what, "%s is %s, want an integer", what, k)
	}
	at := d.pos
	tok := d.scalar()
	v, err := strconv.ParseInt(string(tok), 10, 64)
	if err != nil {
		return 0, d.refuse(format.ErrCorrupt, at, what, "%s is %s, want an integer of 64 bits", what, clip(tok))
	}
	return v, nil
}

// integers reads a list of integers.
func (d *decoder) integers(key string) ([]int64, error) {
	if k := d.kind(); k != "a list" {
		return nil, d.refuse(format.ErrCorrupt, d.pos, key, "%s is %s, want a list of integers", key, k)
	}
	ids := []int64{}
	for range d.elements() {
		v, err := d.integer(key)
		if err != nil {
			return nil, err
		}
		ids = append(ids, v)
	}
	return ids, nil
}

// refuse is the error about the byte at the given place.
func (d *decoder) refuse(kind error, at int, key, msg string, args ...any) error {
	err := fmt.Errorf(msg, args...)
	if d.item >= 0 {
		err = fmt.Errorf("response %d: %w", d.item, err)
	}
	return &format.DecodeError{Format: jsonFormat, Offset: int64(at), Tensor: key, Kind: kind, Err: err}
}

// clip keeps a message short whatever the file holds.
func clip(tok []byte) string {
	if len(tok) > maxQuote {
		return string(tok[:maxQuote]) + "…"
	}
	return string(tok)
}
