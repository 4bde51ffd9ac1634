package validate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
)

func TestTargetRulesOnTwin(t *testing.T) {
	t.Parallel()
	m := newTwin(160, 64)
	good := func(x *twinText) []twinState {
		return []twinState{twinLayer(1, x.p1), twinLayer(5, x.p5), twinFinal(format.NormPost, x.n)}
	}
	// each makes the states of all eight samples alike.
	type maker func(i int, x *twinText) []twinState
	each := func(f func(x *twinText) []twinState) maker {
		return func(_ int, x *twinText) []twinState { return f(x) }
	}
	tests := map[string]struct {
		states maker
		alien  bool   // text that the target did not write
		want   string // rule severity column of what is reported, and of which samples
	}{
		"good":             {states: each(good)},
		"not its own text": {states: each(good), alien: true},
		"all is declared": {states: each(func(x *twinText) []twinState {
			return []twinState{twinLayer(-1, x.embed), twinLayer(1, x.p1), twinLayer(5, x.p5), twinLayer(7, x.p7), twinFinal(format.NormPost, x.n)}
		})},
		"before the norm": {states: each(func(x *twinText) []twinState {
			return []twinState{twinLayer(1, x.p1), twinLayer(5, x.p5), twinLayer(7, x.p7), twinFinal(format.NormPre, x.p7)}
		})},
		"only deep layers": {states: each(func(x *twinText) []twinState {
			return []twinState{twinLayer(5, x.p5), twinLayer(6, x.p5)}
		})},
		"a scaled embedding": {states: each(func(x *twinText) []twinState {
			return []twinState{twinLayer(-1, twinEach(x.embed, func(e []float32) []float32 { return twinTimes(e, 8) }))}
		})},
		"embedding for a layer": {
			states: each(func(x *twinText) []twinState {
				return []twinState{twinLayer(1, x.embed), twinLayer(5, x.p5), twinFinal(format.NormPost, x.n)}
			}),
			want: "embedding-rows error layer_1: 0 1 2 3 4 5 6 7",
		},
		"layer for the embedding": {
			states: each(func(x *twinText) []twinState {
				return []twinState{twinLayer(-1, x.p1), twinLayer(5, x.p5), twinFinal(format.NormPost, x.n)}
			}),
			want: "embedding-rows error layer_-1: 0 1 2 3 4 5 6 7",
		},
		"an embedding of many scales": {
			states: each(func(x *twinText) []twinState {
				i := 0
				return []twinState{twinLayer(-1, twinEach(x.embed, func(e []float32) []float32 { i++; return twinTimes(e, float32(i)) }))}
			}),
			want: "embedding-rows error layer_-1: 0 1 2 3 4 5 6 7",
		},
		"one sample late": {
			states: func(i int, x *twinText) []twinState {
				s := good(x)
				if i == 3 {
					for k := range s {
						s[k].rows = twinShift(s[k].rows, -1)
					}
				}
				return s
			},
			want: "token-shift error layer_1: 3",
		},
		"all early": {
			states: each(func(x *twinText) []twinState {
				s := good(x)
				for k := range s {
					s[k].rows = twinShift(s[k].rows, 1)
				}
				return s
			}),
			want: "token-shift error layer_1: 0 1 2 3 4 5 6 7; next-token error final: all",
		},
		"blocks exchanged": {states: each(func(x *twinText) []twinState {
			return []twinState{twinLayer(1, x.p5), twinLayer(5, x.p1), twinFinal(format.NormPost, x.n)}
		})},
		"another sample's states": {
			states: func(i int, x *twinText) []twinState {
				if i == 2 || i == 5 {
					return good(m.text(i+100, len(x.tokens), true))
				}
				return good(x)
			},
			want: "states-of-another-sample error layer_1: 2 5",
		},
		"no norm": {
			states: each(func(x *twinText) []twinState {
				return []twinState{twinLayer(1, x.p1), twinFinal(format.NormPost, x.p7)}
			}),
			want: "final-norm error final: 0 1 2 3 4 5 6 7; next-token error final: all",
		},
		"a norm too many": {
			states: each(func(x *twinText) []twinState {
				return []twinState{twinLayer(1, x.p1), twinFinal(format.NormPost, twinEach(x.n, m.norm))}
			}),
			want: "next-token error final: all",
		},
		"normed though declared pre": {
			states: func(i int, x *twinText) []twinState {
				if i == 6 {
					return []twinState{twinLayer(1, x.p1), twinFinal(format.NormPre, x.n)}
				}
				return []twinState{twinLayer(1, x.p1), twinFinal(format.NormPre, x.p7)}
			},
			want: "final-norm error final: 6",
		},
		"norm state unknown": {
			states: each(func(x *twinText) []twinState {
				return []twinState{twinLayer(1, x.p1), twinFinal(format.NormUnknown, x.n)}
			}),
		},
		"final for a layer": {
			states: each(func(x *twinText) []twinState {
				return []twinState{twinLayer(1, x.p1), twinLayer(5, x.n), twinFinal(format.NormPost, x.n)}
			}),
			want: "final-norm error layer_5: 0 1 2 3 4 5 6 7",
		},
		"last layer not run": {
			states: each(func(x *twinText) []twinState {
				return []twinState{twinLayer(1, x.p1), twinLayer(5, x.p5), twinFinal(format.NormPost, twinEach(x.p5, m.norm))}
			}),
			want: "final-layer error final: 0 1 2 3 4 5 6 7",
		},
		"final is a copy": {
			states: each(func(x *twinText) []twinState {
				return []twinState{twinLayer(1, x.p1), twinLayer(5, x.p5), twinFinal(format.NormPre, x.p5)}
			}),
			want: "final-layer error final: 0 1 2 3 4 5 6 7",
		},
	}
	for name, tc := range tests {
		for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
			t.Run(name+"/"+d.String(), func(t *testing.T) {
				t.Parallel()
				w := m.weights(t, d)
				var samples []*format.Sample
				for i := range 8 {
					x := m.text(i, 30, !tc.alien)
					samples = append(samples, twinSample(fmt.Sprint(i), d, x.tokens, tc.states(i, x)...))
				}
				l := samples[0].Layout()
				mk := func() []scan { return targetScans(l, w) }
				groups := targetRun(t, samples, 3, mk)
				if got := targetShort(groups); got != tc.want {
					t.Errorf("got %q, want %q\n%+v", got, tc.want, groups)
				}
				if d != format.BFloat16 {
					return
				}
				if diff := cmp.Diff(groups, targetRun(t, samples, 1, mk)); diff != "" {
					t.Errorf("findings depend on how the samples are parted:\n%s", diff)
				}
			})
		}
	}
}

