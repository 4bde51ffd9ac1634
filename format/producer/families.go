package producer

import (
	"hsx/format"
)

const (
	postNumbers     = "post-layer: k is the output of layer k"
	boundaryNumbers = "boundary: k is the input of layer k, and the number of layers is the last state before the norm"
	noNumbers       = "none"
)

func specforge() []layout {
	ids, mask := "input_ids", "loss_mask"
	return []layout{{
		name: "specforge-eagle3", title: "SpecForge, offline EAGLE-3", norm: format.NormPost, numbering: postNumbers,
		ids: ids, mask: mask, aux: "aux_hidden_state", final: "hidden_state",
		// Early versions wrote None for the aux states, and only the final remains.
		optional: []string{"aux_hidden_state"}, marks: []string{"aux_hidden_state"},
	}, {
		name: "specforge-eagle3", title: "SpecForge, streamed EAGLE-3", norm: format.NormPost, numbering: postNumbers,
		ids: ids, mask: mask, aux: "hidden_state", final: "target",
		fits: func(v *view) (string, bool, error) {
			return "hidden_state and target with a batch dimension", rank(v.rec, "hidden_state") == 3, nil
		},
	}, {
		name: "specforge-dflash", title: "SpecForge, DFlash", numbering: postNumbers,
		ids: ids, mask: mask, aux: "hidden_states",
		fits: func(v *view) (string, bool, error) {
			return "one-dimensional input_ids beside hidden_states", rank(v.rec, ids) != 2, nil
		},
	}, {
		name: "specforge-dspark", title: "SpecForge, DSpark", norm: format.NormPost, numbering: postNumbers,
		ids: ids, mask: mask, aux: "hidden_states", final: "target_last_hidden_states",
	}}
}

func speculators() []layout {
	return []layout{{
		name: "speculators", title: "speculators, states beside a dataset", norm: format.NormPre, numbering: boundaryNumbers,
		ids: "token_ids", slotted: "hidden_states", lastIsFinal: true,
		fits: func(v *view) (string, bool, error) {
			return "slots and token_ids, and a dataset beside them", v.row != nil, nil
		},
	}, {
		name: "speculators-v1", title: "speculators v1", norm: format.NormPre, numbering: postNumbers,
		ids: "input_ids", mask: "loss_mask", listed: "hidden_states", lastIsFinal: true,
	}, {
		name: "speculators-v0", title: "speculators v0", norm: format.NormPost, numbering: postNumbers,
		ids: "input_ids", mask: "loss_mask", aux: "hidden_state", final: "target",
		fits: func(v *view) (string, bool, error) {
			return "hidden_state and target without a batch dimension", rank(v.rec, "hidden_state") != 3, nil
		},
	}}
}

func vllm() []layout {
	return []layout{{
		name: "vllm", title: "vLLM, hidden-states connector", norm: format.NormPre, numbering: boundaryNumbers,
		ids: "token_ids", slotted: "hidden_states",
		fits: func(v *view) (string, bool, error) {
			return "slots and token_ids, without a dataset beside them", v.row == nil, nil
		},
	}}
}

func sglang() []layout {
	return []layout{{
		name: "sglang", title: "SGLang, HTTP answer", norm: format.NormPost, numbering: postNumbers, from: JSON,
		ids: "input_ids", mask: "loss_mask", bare: "hidden_states", optional: []string{"loss_mask"}, items: oneOrMany,
	}}
}

