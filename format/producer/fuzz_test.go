package producer_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
)

// source spends fuzz bytes; it gives zeros when they are gone.
type source struct {
	b     []byte
	total int // bytes of all tensors made
}

func (s *source) next() int {
	if len(s.b) == 0 {
		return 0
	}
	v := s.b[0]
	s.b = s.b[1:]
	return int(v)
}

func (s *source) of(n int) int { return s.next() % n }

func (s *source) tensor() *format.Tensor {
	t := &format.Tensor{DType: format.DType(s.of(int(format.Float64) + 2)), Shape: []int64{}}
	if s.of(8) == 0 {
		t.Storage = "0"
	}
	for range s.of(5) {
		t.Shape = append(t.Shape, s.dim())
	}
	if s.of(4) == 0 {
		t.Strides = []int64{}
		for range t.Shape {
			t.Strides = append(t.Strides, s.dim())
		}
	}
	n, ok := format.Elems(t.Shape)
	if t.Strides != nil {
		n, ok = format.Extent(t.Shape, t.Strides)
	}
	if size := int64(t.DType.Size()); ok && n <= 1<<12 {
		t.Data = make([]byte, n*size)
		copy(t.Data, s.b[:min(len(s.b), len(t.Data)/2)])
	}
	s.total += len(t.Data)
	return t
}

// dim is small as a rule, and sometimes hostile.
func (s *source) dim() int64 {
	switch v := s.next(); {
	case v < 40:
		return int64(v)
	case v < 200:
		return int64(v % 4)
	case v < 250:
		return int64(1) << (v - 200)
	case v == 255:
		return -1
	}
	return 1 << 62
}

func (s *source) value(depth int) format.Value {
	switch s.of(16) {
	case 0:
		return nil
	case 1:
		return "id\x00"[:s.of(4)]
	case 2:
		return int64(s.next())
	case 3:
		return s.of(2) == 1
	case 4, 5:
		list := []format.Value{}
		for range s.of(5) {
			if depth > 0 {
				list = append(list, s.value(depth-1))
			}
		}
		return list
	}
	return s.tensor()
}

func (s *source) record() *format.Record {
	keys := []string{
		"input_ids", "loss_mask", "aux_hidden_state", "hidden_state", "hidden_states", "aux_hidden_states", "attention_mask",
		"target", "target_hiddens", "target_last_hidden_states", "token_ids", "conversation_id", "id", "position_mask",
		"hidden_states_prenorm", "last_hidden_states", "layer_2", "layer_30", "final", "other",
	}
	r := &format.Record{}
	for range s.of(8) {
		r.Fields = append(r.Fields, format.Field{Key: keys[s.of(len(keys))], Value: s.value(1)})
	}
	return r
}

func (s *source) facts() producer.Facts {
	f := producer.Facts{Final: producer.Final(s.of(4)), TrimPadding: s.of(2) == 1}
	if names := producer.Names(); s.of(3) == 0 {
		f.Producer = names[s.of(len(names))]
	}
	for k := range s.of(4) {
		f.Layers = append(f.Layers, format.Layer(k))
	}
	if s.of(2) == 1 {
		f.Target = format.Target{Layers: s.of(8), HiddenSize: s.of(8)}
	}
	if s.of(4) == 0 {
		f.DType = format.BFloat16
	}
	if s.of(8) == 0 {
		f.Map = []producer.Mapping{{Column: "layer_2", Glob: "*states"}, {Column: "input_ids", Glob: "*ids"}}
	}
	return f
}

func (s *source) dump() producer.Dump {
	d := producer.Dump{Container: producer.Container(s.of(4))}
	if s.of(4) == 0 {
		d.Row = &producer.Row{Tokens: make([]int32, s.of(4)), LossMask: make([]byte, s.of(4))}
	}
	if s.of(4) == 0 {
		d.Siblings.V1 = &producer.V1Config{LayerIDs: []int{s.of(2), 1 + s.of(2)}, HiddenSize: s.of(3)}
		d.Siblings.Automodel = &producer.AutomodelManifest{LayerIDs: []int{0, 1}, AuxHiddenDim: 2 * s.of(3)}
	}
	if s.of(4) != 0 {
		d.Value = s.record()
		return d
	}
	list := []format.Value{}
	for range s.of(4) {
		list = append(list, s.record())
	}
	d.Value = list
	return d
}

