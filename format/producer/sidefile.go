package producer

import (
	"encoding/json"
	"strconv"

	"hsx/format"
)

// SideFile says what a decoded value is when it is no sample but a file that a
// producer writes beside its samples. It is meant for torch archives and safetensors
// files that [Recognise] does not know.
func SideFile(v format.Value) (what string, ok bool) {
	switch v := v.(type) {
	case *format.Tensor:
		// A bare count per token id; states never come without a name.
		if v != nil && len(v.Shape) == 1 && v.DType.IsInteger() {
			return "token frequencies", true
		}
	case *format.Record:
		if v == nil {
			return "", false
		}
		names := tensorNames(v)
		switch {
		case len(names) == 2 && rank(v, "d2t") == 1 && rank(v, "t2d") == 1:
			return "vocabulary map", true
		case len(names) == 1 && rank(v, "weight") == 2:
			return "target embeddings", true
		}
	case []format.Value:
		if len(v) > 0 && evalCache(v) {
			return "evaluation cache of a trainer", true
		}
	}
	return "", false
}

// evalCache reports a list of training batches. A list of samples carries ids.
func evalCache(values []format.Value) bool {
	for _, v := range values {
		rec, ok := v.(*format.Record)
		if !ok || rec == nil || rec.Tensor("input_ids") == nil {
			return false
		}
		_, hasID := rec.Get("id")
		if hasID || rec.Tensor("loss_mask") == nil && rec.Tensor("attention_mask") == nil {
			return false
		}
	}
	return true
}

func tensorNames(rec *format.Record) []string {
	var names []string
	for _, f := range rec.Fields {
		if _, ok := f.Value.(*format.Tensor); ok {
			names = append(names, f.Key)
		}
	}
	return names
}

// SideJSON says what a JSON document is when it is no answer with states but a file
// that a producer writes beside its samples.
func SideJSON(data []byte) (what string, ok bool) {
	var doc map[string]json.RawMessage
	if json.Unmarshal(data, &doc) != nil || len(doc) == 0 {
		return "", false
	}
	has := func(keys ...string) bool {
		for _, k := range keys {
			if _, ok := doc[k]; !ok {
				return false
			}
		}
		return true
	}
	switch {
	case has("hidden_states", "model"):
		if _, err := ParseV1Config(data); err == nil {
			return "speculators v1 data_config.json", true
		}
	case has("aux_layer_ids", "format_version"):
		return "Automodel manifest", true
	case has("_data_files", "_fingerprint"):
		return "Hugging Face dataset state", true
	case has("features") && (has("citation") || has("description") || has("license")):
		return "Hugging Face dataset description", true
	case has("format", "dataset") && string(doc["format"]) == `"hsx-export"`:
		return "description of an hsx export", true
	case has("splits") && len(doc) == 1:
		return "Hugging Face dataset of several splits", true
	case has("schema_version", "refs"):
		return "SpecForge reference manifest", true
	case has("sampling_params") && (has("input_ids") || has("text")):
		return "SGLang request", true
	case has("model_type") && (has("architectures") || has("hidden_size")):
		return "model configuration", true
	case lengths(doc):
		return "sample lengths", true
	}
	return "", false
}

// lengths reports {"0": 64, "1": 33}: a number of tokens per sample index.
func lengths(doc map[string]json.RawMessage) bool {
	for k, v := range doc {
		if _, err := strconv.ParseUint(k, 10, 63); err != nil {
			return false
		}
		if _, err := strconv.ParseUint(string(v), 10, 63); err != nil {
			return false
		}
	}
	return true
}
