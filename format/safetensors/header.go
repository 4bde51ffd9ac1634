package safetensors

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"hsx/format"
)

const metadataKey = "__metadata__"

type header struct {
	entries  []entry
	metadata map[string]string
	notes    []string
}

// entry is one tensor as the header declares it; its data offsets are not checked yet.
type entry struct {
	tensor     *format.Tensor // without Data
	at         int64          // of the declaration in the file
	begin, end int64          // of the data, counted from the end of the header
}

// walker reads the header token by token. Unmarshalling would be shorter, and would
// keep the last of two equal keys, take 16.0 for 16, and build whatever nests.
type walker struct {
	text []byte
	dec  *json.Decoder
}

func parseHeader(b []byte) (*header, error) {
	if b[0] != '{' {
		return nil, corrupt(lengthBytes, "", "header begins with %q, want a JSON object", b[0])
	}
	if !utf8.Valid(b) {
		return nil, corrupt(lengthBytes, "", "header is not valid UTF-8, so not valid JSON")
	}
	w := &walker{text: b, dec: json.NewDecoder(bytes.NewReader(b))}
	w.dec.UseNumber()
	if _, err := w.token(); err != nil { // the brace seen above
		return nil, err
	}
	h := &header{}
	err := w.members("", func(key string) error {
		if key == metadataKey {
			return w.metadata(h)
		}
		e, err := w.entry(key)
		h.entries = append(h.entries, e)
		return err
	})
	if err != nil {
		return nil, err
	}
	if tail := bytes.TrimLeft(b[w.dec.InputOffset():], " \t\r\n"); len(tail) > 0 {
		return nil, corrupt(int64(lengthBytes+len(b)-len(tail)), "", "header is not valid JSON: %.20q follows the object", tail)
	}
	return h, nil
}

// members visits the keys of the object whose brace was read last. Each visit
// has to read the value.
func (w *walker) members(tensor string, visit func(key string) error) error {
	seen := make(map[string]bool)
	for w.dec.More() {
		tok, err := w.token()
		if err != nil {
			return err
		}
		key, _ := tok.(string) // the decoder lets nothing else stand here
		switch {
		case len(key) > maxName:
			return fault(format.ErrLimit, w.at(), tensor, "header has a key of %d bytes, want at most %d", len(key), maxName)
		case strings.ContainsRune(key, utf8.RuneError):
			return corrupt(w.at(), key, "header key %q has a character that is not valid Unicode", key)
		case seen[key] && tensor != "":
			return corrupt(w.at(), tensor, "header has the duplicate key %q in %q", key, tensor)
		case seen[key]:
			return corrupt(w.at(), key, "header has the duplicate key %q", key)
		}
		seen[key] = true
		if err := visit(key); err != nil {
			return err
		}
	}
	_, err := w.token() // the closing brace
	return err
}

// entry reads the declaration of one tensor.
func (w *walker) entry(name string) (entry, error) {
	e := entry{tensor: &format.Tensor{Name: name}, at: w.at()}
	if err := w.open('{', name, "tensor"); err != nil {
		return e, err
	}
	var offsets []int64
	err := w.members(name, func(key string) (err error) {
		switch key {
		case "dtype":
			e.tensor.DType, err = w.dtype(name)
		case "shape":
			e.tensor.Shape, err = w.integers(name, key, maxDims)
		case "data_offsets":
			offsets, err = w.integers(name, key, 2)
		default:
			err = fault(format.ErrUnsupported, w.at(), name, "tensor %q has a field %q, want only dtype, shape and data_offsets", name, key)
		}
		return err
	})
	if err != nil {
		return e, err
	}
	if e.tensor.DType == format.InvalidDType || e.tensor.Shape == nil || len(offsets) != 2 {
		return e, corrupt(e.at, name, "tensor %q is not fully declared, want dtype, shape and two data_offsets", name)
	}
	e.begin, e.end = offsets[0], offsets[1]
	return e, nil
}

