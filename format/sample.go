package format

import (
	"fmt"
	"strconv"
	"strings"
)

// Role says what a captured state is.
type Role uint8

// The roles. RoleBlock is a state whose layer nobody named: it keeps its place in
// the dump, and the dataset says that its layer is unknown.
const (
	RoleLayer Role = iota // P_k of a known k
	RoleBlock             // block i of the dump, layer unknown
	RoleFinal             // the last state, before or after the final norm
)

// State names one captured state of a target and the form it is kept in.
type State struct {
	Role  Role
	Layer Layer // the k of P_k, with RoleLayer
	Block int   // the place in the dump, from 0, with RoleBlock
	Norm  Norm  // with RoleFinal
	DType DType
}

// Column is the name of the state's column in a dataset: layer_30, layer_-1,
// block_0 (layer unknown) or final.
func (s State) Column() string {
	switch s.Role {
	case RoleFinal:
		return "final"
	case RoleBlock:
		return "block_" + strconv.Itoa(s.Block)
	}
	return "layer_" + strconv.Itoa(int(s.Layer))
}

// String is the form for messages: "P_30 bfloat16", "final (post) bfloat16".
func (s State) String() string {
	name := s.Layer.String()
	switch s.Role {
	case RoleFinal:
		name = "final (" + s.Norm.String() + ")"
	case RoleBlock:
		name = fmt.Sprintf("block %d (layer unknown)", s.Block)
	}
	return name + " " + s.DType.String()
}

// Layout is what all samples of a dataset share: the captured states in ascending
// order, the final last, each [T, HiddenSize].
type Layout struct {
	HiddenSize int
	States     []State
}

// Diff says in one clause how got differs from the layout l that was wanted, "" if
// it does not.
func (l Layout) Diff(got Layout) string {
	if l.HiddenSize != got.HiddenSize {
		return fmt.Sprintf("hidden size is %d, want %d", got.HiddenSize, l.HiddenSize)
	}
	if len(l.States) != len(got.States) {
		return fmt.Sprintf("states are %s, want %s", got, l)
	}
	for i, want := range l.States {
		if g := got.States[i]; g != want {
			return fmt.Sprintf("state %d is %s, want %s", i, g, want)
		}
	}
	return ""
}

// String lists the states.
func (l Layout) String() string {
	names := make([]string, len(l.States))
	for i, s := range l.States {
		names[i] = s.String()
	}
	return strings.Join(names, ", ")
}

// Hidden is one captured state of a sample: [T, H].
type Hidden struct {
	State State
	Rows  Rows
}

// Input identifies a dump that samples come from.
type Input struct {
	Path    string `json:"input"`    // relative to the ingest root, with forward slashes
	Bytes   int64  `json:"bytes"`    // of all its files
	ModTime int64  `json:"mtime_ns"` // the latest of its files, in nanoseconds since 1970
}

// Origin is what the samples of one capture have in common beside their layout.
type Origin struct {
	Target     Target     `json:"target"`                // as far as the dump or the user says; zero fields are unknown
	Producer   string     `json:"producer,omitempty"`    // the stable name of the program whose habits the dump follows
	Shifted    bool       `json:"shifted,omitempty"`     // ids and mask are one position to the left of the states
	LayersFrom string     `json:"layers_from,omitempty"` // who named the layers: a flag, a file beside the dump, nobody
	Convention Convention `json:"convention"`            // in which they were named
}

// Sample is one token sequence with its states.
type Sample struct {
	ID    string
	Input Input
	Last  bool // no further sample comes from this input
	Origin
	Tokens   []int32 // [T]
	LossMask []byte  // nil, or [T]
	Hidden   []Hidden

	// Intact, if not nil, reports whether the states that were read up to now are what
	// the dump held: its file may be written to meanwhile. Who copies the states asks
	// after it did.
	Intact func() error
}

// Bytes is the number of bytes of all states, without gaps between rows.
func (s *Sample) Bytes() int64 {
	n := int64(0)
	for _, h := range s.Hidden {
		n += h.Rows.Bytes()
	}
	return n
}

// Layout is the layout of this one sample.
func (s *Sample) Layout() Layout {
	l := Layout{States: make([]State, len(s.Hidden))}
	for i, h := range s.Hidden {
		l.States[i] = h.State
		if i == 0 {
			l.HiddenSize = h.Rows.Width
		}
	}
	return l
}

// Check reports what makes the sample unfit to be stored: lengths that differ,
// states out of order, widths that differ, rows that their memory does not hold.
func (s *Sample) Check() error {
	t := len(s.Tokens)
	if s.ID == "" {
		return fmt.Errorf("sample has no id")
	}
	if len(s.Hidden) == 0 {
		return fmt.Errorf("sample %q has no states", s.ID)
	}
	if s.LossMask != nil && len(s.LossMask) != t {
		return fmt.Errorf("loss_mask has %d values for %d tokens", len(s.LossMask), t)
	}
	for i, h := range s.Hidden {
		col, r := h.State.Column(), h.Rows
		if !h.State.DType.IsState() || h.State.DType != r.DType {
			return fmt.Errorf("%s is %s, want bfloat16, float16 or float32", col, r.DType)
		}
		if r.N != t {
			return fmt.Errorf("%s has %d rows for %d tokens", col, r.N, t)
		}
		if r.Width <= 0 || r.Width != s.Hidden[0].Rows.Width {
			return fmt.Errorf("%s is %d wide, want %d", col, r.Width, s.Hidden[0].Rows.Width)
		}
		if i > 0 && !s.Hidden[i-1].State.before(h.State) {
			return fmt.Errorf("%s follows %s, want ascending layers with the final last", col, s.Hidden[i-1].State.Column())
		}
		// The quotient cannot overflow, the product could.
		if r.N > 0 && (r.Stride < 0 || len(r.Data) < r.RowBytes() || r.N > 1 && r.Stride > (len(r.Data)-r.RowBytes())/(r.N-1)) {
			return fmt.Errorf("%s has %d bytes, too few for %d rows of %d bytes", col, len(r.Data), r.N, r.RowBytes())
		}
	}
	return nil
}

func (s State) before(t State) bool {
	switch {
	case s.Role == RoleFinal:
		return false
	case t.Role == RoleFinal:
		return true
	case s.Role != t.Role:
		return false
	case s.Role == RoleBlock:
		return s.Block < t.Block
	}
	return s.Layer < t.Layer
}
