package export_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hsx/export"
	"hsx/format"
	"hsx/format/npy"
	"hsx/format/safetensors"
	"hsx/internal/hsxtest"
	"hsx/internal/mapped"
	"hsx/shard"
)

const goldenEps = 1e-5

// TestNormGoldens holds every bit against what the modules of transformers give.
func TestNormGoldens(t *testing.T) {
	t.Parallel()
	for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		f, err := safetensors.Decode(hsxtest.Golden(t, "rmsnorm/"+d.String()+".safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, field := range f.Record.Fields {
			family, width, _ := strings.Cut(field.Key, "_")
			if strings.HasPrefix(field.Key, "gpt_oss_") {
				family, width = "gpt_oss", strings.TrimPrefix(field.Key, "gpt_oss_")
			}
			if family == "x" || family == "weight" {
				continue
			}
			compared++
			t.Run(d.String()+"-"+field.Key, func(t *testing.T) {
				t.Parallel()
				n, err := export.NewNorm(f.Record.Tensor("weight_"+width), goldenEps, family)
				if err != nil {
					t.Fatal(err)
				}
				x, want := f.Record.Tensor("x_"+width), f.Record.Tensor(field.Key)
				got := make([]byte, len(x.Data))
				if err := n.Apply(got, x.Data, d, int(x.Shape[0])); err != nil {
					t.Fatal(err)
				}
				differ(t, d, got, want.Data)
			})
		}
		if compared < 20 {
			t.Errorf("%s: %d results compared, want 20 or more", d, compared)
		}
	}
}

// differ reports how many elements are not the same bits.
func differ(t *testing.T, d format.DType, got, want []byte) {
	t.Helper()
	n, first := 0, -1
	for i := 0; i < len(want); i += d.Size() {
		if string(got[i:i+d.Size()]) != string(want[i:i+d.Size()]) {
			if n++; first < 0 {
				first = i
			}
		}
	}
	if n > 0 {
		t.Errorf("%d of %d elements differ, the first at %d: got % x, want % x", n, len(want)/d.Size(), first/d.Size(), got[first:first+d.Size()], want[first:first+d.Size()])
	}
}

// TestNormKit makes the kit's N of its P4: real states, and the real model's norm.
func TestNormKit(t *testing.T) {
	t.Parallel()
	kit := hsxtest.Kits(t, "")["full"]
	if kit == "" {
		return // CI has it
	}
	f, err := safetensors.Decode(hsxtest.Read(t, filepath.Join(kit, "model/model.safetensors")))
	if err != nil {
		t.Fatal(err)
	}
	n, err := export.ReadNorm(hsxtest.Read(t, filepath.Join(kit, "model/config.json")), f.Record.Tensor("model.norm.weight"))
	if err != nil {
		t.Fatal(err)
	}
	samples, err := filepath.Glob(filepath.Join(kit, "expected/s*/P4.bf16.npy"))
	if err != nil || len(samples) < 10 {
		t.Fatalf("the kit has %d samples, error %v", len(samples), err)
	}
	for _, p4 := range samples {
		x, err := npy.Decode(hsxtest.Read(t, p4))
		if err != nil {
			t.Fatal(err)
		}
		want, err := npy.Decode(hsxtest.Read(t, filepath.Join(filepath.Dir(p4), "N.bf16.npy")))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Apply(x.Data, x.Data, format.BFloat16, int(x.Shape[0])); err != nil { // in place
			t.Fatal(err)
		}
		differ(t, format.BFloat16, x.Data, want.Data)
	}
}

// weightOf is a norm weight of float32 values.
func weightOf(values ...float32) *format.Tensor {
	w := &format.Tensor{Name: "model.norm.weight", DType: format.Float32, Shape: []int64{int64(len(values))}}
	for _, v := range values {
		w.Data = binary.LittleEndian.AppendUint32(w.Data, math.Float32bits(v))
	}
	return w
}

