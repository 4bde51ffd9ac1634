package validate

import (
	"fmt"
	"slices"
	"strings"

	"hsx/format"
)

// The names of the checkpoint's rules.
const (
	ruleTensorMissing  = "tensor-missing"
	ruleTensorSkipped  = "tensor-skipped"
	ruleFCWidth        = "fc-width"
	ruleFCSkipped      = "fc-skipped"
	ruleAttentionInput = "attention-input-width"
	ruleHeadShape      = "lm-head-shape"
	ruleDraftVocabSize = "draft-vocab-size"
	ruleNormFlags      = "norm-flags"
	ruleMaxPositions   = "max-positions"
	ruleMapMissing     = "vocab-map-missing"
	ruleMapShape       = "vocab-map-shape"
	ruleD2TUnfilled    = "d2t-unfilled"
	ruleT2DUnfilled    = "t2d-unfilled"
	ruleMapDisagree    = "vocab-maps-disagree"
	ruleD2TRange       = "d2t-range"
	ruleCoverage       = "vocab-coverage"
)

func draftRules() []Rule {
	const needs, header, maps = "draft", "the checkpoint's header", "d2t and t2d"
	return []Rule{
		{ruleTensorMissing, "the tensors without which an EAGLE-3 draft cannot run are there", header, needs, Error},
		{ruleTensorSkipped, "no tensor has a name that a server would skip in silence", header, needs, Warning},
		{ruleFCWidth, "fc.weight takes one block of the target's hidden size for each layer, and gives the draft's", header, needs, Error},
		{ruleFCSkipped, "fc's input is wider than an embedding, or SGLang would not apply it", header, needs, Warning},
		{ruleAttentionInput, "the attention takes the embedding and the hidden state, twice the draft's hidden size", header, needs, Error},
		{ruleHeadShape, "lm_head.weight has a row for each token of the draft's vocabulary", header, needs, Error},
		{ruleDraftVocabSize, "draft_vocab_size is what head and map have", header, needs, Error},
		{ruleNormFlags, "fc_norm and input_norm are there exactly when the config says so", header, needs, Error},
		{ruleMaxPositions, "max_position_embeddings reaches the longest sample", "the sample lengths", needs, Warning},
		{ruleMapMissing, "a draft with fewer tokens than the target says which", header, needs, Error},
		{ruleMapShape, "d2t has an entry for each token of the draft, t2d for each of the target", header, needs, Error},
		{ruleD2TUnfilled, "d2t was filled in", maps, needs, Error},
		{ruleT2DUnfilled, "t2d was filled in", maps, needs, Error},
		{ruleMapDisagree, "d2t and t2d name the same tokens in the same order", maps, needs, Error},
		{ruleD2TRange, "d2t leads to tokens of the target, to each but once", maps, needs, Error},
		{ruleCoverage, "the draft's vocabulary has nearly all tokens that it is trained on", "a count of the supervised tokens", needs, Error},
	}
}

// DraftInput is what the rules of the checkpoint compare.
type DraftInput struct {
	Checkpoint *Checkpoint
	Config     *Config       // nil when not given
	Target     format.Target // from the target's own config; zero fields are unknown
	Data       format.Layout // of the dataset, zero when there is none
	Server     string        // one of Servers; "" when none is chosen
	Longest    int           // tokens of the longest sample, 0 when unknown
	Supervised []int64       // how often each token id is supervised; nil when unknown
}

// CheckDraft reports where a draft's checkpoint does not fit its config, the target,
// the data or the chosen server.
func CheckDraft(in DraftInput, out *Collector) {
	if in.Config == nil {
		in.Config = &Config{}
	}
	ci := ConfigInput{Data: in.Data, Target: in.Target, Config: in.Config}
	k := &draftCheck{in: in, cp: in.Checkpoint, cfg: in.Config, out: out, targetWidth: int64(ci.width()), blocks: blocksOf(in.Data).n}
	k.vocab = int64(in.Target.VocabSize)
	if k.vocab == 0 {
		k.vocab = int64(in.Config.VocabSize)
	}
	k.width = int64(in.Config.HiddenSize)
	if k.targetWidth == 0 {
		k.targetWidth = int64(in.Config.TargetHiddenSize)
	}
	k.missing()
	k.skipped()
	k.fc()
	k.attention()
	k.norms()
	k.positions()
	k.vocabulary()
}

