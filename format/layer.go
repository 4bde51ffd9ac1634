package format

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Layer is the k of P_k: the residual stream after decoder layer k, counted from 0.
type Layer int

// Embedding is P_-1, the output of the token embedding.
const Embedding Layer = -1

// String is the name used in messages: "P_30".
func (l Layer) String() string { return "P_" + strconv.Itoa(int(l)) }

// Convention says how a list of integers names layers.
type Convention uint8

// The two conventions in use. Where a config gives no hint, the integers alone
// never decide: [2,30,58] is legal in both and names different tensors.
const (
	PostLayer Convention = iota // k names P_k, the output of layer k
	Boundary                    // k names P_{k-1}, the input of layer k (the Hugging Face hidden_states index)
)

// String is the flag value: "post" or "boundary".
func (c Convention) String() string {
	if c == Boundary {
		return "boundary"
	}
	return "post"
}

// ParseConvention reads "post" or "boundary".
func ParseConvention(s string) (Convention, error) {
	switch s {
	case "post":
		return PostLayer, nil
	case "boundary":
		return Boundary, nil
	}
	return 0, fmt.Errorf("convention %q is not known, want post (k is the output of layer k) or boundary (k is its input)", s)
}

// MarshalText writes "post" or "boundary".
func (c Convention) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what [ParseConvention] reads.
func (c *Convention) UnmarshalText(b []byte) error {
	v, err := ParseConvention(string(b))
	if err != nil {
		return err
	}
	*c = v
	return nil
}

// Layer is what the integer id names in convention c.
func (c Convention) Layer(id int) Layer {
	if c == Boundary {
		return Layer(id - 1)
	}
	return Layer(id)
}

// ID is the integer that names l in convention c.
func (c Convention) ID(l Layer) int {
	if c == Boundary {
		return int(l) + 1
	}
	return int(l)
}

// Layers is a strictly increasing list of layers.
type Layers []Layer

// ParseLayers reads a list such as "2,30,58" in convention c. Engines concatenate
// in ascending order whatever a list says, so a list that is not strictly
// increasing is refused: it would name an order that no engine writes.
func ParseLayers(s string, c Convention) (Layers, error) {
	fields := strings.Split(s, ",")
	ids := make([]int, 0, len(fields))
	for _, f := range fields {
		id, err := strconv.Atoi(strings.TrimSpace(f))
		if err != nil {
			return nil, fmt.Errorf("layer %q is not an integer", f)
		}
		ids = append(ids, id)
	}
	return NewLayers(ids, c)
}

// NewLayers translates ids written in convention c and checks that they name an
// increasing list of layers, none before the embedding.
func NewLayers(ids []int, c Convention) (Layers, error) {
	if len(ids) == 0 {
		return nil, fmt.Errorf("layer list is empty, want at least one layer")
	}
	ls := make(Layers, len(ids))
	for i, id := range ids {
		if id < c.ID(Embedding) || id > math.MaxInt32 {
			return nil, fmt.Errorf("layer id %d in the %s convention is out of range: %d is the embedding, the lowest", id, c, c.ID(Embedding))
		}
		ls[i] = c.Layer(id)
		switch {
		case i > 0 && ls[i] == ls[i-1]:
			return nil, fmt.Errorf("layer id %d is repeated: an engine captures it once, so the blocks after it would be misread", id)
		case i > 0 && ls[i] < ls[i-1]:
			return nil, fmt.Errorf("layer list is not increasing: %d follows %d, and engines concatenate in ascending order whatever the list says", id, ids[i-1])
		}
	}
	return ls, nil
}

// Check reports a layer that a target of n decoder layers does not have.
func (ls Layers) Check(n int) error {
	for _, l := range ls {
		if n > 0 && int(l) >= n {
			return fmt.Errorf("layer %s (%d post, %d boundary) is out of range: the target has %d layers, so the last is P_%d", l, int(l), Boundary.ID(l), n, n-1)
		}
	}
	return nil
}

// IDs writes the list in convention c: "2,30,58".
func (ls Layers) IDs(c Convention) string {
	var b strings.Builder
	for i, l := range ls {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(c.ID(l)))
	}
	return b.String()
}

// String writes the list in both conventions, so that no reader has to guess:
// "P_2 P_30 P_58 (post 2,30,58; boundary 3,31,59)".
func (ls Layers) String() string {
	if len(ls) == 0 {
		return "none"
	}
	names := make([]string, len(ls))
	for i, l := range ls {
		names[i] = l.String()
	}
	return fmt.Sprintf("%s (post %s; boundary %s)", strings.Join(names, " "), ls.IDs(PostLayer), ls.IDs(Boundary))
}

// Norm says whether the final state was taken before or after the final norm.
type Norm uint8

// The norm states. Nothing turns post into pre: the row's RMS is lost.
const (
	NormUnknown Norm = iota
	NormPre          // P_{L-1}
	NormPost         // the final norm applied to P_{L-1}
)

// String is "unknown", "pre" or "post".
func (n Norm) String() string {
	switch n {
	case NormPre:
		return "pre"
	case NormPost:
		return "post"
	}
	return "unknown"
}

// ParseNorm reads "unknown", "pre" or "post".
func ParseNorm(s string) (Norm, error) {
	for _, n := range []Norm{NormUnknown, NormPre, NormPost} {
		if s == n.String() {
			return n, nil
		}
	}
	return NormUnknown, fmt.Errorf("norm state %q is not known, want pre, post or unknown", s)
}

// MarshalText writes what [Norm.String] writes.
func (n Norm) MarshalText() ([]byte, error) { return []byte(n.String()), nil }

// UnmarshalText reads what [ParseNorm] reads.
func (n *Norm) UnmarshalText(b []byte) error {
	v, err := ParseNorm(string(b))
	if err != nil {
		return err
	}
	*n = v
	return nil
}
