package validate

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"hsx/format"
)

// crossModel is a causal stand-in for a language model: P_k is P_k-1 plus a vector that
// depends on the token and on all tokens before it, greater with every layer. A run of
// one token changes nothing, as with attention.
type crossModel struct {
	width int
	dtype format.DType
	noise float64 // relative, of every value, from rng
	rng   *rand.Rand
}

const crossDepth = 6 // P_-1 … P_4

// states are P_-1 … P_4 and the final after the norm, by token.
func (m *crossModel) states(tokens []int32) [crossDepth + 1][][]float64 {
	var out [crossDepth + 1][][]float64
	prefix := uint64(0)
	for t, token := range tokens {
		if t == 0 || token != tokens[0] || prefix != 0 {
			prefix = crossHash(prefix, uint64(token)+1)
		}
		if t > 0 && tokens[t-1] == token && slices.Max(tokens[:t+1]) == slices.Min(tokens[:t+1]) {
			prefix = crossHash(0, uint64(token)+1)
		}
		x := m.vector(uint64(token), 99, 0.25)
		out[0] = append(out[0], slices.Clone(x))
		for k := range crossDepth - 1 {
			scale := 0.35 * math.Pow(1.5, float64(k))
			context := 0.4 + 0.12*float64(k) // its share grows with depth
			a := m.vector(uint64(token), uint64(k), math.Sqrt(1-context*context)*scale)
			b := m.vector(prefix, uint64(k)+1000, context*scale)
			for i := range x {
				x[i] += a[i] + b[i]
			}
			out[k+1] = append(out[k+1], slices.Clone(x))
		}
		rms := math.Sqrt(crossMeanSquare(x))
		w := m.vector(7, 7, 0.3)
		for i := range x {
			x[i] *= (2 + w[i]) / rms
		}
		out[crossDepth] = append(out[crossDepth], x)
	}
	return out
}

func (m *crossModel) vector(a, b uint64, scale float64) []float64 {
	rng := rand.New(rand.NewPCG(a, b))
	v := make([]float64, m.width)
	for i := range v {
		v[i] = rng.NormFloat64() * scale
	}
	return v
}

// sample has states of the given columns of the model's, declared as layers, and the
// last column as the final if there is one more column than layers.
func (m *crossModel) sample(id string, tokens []int32, layers []format.Layer, columns ...int) *format.Sample {
	states := m.states(tokens)
	s := &format.Sample{ID: id, Tokens: tokens}
	for i, c := range columns {
		st := format.State{Role: format.RoleFinal, Norm: format.NormPost, DType: m.dtype}
		if i < len(layers) {
			st = format.State{Layer: layers[i], DType: m.dtype}
		}
		s.Hidden = append(s.Hidden, format.Hidden{State: st, Rows: m.rows(states[c])})
	}
	return s
}

// good is a sample of the layers 0, 2, 3 and the final, as declared.
func (m *crossModel) good(id string, tokens []int32) *format.Sample {
	return m.sample(id, tokens, crossTriple(), 1, 3, 4, crossDepth)
}

func crossTriple() []format.Layer { return []format.Layer{0, 2, 3} }

func (m *crossModel) rows(values [][]float64) format.Rows {
	r := format.Rows{DType: m.dtype, N: len(values), Width: m.width, Stride: m.width * m.dtype.Size()}
	for _, row := range values {
		noise := 0.0
		if m.noise > 0 {
			noise = m.noise * math.Sqrt(crossMeanSquare(row))
		}
		for _, v := range row {
			if noise > 0 {
				v += noise * m.rng.NormFloat64()
			}
			switch m.dtype {
			case format.BFloat16:
				r.Data = binary.LittleEndian.AppendUint16(r.Data, uint16((math.Float32bits(float32(v))+0x8000)>>16))
			case format.Float32:
				r.Data = binary.LittleEndian.AppendUint32(r.Data, math.Float32bits(float32(v)))
			}
		}
	}
	return r
}

func crossMeanSquare(row []float64) float64 {
	sum := 0.0
	for _, v := range row {
		sum += v * v
	}
	return sum / float64(len(row))
}

// crossText is a skewed random text of n tokens that begins with 1.
func crossText(rng *rand.Rand, n int) []int32 {
	tokens := []int32{1}
	for len(tokens) < n { // no token follows itself, so that every shift shows
		if token := 2 + int32(40*rng.Float64()*rng.Float64()); token != tokens[len(tokens)-1] {
			tokens = append(tokens, token)
		}
	}
	return tokens[:n]
}

// crossTexts are texts of many lengths, some with a long prefix in common, and each
// with a twin of the same first 20 tokens.
func crossTexts(rng *rand.Rand) [][]int32 {
	system := crossText(rng, 24)
	var texts [][]int32
	for range 4 {
		texts = append(texts, append(slices.Clone(system), crossText(rng, 40+rng.IntN(60))[1:]...))
	}
	for range 3 {
		a := crossText(rng, 40+rng.IntN(60))
		texts = append(texts, a, append(slices.Clone(a[:20]), crossText(rng, 50)[1:]...))
	}
	return append(texts, []int32{1}, crossText(rng, 2), crossText(rng, 3))
}

// runCross scans samples as an engine would, in shards of perShard, with every scan's
// state written and read as JSON between, and returns the findings of all rules.
func runCross(t testing.TB, samples []*format.Sample, perShard int) []Finding {
	t.Helper()
	out := NewCollector(1000, nil)
	layout := samples[0].Layout()
	total := crossScans(layout)
	for first := 0; first < len(samples); first += perShard {
		scans := crossScans(layout)
		for row, s := range samples[first:min(len(samples), first+perShard)] {
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			f := &sampleFacts{Ref: Ref{first / perShard, row}, Sample: s, States: factsOf(s)}
			for _, sc := range scans {
				sc.sample(f, out)
			}
		}
		for i, sc := range scans {
			total[i].add(throughJSON(t, sc))
		}
	}
	open := func(ref Ref, use func(*format.Sample)) error {
		i := ref.Shard*perShard + ref.Row
		if i >= len(samples) {
			return fmt.Errorf("no sample %v", ref)
		}
		use(samples[i])
		return nil
	}
	for _, sc := range total {
		throughJSON(t, sc).finish(open, out)
	}
	var found []Finding
	for _, r := range crossRules() {
		if g := out.groups[r.Name]; g != nil {
			found = append(found, g.Findings...)
		}
	}
	return found
}

// throughJSON is what a scan is after it was stored and read.
func throughJSON(t testing.TB, s scan) scan {
	t.Helper()
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	read := reflect.New(reflect.TypeOf(s).Elem()).Interface().(scan)
	if err := json.Unmarshal(data, read); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(read)
	if err != nil || string(again) != string(data) {
		t.Fatalf("%T does not survive JSON: %v\n%s\n%s", s, err, data, again)
	}
	return read
}

// crossFound are the findings of one rule, by sample.
func crossFound(found []Finding, rule string) map[string]Finding {
	out := map[string]Finding{}
	for _, f := range found {
		if f.Rule == rule {
			out[f.Sample] = f
		}
	}
	return out
}