func twinTimes(x []float32, s float32) []float32 {
	y := make([]float32, len(x))
	for i, v := range x {
		y[i] = v * s
	}
	return y
}

// targetShort is warnings and errors as "rule severity column: samples; …".
func targetShort(groups []Group) string {
	var keys []string
	ids := map[string][]string{}
	for _, g := range groups {
		for _, f := range g.Findings {
			if f.Severity == Info {
				continue
			}
			k := fmt.Sprintf("%s %s %s", f.Rule, f.Severity, f.Column)
			if ids[k] == nil {
				keys = append(keys, k)
			}
			id := f.Sample
			if id == "" {
				id = "all"
			}
			ids[k] = append(ids[k], id)
		}
	}
	for i, k := range keys {
		keys[i] = k + ": " + strings.Join(ids[k], " ")
	}
	return strings.Join(keys, "; ")
}

// TestTargetRulesShifted covers dumps that keep ids one place to the left of states.
func TestTargetRulesShifted(t *testing.T) {
	t.Parallel()
	m := newTwin(160, 64)
	w := m.weights(t, format.BFloat16)
	var samples []*format.Sample
	for i := range 4 {
		x := m.text(i, 41, true)
		s := twinSample(fmt.Sprint(i), format.BFloat16, x.tokens[1:], twinLayer(1, x.p1[:40]), twinFinal(format.NormPost, x.n[:40]))
		s.Shifted = true
		samples = append(samples, s)
	}
	mk := func() []scan { return targetScans(samples[0].Layout(), w) }
	if got := targetShort(targetRun(t, samples, 2, mk)); got != "" {
		t.Errorf("shifted as declared: got %q, want nothing", got)
	}
	for _, s := range samples {
		s.Shifted = false
	}
	if got, want := targetShort(targetRun(t, samples, 2, mk)), "token-shift error layer_1: 0 1 2 3; next-token error final: all"; got != want {
		t.Errorf("shifted though not declared: got %q, want %q", got, want)
	}
}

