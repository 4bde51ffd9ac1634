package producer_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/npy"
	"hsx/format/producer"
	"hsx/format/safetensors"
	codec "hsx/format/torch"
	"hsx/internal/hsxtest"
)

// sample is one of n tokens with states of three layers, hidden size h and a final of
// some norm state.
func sample(d format.DType, n, h int, norm format.Norm, layers ...format.Layer) *format.Sample {
	s := &format.Sample{ID: fmt.Sprintf("conv-%d", n), Origin: format.Origin{Producer: "vllm"}}
	for i := range n {
		s.Tokens = append(s.Tokens, int32(i*7-3))
		s.LossMask = append(s.LossMask, byte(min(i/2, 1)))
	}
	for i, k := range layers {
		s.Hidden = append(s.Hidden, hidden(format.State{Role: format.RoleLayer, Layer: k, DType: d}, n, h, i))
	}
	s.Hidden = append(s.Hidden, hidden(format.State{Role: format.RoleFinal, Norm: norm, DType: d}, n, h, 77))
	return s
}

func hidden(st format.State, n, h, seed int) format.Hidden {
	r := format.Rows{DType: st.DType, N: n, Width: h, Stride: h * st.DType.Size()}
	r.Data = states(st.DType, seed, int64(n), int64(h)).Data
	return format.Hidden{State: st, Rows: r}
}

// want is the sample that reading an emitted record should give.
func want(t testing.TB, to string, s *format.Sample, opt producer.EmitOptions) *format.Sample {
	t.Helper()
	taken, err := producer.Choose(to, s.Layout(), s.Origin, opt)
	if err != nil {
		t.Fatal(err)
	}
	d := describe(t, to)
	w := *s
	w.Hidden = slices.DeleteFunc(slices.Clone(s.Hidden), func(h format.Hidden) bool {
		if h.State.Role == format.RoleFinal {
			return d.Final == nil
		}
		return !slices.Contains(taken, h.State.Layer)
	})
	return &w
}