func random(d format.DType, rows, width int) (x []byte, weight *format.Tensor) {
	rng := rand.New(rand.NewPCG(1, uint64(width)))
	w := make([]float32, width)
	for i := range w {
		w[i] = 0.5 + rng.Float32()
	}
	for range rows * width {
		v := float32(rng.NormFloat64())
		switch d {
		case format.BFloat16:
			x = binary.LittleEndian.AppendUint16(x, uint16(math.Float32bits(v)>>16))
		case format.Float16:
			x = binary.LittleEndian.AppendUint16(x, uint16(0x2c00+rng.Uint32N(0x1800)|rng.Uint32N(2)<<15)) // 1/16 to 4
		default:
			x = binary.LittleEndian.AppendUint32(x, math.Float32bits(v))
		}
	}
	return x, weightOf(w...)
}

// TestNormExact holds results against the same in float64, within what the roundings
// to the type can make: half a unit each.
func TestNormExact(t *testing.T) {
	t.Parallel()
	unit := map[format.DType]float64{format.BFloat16: 1.0 / 128, format.Float16: 1.0 / 1024, format.Float32: 1 << 3 / float64(1<<23)}
	for d, ulp := range unit {
		for _, width := range []int{1, 2, 7, 8, 63, 64, 65, 255, 256, 257, 1023, 1024, 1025, 7168} {
			t.Run(fmt.Sprintf("%s-%d", d, width), func(t *testing.T) {
				t.Parallel()
				x, weight := random(d, 3, width)
				n, err := export.NewNorm(weight, 1e-6, "llama")
				if err != nil {
					t.Fatal(err)
				}
				out := make([]byte, len(x))
				if err := n.Apply(out, x, d, 3); err != nil {
					t.Fatal(err)
				}
				v, w, y := make([]float32, width), make([]float32, width), make([]float32, width)
				format.Float32.Floats(w, weight.Data)
				for i := range 3 {
					d.Floats(v, x[i*len(x)/3:])
					d.Floats(y, out[i*len(x)/3:])
					sum := 0.0
					for _, e := range v {
						sum += float64(e) * float64(e)
					}
					scale := 1 / math.Sqrt(sum/float64(width)+1e-6)
					for k, e := range v {
						want := float64(e) * scale * float64(w[k])
						// Three roundings (weight, row, product), and the least subnormal of a half.
						if math.Abs(want-float64(y[k])) > 1.6*ulp*math.Abs(want)+1.0/(1<<23) {
							t.Fatalf("row %d element %d: got %v, want %v", i, k, y[k], want)
						}
					}
				}
			})
		}
	}
}

// TestNormParts holds that rows do not depend on how many there are: many are shared
// among goroutines.
func TestNormParts(t *testing.T) {
	t.Parallel()
	const rows, width = 1025, 257
	x, weight := random(format.BFloat16, rows, width)
	n, err := export.NewNorm(weight, 1e-6, "llama")
	if err != nil {
		t.Fatal(err)
	}
	all, one := make([]byte, len(x)), make([]byte, len(x))
	if err := n.Apply(all, x, format.BFloat16, rows); err != nil {
		t.Fatal(err)
	}
	for from := 0; from < len(x); from += 2 * width {
		if err := n.Apply(one[from:from+2*width], x[from:from+2*width], format.BFloat16, 1); err != nil {
			t.Fatal(err)
		}
	}
	differ(t, format.BFloat16, all, one)
}

// TestNormSpecial has values that have no ordinary norm.
func TestNormSpecial(t *testing.T) {
	t.Parallel()
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for name, tt := range map[string]struct{ in, want []float32 }{
		"zeros":    {[]float32{0, 0, 0, 0}, []float32{0, 0, 0, 0}},
		"ones":     {[]float32{1, -1, 1, 1}, []float32{1, -1, 1, 1}},
		"not one":  {[]float32{1, nan, 1, 1}, []float32{nan, nan, nan, nan}},
		"infinite": {[]float32{1, -inf, 1, 0}, []float32{0, nan, 0, 0}},
		// The squares overflow: the scale is 0, as in torch.
		"huge": {[]float32{1e38, 1, -3e37, 1}, []float32{0, 0, 0, 0}},
	} {
		for _, d := range []format.DType{format.BFloat16, format.Float32} {
			t.Run(name+"-"+d.String(), func(t *testing.T) {
				t.Parallel()
				n, err := export.NewNorm(weightOf(1, 1, 1, 1), 0x1p-30, "llama")
				if err != nil {
					t.Fatal(err)
				}
				x := weightOf(tt.in...).Data
				if d == format.BFloat16 {
					x = nil
					for _, v := range tt.in {
						x = binary.LittleEndian.AppendUint16(x, uint16(math.Float32bits(v)>>16))
					}
				}
				if err := n.Apply(x, x, d, 1); err != nil {
					t.Fatal(err)
				}
				got := make([]float32, 4)
				d.Floats(got, x)
				if !slices.EqualFunc(got, tt.want, func(a, b float32) bool { return a == b || a != a && b != b }) {
					t.Errorf("got %v, want %v", got, tt.want)
				}
			})
		}
	}
}

