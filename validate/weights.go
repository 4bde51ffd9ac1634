package validate

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"hsx/format"
)

// Weights are the few weights of a target that prove what its states are. The tensors
// may alias a map: of the tables only the rows that are needed are read, of each
// sample anew, so the map has to live as long as the scans that use it.
type Weights struct {
	Target format.Target
	Embed  *format.Tensor // [V, H]; nil when not given
	Head   *format.Tensor // [V, H]; Embed when the target ties them, nil when not given
	Norm   *format.Tensor // [H], of the final RMS norm; nil when not given, or when it has a bias
	Eps    float64        // of the final norm

	UnitOffset bool // the norm multiplies by 1+w (Gemma), not by w
	// MixedEmbedding says that more than the row of its token is in P_-1: positions
	// that were learned, or a norm.
	MixedEmbedding bool

	gain  []float32 // [H] what the final norm multiplies by; nil without Norm
	ids   []int32   // of the rows that true ones are ranked against, ascending
	embed weightsTable
	head  weightsTable
}

// weightsTable holds the rows that true rows are ranked against.
type weightsTable struct {
	rows [][]float32 // by place in Weights.ids; nil when the table is not given
	inv  []float32   // one over the length of each row, 0 of a row of zeros
}

// weightsConfig is what of a target's config concerns the weights.
type weightsConfig struct {
	Type string   `json:"model_type"`
	Tied *bool    `json:"tie_word_embeddings"`
	Eps  *float64 `json:"rms_norm_eps"`
}

// NewWeights finds the weights of the target that cfg, a Hugging Face config.json,
// describes, by the names that Hugging Face models use. tensors gives the tensor of a
// name, or nil. It reads a few hundred rows of the tables, to rank others against.
//
// The error says which tensor does not fit the config, or that there is none at all.
func NewWeights(cfg []byte, tensors func(name string) *format.Tensor) (*Weights, error) {
	target, err := format.ParseTarget(cfg)
	if err != nil {
		return nil, err
	}
	w := &Weights{Target: target, Eps: 1e-6}
	c, err := w.config(cfg)
	if err != nil {
		return nil, err
	}
	w.Embed = weightsFind(tensors, "embed_tokens.weight", "wte.weight", "tok_embeddings.weight", "embed_in.weight", "word_embeddings.weight", "embeddings.weight")
	w.Head = weightsFind(tensors, "lm_head.weight", "embed_out.weight", "output.weight")
	if w.Head == nil && (c.Tied == nil || *c.Tied) {
		w.Head = w.Embed
	}
	norms := []string{"norm", "ln_f", "norm_f", "final_layernorm", "final_layer_norm"}
	for _, name := range norms {
		// A norm with a bias takes the mean out, which the test of an RMS norm does not know.
		if n := weightsFind(tensors, name+".weight"); n != nil && weightsFind(tensors, name+".bias") == nil {
			w.Norm = n
			break
		}
	}
	w.MixedEmbedding = weightsFind(tensors, "wpe.weight", "embed_positions.weight", "word_embeddings_layernorm.weight") != nil
	if w.Embed == nil && w.Head == nil && w.Norm == nil {
		return nil, errors.New("target has no embedding, head or final norm by a known name, want model.embed_tokens.weight, lm_head.weight or model.norm.weight")
	}
	for _, t := range []*format.Tensor{w.Embed, w.Head} {
		if err := w.checkTable(t); err != nil {
			return nil, err
		}
	}
	if err := w.readNorm(); err != nil {
		return nil, err
	}
	w.sample()
	return w, nil
}

// config reads what the top level and text_config say; the latter wins, as for the
// sizes.
func (w *Weights) config(cfg []byte) (weightsConfig, error) {
	var c struct {
		weightsConfig
		Text *weightsConfig `json:"text_config"`
	}
	if err := json.Unmarshal(cfg, &c); err != nil {
		return weightsConfig{}, fmt.Errorf("target config is not JSON of the expected types: %w", err)
	}
	out := c.weightsConfig
	if c.Text != nil {
		if c.Text.Type != "" {
			out.Type = c.Text.Type
		}
		if c.Text.Tied != nil {
			out.Tied = c.Text.Tied
		}
		if c.Text.Eps != nil {
			out.Eps = c.Text.Eps
		}
	}
	if out.Eps != nil {
		if *out.Eps < 0 || *out.Eps > 1 {
			return out, fmt.Errorf("target config has rms_norm_eps %g, want 0 to 1", *out.Eps)
		}
		w.Eps = *out.Eps
	}
	w.UnitOffset = format.UnitOffsetNorm(out.Type)
	return out, nil
}