type draftCheck struct {
	in          DraftInput
	cp          *Checkpoint
	cfg         *Config
	out         *Collector
	targetWidth int64 // of the target's states, 0 when unknown
	width       int64 // the draft's hidden size, 0 when unknown
	vocab       int64 // of the target, 0 when unknown
	blocks      int   // of the data, 0 when unknown
}

func (k *draftCheck) add(rule string, severity Severity, do, message string, args ...any) {
	k.out.Add(Finding{Rule: rule, Severity: severity, Token: -1, Message: fmt.Sprintf(message, args...), Do: do})
}

// missing looks at modules by prefix: a quantised checkpoint has other suffixes.
func (k *draftCheck) missing() {
	need := []string{"norm."}
	if !k.cfg.noAux() {
		need = append(need, "fc.")
	}
	if !k.cfg.DFlash() {
		need = append(need, "midlayer.self_attn.")
	}
	if d := int64(k.cfg.DraftVocab()); d > 0 && d < k.vocab {
		need = append(need, "lm_head.") // one of full size may be the target's
	}
	for _, prefix := range need {
		if !k.cp.has(prefix) {
			k.add(ruleTensorMissing, Error, "export the draft again", "%sweight is not among the %d tensors", prefix, len(k.cp.names))
		}
	}
}

func (k *draftCheck) skipped() {
	for _, name := range k.cp.names {
		bare := strings.TrimPrefix(strings.TrimPrefix(name, "module."), "model.")
		switch {
		case strings.HasPrefix(bare, "context_proj."), strings.HasPrefix(bare, "context_norm."), strings.HasPrefix(bare, "final_norm."):
			k.add(ruleTensorSkipped, Warning, "rename it to "+canonicalName(name), "%s is a trainer's name, which servers skip", name)
		case !k.cfg.DFlash() && !knownName(canonicalName(name)):
			k.add(ruleTensorSkipped, Warning, "rename it, or see what the draft computes with it", "%s has a name that no server knows, so it is skipped", name)
		case strings.HasPrefix(k.in.Server, "sglang") && strings.HasPrefix(bare, "layers.0.") && !k.cp.mla() && !k.cfg.DFlash():
			k.add(ruleTensorSkipped, Warning, "rename it to "+canonicalName(name), "%s is named layers.0, and SGLang's Llama loader looks for midlayer and skips the rest", name)
		}
	}
}

// fc compares the fusion with what is fed to it. The number of ids is a matter of the
// config's rules when the data sides with fc.
func (k *draftCheck) fc() {
	shape := k.cp.shape("fc.weight")
	if shape == nil {
		return
	}
	out, in, ok := k.cp.matrix("fc.weight")
	if !ok {
		k.add(ruleFCWidth, Error, "export the draft again", "fc.weight has shape %v, want two dimensions", shape)
		return
	}
	if h := k.targetWidth; h > 0 {
		ids := 0
		if len(k.cfg.Lists) > 0 {
			ids = len(k.cfg.Lists[0].IDs)
		}
		want := usualBlocks
		switch {
		case k.cfg.noAux():
			want = 1
		case ids > 0 && blocksOf(k.in.Data).holds(k.cfg.Lists[0].Layers(), k.in.Target.Layers):
			want = ids // the final state may stand for the last
		case k.blocks > 0:
			want = k.blocks
		case ids > 0 && in != usualBlocks*h:
			want = ids
		}
		if in%h != 0 || in/h != int64(want) {
			k.add(ruleFCWidth, Error, "train with as many blocks as the config lists, on this target",
				"fc.weight takes %d values (%s), want %d × %d = %d", in, ratio(in, h), want, h, int64(want)*h)
		}
	}
	if w := k.width; w > 0 && out != w {
		k.add(ruleFCWidth, Error, "check hidden_size", "fc.weight gives %d values, want %d, the draft's hidden size", out, w)
	}
	embed, name := k.width, "the draft's hidden size"
	if _, cols, ok := k.cp.matrix("embed_tokens.weight"); ok {
		embed, name = cols, "the width of embed_tokens.weight"
	}
	if embed > 0 && in == embed && (k.in.Server == "" || strings.HasPrefix(k.in.Server, "sglang")) {
		k.add(ruleFCSkipped, Warning, "serve with another server, or train with more blocks", "fc.weight takes %d values, and so wide is %s: SGLang applies fc only where they differ", in, name)
	}
}

