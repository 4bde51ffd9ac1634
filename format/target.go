package format

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"strings"
)

// Target is what hsx knows of the target model; a zero field is unknown.
type Target struct {
	Name       string `json:"name,omitempty"`
	Layers     int    `json:"layers,omitempty"`
	HiddenSize int    `json:"hidden_size,omitempty"`
	VocabSize  int    `json:"vocab_size,omitempty"`
}

// Or is t, and u where t knows nothing.
func (t Target) Or(u Target) Target {
	return Target{
		Name: cmp.Or(t.Name, u.Name), Layers: cmp.Or(t.Layers, u.Layers),
		HiddenSize: cmp.Or(t.HiddenSize, u.HiddenSize), VocabSize: cmp.Or(t.VocabSize, u.VocabSize),
	}
}

// Conflict is the first size in which t and u cannot be the same model, "" if there is
// none. Names are no sizes: one model has several.
func (t Target) Conflict(u Target) (what string, of, ofU int) {
	for _, s := range []struct {
		what    string
		of, ofU int
	}{{"layers", t.Layers, u.Layers}, {"hidden size", t.HiddenSize, u.HiddenSize}, {"vocabulary", t.VocabSize, u.VocabSize}} {
		if s.of != 0 && s.ofU != 0 && s.of != s.ofU {
			return s.what, s.of, s.ofU
		}
	}
	return "", 0, 0
}

// SameName reports whether two names may be those of one model: the last parts of their
// paths are equal, or one is unknown. A model is named by where it lies, on each machine
// in its own way.
func (t Target) SameName(u Target) bool {
	last := func(name string) string { return path.Base(strings.ReplaceAll(name, "\\", "/")) }
	return t.Name == "" || u.Name == "" || last(t.Name) == last(u.Name)
}

type targetFields struct {
	Path   string `json:"_name_or_path"`
	Type   string `json:"model_type"`
	Layers int    `json:"num_hidden_layers"`
	Hidden int    `json:"hidden_size"`
	Vocab  int    `json:"vocab_size"`
}

// ParseTarget reads a Hugging Face config.json of a target. Multimodal configs keep
// the language model's sizes in text_config, which wins over the top level.
func ParseTarget(data []byte) (Target, error) {
	var c struct {
		targetFields
		Text *targetFields `json:"text_config"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return Target{}, fmt.Errorf("target config is not JSON: %w", err)
	}
	f := c.targetFields
	if c.Text != nil {
		if c.Text.Layers != 0 {
			f.Layers = c.Text.Layers
		}
		if c.Text.Hidden != 0 {
			f.Hidden = c.Text.Hidden
		}
		if c.Text.Vocab != 0 {
			f.Vocab = c.Text.Vocab
		}
	}
	if f.Layers <= 0 || f.Hidden <= 0 {
		return Target{}, fmt.Errorf("target config has num_hidden_layers %d and hidden_size %d, want both above 0 (at the top level or in text_config)", f.Layers, f.Hidden)
	}
	name := f.Path
	if name == "" {
		name = f.Type
	}
	return Target{Name: name, Layers: f.Layers, HiddenSize: f.Hidden, VocabSize: f.Vocab}, nil
}

// UnitOffsetNorm reports whether the RMS norms of a family of models, by the model_type
// of its text model, multiply by 1+w and not by the stored w. Source: the model code
// of transformers, one file a family.
func UnitOffsetNorm(modelType string) bool {
	switch strings.TrimSuffix(modelType, "_text") {
	case "gemma", "gemma2", "gemma3", "recurrent_gemma", "vaultgemma",
		"qwen3_next", "qwen3_5", "qwen3_5_moe", "minimax_m3_vl", "step3p5", "step3p7":
		return true
	}
	return false
}