func describe(t testing.TB, to string) producer.TargetDescription {
	t.Helper()
	d, err := producer.FindTarget(to)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// coded is a record as a file, or files, of its container give it back, with the
// metadata of the file.
func coded(t testing.TB, c producer.Container, r *format.Record) (*format.Record, map[string]string) {
	t.Helper()
	var b bytes.Buffer
	if c == producer.Torch {
		if err := codec.Encode(&b, "data_0", r); err != nil {
			t.Fatal(err)
		}
		a, err := codec.Decode(b.Bytes(), codec.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return a.Value.(*format.Record), nil
	}
	out, meta := &format.Record{}, map[string]string{}
	var tensors []*format.Tensor
	for _, f := range r.Fields {
		if text, ok := f.Value.(string); ok {
			meta[f.Key] = text
			continue
		}
		v := f.Value.(*format.Tensor)
		tensors = append(tensors, v)
		if c == producer.Arrays {
			b.Reset()
			if err := npy.Encode(&b, v); err != nil {
				t.Fatal(err)
			}
			back, err := npy.Decode(bytes.Clone(b.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			out.Fields = append(out.Fields, format.Field{Key: v.Name, Value: back})
		}
	}
	if c == producer.Arrays {
		return out, nil
	}
	if err := safetensors.Encode(&b, tensors, meta); err != nil {
		t.Fatal(err)
	}
	f, err := safetensors.Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return f.Record, f.Metadata
}

// readBack reads an emitted record as an ingest would.
func readBack(t testing.TB, to string, rec *format.Record, w *format.Sample) *format.Sample {
	t.Helper()
	d := describe(t, to)
	value, meta := coded(t, d.Container, rec)
	dump := producer.Dump{Container: d.Container, Value: value, Metadata: meta}
	facts := producer.Facts{DType: w.Hidden[0].State.DType}
	if d.Dataset {
		dump.Row = &producer.Row{Tokens: w.Tokens, LossMask: w.LossMask}
	}
	for _, h := range w.Hidden {
		switch {
		case h.State.Role == format.RoleLayer && d.Engine != "": // else the names say it
			facts.Layers = append(facts.Layers, h.State.Layer)
		case h.State.Role == format.RoleFinal && h.State.Norm == format.NormPre && to == "npy":
			facts.Final = producer.FinalPre
		case h.State.Role == format.RoleFinal && h.State.Norm == format.NormPost && to == "npy":
			facts.Final = producer.FinalPost
		}
	}
	m, ss, err := read(t, dump, facts)
	if err != nil {
		t.Fatal(err)
	}
	if len(ss) != 1 {
		t.Fatalf("%s: read %d samples, want 1", m.Why, len(ss))
	}
	if d.Engine != "" && !strings.HasPrefix(m.Producer, to) {
		t.Errorf("Recognise() = %s, want %s", m.Producer, to)
	}
	return ss[0]
}

// same compares a sample with the one that was read back, whose id most dumps do not
// hold.
func same(t testing.TB, w, got *format.Sample) {
	t.Helper()
	got.Input = w.Input
	if got.ID == "" {
		got.ID = w.ID
	}
	if d := hsxtest.Equal(got, w); d != "" {
		t.Error(d)
	}
}

// TestEmitBack reads every kind of record back, and again from memory that was used
// before.
func TestEmitBack(t *testing.T) {
	t.Parallel()
	for _, to := range producer.Targets() {
		norms := to.Final
		if norms == nil {
			norms = []format.Norm{format.NormPost}
		}
		for _, norm := range norms {
			for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
				t.Run(fmt.Sprintf("%s-%s-%s", to.Name, norm, d), func(t *testing.T) {
					t.Parallel()
					var buf producer.Buffer
					for _, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025, 4, 256} {
						for _, h := range []int{1, 5} {
							s := sample(d, n, h, norm, -1, 2, 30, 58)
							if n < 4 && to.NeedPair {
								s.LossMask = slices.Repeat([]byte{1}, n)
							}
							opt := producer.EmitOptions{Buffer: &buf}
							rec, err := producer.Emit(to.Name, s, opt)
							if n == 1 && to.NeedPair {
								if !errors.Is(err, format.ErrRefused) {
									t.Errorf("one token: got error %v, want a refusal", err)
								}
								continue
							}
							if err != nil {
								t.Fatal(err)
							}
							w := want(t, to.Name, s, opt)
							same(t, w, readBack(t, to.Name, rec, w))
						}
					}
				})
			}
		}
	}
}

// shapes lists a record: key, type and shape, or the plain value.
func shapes(r *format.Record) []string {
	var out []string
	for _, f := range r.Fields {
		if t, ok := f.Value.(*format.Tensor); ok {
			out = append(out, fmt.Sprintf("%s %s%v", f.Key, t.DType, t.Shape))
		} else {
			out = append(out, fmt.Sprintf("%s=%v", f.Key, f.Value))
		}
	}
	return out
}

// TestEmitRecords holds names, order, types and shapes against what the readers want.
func TestEmitRecords(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		to     string
		norm   format.Norm
		layers format.Layers
		noMask bool
		want   []string
	}{
		"specforge": {"specforge", format.NormPost, nil, false,
			[]string{"input_ids int64[9]", "loss_mask int64[9]", "aux_hidden_state bfloat16[1 9 12]", "hidden_state bfloat16[1 9 4]"}},
		"specforge-dflash": {"specforge-dflash", format.NormUnknown, format.Layers{2, 58}, false,
			[]string{"input_ids int64[9]", "loss_mask int64[9]", "hidden_states bfloat16[1 9 8]"}},
		"specforge-dspark": {"specforge-dspark", format.NormPost, format.Layers{30}, false,
			[]string{"input_ids int64[9]", "loss_mask int64[9]", "hidden_states bfloat16[1 9 4]", "target_last_hidden_states bfloat16[1 9 4]"}},
		"speculators": {"speculators", format.NormPre, nil, false,
			[]string{"hidden_states bfloat16[9 4 4]", "token_ids int64[9]"}},
		"modelopt": {"modelopt", format.NormPost, nil, false,
			[]string{"input_ids int64[9]", "hidden_states bfloat16[9 4]", "aux_hidden_states bfloat16[9 12]", "loss_mask int64[9]", "conversation_id=conv-9"}},
		"modelopt, pre": {"modelopt", format.NormPre, nil, true,
			[]string{"input_ids int64[9]", "hidden_states bfloat16[9 4]", "aux_hidden_states bfloat16[9 12]", "conversation_id=conv-9", "hidden_states_prenorm=true"}},
		"angelslim": {"angelslim", format.NormPost, nil, false,
			[]string{"input_ids int64[1 9]", "loss_mask int64[1 9]", "hidden_states bfloat16[1 9 12]", "target_hiddens bfloat16[1 9 4]"}},
		"torchspec": {"torchspec", format.NormPost, nil, false,
			[]string{"input_ids int64[9]", "loss_mask int64[9]", "aux_hidden_states bfloat16[1 9 12]", "hidden_states bfloat16[1 9 4]"}},
		"safetensors": {"safetensors", format.NormUnknown, format.Layers{-1, 2}, false,
			[]string{"input_ids int64[9]", "loss_mask uint8[9]", "layer_-1 bfloat16[9 4]", "layer_2 bfloat16[9 4]", "final bfloat16[9 4]",
				"hsx.id=conv-9", "hsx.layers=P_-1 P_2 (post -1,2; boundary 0,3)", "hsx.norm=unknown", "hsx.producer=vllm",
				"hsx.target=m", "hsx.target_layers=61", "hsx.hidden_size=4"}},
		"npy": {"npy", format.NormPre, nil, true,
			[]string{"input_ids int64[9]", "layer_2 bfloat16[9 4]", "layer_30 bfloat16[9 4]", "layer_58 bfloat16[9 4]", "final bfloat16[9 4]"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := sample(format.BFloat16, 9, 4, tt.norm, -1, 2, 30, 58)
			if tt.noMask {
				s.LossMask = nil
			}
			rec, err := producer.Emit(tt.to, s, producer.EmitOptions{Layers: tt.layers, Target: format.Target{Name: "m", Layers: 61}})
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tt.want, shapes(rec)); d != "" {
				t.Errorf("record (-want +got):\n%s", d)
			}
		})
	}
}

