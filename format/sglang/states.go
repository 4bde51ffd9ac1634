package sglang

import (
	"encoding/binary"
	"math"
	"strconv"

	"hsx/format"
)

// rows collects the rows of one answer as float32, little-endian.
type rows struct {
	*decoder
	data     []byte
	n, width int
}

// states reads hidden_states, whose depth says how it is laid out:
//
//	[[f…], [f…], …]               one row for each new token
//	[[[f…], …], [f…], …]          the rows of the prompt, then one for each new token
//	[[[[f…], …], [f…], …]]        the same, one level more for the one sequence
func (d *decoder) states() (*format.Tensor, error) {
	r := &rows{decoder: d}
	switch depth := d.depth(); depth {
	case 2, 3:
		if err := r.sequence(); err != nil {
			return nil, err
		}
	case 4:
		for i := range d.elements() {
			if i > 0 {
				return nil, d.refuse(format.ErrUnsupported, d.pos, keyStates, "hidden_states holds more than one sequence, want one for each answer")
			}
			if err := r.sequence(); err != nil {
				return nil, err
			}
		}
	case 0:
		return nil, d.refuse(format.ErrCorrupt, d.pos, keyStates, "hidden_states is %s, want a list of rows", d.kind())
	default:
		return nil, d.refuse(format.ErrUnsupported, d.pos, keyStates, "hidden_states nests lists %d deep, want 2 to 4: rows of numbers, those of the prompt in a list of their own", depth)
	}
	return &format.Tensor{Name: keyStates, DType: format.Float32, Shape: []int64{int64(r.n), int64(r.width)}, Data: r.data}, nil
}

// sequence reads the rows of one sequence. Only the first element may be a list of
// rows: where later ones are, a level stands for something that is not a token.
func (r *rows) sequence() error {
	if k := r.kind(); k != "a list" {
		return r.refuse(format.ErrCorrupt, r.pos, keyStates, "hidden_states holds %s, want a list of rows", k)
	}
	for i := range r.elements() {
		depth := r.depth()
		switch {
		case depth == 2 && i == 0:
			for range r.elements() {
				if err := r.row(); err != nil {
					return err
				}
			}
		case depth > 1:
			return r.refuse(format.ErrUnsupported, r.pos, keyStates, "element %d of hidden_states nests lists %d deep, want one row: only the prompt's rows, element 0, share a list", i, depth)
		default:
			if err := r.row(); err != nil {
				return err
			}
		}
	}
	return nil
}

// row reads one row of numbers.
func (r *rows) row() error {
	at := r.pos
	if k := r.kind(); k != "a list" {
		return r.refuse(format.ErrCorrupt, r.pos, keyStates, "row %d of hidden_states is %s, want a list of numbers", r.n, k)
	}
	width := 0
	for range r.elements() {
		v, err := r.number(width)
		if err != nil {
			return err
		}
		r.data = binary.LittleEndian.AppendUint32(r.data, math.Float32bits(v))
		width++
	}
	switch {
	case width == 0:
		return r.refuse(format.ErrCorrupt, at, keyStates, "row %d of hidden_states has no numbers", r.n)
	case r.n == 0:
		r.width = width
	case width != r.width:
		return r.refuse(format.ErrCorrupt, at, keyStates, "row %d of hidden_states is %d wide, want %d as row 0 is: the rows are ragged", r.n, width, r.width)
	}
	r.n++
	return nil
}

// number reads the number in the given column of the row.
func (r *rows) number(column int) (float32, error) {
	switch k := r.kind(); k {
	case "a number":
	case "null":
		return 0, r.refuse(format.ErrCorrupt, r.pos, keyStates, "row %d column %d of hidden_states is null, want a number: some servers write null for NaN and infinity", r.n, column)
	default:
		return 0, r.refuse(format.ErrCorrupt, r.pos, keyStates, "row %d column %d of hidden_states is %s, want a number", r.n, column, k)
	}
	at := r.pos
	tok := r.scalar()
	v, err := strconv.ParseFloat(string(tok), 32)
	if err != nil {
		return 0, r.refuse(format.ErrCorrupt, at, keyStates, "row %d column %d of hidden_states is %s, which is non-finite as float32", r.n, column, clip(tok))
	}
	return float32(v), nil
}
