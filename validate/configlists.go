package validate

import (
	"fmt"
	"slices"
	"strings"

	"hsx/format"
)

// list reports what is wrong with one list by itself, and whether it is sound enough to
// be compared with others.
func (k *configCheck) list(l IDList) (sound bool) {
	if len(l.IDs) == 0 {
		k.add(ruleIDsEmpty, Error, "write the ids, or take the key out for the default", "%s is empty: some tools take that for no states, others for the default", l.Key)
		return false
	}
	sound = k.order(l)
	sound = k.lowest(l) && sound
	sound = k.highest(l) && sound
	k.count(l)
	return sound
}

func (k *configCheck) order(l IDList) (sound bool) {
	sorted := slices.Sorted(slices.Values(l.IDs))
	i := firstRepeat(sorted)
	if i >= 0 {
		k.add(ruleIDsDuplicate, Error, "list each layer once", "%s has id %d more than once, and engines capture it once, so a block is missing", l, sorted[i])
	}
	for j := 1; j < len(l.IDs); j++ {
		if l.IDs[j] < l.IDs[j-1] {
			k.add(ruleIDsOrder, Error, "write the ids in ascending order, and train on blocks in that order",
				"%s is not increasing: %d follows %d, and engines concatenate in ascending order", l, l.IDs[j], l.IDs[j-1])
			return false
		}
	}
	return i < 0
}

// firstRepeat is the index of an element that equals the one before, -1 without one.
func firstRepeat(sorted []int) int {
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return i
		}
	}
	return -1
}

// lowest looks for negative ids, and says at once how the list differs from the data:
// the embedding in place of a layer is one mistake, not two.
func (k *configCheck) lowest(l IDList) (sound bool) {
	low := slices.Min(l.IDs)
	if low >= 0 {
		return true
	}
	layers, severity := l.Layers(), Error
	embedding := l.Convention.Layer(low) == format.Embedding
	if embedding && k.in.Embedding {
		return true
	}
	message := fmt.Sprintf("%s has id %d, which lies before the embedding", l, low)
	if embedding {
		message = fmt.Sprintf("%s has id %d: the embedding to some tools, the last layer or nothing to others", l, low)
	}
	if k.res.Against == "data" || k.res.Against == "--layers" {
		if diff := k.res.diff("the config wants", layers); diff != "" {
			message += "; " + diff
		} else {
			severity = Warning // it is what the data holds: only servers may be at odds
		}
	}
	k.add(ruleIDsNegative, severity, "name a layer from 0 on, or say that the embedding is meant", "%s", message)
	return false
}

// highest looks for ids that the target has not, and for its last layer.
func (k *configCheck) highest(l IDList) (sound bool) {
	n := k.in.Target.Layers
	if n <= 0 {
		return true
	}
	end := l.Convention.ID(format.Layer(n - 1))
	for _, id := range l.IDs {
		if id > end {
			k.add(ruleIDsRange, Error, "check the convention, and the target that it was written for",
				"%s has id %d, want at most %d: %s ids of %d layers end there", l, id, end, l.Convention, n)
			return false
		}
	}
	sglang := func(s Side) bool { return s.reader.Engine == "sglang" && !s.reader.Old && s.reader.Top > 1 }
	if slices.Contains(l.IDs, end) && k.in.Server == "" && slices.ContainsFunc(k.res.Sides, sglang) {
		k.add(ruleLastLayer, Warning, "serve with vLLM, or train on a layer before it", "%s has %s, the last layer, which SGLang never captures", l, l.Convention.Layer(end))
	}
	return true
}

// fcBlocks is how many blocks fc.weight takes, 0 when unknown or not a whole number.
func (in *ConfigInput) fcBlocks() int {
	if h := in.width(); h > 0 && in.FCWidth%h == 0 {
		return in.FCWidth / h
	}
	return 0
}

// width is the target's hidden size: its config's, else the data's; 0 when unknown.
func (in *ConfigInput) width() int {
	if in.Target.HiddenSize > 0 {
		return in.Target.HiddenSize
	}
	return in.Data.HiddenSize
}

