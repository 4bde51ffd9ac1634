package validate

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"hsx/format"
)

// The keys under which a draft's config names the layers that it reads.
const (
	keyNested      = "eagle_config.eagle_aux_hidden_state_layer_ids"
	keyTop         = "eagle_aux_hidden_state_layer_ids"
	keySpeculators = "aux_hidden_state_layer_ids"
	keyAngelSlim   = "aux_hidden_states_layer_ids"
	keyDFlash      = "dflash_config.target_layer_ids"
	keyDSpark      = "dspark_target_layer_ids"
	keyTarget      = "target_layer_ids"
	keyDFlashPlain = "dflash_config.layer_ids"
	keyEaglePlain  = "eagle_config.layer_ids"
)

// idPlace is a place where ids can stand, and how the tools that write it mean them.
type idPlace struct {
	key, short string
	convention format.Convention
}

// idPlaces are all places, the one that counts for the config itself first. The
// convention is that of the writers: a reader may take the numbers otherwise, see
// [Readers].
func idPlaces() []idPlace {
	return []idPlace{
		{keyNested, "nested", format.PostLayer},             // SpecForge, ModelOpt, TorchSpec
		{keyTop, "top level", format.Boundary},              // speculators, vLLM
		{keySpeculators, "speculators", format.Boundary},    // speculators DFlash: the z-lab ids + 1
		{keyAngelSlim, "angelslim", format.PostLayer},       // states, with an s
		{keyDFlash, "dflash", format.PostLayer},             // z-lab, SpecForge, AngelSlim
		{keyDSpark, "dspark", format.PostLayer},             // vLLM adds 1
		{keyTarget, "target ids", format.PostLayer},         // Automodel DSpark; vLLM adds 1
		{keyDFlashPlain, "dflash ids", format.Boundary},     // vLLM takes it as it is
		{keyEaglePlain, "eagle layer ids", format.Boundary}, // the same
	}
}

// IDList is one list of layer ids in a draft's config.
type IDList struct {
	Key        string            `json:"key"` // with dots: eagle_config.eagle_aux_hidden_state_layer_ids
	Place      string            `json:"place"`
	Convention format.Convention `json:"convention"` // in which those who write the key mean it
	IDs        []int             `json:"ids"`        // as written, in any order; empty when the list is
}

// Layers is what the list names, in its order and unchecked: ids that no target has
// stay what they are.
func (l IDList) Layers() []format.Layer {
	out := make([]format.Layer, len(l.IDs))
	for i, id := range l.IDs {
		out[i] = l.Convention.Layer(id)
	}
	return out
}

// String is the list as it would be written: key: [2,30,58].
func (l IDList) String() string { return l.Key + ": " + idText(l.IDs) }

func idText(ids []int) string {
	return strings.ReplaceAll(fmt.Sprint(ids), " ", ",")
}

// Config is what a draft's config.json says. A zero number is not given, and so is a
// nil flag.
type Config struct {
	Lists         []IDList // in the order of the places; null is as good as absent, [] is not
	Architectures []string
	ModelType     string
	Semantics     string // eagle_aux_layer_semantics: "sglang" (post) or "vllm" (boundary)

	HiddenSize       int  // of the draft
	TargetHiddenSize int  // of the target, which tools take to be HiddenSize when it is absent
	VocabSize        int  // of the target
	DraftVocabSize   *int // may be out of range: some exporters write 0 or -1
	MaxPositions     int  // max_position_embeddings
	NumTargetLayers  int  // of DFlash: the target's layers, or the number of captured ones
	NumAux           int  // num_aux_hidden_states

	UseAux             *bool // false: the draft reads the final state alone
	NormBeforeFC       *bool // one norm over the concatenation, input_norm.weight
	FCNorm             *bool // one norm per block, fc_norm.<i>.weight
	NormOutput         *bool
	NormBeforeResidual *bool
	EHProjBeforeAttn   *bool // the attention then reads one hidden size, not two
}

