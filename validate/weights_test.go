package validate_test

import (
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"hsx/format"
	"hsx/validate"
)

// table is a float32 tensor of ones.
func table(name string, shape ...int64) *format.Tensor {
	n, _ := format.Elems(shape)
	t := &format.Tensor{Name: name, DType: format.Float32, Shape: shape}
	for range n {
		t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(1))
	}
	return t
}

func tables(list ...*format.Tensor) func(string) *format.Tensor {
	return func(name string) *format.Tensor {
		for _, t := range list {
			if t.Name == name {
				return t
			}
		}
		return nil
	}
}

func TestNewWeights(t *testing.T) {
	t.Parallel()
	const llama = `{"model_type":"llama","num_hidden_layers":5,"hidden_size":4,"vocab_size":9}`
	tests := map[string]struct {
		cfg               string
		tensors           []*format.Tensor
		embed, head, norm string // the tensors that are taken
		eps               float64
		offset, mixed     bool
	}{
		"llama": {
			cfg:     llama,
			tensors: []*format.Tensor{table("model.embed_tokens.weight", 9, 4), table("lm_head.weight", 9, 4), table("model.norm.weight", 4)},
			embed:   "model.embed_tokens.weight", head: "lm_head.weight", norm: "model.norm.weight", eps: 1e-6,
		},
		"tied": {
			cfg:     `{"num_hidden_layers":5,"hidden_size":4,"tie_word_embeddings":true,"rms_norm_eps":1e-5}`,
			tensors: []*format.Tensor{table("model.embed_tokens.weight", 9, 4)},
			embed:   "model.embed_tokens.weight", head: "model.embed_tokens.weight", eps: 1e-5,
		},
		"not tied, head in another file": {
			cfg:     `{"num_hidden_layers":5,"hidden_size":4,"tie_word_embeddings":false}`,
			tensors: []*format.Tensor{table("model.embed_tokens.weight", 9, 4)},
			embed:   "model.embed_tokens.weight", eps: 1e-6,
		},
		"text_config": {
			cfg:     `{"model_type":"vl","tie_word_embeddings":true,"text_config":{"model_type":"kimi_k2","num_hidden_layers":5,"hidden_size":4,"vocab_size":9,"rms_norm_eps":1e-5,"tie_word_embeddings":false}}`,
			tensors: []*format.Tensor{table("language_model.model.embed_tokens.weight", 9, 4), table("language_model.lm_head.weight", 9, 4), table("language_model.model.norm.weight", 4)},
			embed:   "language_model.model.embed_tokens.weight", head: "language_model.lm_head.weight", norm: "language_model.model.norm.weight", eps: 1e-5,
		},
		"gemma": {
			cfg:     `{"model_type":"gemma2","num_hidden_layers":5,"hidden_size":4}`,
			tensors: []*format.Tensor{table("model.norm.weight", 4)},
			norm:    "model.norm.weight", eps: 1e-6, offset: true,
		},
		"a text model with an offset": {
			cfg:     `{"model_type":"qwen3_5","text_config":{"model_type":"qwen3_5_text","num_hidden_layers":5,"hidden_size":4}}`,
			tensors: []*format.Tensor{table("model.norm.weight", 4)},
			norm:    "model.norm.weight", eps: 1e-6, offset: true,
		},
		"gemma without an offset": {
			cfg:     `{"model_type":"gemma4","num_hidden_layers":5,"hidden_size":4}`,
			tensors: []*format.Tensor{table("model.norm.weight", 4)},
			norm:    "model.norm.weight", eps: 1e-6,
		},
		"a norm with a bias": {
			cfg:     `{"model_type":"gpt2","num_hidden_layers":5,"hidden_size":4}`,
			tensors: []*format.Tensor{table("transformer.wte.weight", 9, 4), table("transformer.wpe.weight", 7, 4), table("transformer.ln_f.weight", 4), table("transformer.ln_f.bias", 4)},
			embed:   "transformer.wte.weight", head: "transformer.wte.weight", eps: 1e-6, mixed: true,
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, err := validate.NewWeights([]byte(tc.cfg), tables(tc.tensors...))
			if err != nil {
				t.Fatalf("NewWeights: got error %v", err)
			}
			nameOf := func(t *format.Tensor) string {
				if t == nil {
					return ""
				}
				return t.Name
			}
			if nameOf(w.Embed) != tc.embed || nameOf(w.Head) != tc.head || nameOf(w.Norm) != tc.norm {
				t.Errorf("tensors: got %q, %q, %q, want %q, %q, %q", nameOf(w.Embed), nameOf(w.Head), nameOf(w.Norm), tc.embed, tc.head, tc.norm)
			}
			if w.Eps != tc.eps || w.UnitOffset != tc.offset || w.MixedEmbedding != tc.mixed || w.Target.HiddenSize != 4 {
				t.Errorf("NewWeights: got %+v, want eps %g, offset %t, mixed %t", w, tc.eps, tc.offset, tc.mixed)
			}
		})
	}
}