func TestEmitRefuses(t *testing.T) {
	t.Parallel()
	change := func(f func(s *format.Sample)) *format.Sample {
		s := sample(format.BFloat16, 9, 4, format.NormPost, -1, 2, 30, 58)
		f(s)
		return s
	}
	norm := func(n format.Norm) *format.Sample {
		return change(func(s *format.Sample) { s.Hidden[4].State.Norm = n })
	}
	for name, tt := range map[string]struct {
		to     string
		sample *format.Sample
		layers format.Layers
		kind   error
		err    string
	}{
		"target": {"tensorrt", norm(format.NormPost), nil, nil,
			`target "tensorrt" is not known, want one of specforge-eagle3, specforge-dflash, specforge-dspark, speculators, modelopt, angelslim, torchspec, safetensors, npy`},
		"no id": {"npy", change(func(s *format.Sample) { s.ID = "" }), nil, format.ErrRefused, "sample has no id"},
		"no final": {"specforge", change(func(s *format.Sample) { s.Hidden = s.Hidden[:4] }), nil, format.ErrUnsupported,
			"final is missing, and specforge-eagle3 needs it"},
		"no mask": {"speculators", change(func(s *format.Sample) { s.LossMask, s.Hidden[4].State.Norm = nil, format.NormPre }), nil, format.ErrRefused,
			"loss_mask is missing, and speculators needs it"},
		"no pair": {"specforge-dflash", change(func(s *format.Sample) { s.LossMask = []byte{1, 0, 1, 0, 0, 1, 0, 0, 1} }), nil, format.ErrRefused,
			"loss_mask marks no two tokens in a row, without which specforge-dflash stops at a sample"},
		"pre": {"torchspec", norm(format.NormPre), nil, format.ErrUnsupported,
			"final is before the norm, and torchspec wants it after: that needs the weight of the final norm (--target)"},
		"post": {"speculators", norm(format.NormPost), nil, format.ErrUnsupported,
			"final is after the norm, and speculators wants it before: nothing undoes the norm, the RMS of each row is lost"},
		"unknown": {"modelopt", norm(format.NormUnknown), nil, format.ErrUnsupported,
			"final is of unknown norm state, and modelopt wants post: ingest again and say which it is (--final)"},
		"blocks": {"npy", change(func(s *format.Sample) {
			for i := range 4 {
				s.Hidden[i].State = format.State{Role: format.RoleBlock, Block: i, DType: format.BFloat16}
			}
		}), nil, format.ErrUnsupported, "block_0 is of an unknown layer: ingest again and name the layers (--layers)"},
		"shifted": {"safetensors", change(func(s *format.Sample) { s.Shifted, s.Producer = true, "automodel" }), nil, format.ErrUnsupported,
			"input_ids are stored one position to the left of the states (automodel), and the first token is lost"},
		"not captured": {"modelopt", norm(format.NormPost), format.Layers{2, 31}, format.ErrUnsupported,
			"P_31 was not captured: the samples hold P_-1 P_2 P_30 P_58 (post -1,2,30,58; boundary 0,3,31,59)"},
		"too many": {"specforge", norm(format.NormPost), format.Layers{-1, 2, 30, 58}, format.ErrUnsupported,
			"specforge-eagle3 wants 3 layers, not 4: choose among P_-1 P_2 P_30 P_58 (post -1,2,30,58; boundary 0,3,31,59) (--layers)"},
		"embedding alone": {"modelopt", change(func(s *format.Sample) { s.Hidden = []format.Hidden{s.Hidden[0], s.Hidden[4]} }), nil, format.ErrUnsupported,
			"modelopt needs aux layers, and the samples hold P_-1 (post -1; boundary 0) (the embedding is one when it is asked for: --layers)"},
		"nothing": {"safetensors", change(func(s *format.Sample) { s.Hidden = s.Hidden[:1] }), nil, format.ErrUnsupported,
			"samples hold no state but the embedding, which is taken when it is asked for (--layers)"},
		"types": {"modelopt", change(func(s *format.Sample) {
			s.Hidden[2] = hidden(format.State{Role: format.RoleLayer, Layer: 30, DType: format.Float32}, 9, 4, 1)
		}), nil, format.ErrUnsupported, "layer_30 is float32, layer_2 is bfloat16: modelopt wants them in one tensor"},
		"type of the final": {"speculators", change(func(s *format.Sample) {
			s.Hidden[4] = hidden(format.State{Role: format.RoleFinal, Norm: format.NormPre, DType: format.Float32}, 9, 4, 1)
		}), nil, format.ErrUnsupported, "final is float32, layer_2 is bfloat16: speculators wants them in one tensor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := producer.EmitOptions{Layers: tt.layers}
			rec, err := producer.Emit(tt.to, tt.sample, opt)
			if err == nil || err.Error() != tt.err || tt.kind != nil && !errors.Is(err, tt.kind) {
				t.Fatalf("Emit: got %v, error %v, want %q", rec, err, tt.err)
			}
			// What is wrong with every sample is known before the first is read.
			_, early := producer.Choose(tt.to, tt.sample.Layout(), tt.sample.Origin, opt)
			if want := !errors.Is(tt.kind, format.ErrRefused); (early != nil) != want || want && early.Error() != tt.err {
				t.Errorf("Choose: got error %v, want the same: %t", early, want)
			}
		})
	}
}

