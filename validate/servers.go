package validate

import (
	"fmt"
	"slices"
	"strings"

	"hsx/format"
)

// The model families whose servers read ids in a way of their own.
const (
	familyDeepSeek = "deepseek" // DeepSeek V2 and later, Kimi: one model class serves both
	familyGPTOSS   = "gpt-oss"
	familyOther    = "other"
)

// Families are the names that ConfigInput.Family takes.
func Families() []string { return []string{familyDeepSeek, familyGPTOSS, familyOther} }

// Family guesses the family from the name, type or architecture of a target. It is ""
// for an empty name.
func Family(name string) string {
	name = strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(name))
	switch {
	case name == "":
		return ""
	case strings.Contains(name, "distill"): // a DeepSeek by name, a Llama or Qwen by class
		return familyOther
	case strings.Contains(name, "kimi"), strings.Contains(name, "deepseekv"), strings.Contains(name, "deepseekr1"):
		return familyDeepSeek
	case strings.Contains(name, "gptoss"):
		return familyGPTOSS
	}
	return familyOther
}

// reading is how a reader turns ids into layers.
type reading uint8

const (
	readPost     reading = iota // k is P_k
	readBoundary                // k is P_{k-1}
	readByFirst                 // k is P_k in a list that begins with 1, else P_{k-1}
)

// convention is the one that a list is read in.
func (r reading) convention(ids []int) format.Convention {
	if r == readBoundary || r == readByFirst && (len(ids) == 0 || ids[0] != 1) {
		return format.Boundary
	}
	return format.PostLayer
}

type keyReading struct {
	key string
	as  reading
}

// fallback is what a reader does without ids.
type fallback uint8

const (
	fallEagle fallback = iota // 1, L//2-1, L-4 as outputs, or 2, L//2, L-3 as inputs: the same layers
	fallDeep                  // the same, and a target of 5 layers or fewer is refused
	fallNone                  // ids must be given
)

// Reader is one tool in one version, for one family of targets.
type Reader struct {
	Name     string // in the table
	Engine   string // without a version
	Trainer  bool   // it makes drafts from data; else it serves them
	Versions string // from when, until when
	Old      bool   // superseded: --server ENGINE does not mean it
	Family   string // "" for all

	Keys     []keyReading // in the order in which it looks for ids
	Argument string       // of the server, which it reads in place of the config
	Fallback fallback
	Default  format.Convention // in which it writes its own default, for the table
	Listed   bool              // concatenates as listed; else ascending, each layer once
	First    format.Layer      // the shallowest that it can feed: the embedding or P_0
	Top      int               // P_{L-Top} is the deepest
	Final    format.Norm       // that a trainer takes its final state to have
	Source   string
}