func ratio(n, h int64) string {
	if n%h == 0 {
		return fmt.Sprintf("%d × %d", n/h, h)
	}
	return fmt.Sprintf("not a multiple of %d", h)
}

func (k *draftCheck) attention() {
	if k.cfg.DFlash() || k.width == 0 || k.cfg.EHProjBeforeAttn != nil && *k.cfg.EHProjBeforeAttn {
		return
	}
	for _, proj := range []string{"q_proj", "k_proj", "v_proj", "qkv_proj", "q_a_proj", "kv_a_proj_with_mqa", "fused_qkv_a_proj_with_mqa"} {
		if proj == "q_proj" && k.cp.has("midlayer.self_attn.q_a_proj.") {
			continue
		}
		name := "midlayer.self_attn." + proj + ".weight"
		if _, in, ok := k.cp.matrix(name); ok && in != 2*k.width {
			k.add(ruleAttentionInput, Error, "check that this is an EAGLE-3 draft, and its hidden_size",
				"%s takes %d values, want 2 × %d: the embedding and the hidden state", name, in, k.width)
		}
	}
}

// norms compares the optional norms with the flags that a server goes by.
func (k *draftCheck) norms() {
	for _, n := range []struct {
		key, prefix string
		flag        *bool
	}{{"fc_norm", "fc_norm.", k.cfg.FCNorm}, {"norm_before_fc", "input_norm.", k.cfg.NormBeforeFC}} {
		present := k.cp.has(n.prefix)
		switch {
		case n.flag != nil && *n.flag && !present:
			k.add(ruleNormFlags, Error, "export the draft again, or take the flag out", "%s is true, and there is no %sweight", n.key, n.prefix)
		case present && n.flag == nil:
			k.add(ruleNormFlags, Warning, "write "+n.key+": true", "%s… is there, and the config has no %s, so a server may not apply it", n.prefix, n.key)
		case present && !*n.flag:
			k.add(ruleNormFlags, Error, "write "+n.key+": true", "%s… is there, and %s is false, so a server does not apply it", n.prefix, n.key)
		}
	}
	_, in, ok := k.cp.matrix("fc.weight")
	if !ok {
		return
	}
	if s := k.cp.shape("input_norm.weight"); s != nil && !slices.Equal(s, []int64{in}) {
		k.add(ruleNormFlags, Error, "export the draft again", "input_norm.weight has shape %v, want [%d], the input of fc", s, in)
	}
	if s, h := k.cp.shape("fc_norm.0.weight"), k.targetWidth; s != nil && h > 0 && in%h == 0 {
		for i := range in / h {
			name := fmt.Sprintf("fc_norm.%d.weight", i)
			if s := k.cp.shape(name); !slices.Equal(s, []int64{h}) {
				k.add(ruleNormFlags, Error, "export the draft again", "%s has shape %v, want [%d] for each of %d blocks", name, s, h, in/h)
				return
			}
		}
	}
}

func (k *draftCheck) positions() {
	if m := k.cfg.MaxPositions; m > 0 && k.in.Longest > m {
		k.add(ruleMaxPositions, Warning, fmt.Sprintf("write max_position_embeddings: %d or more", k.in.Longest),
			"max_position_embeddings is %d, and the longest sample has %d tokens", m, k.in.Longest)
	}
}