// TestEmitNorm has the metadata of a file and the user say of the final what differs.
func TestEmitNorm(t *testing.T) {
	t.Parallel()
	rec, err := producer.Emit("safetensors", sample(format.BFloat16, 9, 4, format.NormPre, 2), producer.EmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	value, meta := coded(t, producer.Safetensors, rec)
	_, _, err = read(t, producer.Dump{Container: producer.Safetensors, Value: value, Metadata: meta}, producer.Facts{Final: producer.FinalPost})
	if want := "hsx.norm is pre in the metadata, but --final post says the contrary"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}

// TestEmitTarget reads back what the metadata says of the target, with and without a
// user who says it too.
func TestEmitTarget(t *testing.T) {
	t.Parallel()
	said := format.Target{Name: "org/model", Layers: 61, HiddenSize: 4, VocabSize: 100}
	rec, err := producer.Emit("safetensors", sample(format.BFloat16, 9, 4, format.NormPre, 2), producer.EmitOptions{Target: said})
	if err != nil {
		t.Fatal(err)
	}
	value, meta := coded(t, producer.Safetensors, rec)
	for name, tc := range map[string]struct {
		user    format.Target
		changed map[string]string
		want    format.Target
		err     string
	}{
		"file alone":    {want: said},
		"both, equal":   {user: said, want: said},
		"the user too":  {user: format.Target{Name: "config", VocabSize: 100}, want: format.Target{Name: "config", Layers: 61, HiddenSize: 4, VocabSize: 100}},
		"layers differ": {user: format.Target{Layers: 32}, err: "metadata says that the target has layers 61, but its config (--target) says 32"},
		"vocabulary":    {user: format.Target{VocabSize: 99}, err: "metadata says that the target has vocabulary 100, but its config (--target) says 99"},
		"other width":   {changed: map[string]string{"hsx.hidden_size": "5"}, err: "layer_2 is 4 wide, want the target's hidden size 5"},
		"too shallow":   {changed: map[string]string{"hsx.target_layers": "2"}, err: "layer P_2 (2 post, 3 boundary) is out of range: the target has 2 layers, so the last is P_1"},
		"no number":     {changed: map[string]string{"hsx.vocab_size": "many\n"}, err: `hsx.vocab_size is "many\n" in the metadata, want a number above 0`},
		"none":          {changed: map[string]string{"hsx.target_layers": "0"}, err: "hsx.target_layers is 0 in the metadata, want a number above 0"},
		"long name":     {changed: map[string]string{"hsx.target": strings.Repeat("x", 2000)}, err: "hsx.target is a name of 2000 bytes in the metadata, want at most 1024"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			meta := maps.Clone(meta)
			maps.Copy(meta, tc.changed)
			_, all, err := read(t, producer.Dump{Container: producer.Safetensors, Value: value, Metadata: meta}, producer.Facts{Target: tc.user})
			switch {
			case tc.err != "":
				if err == nil || err.Error() != tc.err {
					t.Errorf("got error %v, want %s", err, tc.err)
				}
			case err != nil || len(all) != 1 || all[0].Target != tc.want:
				t.Errorf("got %d samples, error %v, want one of %+v", len(all), err, tc.want)
			}
		})
	}
}