// TestTargetRulesSizes makes sure that samples of any length, and rows without values,
// are taken, and that foreign tokens, NaN and zeros of good samples raise nothing.
func TestTargetRulesSizes(t *testing.T) {
	t.Parallel()
	m := newTwin(100, 16)
	w := m.weights(t, format.Float32)
	for _, n := range []int{1, 2, 3, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
		x := m.text(n, n, true)
		x.tokens[n/2] = -1
		x.tokens[n/3] = 1 << 30
		x.p1[n/2] = make([]float32, 16)
		x.n[n/2] = make([]float32, 16)
		s := twinSample("s", format.Float32, x.tokens, twinLayer(1, x.p1), twinFinal(format.NormPost, x.n))
		s.LossMask = make([]byte, n)
		if got := targetShort(targetRun(t, []*format.Sample{s}, 1, func() []scan { return targetScans(s.Layout(), w) })); got != "" {
			t.Errorf("%d tokens: got %q, want nothing", n, got)
		}
	}
}

func TestTargetScansNone(t *testing.T) {
	t.Parallel()
	m := newTwin(20, 8)
	w := m.weights(t, format.Float32)
	if got := targetScans(format.Layout{HiddenSize: 8, States: []format.State{{Layer: 1}}}, nil); got != nil {
		t.Errorf("targetScans without weights: got %d scans, want none", len(got))
	}
	if got := targetScans(format.Layout{}, w); got != nil {
		t.Errorf("targetScans of an empty dataset: got %d scans, want none", len(got))
	}
	l := format.Layout{HiddenSize: 16, States: []format.State{{Layer: 1}}}
	if got, want := targetShort(targetRun(t, nil, 1, func() []scan { return targetScans(l, w) })), "final-norm error : all"; got != want {
		t.Errorf("weights of another width: got %q, want %q", got, want)
	}
}

func BenchmarkTargetScans(b *testing.B) {
	for _, width := range []int{64, 1024, 7168} {
		b.Run(fmt.Sprintf("bf16-3x256x%d", width), func(b *testing.B) {
			m := newTwin(1000, width)
			w := m.weights(b, format.BFloat16)
			x := m.text(1, 256, true)
			s := twinSample("s", format.BFloat16, x.tokens, twinLayer(1, x.p1), twinLayer(5, x.p5), twinFinal(format.NormPost, x.n))
			f, out := targetFacts(s), NewCollector(10, nil)
			scans := targetScans(s.Layout(), w)
			b.SetBytes(int64(3 * 256 * width * 2))
			b.ReportAllocs()
			for b.Loop() {
				for _, sc := range scans {
					sc.sample(f, out)
				}
			}
		})
	}
}

// TestTargetRulesUnitOffset has a norm that multiplies by 1+w: the proof needs no
// config to say so.
func TestTargetRulesUnitOffset(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"gemma2", "unheard-of"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			m := newTwin(160, 64)
			m.offset = true
			cfg := fmt.Sprintf(`{"model_type":%q,"num_hidden_layers":%d,"hidden_size":64}`, kind, twinLayers)
			w, err := NewWeights([]byte(cfg), m.tensors(format.Float32))
			if err != nil {
				t.Fatal(err)
			}
			x := m.text(1, 30, true)
			for norm, want := range map[format.Norm]string{format.NormPost: "", format.NormPre: "final-norm error final: s"} {
				s := twinSample("s", format.BFloat16, x.tokens, twinLayer(5, x.p5), twinFinal(norm, x.n))
				if got := targetShort(targetRun(t, []*format.Sample{s}, 1, func() []scan { return targetScans(s.Layout(), w) })); got != want {
					t.Errorf("declared %s: got %q, want %q", norm, got, want)
				}
			}
		})
	}
}