func TestReadNorm(t *testing.T) {
	t.Parallel()
	const early, late, unit = "rounded, then multiplied by w", "multiplied by w in float32, then rounded", "multiplied by 1+w in float32, then rounded"
	const guess = early + ", as Llama does (the model_type is not known)"
	for name, tt := range map[string]struct{ config, want string }{
		"llama":       {`{"model_type":"llama","rms_norm_eps":1e-5}`, "RMS norm with epsilon 1e-05: " + early},
		"kimi":        {`{"model_type":"kimi_k25","text_config":{"model_type":"kimi_k2","rms_norm_eps":1e-5}}`, "RMS norm with epsilon 1e-05: " + early},
		"gemma":       {`{"model_type":"gemma3","rms_norm_eps":1,"text_config":{"model_type":"gemma3_text","rms_norm_eps":1e-6}}`, "RMS norm with epsilon 1e-06: " + unit},
		"gemma4":      {`{"model_type":"gemma4_text","rms_norm_eps":1e-6}`, "RMS norm with epsilon 1e-06: " + late},
		"gpt-oss":     {`{"model_type":"gpt_oss","rms_norm_eps":1e-5}`, "RMS norm with epsilon 1e-05: " + late},
		"inherited":   {`{"rms_norm_eps":1e-5,"model_type":"x","text_config":{"model_type":"qwen3_moe"}}`, "RMS norm with epsilon 1e-05: " + early},
		"flag":        {`{"model_type":"mixtral","use_gemma_norm":true,"rms_norm_eps":1e-6}`, "RMS norm with epsilon 1e-06: " + unit},
		"lfm2":        {`{"model_type":"lfm2","norm_eps":1e-5}`, "RMS norm with epsilon 1e-05: " + early},
		"nemotron":    {`{"model_type":"nemotron_h","layer_norm_epsilon":1e-5}`, "RMS norm with epsilon 1e-05: " + late},
		"unknown":     {`{"model_type":"next","rms_norm_eps":1e-5}`, "RMS norm with epsilon 1e-05: " + guess},
		"nameless":    {`{"rms_norm_eps":1e-5}`, "RMS norm with epsilon 1e-05: " + guess},
		"layer norm":  {`{"model_type":"cohere2","layer_norm_eps":1e-5}`, `read final norm: target config (model_type "cohere2") has no rms_norm_eps, so its final norm may be no RMS norm`},
		"other key":   {`{"model_type":"nemotron","norm_eps":1e-5}`, `read final norm: target config (model_type "nemotron") has no rms_norm_eps, so its final norm may be no RMS norm`},
		"null":        {`{"model_type":"llama","rms_norm_eps":null,"text_config":null}`, `read final norm: target config (model_type "llama") has no rms_norm_eps, so its final norm may be no RMS norm`},
		"negative":    {`{"model_type":"llama","rms_norm_eps":-1}`, "read final norm: epsilon is -1, want 0 to 1"},
		"text":        {`{"rms_norm_eps":"1e-5"}`, "read final norm: target config is not JSON of the expected types: "},
		"text config": {`{"text_config":[]}`, "read final norm: text_config of the target config is not JSON of the expected types: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, err := export.ReadNorm([]byte(tt.config), weightOf(1, 2))
			got := ""
			if err != nil {
				got = err.Error()
			} else if got = n.String(); n.Width() != 2 {
				t.Errorf("Width() = %d, want 2", n.Width())
			}
			if strings.HasSuffix(tt.want, ": ") { // what follows is not ours
				got = got[:min(len(got), len(tt.want))]
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestNewNormRefuses(t *testing.T) {
	t.Parallel()
	with := func(f func(w *format.Tensor)) *format.Tensor {
		w := weightOf(1, 2)
		f(w)
		return w
	}
	for name, tt := range map[string]struct {
		weight *format.Tensor
		eps    float64
		err    string
	}{
		"none":     {nil, 0, "read final norm: there is no weight, want the tensor model.norm.weight of the target"},
		"short":    {with(func(w *format.Tensor) { w.Data = w.Data[1:] }), 0, `read final norm: tensor "model.norm.weight" of shape [2] and type float32 needs 8 bytes, has 7`},
		"empty":    {with(func(w *format.Tensor) { w.Shape, w.Data = []int64{0}, nil }), 0, `read final norm: weight "model.norm.weight" is float32 of shape [0], want one dimension of float32, float16 or bfloat16`},
		"matrix":   {with(func(w *format.Tensor) { w.Shape = []int64{1, 2} }), 0, `read final norm: weight "model.norm.weight" is float32 of shape [1 2], want one dimension of float32, float16 or bfloat16`},
		"integer":  {with(func(w *format.Tensor) { w.DType = format.Int32 }), 0, `read final norm: weight "model.norm.weight" is int32 of shape [2], want one dimension of float32, float16 or bfloat16`},
		"infinite": {weightOf(1, float32(math.Inf(-1))), 0, `read final norm: weight "model.norm.weight" is -Inf at channel 1`},
		"nan":      {weightOf(1, 2), math.NaN(), "read final norm: epsilon is NaN, want 0 to 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := export.NewNorm(tt.weight, tt.eps, "llama"); err == nil || err.Error() != tt.err {
				t.Errorf("got error %v, want %s", err, tt.err)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	n, err := export.NewNorm(weightOf(1, 2), 1e-6, "llama")
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		dst, src, rows int
		d              format.DType
		err            string
	}{
		"short source": {8, 7, 2, format.BFloat16, "norm states: 2 rows of 4 bytes are to be read from 7 bytes and written to 8"},
		"short target": {4, 8, 2, format.BFloat16, "norm states: 2 rows of 4 bytes are to be read from 8 bytes and written to 4"},
		"rows":         {8, 8, -1, format.BFloat16, "norm states: -1 rows of 4 bytes are to be read from 8 bytes and written to 8"},
		"type":         {8, 8, 1, format.Int32, "norm states: rows are int32, want bfloat16, float16 or float32"},
		"no rows":      {0, 0, 0, format.Float16, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := n.Apply(make([]byte, tt.dst), make([]byte, tt.src), tt.d, tt.rows)
			if got := fmt.Sprint(err); tt.err == "" && err != nil || tt.err != "" && got != tt.err {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
		})
	}
}

// TestNormFault has the file that the rows lie in shrink.
func TestNormFault(t *testing.T) {
	t.Parallel()
	const rows, width = 4096, 64
	path := filepath.Join(t.TempDir(), "rows")
	if err := os.WriteFile(path, make([]byte, rows*width*4), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := mapped.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	n, err := export.NewNorm(weightOf(make([]float32, width)...), 1e-6, "llama")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	if err := n.Apply(make([]byte, rows*width*4), f.Bytes(), format.Float32, rows); !shard.IsCorrupt(err) {
		t.Errorf("got error %v, want damage", err)
	}
}

func BenchmarkNorm(b *testing.B) {
	const rows, width = 1024, 7168
	for _, d := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		b.Run(fmt.Sprintf("%s-%dx%d", d, rows, width), func(b *testing.B) {
			x, weight := random(d, rows, width)
			n, err := export.NewNorm(weight, 1e-6, "llama")
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]byte, len(x))
			b.SetBytes(int64(len(x)))
			b.ReportAllocs()
			for b.Loop() {
				if err := n.Apply(dst, x, d, rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
