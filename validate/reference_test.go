package validate

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/npy"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// layerSample is a text of testdata, with its states declared as given: "P0" to "P4",
// and "N", by place.
func layerSample(t testing.TB, text string, states []format.State, actual []string) *format.Sample {
	t.Helper()
	s := &format.Sample{ID: text}
	tokens, err := npy.Decode(hsxtest.Read(t, "testdata/layers/"+text+"/tokens.npy"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range int(tokens.Shape[0]) {
		s.Tokens = append(s.Tokens, int32(tokens.Data[8*i])|int32(tokens.Data[8*i+1])<<8)
	}
	for i, st := range states {
		x, err := npy.Decode(hsxtest.Read(t, "testdata/layers/"+text+"/"+actual[i]+".bf16.npy"))
		if err != nil {
			t.Fatal(err)
		}
		st.DType = format.BFloat16
		width := int(x.Shape[1])
		s.Hidden = append(s.Hidden, format.Hidden{State: st, Rows: format.Rows{
			DType: st.DType, N: len(s.Tokens), Width: width, Stride: 2 * width, Data: x.Data,
		}})
	}
	return s
}

func TestReferenceRules(t *testing.T) {
	t.Parallel()
	ref := targetTestReference(t)
	post := format.State{Role: format.RoleFinal, Norm: format.NormPost}
	pre := format.State{Role: format.RoleFinal, Norm: format.NormPre}
	unknown := format.State{Role: format.RoleFinal}
	triple := []format.State{{Layer: 0}, {Layer: 2}, {Layer: 3}, post}
	tests := map[string]struct {
		states []format.State
		actual string
		want   string
	}{
		"right":             {triple, "P0 P2 P3 N", ""},
		"all layers":        {[]format.State{{Layer: -1}, {Layer: 0}, {Layer: 1}, {Layer: 2}, {Layer: 3}, {Layer: 4}, post}, "P-1 P0 P1 P2 P3 P4 N", ""},
		"pre":               {[]format.State{{Layer: 1}, pre}, "P1 P4", ""},
		"unknown norm":      {[]format.State{{Layer: 1}, unknown}, "P1 P4", ""},
		"unknown layers":    {[]format.State{{Role: format.RoleBlock}, {Role: format.RoleBlock, Block: 1}}, "P1 P4", ""},
		"embedding first":   {triple, "P-1 P2 P3 N", "reference-layer error layer_0: s04 s07"},
		"permuted":          {triple, "P3 P0 P2 N", "reference-layer error layer_0: s04 s07; reference-layer error layer_2: s04 s07; reference-layer error layer_3: s04 s07"},
		"not normed":        {triple, "P0 P2 P3 P4", "reference-layer error final: s04 s07"},
		"final for a layer": {triple, "P0 P2 N N", "reference-layer error layer_3: s04 s07"},
		"normed":            {[]format.State{{Layer: 1}, pre}, "P1 N", "reference-layer error final: s04 s07"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			actual := strings.Fields(tc.actual)
			samples := []*format.Sample{layerSample(t, "s04", tc.states, actual), layerSample(t, "s07", tc.states, actual)}
			groups := targetRun(t, samples, 1, func() []scan { return referenceScans(samples[0].Layout(), ref) })
			if got := targetShort(groups); got != tc.want {
				t.Errorf("got %q, want %q\n%+v", got, tc.want, groups)
			}
		})
	}
}

// TestReferenceNeighbours has layers that differ by less than one text tells: only
// many texts together name the wrong one.
func TestReferenceNeighbours(t *testing.T) {
	t.Parallel()
	m := newTwin(100, 64)
	ref := &Reference{Format: referenceFormat, Version: 1, HiddenSize: 64, Rows: 1000}
	for k := range 3 {
		st := ReferenceState{State: fmt.Sprintf("P_%d", k)}
		for range 64 {
			st.Mean, st.Std = append(st.Mean, float32(k)*0.2), append(st.Std, 1)
		}
		ref.States = append(ref.States, st)
	}
	tests := map[string]struct {
		samples  int
		layer    float32 // what the states are
		severity Severity
		part     string
	}{
		"right":          {20, 1, Info, "too thin"},
		"wrong":          {20, 2, Error, "is declared P_1 and looks like P_2"},
		"wrong, but few": {4, 2, Info, "too thin"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var samples []*format.Sample
			for i := range tc.samples {
				x := m.text(i, 40, true)
				rows := twinEach(x.p5, func(r []float32) []float32 {
					for c := range r {
						r[c] += tc.layer * 0.2
					}
					return r
				})
				samples = append(samples, twinSample(fmt.Sprint(i), format.Float32, x.tokens, twinLayer(1, rows)))
			}
			groups := targetRun(t, samples, 3, func() []scan { return referenceScans(samples[0].Layout(), ref) })
			if tc.severity == Info && len(groups) == 0 {
				return // the margin was wide enough
			}
			if len(groups) != 1 || groups[0].Severity != tc.severity || !strings.Contains(groups[0].Findings[0].Message, tc.part) {
				t.Errorf("got %+v, want one %s with %q", groups, tc.severity, tc.part)
			}
		})
	}
}