// weightsFind tries the names of a tensor under every prefix that a language model
// has inside a checkpoint.
func weightsFind(tensors func(string) *format.Tensor, names ...string) *format.Tensor {
	for _, prefix := range []string{"model.", "", "language_model.model.", "model.language_model.", "language_model.", "transformer.", "gpt_neox.", "backbone.", "model.decoder."} {
		for _, name := range names {
			if t := tensors(prefix + name); t != nil {
				return t
			}
		}
	}
	return nil
}

func (w *Weights) checkTable(t *format.Tensor) error {
	if t == nil {
		return nil
	}
	if err := t.Check(); err != nil {
		return err
	}
	h := int64(w.Target.HiddenSize)
	if !t.DType.IsState() || !t.Dense() || len(t.Shape) != 2 || t.Shape[1] != h || t.Shape[0] < 2 || t.Shape[0] > math.MaxInt32 {
		return fmt.Errorf("tensor %q is %s of shape %v, want rows of %d float32, float16 or bfloat16", t.Name, t.DType, t.Shape, h)
	}
	return nil
}

func (w *Weights) readNorm() error {
	t := w.Norm
	if t == nil {
		return nil
	}
	if err := t.Check(); err != nil {
		return err
	}
	h := w.Target.HiddenSize
	if !t.DType.IsState() || !t.Dense() || len(t.Shape) != 1 || t.Shape[0] != int64(h) {
		return fmt.Errorf("tensor %q is %s of shape %v, want [%d] of float32, float16 or bfloat16", t.Name, t.DType, t.Shape, h)
	}
	w.gain = make([]float32, h)
	t.DType.Floats(w.gain, t.Data)
	if w.UnitOffset {
		for i := range w.gain {
			w.gain[i]++
		}
	}
	return nil
}

// sample reads the rows that true ones are ranked against. The wider they are, the
// fewer, so that the work for a sample stays about the same. Half of them have low
// ids, which vocabularies give to frequent tokens: these are hard to beat.
func (w *Weights) sample() {
	v := 0
	for _, t := range []*format.Tensor{w.Embed, w.Head} {
		if t != nil && (v == 0 || int(t.Shape[0]) < v) {
			v = int(t.Shape[0])
		}
	}
	if w.Target.VocabSize > 1 { // rows beyond are padding
		v = min(v, w.Target.VocabSize)
	}
	n := min(max(1<<18/w.Target.HiddenSize, 128), 512)
	rng := rand.New(rand.NewPCG(1, 2))
	taken := map[int32]bool{}
	for len(taken) < min(n, v) {
		id := int32(rng.IntN(v))
		if len(taken) < n/2 {
			id = int32(rng.IntN(min(v, 8*n)))
		}
		if !taken[id] {
			taken[id] = true
			w.ids = append(w.ids, id)
		}
	}
	slices.Sort(w.ids)
	w.embed = w.table(w.Embed)
	if w.head = w.embed; w.Head != w.Embed {
		w.head = w.table(w.Head)
	}
}

func (w *Weights) table(t *format.Tensor) weightsTable {
	if t == nil {
		return weightsTable{}
	}
	h := w.Target.HiddenSize
	flat := make([]float32, len(w.ids)*h)
	out := weightsTable{rows: make([][]float32, len(w.ids)), inv: make([]float32, len(w.ids))}
	for i, id := range w.ids {
		out.rows[i] = flat[i*h : (i+1)*h]
		weightsRow(out.rows[i], t, id)
		out.inv[i] = weightsInverse(out.rows[i])
	}
	return out
}

// weightsRow reads row id of a table that passed checkTable; ok is false when it has
// no such row.
func weightsRow(dst []float32, t *format.Tensor, id int32) (ok bool) {
	if id < 0 || int64(id) >= t.Shape[0] {
		return false
	}
	n := len(dst) * t.DType.Size()
	t.DType.Floats(dst, t.Data[int(id)*n:(int(id)+1)*n])
	return true
}

// weightsInverse is one over the length of a row, 0 for a row of zeros.
func weightsInverse(x []float32) float32 {
	if s := weightsDot(x, x); s > 0 {
		return 1 / float32(math.Sqrt(float64(s)))
	}
	return 0
}
