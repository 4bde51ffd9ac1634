package npy

import (
	"strconv"
	"strings"

	"hsx/format"
)

// parser matches a header against the part of Python that headers need:
//
//	header = "{" [ item { "," item } [ "," ] ] "}" "\n"
//	item   = string ":" ( string | "True" | "False" | tuple )
//	tuple  = "(" [ digits "," { digits "," } [ digits ] ] ")"
//
// with spaces between any two of these, strings without escapes, and each of the
// three keys once. A call, a list or a nested dict matches nothing.
type parser struct {
	text string
	pos  int
	base int // place of text in the file
}

func parseHeader(text string, base int) (header, error) {
	p := &parser{text: text, base: base}
	if !strings.HasSuffix(text, "\n") {
		return header{}, corrupt(base+len(text), "header does not end with a newline")
	}
	h, err := p.dict()
	if err != nil {
		return header{}, err
	}
	if p.space(); p.pos < len(text) {
		return header{}, p.unexpected("the end of the header")
	}
	_, _, err = parseDescr(h.descr) // before npyio, which a brace in it would mislead
	return h, err
}

func (p *parser) dict() (h header, err error) {
	if err := p.want("{"); err != nil {
		return h, err
	}
	var descr, order, shape bool
	for !p.accept("}") {
		key, err := p.str()
		if err != nil {
			return h, err
		}
		if err := p.want(":"); err != nil {
			return h, err
		}
		repeated := false
		switch key {
		case "descr":
			repeated, descr = descr, true
			h.descr, err = p.descr()
		case "fortran_order":
			repeated, order = order, true
			h.fortran, err = p.boolean()
		case "shape":
			repeated, shape = shape, true
			h.shape, err = p.tuple()
		default:
			return h, corrupt(p.base+p.pos, "header has a key %.40q, want only descr, fortran_order and shape", key)
		}
		if err != nil {
			return h, err
		}
		if repeated {
			return h, corrupt(p.base+p.pos, "header has the duplicate key %q", key)
		}
		if !p.accept(",") {
			if err := p.want("}"); err != nil {
				return h, err
			}
			break
		}
	}
	if !descr || !order || !shape {
		return h, corrupt(p.base+p.pos, "header is incomplete, want the keys descr, fortran_order and shape")
	}
	return h, nil
}

func (p *parser) descr() (string, error) {
	if p.space(); p.pos < len(p.text) && strings.IndexByte("[({", p.text[p.pos]) >= 0 {
		return "", fault(format.ErrUnsupported, p.base+p.pos, "array has a structured dtype %.40q, want one plain type such as '<f2'", p.text[p.pos:])
	}
	return p.str()
}

func (p *parser) str() (string, error) {
	p.space()
	for _, quote := range []string{"'", `"`} {
		if !p.accept(quote) {
			continue
		}
		s, _, ok := strings.Cut(p.text[p.pos:], quote)
		if !ok || strings.ContainsAny(s, "\\\n") {
			p.pos-- // to show the quote
			break
		}
		p.pos += len(s) + 1
		return s, nil
	}
	return "", p.unexpected("a plain string")
}

func (p *parser) boolean() (bool, error) {
	if p.accept("True") {
		return true, nil
	}
	if p.accept("False") {
		return false, nil
	}
	return false, p.unexpected("True or False")
}

func (p *parser) tuple() ([]int64, error) {
	if err := p.want("("); err != nil {
		return nil, err
	}
	shape := make([]int64, 0, 4)
	for !p.accept(")") {
		n, err := p.integer()
		if err != nil {
			return nil, err
		}
		if len(shape) == maxDims {
			return nil, fault(format.ErrLimit, p.base+p.pos, "shape has more than %d dimensions", maxDims)
		}
		shape = append(shape, n)
		if p.accept(",") {
			continue
		}
		if len(shape) == 1 {
			return nil, p.unexpected("a comma (without one, the shape is a number and not a tuple)")
		}
		if err := p.want(")"); err != nil {
			return nil, err
		}
		break
	}
	return shape, nil
}

func (p *parser) integer() (int64, error) {
	p.space()
	rest := p.text[p.pos:]
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	if digits == "" || len(digits) > 1 && digits[0] == '0' {
		return 0, p.unexpected("a dimension of the shape, a whole number from 0")
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, corrupt(p.base+p.pos, "shape has a dimension %.40s, want at most 2^63-1", digits)
	}
	p.pos += len(digits)
	return n, nil
}

func (p *parser) space() {
	p.pos = len(p.text) - len(strings.TrimLeft(p.text[p.pos:], " \t\n"))
}

func (p *parser) accept(s string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], s) {
		return false
	}
	p.pos += len(s)
	return true
}

func (p *parser) want(s string) error {
	if !p.accept(s) {
		return p.unexpected(strconv.Quote(s))
	}
	return nil
}

func (p *parser) unexpected(want string) error {
	if p.pos >= len(p.text) {
		return corrupt(p.base+p.pos, "header ends where %s is wanted", want)
	}
	return corrupt(p.base+p.pos, "header has %.24q where %s is wanted", p.text[p.pos:], want)
}
