package export

import (
	"encoding/json"
	"fmt"
	"strings"

	"hsx/format"
)

// normRule is how a family of models multiplies normed rows by the weight.
type normRule struct {
	early bool // the row is rounded to its type before it is multiplied, not only after
	unit  bool // by 1+w, not by w
	wide  bool // the weight stays in float32 whatever type the model is loaded in
	guess bool // the model_type is none that is known
}

func (r normRule) String() string {
	s := "multiplied by w in float32, then rounded"
	switch {
	case r.unit:
		s = "multiplied by 1+w in float32, then rounded"
	case r.early:
		s = "rounded, then multiplied by w"
	}
	if r.guess {
		s += ", as Llama does (the model_type is not known)"
	}
	return s
}

// ruleOf is the rule of a model_type, as its final norm is written in transformers.
func ruleOf(modelType string) normRule {
	if format.UnitOffsetNorm(modelType) {
		return normRule{unit: true}
	}
	switch strings.TrimSuffix(modelType, "_text") {
	case "gpt_oss":
		return normRule{wide: true}
	case "gemma3n", "gemma4", "gemma4_unified", "diffusion_gemma", "muse_glimmer",
		"olmo2", "olmo3", "olmo_hybrid", "flex_olmo", "afmoe", "helium", "nemotron_h", "moshi":
		return normRule{}
	case "llama", "llama4", "mllama", "mistral", "ministral", "ministral3", "mistral3", "mistral4", "mixtral",
		"qwen2", "qwen2_moe", "qwen2_vl", "qwen2_5_vl", "qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe",
		"deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4", "kimi_k2", "kimi_k25", "kimi_linear",
		"glm", "glm4", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "minimax", "minimax_m2",
		"phi3", "granite", "granitemoe", "smollm3", "ernie4_5", "ernie4_5_moe", "seed_oss", "olmoe", "exaone4",
		"hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3", "lfm2", "lfm2_moe", "dots1", "arcee", "longcat_flash", "bitnet":
		return normRule{early: true}
	}
	return normRule{early: true, guess: true}
}

// ReadNorm makes the norm of a target from its weight and from the target's
// config.json, whose text_config wins over the top level. A config without the epsilon of an
// RMS norm is refused: its final norm may be of another kind, and no value is a
// safe guess.
func ReadNorm(config []byte, weight *format.Tensor) (*Norm, error) {
	type fields struct {
		Type    string   `json:"model_type"`
		Gemma   bool     `json:"use_gemma_norm"`
		Eps     *float64 `json:"rms_norm_eps"`
		NormEps *float64 `json:"norm_eps"`           // of Lfm2; elsewhere it may be that of a LayerNorm
		Epsilon *float64 `json:"layer_norm_epsilon"` // of Nemotron-H, likewise
	}
	var c struct {
		fields
		Text json.RawMessage `json:"text_config"`
	}
	if err := json.Unmarshal(config, &c); err != nil {
		return nil, fmt.Errorf("read final norm: target config is not JSON of the expected types: %w", err)
	}
	f := c.fields
	if len(c.Text) > 0 {
		if err := json.Unmarshal(c.Text, &f); err != nil { // what it lacks stays that of the top level
			return nil, fmt.Errorf("read final norm: text_config of the target config is not JSON of the expected types: %w", err)
		}
	}
	key, eps := "rms_norm_eps", f.Eps
	switch f.Type {
	case "lfm2", "lfm2_moe":
		key, eps = "norm_eps", f.NormEps
	case "nemotron_h":
		key, eps = "layer_norm_epsilon", f.Epsilon
	}
	if eps == nil {
		return nil, fmt.Errorf("read final norm: target config (model_type %q) has no %s, so its final norm may be no RMS norm", f.Type, key)
	}
	rule := ruleOf(f.Type)
	if f.Gemma { // MiniMax says it under a model_type that does not tell
		rule = normRule{unit: true}
	}
	return newNorm(weight, *eps, rule)
}
