package producer

import (
	"encoding/binary"
	"slices"
	"strconv"

	"hsx/format"
)

// EmitOptions are the choices of [Emit]. The zero value emits every captured layer but
// the embedding.
type EmitOptions struct {
	Layers format.Layers // the aux layers to emit, all of them captured; nil: every one but the embedding
	Target format.Target // for the metadata of "safetensors"; zero fields are left out
	Buffer *Buffer       // memory to use again; nil: each record has its own
}

// Buffer is the memory that [Emit] fills, and fills again when it is given once more.
// It grows to what the largest sample needs. The zero value is ready; one call at a
// time may use it.
type Buffer struct {
	data       []byte
	used, want int
}

// Choose is the layers that [Emit] takes of every sample of layout l and origin o, in
// ascending order, or why it refuses them all: a [*FieldError]. A final that is to be
// normed before it is emitted counts as [format.NormPost] in l.
func Choose(to string, l format.Layout, o format.Origin, opt EmitOptions) (format.Layers, error) {
	t, err := FindTarget(to)
	if err != nil {
		return nil, err
	}
	states, err := t.choose(l, o, opt)
	if err != nil {
		return nil, err
	}
	var layers format.Layers
	for _, i := range states.aux {
		layers = append(layers, l.States[i].Layer)
	}
	return layers, nil
}

// Emit makes of a sample the record that the reader of a target wants, with its names,
// order, shapes and types. Nothing is invented: what the reader needs and the sample
// lacks is a [*FieldError]. Its kind is [format.ErrRefused] when other samples of the same
// layout may do, [format.ErrUnsupported] when none does.
//
// Every tensor is dense and has its key as Name. A state that lies in the sample as
// the reader wants it is not copied; everything else is in opt.Buffer. So the record is valid
// until the sample or the buffer is used again.
func Emit(to string, s *format.Sample, opt EmitOptions) (*format.Record, error) {
	t, err := FindTarget(to)
	if err != nil {
		return nil, err
	}
	if err := s.Check(); err != nil {
		return nil, &FieldError{Kind: format.ErrRefused, Err: err}
	}
	states, err := t.choose(s.Layout(), s.Origin, opt)
	if err != nil {
		return nil, err
	}
	if why := t.Lacks(s.LossMask); why != "" {
		return nil, fieldError(keyMask, format.ErrRefused, why)
	}
	e := emitter{s: s, opt: &opt, buf: opt.Buffer, rec: &format.Record{}}
	if e.buf == nil {
		e.buf = &Buffer{}
	}
	e.buf.reset()
	for _, i := range states.aux {
		e.aux = append(e.aux, s.Hidden[i])
	}
	if states.final >= 0 {
		e.final = &s.Hidden[states.final]
	}
	for _, sl := range t.slots {
		e.put(sl)
	}
	return e.rec, nil
}

// keyMask is the key of a loss mask, in every layout that has one.
const keyMask = "loss_mask"

// Lacks says what the reader misses in the loss mask of one sample, "" when it takes it.
func (t *TargetDescription) Lacks(mask []byte) string {
	if mask == nil && t.NeedMask {
		return "is missing, and " + t.Name + " needs it"
	}
	if !t.NeedPair {
		return ""
	}
	for i := 1; i < len(mask); i++ {
		if mask[i-1] != 0 && mask[i] != 0 {
			return ""
		}
	}
	return "marks no two tokens in a row, without which " + t.Name + " stops at a sample"
}

// emitter makes one record.
type emitter struct {
	s     *format.Sample
	opt   *EmitOptions
	aux   []format.Hidden // ascending
	final *format.Hidden  // nil when the record has none
	buf   *Buffer
	rec   *format.Record
}

func (e *emitter) add(key string, v format.Value) {
	e.rec.Fields = append(e.rec.Fields, format.Field{Key: key, Value: v})
}

// tensor adds [T, inner…], or [1, T, inner…].
func (e *emitter) tensor(sl slot, d format.DType, data []byte, inner ...int) {
	shape := []int64{int64(len(e.s.Tokens))}
	if sl.batch {
		shape = []int64{1, shape[0]}
	}
	for _, n := range inner {
		shape = append(shape, int64(n))
	}
	e.add(sl.key, &format.Tensor{Name: sl.key, DType: d, Shape: shape, Data: data})
}