// check asserts what the package promises of any dump: errors of one of three kinds,
// samples that pass Check, and memory in proportion to the dump.
func check(t *testing.T, d producer.Dump, f producer.Facts, size int) {
	samples := 1
	kind := func(err error) {
		if err.Error() == "" || !errors.Is(err, format.ErrUnsupported) && !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrLimit) {
			t.Errorf("error %v is of no kind", err)
		}
	}
	got := hsxtest.Allocated(func() {
		m, err := producer.Recognise(d, f)
		if err != nil {
			kind(err)
			return
		}
		for s, err := range m.Samples() {
			samples++
			if err != nil {
				kind(err)
				continue
			}
			if s.ID == "" {
				s.ID = "x"
			}
			if err := s.Check(); err != nil {
				t.Errorf("%s: sample does not pass: %v", m.Why, err)
			}
			for _, h := range s.Hidden {
				h.Rows.Row(0)
				h.Rows.Row(h.Rows.N - 1)
			}
		}
	})
	if most := uint64(samples)<<20 + 64*uint64(size); got > most {
		t.Errorf("a dump of %d bytes and %d samples took %d bytes of memory, want at most %d", size, samples, got, most)
	}
}

func FuzzAssemble(f *testing.F) {
	f.Add([]byte{})
	f.Add(binary.LittleEndian.AppendUint64(nil, 0x0102030405060708))
	f.Add([]byte("\x01\x01\x01\x01\x01\x01\x04\x00\x06\x09\x01\x01\x05\x01\x01\x06\x09\x01\x01\x05\x01\x03\x06\x0b\x01\x02\x05\x03\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &source{b: b}
		facts, d := s.facts(), s.dump()
		check(t, d, facts, s.total+len(b))
	})
}

// FuzzShapes gives each layout tensors of any shape and stride, so that its checks
// are reached and not only its recognition.
func FuzzShapes(f *testing.F) {
	f.Add(0, []byte{11, 1, 2, 1, 4, 11, 1, 2, 1, 4})
	f.Add(3, []byte{12, 0, 3, 2, 3, 4})
	f.Fuzz(func(t *testing.T, which int, b []byte) {
		s := &source{b: b}
		facts := s.facts()
		facts.Producer, facts.Map = "", nil
		row := &producer.Row{Tokens: []int32{1, 2}}
		n := 1 + s.of(3)
		aux, final := s.tensor(), s.tensor()
		dumps := []producer.Dump{
			torch(rec("input_ids", ids(n), "loss_mask", mask(n), "aux_hidden_state", aux, "hidden_state", final)),
			torch(rec("input_ids", ids(n), "loss_mask", s.tensor(), "hidden_states", aux, "target_last_hidden_states", final)),
			torch(rec("input_ids", s.tensor(), "loss_mask", mask(n), "hidden_state", final)),
			torch(rec("token_ids", ids(n), "hidden_states", aux)),
			{Value: rec("token_ids", ids(n), "hidden_states", aux), Row: row},
			torch(rec("input_ids", ids(n), "loss_mask", mask(n), "hidden_states", []format.Value{aux, final})),
			torch(rec("input_ids", batched(ids(n)), "loss_mask", batched(mask(n)), "attention_mask", s.tensor(), "hidden_states", aux)),
			torch(rec("input_ids", ids(n), "loss_mask", mask(n), "aux_hidden_states", aux, "hidden_states", final, "conversation_id", "a")),
			torch(rec("input_ids", s.tensor(), "attention_mask", s.tensor(), "loss_mask", s.tensor(), "aux_hidden_states", aux, "position_mask", final)),
			{Container: producer.JSON, Value: rec("input_ids", ids(n), "hidden_states", aux)},
			plain(rec("input_ids", ids(n), "layer_2", aux, "layer_30", final)),
			plain(rec("input_ids", ids(n), "hidden_states", aux, "final", final)),
		}
		check(t, dumps[uint(which)%uint(len(dumps))], facts, s.total+len(b)+64)
	})
}

// FuzzSideJSON asserts that whatever is taken for a config says something usable.
func FuzzSideJSON(f *testing.F) {
	for _, name := range []string{"data_config.json", "sample_lengths.json", "manifest.json", "state.json", "dataset_info.json", "request.json"} {
		f.Add(hsxtest.Golden(f, name))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if what, ok := producer.SideJSON(b); ok != (what != "") {
			t.Errorf("SideJSON() = %q, %t", what, ok)
		}
		v1, err := producer.ParseV1Config(b)
		if err == nil && (len(v1.LayerIDs) == 0 || v1.HiddenSize < 0) || err != nil && !errors.Is(err, format.ErrCorrupt) {
			t.Errorf("ParseV1Config() = %+v, %v", v1, err)
		}
		am, err := producer.ParseAutomodelManifest(b)
		if err == nil && (am.FormatVersion != 2 || len(am.LayerIDs) == 0 || am.AuxHiddenDim <= 0) ||
			err != nil && !errors.Is(err, format.ErrCorrupt) && !errors.Is(err, format.ErrUnsupported) {
			t.Errorf("ParseAutomodelManifest() = %+v, %v", am, err)
		}
	})
}
