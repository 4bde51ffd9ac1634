package producer_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"hsx/format"
	"hsx/format/producer"
)

// states is a dense tensor whose bytes count up from seed, so that every element is
// told from its neighbours.
func states(d format.DType, seed int, shape ...int64) *format.Tensor {
	n, _ := format.Elems(shape)
	t := &format.Tensor{DType: d, Shape: shape, Data: make([]byte, n*int64(d.Size()))}
	for i := range t.Data {
		t.Data[i] = byte((i + seed) * 131 >> (i % 3))
	}
	return t
}

func bf16(shape ...int64) *format.Tensor { return states(format.BFloat16, 7, shape...) }

// integers is a tensor of any integer type, or of bool.
func integers(d format.DType, shape []int64, values ...int64) *format.Tensor {
	t := &format.Tensor{DType: d, Shape: shape}
	for _, v := range values {
		b := binary.LittleEndian.AppendUint64(nil, uint64(v))
		t.Data = append(t.Data, b[:d.Size()]...)
	}
	return t
}

func i64(values ...int64) *format.Tensor {
	return integers(format.Int64, []int64{int64(len(values))}, values...)
}

// upTo is 1, 2, …, n.
func upTo(n int) []int64 {
	v := make([]int64, n)
	for i := range v {
		v[i] = int64(i + 1)
	}
	return v
}

func ids(n int) *format.Tensor { return i64(upTo(n)...) }

func mask(n int) *format.Tensor { return i64(slices.Repeat([]int64{1}, n)...) }

// batched gives a tensor a first dimension of 1.
func batched(t *format.Tensor) *format.Tensor {
	c := *t
	c.Shape = append([]int64{1}, t.Shape...)
	return &c
}

// rec is a record of alternating keys and values.
func rec(kv ...any) *format.Record {
	r := &format.Record{}
	for i := 0; i < len(kv); i += 2 {
		r.Fields = append(r.Fields, format.Field{Key: kv[i].(string), Value: kv[i+1]})
	}
	return r
}

// with is a copy of r with one value set.
func with(r *format.Record, key string, v format.Value) *format.Record {
	c := &format.Record{Fields: slices.Clone(r.Fields)}
	for i, f := range c.Fields {
		if f.Key == key {
			c.Fields[i].Value = v
			return c
		}
	}
	c.Fields = append(c.Fields, format.Field{Key: key, Value: v})
	return c
}

func without(r *format.Record, key string) *format.Record {
	return &format.Record{Fields: slices.DeleteFunc(slices.Clone(r.Fields), func(f format.Field) bool { return f.Key == key })}
}

// eagle3 is a SpecForge record of n tokens, three aux states and hidden size 64.
func eagle3(n int) *format.Record {
	return rec("input_ids", ids(n), "loss_mask", mask(n),
		"aux_hidden_state", bf16(1, int64(n), 192), "hidden_state", states(format.BFloat16, 99, 1, int64(n), 64))
}

func layers(t testing.TB, s string) format.Layers {
	t.Helper()
	ls, err := format.ParseLayers(s, format.PostLayer)
	if err != nil {
		t.Fatal(err)
	}
	return ls
}

func target() format.Target { return format.Target{Layers: 5, HiddenSize: 64, VocabSize: 512} }

func torch(v format.Value) producer.Dump { return producer.Dump{Container: producer.Torch, Value: v} }

func plain(v format.Value) producer.Dump { return producer.Dump{Container: producer.Arrays, Value: v} }

// read recognises a dump and collects its samples, or the first error.
func read(t testing.TB, d producer.Dump, f producer.Facts) (*producer.Match, []*format.Sample, error) {
	t.Helper()
	m, err := producer.Recognise(d, f)
	if err != nil {
		return nil, nil, err
	}
	var out []*format.Sample
	for s, err := range m.Samples() {
		if err != nil {
			return m, out, err
		}
		out = append(out, s)
	}
	return m, out, nil
}

// columns are the names of a sample's states, with the norm of the final.
func columns(s *format.Sample) []string {
	var out []string
	for _, h := range s.Hidden {
		c := h.State.Column()
		if h.State.Role == format.RoleFinal {
			c += " " + h.State.Norm.String()
		}
		out = append(out, c)
	}
	return out
}

// rows are the bytes of a state without gaps.
func rows(r format.Rows) []byte {
	var out []byte
	for i := range r.N {
		out = append(out, r.Row(i)...)
	}
	return out
}

// block is what rows should give: columns [first, first+width) of a dense tensor
// whose last dimension is the row.
func block(t *format.Tensor, first, width int) []byte {
	size, w := t.DType.Size(), int(t.Shape[len(t.Shape)-1])
	var out []byte
	for off := 0; off < len(t.Data); off += w * size {
		out = append(out, t.Data[off+first*size:off+(first+width)*size]...)
	}
	return out
}