func modelopt() []layout {
	base := layout{
		ids: "input_ids", aux: "aux_hidden_states", final: "hidden_states", id: "conversation_id",
		optional: []string{"conversation_id"}, ignored: []string{prenormKey},
	}
	hf, engine, trt, raw := base, base, base, base

	hf.name, hf.title, hf.norm, hf.numbering = "modelopt-hf", "Model-Optimizer, from transformers", format.NormPost, postNumbers
	hf.mask, hf.marks = "loss_mask", []string{"conversation_id"}
	hf.fits = func(v *view) (string, bool, error) {
		return "conversation_id, and states with storage of their own", !shared(v.rec), nil
	}

	// The engine's script slices both tensors out of one, and drops the norm on the way.
	engine.name, engine.title, engine.norm, engine.numbering = "modelopt-vllm", "Model-Optimizer, from vLLM", format.NormPre, boundaryNumbers
	engine.mask, engine.optional = "loss_mask", []string{"conversation_id", "loss_mask"}
	engine.fits = func(v *view) (string, bool, error) {
		return "both state tensors are views of one storage", shared(v.rec), nil
	}

	trt.name, trt.title, trt.norm, trt.numbering = "modelopt-trtllm", "Model-Optimizer, from TensorRT-LLM", format.NormPost, postNumbers
	trt.marks = []string{"conversation_id"}

	raw.name, raw.title, raw.norm, raw.numbering = trt.name, "Model-Optimizer, from TensorRT-LLM, not post-processed", format.NormPost, postNumbers
	raw.final, raw.id, raw.optional, raw.marks, raw.items = "hidden_state", "id", []string{"id"}, []string{"id"}, many
	return []layout{hf, engine, trt, raw}
}

func angelslim() []layout {
	return []layout{{
		name: "angelslim-eagle3", title: "AngelSlim, EAGLE-3", norm: format.NormPost, numbering: postNumbers,
		ids: "input_ids", mask: "loss_mask", attention: "attention_mask", aux: "hidden_states", final: "target_hiddens",
		optional: []string{"attention_mask"}, ignored: []string{"inputs_embeds", "position_ids"},
	}, {
		name: "angelslim-dflash", title: "AngelSlim, DFlash", numbering: postNumbers,
		ids: "input_ids", mask: "loss_mask", attention: "attention_mask", aux: "hidden_states",
		optional: []string{"attention_mask"}, ignored: []string{"position_ids"},
		fits: func(v *view) (string, bool, error) {
			padded := v.rec.Tensor("attention_mask") != nil
			return "input_ids with a batch dimension, or an attention_mask, beside hidden_states", padded || rank(v.rec, "input_ids") == 2, nil
		},
	}}
}

func torchspec() []layout {
	return []layout{{
		name: "torchspec", title: "TorchSpec, offline reader", norm: format.NormPost, numbering: postNumbers,
		ids: "input_ids", mask: "loss_mask", aux: "aux_hidden_states", final: "hidden_states",
		absent: []string{"conversation_id"},
	}}
}

func automodel() []layout {
	return []layout{{
		name: "automodel", title: "Automodel, EAGLE-3 cache", numbering: postNumbers, batched: true, shifted: true,
		ids: "input_ids", mask: "loss_mask", attention: "attention_mask", aux: "aux_hidden_states",
		marks: []string{"position_mask"}, ignored: []string{"target_probs", "target_probs_values", "target_probs_indices"},
	}}
}

func eagle() []layout {
	const key = "hidden_state"
	return []layout{{
		name: "eagle", title: "EAGLE-1 and EAGLE-2, ge_data", norm: format.NormPost, numbering: noNumbers,
		ids: "input_ids", mask: "loss_mask", final: key, absent: []string{"aux_hidden_state"},
		fits: func(v *view) (string, bool, error) {
			c, because, err := byWidth(v, key)
			return because, c == finalOnly, err
		},
	}}
}

// byWidth decides what a record's only state tensor holds. A tensor that cannot be
// read is taken for the final, so that its sample says what is wrong with it.
func byWidth(v *view, key string) (content, string, error) {
	t := v.rec.Tensor(key)
	if t == nil {
		return finalOnly, "the key set", nil
	}
	if rows, err := (field{key, t}).rows(); err == nil {
		return decideOr(key, rows.Width, v.facts)
	}
	return finalOnly, "the key set", nil
}

// shared reports whether the final and the aux states are views of one piece of
// memory.
func shared(rec *format.Record) bool {
	a, b := rec.Tensor("aux_hidden_states"), rec.Tensor("hidden_states")
	if a == nil || b == nil {
		return false
	}
	return a.Storage != "" && a.Storage == b.Storage || gaps(a) || gaps(b)
}

// gaps is !Dense, for tensors whose shape and strides nobody has checked yet.
func gaps(t *format.Tensor) bool {
	return t.Strides != nil && len(t.Strides) == len(t.Shape) && !t.Dense()
}

func rank(rec *format.Record, key string) int {
	t := rec.Tensor(key)
	if t == nil {
		return 0
	}
	return len(t.Shape)
}
