package receive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"hsx/format"
	"hsx/format/producer"
	"hsx/format/safetensors"
)

// The bounds of one sample: what it takes of the heap however large its body may be.
const (
	maxHeader = 1 << 20 // bytes of JSON
	maxTokens = 1 << 22 // rows of all layers, where they lie in one tensor
)

// decode makes a sample of a body, which it aliases.
func decode(data []byte, id string, facts producer.Facts, allowNonFinite bool) (*format.Sample, error) {
	if len(data) >= 8 {
		if n := binary.LittleEndian.Uint64(data); n > maxHeader && n <= uint64(len(data)) {
			return nil, fmt.Errorf("safetensors header has %d bytes, want at most %d", n, maxHeader)
		}
	}
	f, err := safetensors.Decode(data)
	if err != nil {
		return nil, err
	}
	return sample(f.Record, f.Metadata, id, facts, allowNonFinite)
}

// sample makes one of named tensors, which it aliases.
func sample(rec *format.Record, metadata map[string]string, id string, facts producer.Facts, allowNonFinite bool) (*format.Sample, error) {
	for _, field := range rec.Fields {
		t, ok := field.Value.(*format.Tensor)
		if !ok || len(t.Shape) == 0 {
			continue
		}
		rows, _ := format.Elems(t.Shape) // it holds as many, so it can be counted
		if last := t.Shape[len(t.Shape)-1]; t.DType.IsState() && len(t.Shape) > 1 {
			rows /= max(1, last)
		}
		if rows > maxTokens {
			return nil, fmt.Errorf("tensor %q has shape %v, want at most %d tokens", t.Name, t.Shape, maxTokens)
		}
	}
	m, err := producer.Recognise(producer.Dump{Container: producer.Safetensors, Value: rec, Metadata: metadata}, facts)
	if err != nil {
		return nil, err
	}
	s, err := one(m.Samples())
	if err != nil {
		return nil, err
	}
	if s.ID != "" && s.ID != id {
		return nil, fmt.Errorf("body holds sample %q, the path names %q", s.ID, id)
	}
	s.ID, s.Last = id, true
	if err := s.Check(); err != nil { // before the rows are read
		return nil, err
	}
	if len(s.Tokens) == 0 {
		return nil, errors.New("sample has no tokens")
	}
	if allowNonFinite {
		return s, nil
	}
	return s, finite(s)
}

// one is the only sample of a body.
func one(all iter.Seq2[*format.Sample, error]) (out *format.Sample, err error) {
	for s, err := range all {
		if err != nil {
			return nil, err
		}
		if out != nil {
			return nil, errors.New("body holds several samples, want one")
		}
		out = s
	}
	if out == nil {
		return nil, errors.New("body holds no sample")
	}
	return out, nil
}

// finite names the first value of a sample that is an infinity or a NaN.
func finite(s *format.Sample) error {
	for _, h := range s.Hidden {
		for t := range h.Rows.N {
			if i := nonFinite(h.Rows.Row(t), h.Rows.DType); i >= 0 {
				return fmt.Errorf("%s has a value that is not finite at token %d, channel %d", h.State.Column(), t, i)
			}
		}
	}
	return nil
}

// nonFinite is the index of the first value whose exponent is all ones, or -1. Adding
// the lowest bit of the exponent to an exponent of all ones, and to no other, carries
// into the place of the sign: so that eight bytes are looked at at once.
func nonFinite(row []byte, d format.DType) int {
	size, exponent := 2, uint64(0x7f80)
	switch d {
	case format.Float16:
		exponent = 0x7c00
	case format.Float32:
		size, exponent = 4, 0x7f800000
	}
	lanes := uint64(1) | 1<<32
	if size == 2 {
		lanes |= 1<<16 | 1<<48
	}
	mask, low, sign := lanes*exponent, lanes*(exponent&-exponent), lanes<<(8*size-1)
	words, seen := len(row)/8, uint64(0)
	for i := range words {
		seen |= binary.LittleEndian.Uint64(row[8*i:])&mask + low
	}
	start := 8 * words
	if seen&sign != 0 {
		start = 0
	}
	for at := start; at+size <= len(row); at += size {
		v := uint64(binary.LittleEndian.Uint16(row[at:]))
		if size == 4 {
			v = uint64(binary.LittleEndian.Uint32(row[at:]))
		}
		if v&exponent == exponent {
			return at / size
		}
	}
	return -1
}
