package validate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"hsx/format"
)

// TestPrefixSketch compares the estimated with the true deviation of rows, neighbours
// and noise.
func TestPrefixSketch(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 3))
	for _, width := range []int{64, 576, 7168} {
		for _, away := range []float64{0.005, 0.02, 0.2, 0.7} {
			for range 30 {
				a, b := make([]float32, width), make([]float32, width)
				for i := range a {
					a[i] = float32(rng.NormFloat64())
					b[i] = a[i] + float32(away*rng.NormFloat64())
				}
				a[0], b[0] = a[0]*40, b[0]*40 // a massive channel
				va, vb := prefixSketchOf(a), prefixSketchOf(b)
				diff, na, nb := 0.0, 0.0, 0.0
				for i := range a {
					diff += math.Pow(float64(a[i]-b[i]), 2)
					na += float64(a[i] * a[i])
					nb += float64(b[i] * b[i])
				}
				got, want := va.apart(vb, 0), math.Sqrt(diff/max(na, nb))
				if got < 0.3*want-0.001 || got > 2*want+0.001 {
					t.Errorf("width %d: estimated %.4f, want %.4f", width, got, want)
				}
			}
		}
	}
}

func prefixSketchOf(row []float32) *prefixVariant {
	sum := 0.0
	for _, v := range row {
		sum += float64(v) * float64(v)
	}
	norm := math.Sqrt(sum)
	return &prefixVariant{Hashes: []uint64{math.Float64bits(sum)}, Norms: []float32{float32(norm)}, Sketch: appendSketch(nil, row, sketchDraws(nil, len(row)), norm)}
}

// TestPrefixBound requires that a scan with room for few prefixes keeps the same ones
// however the samples are cut into parts, and those of one token all.
func TestPrefixBound(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	m := &crossModel{width: 16, dtype: format.BFloat16, rng: rng}
	var samples []*format.Sample
	for i := range 120 {
		samples = append(samples, m.good(fmt.Sprint(i), crossText(rng, 3+rng.IntN(40))))
	}
	layout := samples[0].Layout()
	scanAll := func(part int) *prefixScan {
		total := newPrefixScan(layout)
		total.bound = 50
		for first := 0; first < len(samples); first += part {
			p := newPrefixScan(layout)
			p.bound = 50
			for row, s := range samples[first:min(len(samples), first+part)] {
				p.sample(&sampleFacts{Ref: Ref{0, first + row}, Sample: s, States: factsOf(s)}, NewCollector(1, nil))
				if len(p.Keys) > p.bound {
					t.Fatalf("%d prefixes are kept, want at most %d", len(p.Keys), p.bound)
				}
			}
			total.add(p)
		}
		return total
	}
	want, err := json.Marshal(scanAll(len(samples)))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []int{1, 7, 50} {
		total := scanAll(part)
		got, err := json.Marshal(total)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("in parts of %d the scan keeps other prefixes than in one", part)
		}
		if n := len(total.Keys); n < 20 || n > 50 || !slices.ContainsFunc(prefixKeysOf(total), func(k *prefixKey) bool { return k.N == 1 && k.Variants[0].Samples == 120 }) {
			t.Errorf("%d prefixes are kept, want 20 to 50 and with them that of one token of 120 samples", n)
		}
	}
}

func prefixKeysOf(p *prefixScan) (keys []*prefixKey) {
	for _, k := range p.Keys {
		keys = append(keys, k)
	}
	return keys
}

func TestPrefixNext(t *testing.T) {
	t.Parallel()
	var got []int
	for n := 1; n < 100; n = prefixNext(n) {
		got = append(got, n)
	}
	if want := []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPrefixLong has a leak so late that only the end of the common prefix shows it,
// and an opener that cannot read.
func TestPrefixLong(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(6, 6))
	m := &crossModel{width: 16, dtype: format.BFloat16, rng: rng}
	text := crossText(rng, 700)
	other := slices.Clone(text)
	other[500]++
	samples := []*format.Sample{m.good("a", text), m.good("b", text), m.good("c", other)}
	samples[2].Tokens = text
	found := crossFound(runCross(t, samples, 3), rulePrefix)
	if f := found["c"]; len(found) != 1 || f.Token != 500 {
		t.Errorf("got %+v, want a finding of c at token 500", found)
	}

	p := newPrefixScan(samples[0].Layout())
	for row, s := range samples {
		p.sample(&sampleFacts{Ref: Ref{0, row}, Sample: s, States: factsOf(s)}, NewCollector(1, nil))
	}
	out := NewCollector(10, nil)
	p.finish(func(Ref, func(*format.Sample)) error { return fmt.Errorf("gone") }, out)
	if g := out.groups[rulePrefix]; g == nil || g.Count != 1 || g.Findings[0].Sample != "c" || g.Findings[0].Token != 511 {
		t.Errorf("got %+v, want a finding of c at token 511", g)
	}
}

func BenchmarkCrossScans(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 7))
	m := &crossModel{width: 7168, dtype: format.BFloat16, rng: rng}
	text := crossText(rng, 256)
	row := m.vector(1, 1, 1)
	values := make([][]float64, len(text))
	for i := range values {
		values[i] = row
	}
	s := &format.Sample{ID: "s", Tokens: text}
	for i := range 4 {
		st := format.State{Layer: format.Layer(i), DType: m.dtype}
		if i == 3 {
			st = format.State{Role: format.RoleFinal, DType: m.dtype}
		}
		s.Hidden = append(s.Hidden, format.Hidden{State: st, Rows: m.rows(values)})
	}
	f := &sampleFacts{Sample: s, States: factsOf(s)}
	out := NewCollector(1, map[string]bool{ruleOrder: true, rulePrefix: true, ruleSelfShift: true, ruleEmbedding: true})
	b.Run("bf16-256x4x7168", func(b *testing.B) {
		scans := crossScans(s.Layout())
		b.SetBytes(4 * s.Hidden[0].Rows.Bytes())
		b.ReportAllocs()
		for b.Loop() {
			for _, sc := range scans {
				sc.sample(f, out)
			}
		}
	})
}
