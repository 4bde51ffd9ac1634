package validate

import (
	"encoding/binary"
	"slices"
	"testing"

	"hsx/format"
)

// lengthened is a copy of bf16 rows in which one is 64 times as long.
func lengthened(r format.Rows, t int) format.Rows {
	r.Data = slices.Clone(r.Data)
	row := r.Data[t*r.Stride:][:2*r.Width]
	for i := 0; i < len(row); i += 2 {
		if v := binary.LittleEndian.Uint16(row[i:]); v<<1 != 0 {
			binary.LittleEndian.PutUint16(row[i:], v+6<<7) // the exponent, 6 higher
		}
	}
	return r
}

// TestReferenceLongRow has a massive activation behind position 0, as right states have
// now and then: neither may it outweigh the other rows of a sample, nor spread a
// reference.
func TestReferenceLongRow(t *testing.T) {
	t.Parallel()
	ref := targetTestReference(t)
	states := []format.State{{Layer: 0}, {Layer: 2}, {Layer: 3}}
	s := layerSample(t, "s07", states, []string{"P0", "P2", "P3"})
	right := s.Hidden[1].Rows
	s.Hidden[1].Rows = lengthened(right, 1)
	groups := targetRun(t, []*format.Sample{s}, 1, func() []scan { return referenceScans(s.Layout(), ref) })
	if got := targetShort(groups); got != "" {
		t.Errorf("got %q, want nothing\n%+v", got, groups)
	}

	with, without := newReferenceSums(right.Width), newReferenceSums(right.Width)
	for _, tc := range []struct {
		sums *referenceSums
		rows format.Rows
		n    int
	}{{&with, s.Hidden[1].Rows, right.N - 2}, {&without, right, right.N - 1}} {
		if _, err := tc.sums.rows(tc.rows); err != nil || tc.sums.n != tc.n {
			t.Errorf("%d rows count, %v; want %d", tc.sums.n, err, tc.n)
		}
	}
}

func TestReferenceRefusesInf(t *testing.T) {
	t.Parallel()
	s := layerSample(t, "s07", []format.State{{Layer: 0}}, []string{"P0"})
	r := s.Hidden[0].Rows
	r.Data = slices.Clone(r.Data)
	binary.LittleEndian.PutUint16(r.Data[5*r.Stride:], 0x7f80) // +Inf
	sums := newReferenceSums(r.Width)
	if at, err := sums.rows(r); err == nil || at != 5 {
		t.Errorf("row %d, %v; want row 5 refused", at, err)
	}
}