// countFits reports whether the number of ids is that of the data's blocks. Where there
// is no data it is fc's, but then only fc for the usual three decides against the list:
// otherwise fc is to blame.
func (k *configCheck) countFits(l IDList) bool {
	n := len(l.IDs)
	if d := k.res.blocks; d.n > 0 {
		return n == d.n || d.holds(l.Layers(), k.in.Target.Layers)
	}
	return k.in.fcBlocks() != usualBlocks || n == usualBlocks
}

// usualBlocks is the number of layers of an EAGLE-3 draft whose config does not say.
const usualBlocks = 3

func (k *configCheck) count(l IDList) {
	var seen []string
	if d := k.res.blocks; d.n > 0 && !k.countFits(l) {
		text := fmt.Sprintf("the data holds %d", d.n)
		if len(d.layers) > 0 {
			text += " (" + layerText(d.layers) + ")"
		}
		seen = append(seen, text)
	}
	if f := k.in.fcBlocks(); f > 0 && f != len(l.IDs) && !k.countFits(l) {
		seen = append(seen, fmt.Sprintf("fc.weight takes %d blocks of %d", f, k.in.width()))
	}
	if a := k.in.Config.NumAux; a > 0 && a != len(l.IDs) {
		seen = append(seen, fmt.Sprintf("num_aux_hidden_states is %d", a))
	}
	if seen != nil {
		k.add(ruleIDsCount, Error, "list one id for each block", "%s has %d ids, %s", l, len(l.IDs), strings.Join(seen, ", "))
	}
}

func (k *configCheck) auxOff() {
	c := k.in.Config
	if n := k.res.blocks.n; len(c.Lists) > 0 || n > 0 {
		k.add(ruleAuxOff, Warning, "set use_aux_hidden_state to true, or train on the final state", "use_aux_hidden_state is false, so the draft reads the final state alone; the config lists ids in %d places and the data holds %d blocks", len(c.Lists), n)
	}
}

// sizes compares the target's sizes with what the draft's config has for them.
func (k *configCheck) sizes() {
	c, t := k.in.Config, k.in.Target
	if h := k.in.width(); h > 0 {
		switch {
		case c.TargetHiddenSize > 0 && c.TargetHiddenSize != h:
			k.add(ruleTargetWidth, Error, "write the target's hidden size", "target_hidden_size is %d, want %d, the target's hidden size", c.TargetHiddenSize, h)
		case c.TargetHiddenSize == 0 && c.HiddenSize > 0 && c.HiddenSize != h:
			k.add(ruleTargetWidth, Warning, fmt.Sprintf("write target_hidden_size: %d", h), "target_hidden_size is absent, so tools take the draft's hidden_size %d for it, want %d, the target's", c.HiddenSize, h)
		}
	}
	if v := t.VocabSize; v > 0 && c.VocabSize > 0 && c.VocabSize != v {
		k.add(ruleTargetVocab, Warning, "write the target's vocab_size", "vocab_size is %d, want %d, the target's", c.VocabSize, v)
	}
	if d := c.DraftVocabSize; d != nil {
		v := t.VocabSize
		if v == 0 {
			v = c.VocabSize
		}
		if *d <= 0 || v > 0 && *d > v {
			k.add(ruleDraftVocabRange, Error, "write the number of rows of lm_head.weight", "draft_vocab_size is %d, want 1 to %d", *d, v)
		}
	}
	if n := c.NumTargetLayers; n > 0 && t.Layers > 0 && n != t.Layers && !slices.ContainsFunc(c.Lists, func(l IDList) bool { return len(l.IDs) == n }) {
		k.add(ruleTargetDepth, Warning, "write the target's depth", "num_target_layers is %d, want %d, the target's depth, or the number of ids", n, t.Layers)
	}
}

// finalNorm is only worth knowing: which trainer is used is not, and the manifest tells
// the norm to those who export.
func (k *configCheck) finalNorm() {
	final := k.res.blocks.final
	if final == nil || *final == format.NormUnknown || len(k.in.Config.Lists) == 0 {
		return
	}
	var names []string
	for _, s := range k.res.Sides {
		if s.Role == "trainer" && s.Key == k.in.Config.Lists[0].Key && s.reader.Final != format.NormUnknown && s.reader.Final != *final {
			names = append(names, s.Name)
		}
	}
	if names != nil {
		k.add(ruleFinalNormDiffers, Info, "check that the trainer is told so", "the data's final state is %s-norm, and %s take it for the other", *final, strings.Join(names, ", "))
	}
}
