package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"hsx/format"
	"hsx/shard"
)

// referenceFormat is what a reference file calls itself.
const referenceFormat = "hsx-reference"

// Reference is what the layers of a target look like: per channel the mean and the
// spread over some thousand tokens of a trusted capture. Position 0 of each sample is
// left out, since massive activations live there, and so are the few other rows where
// they do.
type Reference struct {
	Format     string           `json:"format"` // "hsx-reference"
	Version    int              `json:"version"`
	Target     format.Target    `json:"target"` // zero fields are unknown
	HiddenSize int              `json:"hidden_size"`
	Rows       int64            `json:"rows"`
	States     []ReferenceState `json:"states"` // ascending layers, N last
}

// ReferenceState is one state of a [Reference].
type ReferenceState struct {
	State string    `json:"state"` // P_k, or N after the final norm
	Mean  []float32 `json:"mean"`  // [H]
	Std   []float32 `json:"std"`   // [H], above 0
}

// referenceKey orders states: the k of P_k; N is after all of them.
type referenceKey int

const (
	referenceNorm    referenceKey = math.MaxInt32
	referenceUnknown referenceKey = -2
)

func (k referenceKey) String() string {
	switch k {
	case referenceNorm:
		return "N"
	case referenceUnknown:
		return "unknown"
	}
	return format.Layer(k).String()
}

func parseReferenceKey(s string) (referenceKey, error) {
	if s == "N" {
		return referenceNorm, nil
	}
	if digits, ok := strings.CutPrefix(s, "P_"); ok {
		if k, err := strconv.ParseInt(digits, 10, 32); err == nil && k >= int64(format.Embedding) && k < math.MaxInt32 {
			return referenceKey(k), nil
		}
	}
	return referenceUnknown, fmt.Errorf("reference state %q is not known, want P_-1, P_0, … or N", s)
}

// referenceKeyOf is what a state is declared to be, of a target with n layers.
func referenceKeyOf(st format.State, n int) referenceKey {
	switch {
	case st.Role == format.RoleLayer:
		return referenceKey(st.Layer)
	case st.Role == format.RoleFinal && st.Norm == format.NormPost:
		return referenceNorm
	case st.Role == format.RoleFinal && st.Norm == format.NormPre && n > 0:
		return referenceKey(n - 1)
	}
	return referenceUnknown
}

// MakeReference reads a whole dataset, which should hold all layers of its target, for
// what they look like. The layers are taken for what the dataset says they are.
//
// The samples should be read under mapped.Guard when the files may shrink. The error is
// that of reading, or says what the dataset lacks.
func MakeReference(ctx context.Context, ds *shard.Dataset) (*Reference, error) {
	m := ds.Manifest()
	layout := m.Layout()
	ref := &Reference{Format: referenceFormat, Version: 1, Target: m.Target, HiddenSize: layout.HiddenSize}
	var states []int
	seen := map[referenceKey]bool{}
	for i, st := range layout.States {
		// An unknown state is of no use, and P_{L-1} may be there as a layer and as the final.
		if k := referenceKeyOf(st, m.Target.Layers); k != referenceUnknown && !seen[k] {
			seen[k] = true
			states = append(states, i)
			ref.States = append(ref.States, ReferenceState{State: k.String()})
		}
	}
	if len(states) < 2 {
		return nil, fmt.Errorf("dataset has %d states of known layers, want all of the target's: capture them, or ingest with --layers and --target", len(states))
	}
	sums := make([]referenceSums, len(states))
	for i := range sums {
		sums[i] = newReferenceSums(layout.HiddenSize)
	}
	for s, err := range ds.Samples(ctx) {
		if err != nil {
			return nil, err
		}
		for i, state := range states {
			if t, err := sums[i].rows(s.Hidden[state].Rows); err != nil {
				return nil, fmt.Errorf("sample %q: %s row %d %w", s.ID, layout.States[state].Column(), t, err)
			}
		}
		ref.Rows += int64(max(0, len(s.Tokens)-1))
	}
	if ref.Rows < 64 {
		return nil, fmt.Errorf("dataset has %d tokens beyond the first of each sample, want at least 64 for a reference", ref.Rows)
	}
	for i := range sums {
		ref.States[i].Mean, ref.States[i].Std = sums[i].moments()
	}
	return ref, nil
}