func TestMakeReference(t *testing.T) {
	t.Parallel()
	m := newTwin(100, 16)
	ctx := context.Background()
	dir := t.TempDir()
	target := format.Target{Name: "twin", Layers: twinLayers, HiddenSize: 16, VocabSize: 100}
	w, err := shard.OpenWriter(dir, shard.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	var samples []*format.Sample
	for i := range 6 {
		x := m.text(i, 40, true)
		s := twinSample(fmt.Sprint(i), format.BFloat16, x.tokens, twinLayer(-1, x.embed), twinLayer(1, x.p1), twinLayer(5, x.p5), twinLayer(7, x.p7), twinFinal(format.NormPost, x.n))
		s.Input = format.Input{Path: s.ID}
		samples = append(samples, s)
		if err := w.Put(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ds, err := shard.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := MakeReference(ctx, ds)
	if err != nil {
		t.Fatalf("MakeReference: got error %v", err)
	}
	if ref.Rows != 6*39 || ref.Target != target || len(ref.States) != 5 || ref.States[4].State != "N" || ref.States[0].State != "P_-1" {
		t.Errorf("MakeReference: got %+v, want 234 rows of P_-1, P_1, P_5, P_7 and N", ref)
	}
	mean, sq := 0.0, 0.0
	for _, s := range samples {
		for i := 1; i < 40; i++ {
			var x [16]float32
			format.BFloat16.Floats(x[:], s.Hidden[2].Rows.Row(i))
			mean += float64(x[3]) / 234
			sq += float64(x[3]) * float64(x[3]) / 234
		}
	}
	got, want := ref.States[2], math.Sqrt(sq-mean*mean)
	if math.Abs(float64(got.Mean[3])-mean) > 1e-5 || math.Abs(float64(got.Std[3])-want) > 1e-5 {
		t.Errorf("channel 3 of P_5: got %g and %g, want %g and %g", got.Mean[3], got.Std[3], mean, want)
	}
	data, err := ref.Encode()
	if err != nil {
		t.Fatalf("Encode: got error %v", err)
	}
	back, err := ParseReference(data)
	if err != nil {
		t.Fatalf("ParseReference: got error %v", err)
	}
	if diff := cmp.Diff(ref, back); diff != "" {
		t.Errorf("ParseReference of Encode (-want +got):\n%s", diff)
	}
	groups := targetRun(t, samples, 2, func() []scan { return referenceScans(ds.Manifest().Layout(), back) })
	if got := targetText(groups, Warning); len(got) > 0 {
		t.Errorf("the data itself against its reference: got %q, want nothing", got)
	}
	wide := format.Layout{HiddenSize: 32, States: []format.State{{Layer: 1}}}
	if got, want := targetShort(targetRun(t, nil, 1, func() []scan { return referenceScans(wide, back) })), "reference-layer error : all"; got != want {
		t.Errorf("a reference of another width: got %q, want %q", got, want)
	}
}

func TestParseReferenceRefusals(t *testing.T) {
	t.Parallel()
	const head = `{"format":"hsx-reference","version":1,"hidden_size":2,"rows":9,"states":[`
	tests := map[string]struct{ in, want string }{
		"empty":           {``, "not JSON"},
		"another file":    {`{"layers":{}}`, `format ""`},
		"newer":           {`{"format":"hsx-reference","version":2}`, "version 2"},
		"no states":       {head + `]}`, "no states"},
		"no width":        {`{"format":"hsx-reference","version":1,"states":[{"state":"N"}]}`, "hidden_size 0"},
		"unknown state":   {head + `{"state":"Q","mean":[0,0],"std":[1,1]}]}`, `"Q"`},
		"too deep":        {head + `{"state":"P_2147483647","mean":[0,0],"std":[1,1]}]}`, `"P_2147483647"`},
		"before any":      {head + `{"state":"P_-2","mean":[0,0],"std":[1,1]}]}`, `"P_-2"`},
		"twice":           {head + `{"state":"N","mean":[0,0],"std":[1,1]},{"state":"N","mean":[0,0],"std":[1,1]}]}`, "N after N"},
		"short":           {head + `{"state":"N","mean":[0],"std":[1,1]}]}`, "1 means and 2 deviations, want 2"},
		"no spread":       {head + `{"state":"N","mean":[0,0],"std":[1,0]}]}`, "deviation 0 in channel 1"},
		"negative spread": {head + `{"state":"N","mean":[0,0],"std":[-1,1]}]}`, "deviation -1 in channel 0"},
		"huge":            {head + `{"state":"N","mean":[1e31,0],"std":[1,1]}]}`, "channel 0"},
		"beyond float32":  {head + `{"state":"N","mean":[1e39,0],"std":[1,1]}]}`, "expected types"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := ParseReference([]byte(tc.in)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("ParseReference(%s): got error %v, want one with %q", tc.in, err, tc.want)
			}
		})
	}
}

func FuzzParseReference(f *testing.F) {
	data, err := os.ReadFile("testdata/layers/reference.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte(`{"format":"hsx-reference","version":1,"hidden_size":1,"states":[{"state":"N","mean":[0],"std":[1]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseReference(data)
		if err != nil {
			if r != nil || strings.HasPrefix(err.Error(), "failed") {
				t.Errorf("ParseReference: got %v with error %v", r, err)
			}
			return
		}
		once, err := r.Encode()
		if err != nil {
			t.Fatalf("Encode of an accepted reference: got error %v", err)
		}
		again, err := ParseReference(once)
		if err != nil {
			t.Fatalf("ParseReference of Encode: got error %v", err)
		}
		twice, err := again.Encode()
		if err != nil || !bytes.Equal(once, twice) {
			t.Errorf("Encode: got %q, %v, want %q", twice, err, once)
		}
		l := format.Layout{HiddenSize: r.HiddenSize, States: []format.State{{Layer: 1}}}
		for _, sc := range referenceScans(l, r) {
			sc.finish(nil, NewCollector(1, nil))
		}
	})
}

func BenchmarkReferenceScan(b *testing.B) {
	m := newTwin(100, 7168)
	x := m.text(1, 256, true)
	s := twinSample("s", format.BFloat16, x.tokens, twinLayer(1, x.p1), twinLayer(5, x.p5))
	ref := &Reference{Format: referenceFormat, Version: 1, HiddenSize: 7168}
	for k := range 61 {
		st := ReferenceState{State: fmt.Sprintf("P_%d", k), Mean: make([]float32, 7168), Std: make([]float32, 7168)}
		for c := range st.Std {
			st.Std[c] = float32(k + 1)
		}
		ref.States = append(ref.States, st)
	}
	b.Run("bf16-2x256x7168-61layers", func(b *testing.B) {
		f, out := targetFacts(s), NewCollector(10, nil)
		scans := referenceScans(s.Layout(), ref)
		b.SetBytes(2 * 256 * 7168 * 2)
		b.ReportAllocs()
		for b.Loop() {
			scans[0].sample(f, out)
		}
	})
}