// Readers is the table of who reads what from a draft's config. A new version of a
// server is a new row.
func Readers() []Reader {
	return []Reader{
		{
			Name: "sglang<25454", Engine: "sglang", Family: familyDeepSeek, Versions: "before 2026-05-18", Old: true,
			Keys:    []keyReading{{keyNested, readPost}, {keyDFlash, readPost}},
			Default: format.Boundary, First: format.Embedding, Top: 2,
			Source: "sglang deepseek_v2.py set_eagle3_layers_to_capture: layers_to_capture = [val + 1 …], taken before layer i; default [2, L//2, L-3]",
		},
		{
			Name: "sglang>=25454", Engine: "sglang", Family: familyDeepSeek, Versions: "from 2026-05-18",
			Keys:    []keyReading{{keyNested, readByFirst}, {keyTop, readByFirst}, {keyDFlash, readPost}},
			Default: format.Boundary, First: format.Embedding, Top: 2,
			Source: "github.com/sgl-project/sglang/pull/25454: + 1 only when the first id is 1",
		},
		{
			Name: "sglang<32334", Engine: "sglang", Family: familyGPTOSS, Old: true,
			Keys:    []keyReading{{keyNested, readPost}, {keyDFlash, readPost}},
			Default: format.Boundary, First: format.Embedding, Top: 2,
			Source: "sglang gpt_oss.py before github.com/sgl-project/sglang/pull/32334",
		},
		{
			Name: "sglang>=32334", Engine: "sglang", Family: familyGPTOSS,
			Keys:    []keyReading{{keyNested, readBoundary}, {keyTop, readBoundary}, {keyDFlash, readPost}},
			Default: format.Boundary, First: format.Embedding, Top: 1,
			Source: "github.com/sgl-project/sglang/pull/32334: boundary ids, L is the last state before the norm (from its text, not run)",
		},
		{
			Name: "sglang older", Engine: "sglang", Family: familyOther, Old: true,
			Keys:    []keyReading{{keyNested, readPost}, {keyDFlash, readPost}},
			Default: format.Boundary, First: format.Embedding, Top: 2,
			Source: "sglang model_runner.py: eagle_config in try and except, any failure gives the default",
		},
		{
			Name: "sglang", Engine: "sglang", Family: familyOther,
			Keys:    []keyReading{{keyNested, readPost}, {keyTop, readPost}, {keyDFlash, readPost}},
			Default: format.Boundary, First: format.Embedding, Top: 2,
			Source: "sglang model_runner.py: eagle_config, then the top level; llama.py, qwen2.py …: val + 1; set_dflash_layers_to_capture: val + 1",
		},
		{
			Name: "vllm", Engine: "vllm",
			Keys: []keyReading{
				{keyTop, readBoundary}, {keyDFlash, readPost}, {keyDSpark, readPost}, {keyTarget, readPost},
				{keyDFlashPlain, readBoundary}, {keyEaglePlain, readBoundary}, {keySpeculators, readBoundary},
			},
			Default: format.Boundary, First: format.Embedding, Top: 1,
			Source: "vllm eagle3_utils.py, github.com/vllm-project/vllm/pull/36063 and /46788 for id L; speculators configs are translated to the top-level key",
		},
		{
			Name: "vllm legacy", Engine: "vllm", Old: true,
			Keys:    []keyReading{{keyNested, readBoundary}},
			Default: format.Boundary, First: format.Embedding, Top: 2,
			Source: "older vllm runners and their derivatives: the nested list as it is, taken before layer i",
		},
		{
			Name: "trtllm", Engine: "trtllm", Argument: "eagle3_layers_to_capture", Fallback: fallDeep, Top: 1,
			Source: "TensorRT-LLM llmapi Eagle3DecodingConfig: a set, sorted; default (1, L//2-1, L-4), refused for L <= 5",
		},
		{
			Name: "specforge", Engine: "specforge", Trainer: true, Top: 2, Final: format.NormPost,
			Keys:   []keyReading{{keyNested, readPost}, {keyDFlash, readPost}},
			Source: "SpecForge specforge/algorithms/model_providers.py: hidden_states[k+1]",
		},
		{
			Name: "speculators", Engine: "speculators", Trainer: true, Default: format.Boundary, First: format.Embedding, Top: 1, Final: format.NormPre,
			Keys:   []keyReading{{keyTop, readBoundary}, {keySpeculators, readBoundary}},
			Source: "speculators src/speculators/models/eagle3/config.py; its data step runs vLLM",
		},
		{
			Name: "torchspec", Engine: "torchspec", Trainer: true, Listed: true, Top: 1, Final: format.NormPost,
			Keys:   []keyReading{{keyNested, readPost}, {keyDFlash, readPost}},
			Source: "TorchSpec torchspec/inference/engine: hooks in the order of the list; its vLLM engine adds 1 and gives a final before the norm",
		},
		{
			Name: "modelopt", Engine: "modelopt", Trainer: true, Top: 1, Final: format.NormPost,
			Keys:   []keyReading{{keyNested, readPost}},
			Source: "Model-Optimizer modelopt/torch/speculative/plugins/hf_eagle.py: hooks on outputs, sorted({1, L//2-1, L-4})",
		},
		{
			Name: "angelslim", Engine: "angelslim", Trainer: true, Listed: true, First: format.Embedding, Top: 1, Final: format.NormPost,
			Keys:   []keyReading{{keyAngelSlim, readPost}, {keyDFlash, readPost}},
			Source: "AngelSlim: hidden_states[id+1], list order, nothing is checked",
		},
		{
			Name: "automodel", Engine: "automodel", Trainer: true, Listed: true, First: format.Embedding, Top: 1, Final: format.NormPost,
			Keys: []keyReading{{keyTarget, readPost}}, Fallback: fallNone,
			Source: "Automodel DSpark; nemo_automodel/recipes/llm/train_eagle3.py never writes the ids of an EAGLE-3 draft",
		},
	}
}

// Servers are the names that ConfigInput.Server takes: an engine stands for its
// current version.
func Servers() []string {
	var out []string
	for _, r := range Readers() {
		for _, name := range []string{r.Engine, r.Name} {
			if !r.Trainer && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	return out
}

// defaultLayers is the default of every EAGLE-3 tool for a target of n layers: both
// formulas name these. They repeat or fall for small n.
func defaultLayers(n int) []format.Layer {
	return []format.Layer{1, format.Layer(n/2 - 1), format.Layer(n - 4)}
}

// idsOf writes layers in a convention.
func idsOf(layers []format.Layer, c format.Convention) []int {
	ids := make([]int, len(layers))
	for i, l := range layers {
		ids[i] = c.ID(l)
	}
	return ids
}

// feed is what reaches the draft of the layers that ids name, for a target of n layers
// (0: unknown), with what became of the rest.
func (r *Reader) feed(ids []int, c format.Convention, n int) (layers []format.Layer, notes []string) {
	for _, id := range ids {
		if l := c.Layer(id); l < r.First || n > 0 && int(l) > n-r.Top {
			notes = append(notes, fmt.Sprintf("id %d never fires", id))
			continue
		}
		layers = append(layers, c.Layer(id))
	}
	if !r.Listed {
		if !slices.IsSorted(layers) {
			notes = append(notes, "taken in ascending order")
			slices.Sort(layers)
		}
		if once := slices.Compact(layers); len(once) < len(layers) {
			notes = append(notes, "a repeated layer is taken once")
			layers = once
		}
	}
	return layers, notes
}
