package validate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// MarshalJSON writes the state for UnmarshalJSON.
func (s *StatScan) MarshalJSON() ([]byte, error) {
	s.flush()
	type plain StatScan // without this method
	return json.Marshal((*plain)(s))
}

// UnmarshalJSON reads the state that a scan of the same layout and vocabulary as s
// left, in place of what s has. It refuses any other.
func (s *StatScan) UnmarshalJSON(text []byte) error {
	type plain StatScan // without this method
	var o plain
	if err := json.Unmarshal(text, &o); err != nil {
		return err
	}
	if err := s.check((*StatScan)(&o)); err != nil {
		return err
	}
	*s = StatScan(o)
	return nil
}

// check reports what makes a scan read from JSON unfit to be the state of s.
func (s *StatScan) check(o *StatScan) error {
	switch {
	case o.HiddenSize != s.HiddenSize || !slices.Equal(o.Columns, s.Columns) || len(o.States) != len(s.States):
		return fmt.Errorf("statistics are of %v and hidden size %d, want %v and %d", o.Columns, o.HiddenSize, s.Columns, s.HiddenSize)
	case o.Vocab != s.Vocab || !slices.Equal(o.Draft, s.Draft):
		return fmt.Errorf("statistics are of %d token ids and %d bytes of draft vocabulary, want %d and %d, of the same ids", o.Vocab, len(o.Draft), s.Vocab, len(s.Draft))
	case len(o.All) > s.ids() || len(o.Supervised) > len(o.All):
		return fmt.Errorf("statistics count %d token ids and %d supervised ones, want at most %d", len(o.All), len(o.Supervised), s.ids())
	case o.Other == nil:
		return fmt.Errorf("statistics have no counts of the rest of the groups")
	}
	for i, st := range o.States {
		if len(st.Channels) != s.HiddenSize || len(st.Positions) > 1+bits.UintSize {
			return fmt.Errorf("statistics of %s have %d channels and %d position bins, want %d and at most %d", s.Columns[i], len(st.Channels), len(st.Positions), s.HiddenSize, 1+bits.UintSize)
		}
	}
	most := statBin(math.MaxInt) + 1
	for name, g := range o.Groups {
		if g == nil || len(g.Lengths) > most {
			return fmt.Errorf("statistics of group %q have no counts, or more than %d bins of lengths", name, most)
		}
	}
	for _, sh := range o.Shards {
		if len(sh.RMS) != len(s.States) {
			return fmt.Errorf("statistics of shard %d are of %d states, want %d", sh.Shard, len(sh.RMS), len(s.States))
		}
	}
	return nil
}
