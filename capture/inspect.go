package capture

import (
	"context"
	"fmt"
	"strconv"

	"hsx/format"
	"hsx/format/producer"
)

// Inspection is what one dump holds and what it was taken for.
type Inspection struct {
	Path      string        `json:"path"`
	Bytes     int64         `json:"bytes"`
	Container string        `json:"container,omitempty"`
	Producer  string        `json:"producer,omitempty"`
	Title     string        `json:"title,omitempty"`
	Why       string        `json:"why,omitempty"`  // which keys, ranks and widths decided
	Side      string        `json:"side,omitempty"` // what it is, when it is no sample
	Problem   string        `json:"problem,omitempty"`
	Notes     []string      `json:"notes,omitempty"`
	Layers    string        `json:"layers,omitempty"` // in both conventions; "" is unknown
	Target    format.Target `json:"target,omitzero"`  // as far as the dump or the user says
	Tensors   []TensorInfo  `json:"tensors"`
	Samples   []SampleInfo  `json:"samples"`
	Layout    format.Layout `json:"-"` // of the first sample without a problem
}

// TensorInfo is one value of a dump.
type TensorInfo struct {
	Key     string  `json:"key"`
	DType   string  `json:"dtype,omitempty"`
	Shape   []int64 `json:"shape,omitempty"`
	Strides []int64 `json:"strides,omitempty"` // in elements, of a view that is not dense
	Storage string  `json:"storage,omitempty"`
	Value   string  `json:"value,omitempty"` // of what is no tensor
}

// SampleInfo is one sample of a dump.
type SampleInfo struct {
	ID          string   `json:"id"`
	Tokens      int      `json:"tokens"`
	Supervised  int      `json:"supervised"` // positions whose loss mask is not 0; -1 without a mask
	FirstTokens []int32  `json:"first_tokens"`
	Columns     []string `json:"columns"`
	Problem     string   `json:"problem,omitempty"`
}

// The bounds of what an Inspection lists.
const (
	inspectValues  = 100
	inspectSamples = 20
	inspectTokens  = 8
)

// Inspect opens the one input under path and describes it. The error is one of
// looking; what is wrong with the dump is the Inspection's Problem.
func Inspect(ctx context.Context, path string, opt Options) (*Inspection, error) {
	p, err := NewPlan(ctx, []string{path}, opt)
	if err != nil {
		return nil, err
	}
	defer p.closeDatasets()
	if n := len(p.units); n != 1 {
		return nil, fmt.Errorf("inspect %s: it holds %d inputs, want one dump", path, n)
	}
	l := p.load(ctx, p.units[0])
	defer l.close()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	in := &Inspection{
		Path: path, Bytes: l.input.Bytes, Container: l.container, Notes: l.notes, Side: l.side,
		Problem: l.ignored, Tensors: []TensorInfo{}, Samples: []SampleInfo{},
	}
	if l.err != nil {
		in.Problem = l.err.Error()
	}
	in.list("", l.value)
	if l.match != nil {
		in.recognised(l.match)
	}
	for _, it := range l.items[:min(len(l.items), inspectSamples)] {
		in.sample(it)
	}
	return in, nil
}

func (in *Inspection) recognised(m *producer.Match) {
	in.Producer, in.Title, in.Why, in.Target = m.Producer, m.Title, m.Why, m.Target
	if m.Layers != nil {
		in.Layers = m.Layers.String()
	}
	if m.Shifted {
		in.Notes = append(in.Notes, "ids and mask are stored one position to the left of the states")
	}
}

// list walks a container's values.
func (in *Inspection) list(key string, v format.Value) {
	if len(in.Tensors) >= inspectValues {
		return
	}
	switch v := v.(type) {
	case *format.Tensor:
		t := TensorInfo{Key: key, DType: v.DType.String(), Shape: v.Shape, Storage: v.Storage}
		if !v.Dense() {
			t.Strides = v.Strides
		}
		in.Tensors = append(in.Tensors, t)
	case *format.Record:
		if v == nil {
			return
		}
		for _, f := range v.Fields {
			name := f.Key
			if key != "" {
				name = key + "." + f.Key
			}
			in.list(name, f.Value)
		}
	case []format.Value:
		for i, e := range v {
			in.list(key+"["+strconv.Itoa(i)+"]", e)
		}
	case nil:
		if key != "" {
			in.Tensors = append(in.Tensors, TensorInfo{Key: key, Value: "None"})
		}
	default:
		in.Tensors = append(in.Tensors, TensorInfo{Key: key, Value: fmt.Sprintf("%.80v", v)})
	}
}

func (in *Inspection) sample(it item) {
	if it.err != nil {
		in.Samples = append(in.Samples, SampleInfo{Problem: it.err.Error(), FirstTokens: []int32{}, Columns: []string{}})
		return
	}
	s := SampleInfo{ID: it.sample.ID, Tokens: len(it.sample.Tokens), Supervised: -1,
		FirstTokens: it.sample.Tokens[:min(len(it.sample.Tokens), inspectTokens)]}
	if it.sample.LossMask != nil {
		s.Supervised = 0
		for _, m := range it.sample.LossMask {
			if m != 0 {
				s.Supervised++
			}
		}
	}
	for _, h := range it.sample.Hidden {
		s.Columns = append(s.Columns, h.State.Column())
	}
	if len(in.Layout.States) == 0 {
		in.Layout = it.sample.Layout()
	}
	in.Samples = append(in.Samples, s)
}