func (w *walker) dtype(name string) (format.DType, error) {
	tok, err := w.token()
	if err != nil {
		return format.InvalidDType, err
	}
	s, ok := tok.(string)
	if !ok {
		return format.InvalidDType, corrupt(w.at(), name, "tensor %q has %s for its dtype, want a string", name, describe(tok))
	}
	d, ok := dtypeOf(s)
	if !ok {
		return d, fault(format.ErrUnsupported, w.at(), name, "tensor %q has dtype %.40q, want BF16, F16, F32, F64, BOOL, or an integer type from I8 to U64", name, s)
	}
	return d, nil
}

// integers reads an array of at most limit whole numbers, never nil.
func (w *walker) integers(name, field string, limit int) ([]int64, error) {
	if err := w.open('[', name, field); err != nil {
		return nil, err
	}
	vs := make([]int64, 0, 2)
	for w.dec.More() {
		tok, err := w.token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		v, err := strconv.ParseUint(string(num), 10, 63) // no sign, no fraction, no exponent
		if !ok || err != nil {
			return nil, corrupt(w.at(), name, "tensor %q has %s in its %s, want whole numbers from 0 to 2^63-1", name, describe(tok), field)
		}
		if len(vs) == limit {
			return nil, fault(format.ErrLimit, w.at(), name, "tensor %q has more than %d numbers in its %s", name, limit, field)
		}
		vs = append(vs, int64(v))
	}
	_, err := w.token() // the closing bracket
	return vs, err
}

// metadata keeps the strings of the metadata object. Readers never need the rest, so
// it costs a note and not the file.
func (w *walker) metadata(h *header) error {
	if w.next() != '{' {
		other, err := w.skip()
		h.notes = append(h.notes, fmt.Sprintf("%s is left out: it is %.40s, want an object of strings", metadataKey, other))
		return err
	}
	if err := w.open('{', metadataKey, "value"); err != nil {
		return err
	}
	h.metadata = make(map[string]string)
	dropped, first := 0, ""
	err := w.members(metadataKey, func(key string) error {
		if w.next() == '"' {
			tok, err := w.token()
			h.metadata[key], _ = tok.(string)
			return err
		}
		other, err := w.skip()
		if dropped++; dropped == 1 {
			first = fmt.Sprintf("%.80q, which is %.40s", key, other)
		}
		return err
	})
	if dropped > 0 {
		h.notes = append(h.notes, fmt.Sprintf("%s values other than strings are left out: %d, beginning with %s", metadataKey, dropped, first))
	}
	return err
}

// next is the first byte of the value after the key read last, 0 when there is none.
func (w *walker) next() byte {
	rest := bytes.TrimLeft(w.text[w.dec.InputOffset():], ": \t\r\n")
	if len(rest) == 0 {
		return 0
	}
	return rest[0]
}

// skip reads a whole value without building it. The decoder bounds its nesting.
func (w *walker) skip() (json.RawMessage, error) {
	var raw json.RawMessage
	if err := w.dec.Decode(&raw); err != nil {
		return nil, w.invalid(err)
	}
	return raw, nil
}

func (w *walker) open(want json.Delim, name, what string) error {
	tok, err := w.token()
	if err != nil {
		return err
	}
	if tok != want {
		return corrupt(w.at(), name, "header has %s for the %s of %q, want %q", describe(tok), what, name, want.String())
	}
	return nil
}

func (w *walker) token() (json.Token, error) {
	tok, err := w.dec.Token()
	if err != nil {
		return nil, w.invalid(err)
	}
	return tok, nil
}

func (w *walker) invalid(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return corrupt(w.at(), "", "header is not valid JSON: it ends inside the object")
	}
	return corrupt(w.at(), "", "header is not valid JSON: %w", err)
}

// at is the place in the file up to which tokens were read.
func (w *walker) at() int64 { return lengthBytes + w.dec.InputOffset() }

func describe(tok json.Token) string {
	switch v := tok.(type) {
	case json.Delim:
		if v == '[' {
			return "an array"
		}
		return "an object"
	case json.Number:
		return fmt.Sprintf("%.40s", string(v))
	case string:
		return fmt.Sprintf("the string %.40q", v)
	case bool:
		return strconv.FormatBool(v)
	}
	return "null"
}