// TestEmitCopies tells what is copied from what is not: states with gaps between rows
// are, and nothing that was emitted before changes.
func TestEmitCopies(t *testing.T) {
	t.Parallel()
	s := sample(format.BFloat16, 9, 4, format.NormPost, 2, 30, 58)
	rec, err := producer.Emit("specforge", s, producer.EmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := rec.Tensor("hidden_state"); &got.Data[0] != &s.Hidden[3].Rows.Data[0] {
		t.Error("the final is a copy, want the sample's own memory")
	}
	before := bytes.Clone(rec.Tensor("aux_hidden_state").Data)

	m, ss, err := read(t, torch(eagle3(9)), producer.Facts{Layers: layers(t, "0,2,3")})
	if err != nil || m.Producer != "specforge-eagle3" {
		t.Fatal(m, err)
	}
	ss[0].ID = "x"
	back, err := producer.Emit("safetensors", ss[0], producer.EmitOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, w := back.Tensor("layer_2").Data, rows(ss[0].Hidden[1].Rows); !bytes.Equal(got, w) {
		t.Errorf("a state with gaps: got % x, want % x", got, w)
	}
	if !bytes.Equal(before, rec.Tensor("aux_hidden_state").Data) {
		t.Error("a record without a buffer changed when another was made")
	}
}

// TestEmitMemory holds that a buffer is enough for all samples up to the largest.
func TestEmitMemory(t *testing.T) {
	s := sample(format.BFloat16, 1024, 64, format.NormPost, 2, 30, 58)
	small := sample(format.BFloat16, 5, 64, format.NormPost, 2, 30, 58)
	var buf producer.Buffer
	opt := producer.EmitOptions{Buffer: &buf}
	emit := func(s *format.Sample) {
		if _, err := producer.Emit("specforge", s, opt); err != nil {
			t.Fatal(err)
		}
	}
	emit(s)
	emit(s)
	got := hsxtest.Allocated(func() {
		for range 10 {
			emit(small)
			emit(s)
		}
	})
	if most := uint64(10 * 2 * 16 << 10); got > most {
		t.Errorf("20 records took %d bytes, want at most %d", got, most)
	}
}
