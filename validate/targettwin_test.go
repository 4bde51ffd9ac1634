package validate

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"hsx/format"
)

// twin is a tiny model that tests make themselves: random tables, and states built so
// that what they are is known. It has 8 layers.
type twin struct {
	vocab, hidden int
	embed, head   [][]float32
	gain          []float32
	offset        bool // the norm multiplies by 1+w
}

const twinLayers = 8

func newTwin(vocab, hidden int) *twin {
	rng := rand.New(rand.NewPCG(3, 4))
	m := &twin{vocab: vocab, hidden: hidden, gain: make([]float32, hidden)}
	for range vocab {
		m.embed = append(m.embed, twinNoise(rng, hidden, 0.1))
		m.head = append(m.head, twinNoise(rng, hidden, 0.1))
	}
	for c := range m.gain {
		m.gain[c] = float32(math.Exp(rng.NormFloat64() * 0.8))
	}
	return m
}

func twinNoise(rng *rand.Rand, n int, scale float64) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * scale)
	}
	return x
}

func twinBytes(d format.DType, rows ...[]float32) []byte {
	var b []byte
	for _, r := range rows {
		for _, v := range r {
			bits := math.Float32bits(v)
			switch d {
			case format.Float32:
				b = binary.LittleEndian.AppendUint32(b, bits)
			case format.BFloat16:
				b = binary.LittleEndian.AppendUint16(b, uint16((bits+0x7fff+bits>>16&1)>>16))
			case format.Float16: // of the normal numbers that the twin has
				if v == 0 {
					b = binary.LittleEndian.AppendUint16(b, 0)
					continue
				}
				exp := int(bits>>23&0xff) - 112
				half := uint32(max(exp, 0))<<10 | bits>>13&0x3ff
				b = binary.LittleEndian.AppendUint16(b, uint16(bits>>16&0x8000|half))
			}
		}
	}
	return b
}

// tensors are the model's, under Hugging Face names.
func (m *twin) tensors(d format.DType) func(string) *format.Tensor {
	gain := append([]float32{}, m.gain...)
	if m.offset {
		for i := range gain {
			gain[i]--
		}
	}
	return func(name string) *format.Tensor {
		t := &format.Tensor{Name: name, DType: d, Shape: []int64{int64(m.vocab), int64(m.hidden)}}
		switch name {
		case "model.embed_tokens.weight":
			t.Data = twinBytes(d, m.embed...)
		case "lm_head.weight":
			t.Data = twinBytes(d, m.head...)
		case "model.norm.weight":
			t.Shape, t.Data = []int64{int64(m.hidden)}, twinBytes(d, gain)
		default:
			return nil
		}
		return t
	}
}

func (m *twin) weights(t testing.TB, d format.DType) *Weights {
	t.Helper()
	cfg := fmt.Sprintf(`{"num_hidden_layers":%d,"hidden_size":%d,"vocab_size":%d,"rms_norm_eps":1e-6}`, twinLayers, m.hidden, m.vocab)
	w, err := NewWeights([]byte(cfg), m.tensors(d))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// norm applies the final norm.
func (m *twin) norm(x []float32) []float32 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	scale := float32(1 / math.Sqrt(sum/float64(len(x))+1e-6))
	y := make([]float32, len(x))
	for c, v := range x {
		y[c] = v * scale * m.gain[c]
	}
	return y
}

// twinText are the tokens of one sample and the states of each of its positions.
type twinText struct {
	tokens []int32
	embed  [][]float32
	p1     [][]float32 // knows its own token
	p5     [][]float32 // knows nothing, and grows with depth
	p7     [][]float32 // after the norm it foretells the next token
	n      [][]float32
}

// text makes sample i of a length. own says whether the model wrote it.
func (m *twin) text(i, length int, own bool) *twinText {
	rng := rand.New(rand.NewPCG(uint64(i), 9))
	x := &twinText{}
	for range length + 1 {
		x.tokens = append(x.tokens, int32(rng.IntN(m.vocab)))
	}
	for t := range length {
		e := m.embed[x.tokens[t]]
		p1, p5 := twinNoise(rng, m.hidden, 0.04), twinNoise(rng, m.hidden, 1)
		logits := twinNoise(rng, m.hidden, 0.13)
		next := m.head[x.tokens[t+1]]
		if !own {
			next = m.head[rng.IntN(m.vocab)]
		}
		p7 := make([]float32, m.hidden)
		scale := float32(20 * math.Exp(rng.NormFloat64()*0.3))
		for c := range e {
			p1[c] += e[c]
			p7[c] = (next[c] + logits[c]) / m.gain[c] * scale
		}
		x.embed, x.p1, x.p5, x.p7, x.n = append(x.embed, e), append(x.p1, p1), append(x.p5, p5), append(x.p7, p7), append(x.n, m.norm(p7))
	}
	x.tokens = x.tokens[:length]
	return x
}

// twinState is a state as it is declared, with its rows.
type twinState struct {
	state format.State
	rows  [][]float32
}

func twinLayer(k format.Layer, rows [][]float32) twinState {
	return twinState{format.State{Layer: k}, rows}
}

func twinFinal(n format.Norm, rows [][]float32) twinState {
	return twinState{format.State{Role: format.RoleFinal, Norm: n}, rows}
}

func twinSample(id string, d format.DType, tokens []int32, states ...twinState) *format.Sample {
	s := &format.Sample{ID: id, Tokens: tokens}
	for _, st := range states {
		st.state.DType = d
		width := len(st.rows[0])
		s.Hidden = append(s.Hidden, format.Hidden{State: st.state, Rows: format.Rows{
			DType: d, N: len(st.rows), Width: width, Stride: width * d.Size(), Data: twinBytes(d, st.rows...),
		}})
	}
	return s
}

// twinEach applies f to rows.
func twinEach(rows [][]float32, f func([]float32) []float32) [][]float32 {
	out := make([][]float32, len(rows))
	for i, r := range rows {
		out[i] = f(r)
	}
	return out
}

// twinShift is rows of which row t is row t+s of the given ones, the ends repeated.
func twinShift(rows [][]float32, s int) [][]float32 {
	out := make([][]float32, len(rows))
	for t := range rows {
		out[t] = rows[min(max(t+s, 0), len(rows)-1)]
	}
	return out
}