func (e *emitter) put(sl slot) {
	switch sl.part {
	case partIDs:
		e.tensor(sl, format.Int64, int64s(e.buf, e.s.Tokens))
	case partMask:
		if e.s.LossMask != nil {
			e.tensor(sl, format.Int64, int64s(e.buf, e.s.LossMask))
		}
	case partByteMask:
		if e.s.LossMask != nil {
			e.tensor(sl, format.Uint8, e.s.LossMask)
		}
	case partAux:
		e.tensor(sl, e.aux[0].Rows.DType, e.buf.join(e.aux), len(e.aux)*e.aux[0].Rows.Width)
	case partFinal:
		e.state(sl, *e.final)
	case partStack:
		all := append(slices.Clone(e.aux), *e.final)
		e.tensor(sl, e.final.Rows.DType, e.buf.join(all), len(all), e.final.Rows.Width)
	case partEach:
		for _, h := range e.aux {
			e.state(slot{key: h.State.Column()}, h)
		}
		if e.final != nil {
			e.state(slot{key: finalColumn}, *e.final)
		}
	case partID:
		e.add(sl.key, e.s.ID)
	case partPrenorm:
		if e.final.State.Norm == format.NormPre {
			e.add(sl.key, true)
		}
	case partFacts:
		e.facts()
	}
}

func (e *emitter) state(sl slot, h format.Hidden) {
	e.tensor(sl, h.Rows.DType, e.buf.join([]format.Hidden{h}), h.Rows.Width)
}

// The keys under which a safetensors file of [Emit] says in its metadata what its tensors
// do not.
const (
	factID     = "hsx.id"
	factNorm   = "hsx.norm"   // of final
	factLayers = "hsx.layers" // in both conventions, for people: the tensors' names say them too

	factTarget       = "hsx.target" // the target's name
	factTargetLayers = "hsx.target_layers"
	factHiddenSize   = "hsx.hidden_size"
	factVocabSize    = "hsx.vocab_size"
)

func (e *emitter) facts() {
	var layers format.Layers
	for _, h := range e.aux {
		layers = append(layers, h.State.Layer)
	}
	norm := ""
	if e.final != nil {
		norm = e.final.State.Norm.String()
	}
	number := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	for _, f := range [][2]string{
		{factID, e.s.ID}, {factLayers, layers.String()}, {factNorm, norm}, {"hsx.producer", e.s.Producer},
		{factTarget, e.opt.Target.Name}, {factTargetLayers, number(e.opt.Target.Layers)},
		{factHiddenSize, strconv.Itoa(e.s.Hidden[0].Rows.Width)}, {factVocabSize, number(e.opt.Target.VocabSize)},
	} {
		if f[1] != "" {
			e.add(f[0], f[1])
		}
	}
}

// reset makes all of the buffer free again.
func (b *Buffer) reset() {
	if b.want > len(b.data) {
		b.data = make([]byte, b.want)
	}
	b.used, b.want = 0, 0
}

// take is n bytes of the buffer, aligned as torch aligns storages.
func (b *Buffer) take(n int) []byte {
	const align = 64
	next := (n + align - 1) / align * align
	b.want += next
	if n > len(b.data)-b.used {
		return make([]byte, n) // the next record will have room
	}
	p := b.data[b.used : b.used+n : b.used+n]
	b.used = min(b.used+next, len(b.data))
	return p
}

// int64s is the values of tokens or of a mask in eight bytes each.
func int64s[V int32 | byte](b *Buffer, values []V) []byte {
	out := b.take(8 * len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint64(out[8*i:], uint64(v))
	}
	return out
}

// join is the rows of states of one type side by side, copied unless a single state
// has them in one piece.
func (b *Buffer) join(states []format.Hidden) []byte {
	first := states[0].Rows
	if data, ok := first.Contiguous(); ok && len(states) == 1 {
		return data
	}
	n := first.RowBytes()
	out := b.take(first.N * n * len(states))
	to := out
	for i := range first.N {
		for k := range states {
			copy(to[:n], states[k].Rows.Row(i))
			to = to[n:]
		}
	}
	return out
}