// ParseConfig reads a draft's config.json. The error says where the JSON does not have
// the expected structure; lists that make no sense are parsed, so that a rule can say
// what is wrong with them.
func ParseConfig(data []byte) (*Config, error) {
	var top configObject
	if err := json.Unmarshal(data, &top.fields); err != nil {
		return nil, fmt.Errorf("draft config is not a JSON object: %w", err)
	}
	if top.fields == nil {
		return nil, fmt.Errorf("draft config is null, want a JSON object")
	}
	r := &configReader{}
	eagle, dflash := r.object(top, "eagle_config"), r.object(top, "dflash_config")
	layer, text := r.object(top, "transformer_layer_config"), r.object(top, "text_config")
	c := &Config{
		Architectures:    configValue[[]string](r, top, "architectures"),
		ModelType:        configValue[string](r, top, "model_type"),
		Semantics:        configValue[string](r, first(top, eagle, "eagle_aux_layer_semantics"), "eagle_aux_layer_semantics"),
		HiddenSize:       r.size("hidden_size", top, layer, text),
		TargetHiddenSize: r.size("target_hidden_size", top, eagle),
		VocabSize:        r.size("vocab_size", top, layer, text),
		MaxPositions:     r.size("max_position_embeddings", top, layer, text),
		NumTargetLayers:  r.size("num_target_layers", top, dflash),
		NumAux:           r.size("num_aux_hidden_states", top, eagle),
	}
	if n := configField[int32](r, top, "draft_vocab_size"); n != nil {
		v := int(*n)
		c.DraftVocabSize = &v
	}
	flag := func(key string) *bool { return configField[bool](r, first(top, eagle, key), key) }
	c.UseAux, c.EHProjBeforeAttn = flag("use_aux_hidden_state"), flag("eh_proj_before_attn")
	c.NormBeforeFC, c.FCNorm = flag("norm_before_fc"), flag("fc_norm")
	c.NormOutput, c.NormBeforeResidual = flag("norm_output"), flag("norm_before_residual")
	for _, p := range idPlaces() {
		in, key := top, p.key
		if outer, inner, ok := strings.Cut(p.key, "."); ok {
			in, key = eagle, inner
			if outer == "dflash_config" {
				in = dflash
			}
		}
		if ids, ok := r.ids(in, key); ok {
			c.Lists = append(c.Lists, IDList{p.key, p.short, c.convention(p), ids})
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}

// convention is that of a place, unless the config says how its aux ids are meant.
func (c *Config) convention(p idPlace) format.Convention {
	if p.key == keyNested || p.key == keyTop {
		switch c.Semantics {
		case "sglang":
			return format.PostLayer
		case "vllm":
			return format.Boundary
		}
	}
	return p.convention
}

// Layers are the layers that the config names, with the list that does so first; nil
// when it names none. Lists in several places must name the same layers.
func (c *Config) Layers() (format.Layers, IDList, error) {
	var layers format.Layers
	var from IDList
	for _, l := range c.Lists {
		ls, err := format.NewLayers(l.IDs, l.Convention)
		if err != nil {
			return nil, from, fmt.Errorf("draft config: %s: %w", l.Key, err)
		}
		if layers == nil {
			layers, from = ls, l
		} else if !slices.Equal(layers, ls) {
			return nil, from, fmt.Errorf("draft config contradicts itself: %s names %s, %s names %s", from.Key, layers, l.Key, ls)
		}
	}
	return layers, from, nil
}

// DFlash reports whether the draft is of the DFlash kind: no default layers, fusion
// tensors beside a transformer of its own.
func (c *Config) DFlash() bool {
	if slices.ContainsFunc(c.Architectures, func(a string) bool { return strings.Contains(a, "DFlash") || strings.Contains(a, "DSpark") }) {
		return true
	}
	return slices.ContainsFunc(c.Lists, func(l IDList) bool {
		return l.Key == keyDFlash || l.Key == keyDFlashPlain || l.Key == keySpeculators || l.Key == keyDSpark
	})
}

// DraftVocab is the number of tokens that the draft can name, 0 when the config does
// not say. Without a size of its own it is the target's.
func (c *Config) DraftVocab() int {
	if c.DraftVocabSize != nil {
		return max(0, *c.DraftVocabSize)
	}
	return c.VocabSize
}

// noAux reports whether the draft is said to read the final state alone.
func (c *Config) noAux() bool { return c.UseAux != nil && !*c.UseAux }

// configObject is a JSON object, with the path of keys that leads to it.
type configObject struct {
	path   string
	fields map[string]json.RawMessage
}

// first is the one of two objects that has the key.
func first(a, b configObject, key string) configObject {
	if _, ok := a.fields[key]; ok {
		return a
	}
	return b
}

// configReader reads fields by their exact names, as Python does: encoding/json would
// take Hidden_Size for hidden_size. It keeps the first error.
type configReader struct{ err error }

func (r *configReader) object(in configObject, key string) configObject {
	fields := configField[map[string]json.RawMessage](r, in, key)
	if fields == nil {
		return configObject{path: key + "."}
	}
	return configObject{path: key + ".", fields: *fields}
}

// size is the first positive number of that name.
func (r *configReader) size(key string, in ...configObject) int {
	for _, o := range in {
		n := configField[int32](r, o, key)
		if n == nil {
			continue
		}
		if *n <= 0 && r.err == nil {
			r.err = fmt.Errorf("draft config: %s%s is %d, want above 0", o.path, key, *n)
		}
		return int(*n)
	}
	return 0
}

func (r *configReader) ids(in configObject, key string) (ids []int, ok bool) {
	list := configField[[]*int32](r, in, key)
	if list == nil {
		return nil, false
	}
	ids = make([]int, len(*list))
	for i, id := range *list {
		if id == nil {
			r.fail(in, key, "a list of integers")
			return nil, false
		}
		ids[i] = int(*id)
	}
	return ids, true
}

func (r *configReader) fail(in configObject, key, want string) {
	if r.err != nil {
		return
	}
	seen := in.fields[key]
	const enough = 60
	if len(seen) > enough {
		seen = append(slices.Clip(seen[:enough]), "…"...)
	}
	r.err = fmt.Errorf("draft config: %s%s is %q, want %s", in.path, key, seen, want)
}

// configField is nil when the field is absent or null.
func configField[T any](r *configReader, in configObject, key string) *T {
	raw, ok := in.fields[key]
	if !ok || string(raw) == "null" {
		return nil
	}
	v := new(T)
	if json.Unmarshal(raw, v) == nil {
		return v
	}
	want := "an object"
	switch any(v).(type) {
	case *int32:
		want = fmt.Sprintf("an integer of at most %d", math.MaxInt32)
	case *[]*int32:
		want = fmt.Sprintf("a list of integers of at most %d", math.MaxInt32)
	case *bool:
		want = "true or false"
	case *string:
		want = "a string"
	case *[]string:
		want = "a list of strings"
	}
	r.fail(in, key, want)
	return nil
}

func configValue[T any](r *configReader, in configObject, key string) T {
	if v := configField[T](r, in, key); v != nil {
		return *v
	}
	var zero T
	return zero
}