// Encode writes the reference as JSON, one line for each state.
func (r *Reference) Encode() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	head := *r
	head.States = nil
	top, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(top, []byte("null}")))
	for i, st := range r.States {
		line, err := json.Marshal(st)
		if err != nil {
			return nil, err
		}
		b.WriteString([]string{"[\n", ",\n"}[min(i, 1)])
		b.Write(line)
	}
	b.WriteString("\n]}\n")
	return b.Bytes(), nil
}

// ParseReference reads what Encode writes. The error says what is wrong with it.
func ParseReference(data []byte) (*Reference, error) {
	r := &Reference{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("reference is not JSON of the expected types: %w", err)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Reference) check() error {
	switch {
	case r.Format != referenceFormat:
		return fmt.Errorf("reference has format %q, want %q: 'hsx fingerprint' writes one", r.Format, referenceFormat)
	case r.Version != 1:
		return fmt.Errorf("reference is of version %d, this hsx reads version 1", r.Version)
	case len(r.States) == 0:
		return errors.New("reference has no states, want all layers of a target")
	case r.HiddenSize <= 0:
		return fmt.Errorf("reference has hidden_size %d, want it above 0", r.HiddenSize)
	}
	last := referenceUnknown
	for _, st := range r.States {
		k, err := parseReferenceKey(st.State)
		if err != nil {
			return err
		}
		if k <= last {
			return fmt.Errorf("reference has %s after %s, want ascending layers with N last", k, last)
		}
		last = k
		if len(st.Mean) != r.HiddenSize || len(st.Std) != r.HiddenSize {
			return fmt.Errorf("reference state %s has %d means and %d deviations, want %d of each", k, len(st.Mean), len(st.Std), r.HiddenSize)
		}
		for c, s := range st.Std {
			if !(s > 0) || s > referenceLargest || !(math.Abs(float64(st.Mean[c])) <= referenceLargest) {
				return fmt.Errorf("reference state %s has mean %g and deviation %g in channel %d, want the deviation above 0 and both below %g", k, st.Mean[c], s, c, float64(referenceLargest))
			}
		}
	}
	return nil
}

// referenceLargest bounds means and deviations, so that no square overflows a float64.
const referenceLargest = 1e30

// referenceSums are the sums over rows from which scores and moments follow.
type referenceSums struct {
	n       int
	x       []float32 // the row at hand
	sum, sq []float64 // [H]
}

func newReferenceSums(h int) referenceSums {
	return referenceSums{x: make([]float32, h), sum: make([]float64, h), sq: make([]float64, h)}
}

// rows adds the rows of a state but for those that a reference leaves out. The error is
// of row t.
func (s *referenceSums) rows(r format.Rows) (t int, err error) {
	at, squares := make([]int, 0, r.N), make([]float64, 0, r.N)
	for t := 1; t < r.N; t++ {
		r.DType.Floats(s.x, r.Row(t))
		square := float64(weightsDot(s.x, s.x))
		// NaN also for Inf, so that the row is taken for typical and refused.
		at, squares = append(at, t), append(squares, square+(square-square))
	}
	for _, t := range referenceTypical(at, squares) {
		if err := s.row(r, t); err != nil {
			return t, err
		}
	}
	return 0, nil
}

func (s *referenceSums) row(r format.Rows, t int) error {
	r.DType.Floats(s.x, r.Row(t))
	bad := float32(0)
	for c, v := range s.x {
		bad += v - v // 0, or NaN for any value that is not finite
		s.sum[c] += float64(v)
		s.sq[c] += float64(v) * float64(v)
	}
	if bad != 0 {
		return errors.New("holds NaN or Inf, want finite values in a reference")
	}
	s.n++
	return nil
}

// moments are mean and deviation per channel. A channel that hardly moves would
// outweigh all others: its deviation is at least a hundredth of the typical one.
func (s *referenceSums) moments() (mean, std []float32) {
	mean, std = make([]float32, len(s.sum)), make([]float32, len(s.sum))
	n := float64(s.n)
	all := 0.0
	for c := range s.sum {
		m := s.sum[c] / n
		v := math.Sqrt(max(0, s.sq[c]/n-m*m))
		mean[c], std[c] = float32(m), float32(v)
		all += v
	}
	floor := max(float32(all/float64(len(s.sum))/100), 1e-12)
	for c := range std {
		std[c] = max(std[c], floor)
	}
	return mean, std
}