func TestNewWeightsRefusals(t *testing.T) {
	t.Parallel()
	const cfg = `{"num_hidden_layers":5,"hidden_size":4,"vocab_size":9}`
	short := table("lm_head.weight", 9, 4)
	short.Data = short.Data[:140]
	integers := table("model.norm.weight", 4)
	integers.DType = format.Int32
	tests := map[string]struct {
		cfg     string
		tensors []*format.Tensor
		want    []string
	}{
		"no tensors":      {cfg, nil, []string{"model.embed_tokens.weight"}},
		"no config":       {`{`, nil, []string{"not JSON"}},
		"another width":   {cfg, []*format.Tensor{table("model.embed_tokens.weight", 9, 5)}, []string{`"model.embed_tokens.weight"`, "[9 5]", "rows of 4"}},
		"one row":         {cfg, []*format.Tensor{table("model.embed_tokens.weight", 1, 4)}, []string{"[1 4]"}},
		"flat":            {cfg, []*format.Tensor{table("lm_head.weight", 36)}, []string{"[36]"}},
		"cut":             {cfg, []*format.Tensor{short}, []string{`"lm_head.weight"`, "needs 144 bytes, has 140"}},
		"norm of a width": {cfg, []*format.Tensor{table("model.norm.weight", 5)}, []string{`"model.norm.weight"`, "[5]", "[4]"}},
		"norm of int32":   {cfg, []*format.Tensor{integers}, []string{"int32"}},
		"eps of a string": {`{"num_hidden_layers":5,"hidden_size":4,"rms_norm_eps":"x"}`, nil, []string{"expected types"}},
		"eps below 0":     {`{"num_hidden_layers":5,"hidden_size":4,"rms_norm_eps":-1}`, nil, []string{"rms_norm_eps -1"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := validate.NewWeights([]byte(tc.cfg), tables(tc.tensors...))
			if err == nil {
				t.Fatalf("NewWeights(%s): got no error, want one", tc.cfg)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("NewWeights(%s): got error %q, want it to contain %q", tc.cfg, err, part)
				}
			}
		})
	}
}

func FuzzNewWeights(f *testing.F) {
	f.Add([]byte(`{"model_type":"llama","num_hidden_layers":5,"hidden_size":4,"vocab_size":9,"rms_norm_eps":1e-5}`), []byte("0123456789abcdef"))
	f.Add([]byte(`{"text_config":{"num_hidden_layers":5,"hidden_size":1,"tie_word_embeddings":true}}`), make([]byte, 8))
	f.Fuzz(func(t *testing.T, cfg, data []byte) {
		w, err := validate.NewWeights(cfg, func(name string) *format.Tensor {
			x := &format.Tensor{Name: name, DType: format.BFloat16, Data: data}
			switch name {
			case "model.embed_tokens.weight":
				x.Shape = []int64{int64(len(data)) / 8, 4}
			case "model.norm.weight":
				x.Shape = []int64{int64(len(data)) / 2}
			default:
				return nil
			}
			return x
		})
		switch {
		case err != nil && w != nil:
			t.Errorf("NewWeights(%q): got weights with error %v", cfg, err)
		case err == nil && (w.Embed.Check() != nil || w.Norm.Check() != nil || w.Target.HiddenSize != 4 || len(data) != 8):
			t.Errorf("NewWeights(%q): took tensors of %d bytes for %+v", cfg, len(data), w.Target)
		}
	})
}
