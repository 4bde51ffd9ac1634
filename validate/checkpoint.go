package validate

import (
	"fmt"
	"strconv"
	"strings"

	"hsx/format"
)

// Checkpoint is the tensors of a draft under the names that SpecForge gives them:
// fc.weight, midlayer.self_attn.q_proj.weight, lm_head.weight, d2t. Only their shapes
// are looked at, and the values of d2t and t2d.
type Checkpoint struct {
	names   []string // as in the file, in its order
	tensors map[string]*format.Tensor
}

// NewCheckpoint takes a draft as a codec decoded it. A torch checkpoint may keep its
// tensors in a record of its own (model, module, state_dict, model_state_dict).
func NewCheckpoint(rec *format.Record) *Checkpoint {
	const deep = 3 // {"model": {"state_dict": …}} is as deep as trainers go
	for range deep {
		inner := innerRecord(rec)
		if inner == nil {
			break
		}
		rec = inner
	}
	c := &Checkpoint{tensors: make(map[string]*format.Tensor)}
	for _, f := range rec.Fields {
		t, ok := f.Value.(*format.Tensor)
		if !ok || t == nil {
			continue
		}
		c.names = append(c.names, f.Key)
		if name := canonicalName(f.Key); c.tensors[name] == nil {
			c.tensors[name] = t
		}
	}
	return c
}

func innerRecord(rec *format.Record) *format.Record {
	for _, key := range []string{"model", "module", "state_dict", "model_state_dict"} {
		v, _ := rec.Get(key)
		if inner, ok := v.(*format.Record); ok && inner != nil {
			return inner
		}
	}
	return nil
}

// canonicalName maps the names of the other trainers: Automodel begins with model.,
// ModelOpt and speculators say layers.0 for midlayer, TorchSpec's DFlash has names of
// its own.
func canonicalName(name string) string {
	for _, prefix := range []string{"module.", "draft_model.", "model."} {
		name = strings.TrimPrefix(name, prefix)
	}
	for _, alias := range [][2]string{
		{"layers.0.", "midlayer."}, {"context_proj.", "fc."}, {"context_norm.", "hidden_norm."}, {"final_norm.", "norm."},
	} {
		if rest, ok := strings.CutPrefix(name, alias[0]); ok {
			return alias[1] + rest
		}
	}
	return name
}

// shape is that of a tensor, nil when there is none of that name.
func (c *Checkpoint) shape(name string) []int64 {
	if t := c.tensors[name]; t != nil {
		return t.Shape
	}
	return nil
}

// matrix is the rows and columns of a two-dimensional tensor.
func (c *Checkpoint) matrix(name string) (rows, cols int64, ok bool) {
	if s := c.shape(name); len(s) == 2 {
		return s[0], s[1], true
	}
	return 0, 0, false
}

// has reports whether any tensor's canonical name begins so, whatever it is quantised to.
func (c *Checkpoint) has(prefix string) bool {
	for name := range c.tensors {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// FCWidth is the number of columns of fc.weight, n × H of the target; 0 when there is
// no such matrix.
func (c *Checkpoint) FCWidth() int {
	_, cols, _ := c.matrix("fc.weight")
	return int(cols)
}

// mla reports whether the attention is of the DeepSeek kind, whose loaders know other
// names than Llama's.
func (c *Checkpoint) mla() bool {
	return c.has("midlayer.self_attn.q_a_proj.") || c.has("midlayer.self_attn.kv_a_proj") || c.has("midlayer.self_attn.fused_qkv_a_proj")
}

// knownName reports whether a canonical name is one that a server's EAGLE-3 loader has a
// place for.
func knownName(name string) bool {
	switch name {
	case "d2t", "t2d":
		return true
	}
	module, rest, _ := strings.Cut(name, ".")
	switch module {
	case "fc", "norm", "lm_head", "embed_tokens", "hidden_norm", "input_norm", "fc_norm", "rotary_emb":
		return true
	case "layers":
		index, inner, _ := strings.Cut(rest, ".")
		_, err := strconv.ParseUint(index, 10, 31)
		module, rest = "midlayer", inner
		if err != nil {
			return false
		}
	}
	if module != "midlayer" {
		return false
	}
	switch part, _, _ := strings.Cut(rest, "."); part {
	case "self_attn", "mlp", "input_layernorm", "hidden_norm", "post_attention_layernorm":
		return true
	}
	return false
}

// vector is the elements of the tensor of that name, which has one dimension, with the
// reason why it cannot be read as one.
func (c *Checkpoint) vector(name string) (v format.Ints, present bool, err error) {
	t := c.tensors[name]
	if t == nil {
		return v, false, nil
	}
	switch {
	case len(t.Shape) != 1:
		return v, true, fmt.Errorf("%s has shape %v, want one dimension", name, t.Shape)
	case t.DType != format.Bool && !t.DType.IsInteger():
		return v, true, fmt.Errorf("%s is %s, want integers", name, t.DType)
	case !t.Dense():
		return v, true, fmt.Errorf("%s has stride %v, want 1", name, t.Strides)
	}
	if err := t.Check(); err != nil {
		return v, true, err
	}
	return format.Ints{DType: t.DType, N: int(t.Shape[0]), Stride: t.DType.Size(), Data: t.Data}, true, nil
}

// vectorNonzero is how many elements are not 0.
func vectorNonzero(v format.Ints) int {
	n := 0
	for i := range v.N {
		if v.At(i) != 0 {
			n++
		}
	}
	return n
}
