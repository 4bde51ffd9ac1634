package npy

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"

	npyio "github.com/sbinet/npyio/npy"

	"hsx/format"
)

// header is what the dict at the head of a file says.
type header struct {
	descr   string
	fortran bool
	shape   []int64
}

// String is the dict in the form that numpy.save writes, without padding.
func (h header) String() string {
	b := append([]byte("{'descr': '"), h.descr...)
	b = append(b, "', 'fortran_order': "...)
	if h.fortran {
		b = append(b, "True"...)
	} else {
		b = append(b, "False"...)
	}
	b = append(b, ", 'shape': ("...)
	for i, d := range h.shape {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = strconv.AppendInt(b, d, 10)
	}
	if len(h.shape) == 1 {
		b = append(b, ',')
	}
	return string(append(b, "), }"...))
}

// readHeader gives the header and the place where the array begins.
//
// npyio believes any header length, and slices the dict at places that it takes for
// granted, so it panics on a cut file, a missing newline or keys in another order.
// It therefore reads only a header that is, to the letter, what numpy.save writes;
// that is nearly every file. The rest, and version 3, which it does not know, have the
// grammar's own reading.
func readHeader(data []byte) (header, int, error) {
	begin, end, err := headerRange(data)
	if err != nil {
		return header{}, 0, err
	}
	text := string(data[begin:end])
	h, err := parseHeader(text, begin)
	if err != nil {
		return header{}, 0, err
	}
	if data[len(magic)] > 2 || strings.TrimRight(text, " \n") != h.String() {
		return h, end, nil
	}
	r, err := npyio.NewReader(bytes.NewReader(data[:end]))
	if err != nil {
		return header{}, 0, corrupt(begin, "header is not readable: %w", err)
	}
	d := r.Header.Descr
	h = header{descr: d.Type, fortran: d.Fortran, shape: make([]int64, len(d.Shape))}
	for i, n := range d.Shape {
		h.shape[i] = int64(n)
	}
	return h, end, nil
}

// headerRange checks magic, version and header length before anything is built from them.
func headerRange(data []byte) (begin, end int, err error) {
	switch {
	case len(data) == 0:
		return 0, 0, corrupt(0, "file is empty")
	case !IsFile(data) && strings.HasPrefix(magic, string(data[:min(len(data), len(magic))])):
		return 0, 0, corrupt(len(data), "file is truncated: it has %d bytes, too few for a header", len(data))
	case !IsFile(data):
		return 0, 0, fault(format.ErrUnsupported, 0, "file begins with %q, want %q", data[:min(len(data), len(magic))], magic)
	case len(data) < preamble:
		return 0, 0, corrupt(len(data), "file is truncated: it has %d bytes, too few for a header", len(data))
	}
	major, minor, width := data[len(magic)], data[len(magic)+1], 4
	switch {
	case minor != 0 || major < 1 || major > 3:
		return 0, 0, fault(format.ErrUnsupported, len(magic), "header has version %d.%d, want 1.0, 2.0 or 3.0", major, minor)
	case major == 1:
		width = 2
	}
	begin = preamble + width
	if len(data) < begin {
		return 0, 0, corrupt(len(data), "file is truncated: it has %d bytes, too few for a header", len(data))
	}
	n := uint32(binary.LittleEndian.Uint16(data[preamble:]))
	if width == 4 {
		n = binary.LittleEndian.Uint32(data[preamble:])
	}
	if n > maxHeader {
		return 0, 0, fault(format.ErrLimit, preamble, "header length is %d, want at most %d", n, maxHeader)
	}
	if rest := len(data) - begin; int(n) > rest {
		return 0, 0, corrupt(len(data), "file is truncated: the header length is %d, and %d bytes follow", n, rest)
	}
	return begin, begin + int(n), nil
}

// parseDescr reads a type string: byte order, kind and bytes of an element.
func parseDescr(s string) (d format.DType, bigEndian bool, err error) {
	order, kind := byte(0), ""
	if s != "" {
		order, kind = s[0], s[1:]
	}
	for d := format.Bool; d <= format.Float64; d++ {
		if d == format.BFloat16 || kind != descrOf(d)[1:] {
			continue
		}
		switch {
		case order == '<', order == '|' && d.Size() == 1:
			return d, false, nil
		case order == '>':
			return d, true, nil
		}
	}
	switch kind {
	case "O":
		return d, false, fault(format.ErrUnsupported, preamble, "array has the object dtype %q: it holds pickled Python objects, which are never run", s)
	case "V2":
		return d, false, fault(format.ErrUnsupported, preamble, "array has dtype %q, raw bytes that may be bfloat16: save array.view(numpy.uint16) instead", s)
	}
	return d, false, fault(format.ErrUnsupported, preamble, "array has dtype %.40q, want <f2, <f4, <f8, |b1 or an integer type such as <i8", s)
}

// descrOf is the type string that NumPy writes for d, "" for an invalid type.
func descrOf(d format.DType) string {
	switch d {
	case format.Bool:
		return "|b1"
	case format.Uint8:
		return "|u1"
	case format.Int8:
		return "|i1"
	case format.Uint16, format.BFloat16:
		return "<u2"
	case format.Int16:
		return "<i2"
	case format.Uint32:
		return "<u4"
	case format.Int32:
		return "<i4"
	case format.Uint64:
		return "<u8"
	case format.Int64:
		return "<i8"
	case format.Float16:
		return "<f2"
	case format.Float32:
		return "<f4"
	case format.Float64:
		return "<f8"
	}
	return ""
}
