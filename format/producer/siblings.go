package producer

import (
	"encoding/json"
	"fmt"

	"hsx/format"
)

// V1Config is what speculators v1 says of a dump in its data_config.json.
type V1Config struct {
	LayerIDs   []int // post-layer, the final state's included
	HiddenSize int   // 0 when the file does not say
	Target     string
}

// ParseV1Config reads a data_config.json. Its errors wrap [format.ErrCorrupt].
func ParseV1Config(data []byte) (*V1Config, error) {
	var c struct {
		Model struct {
			Path   string `json:"target_model_path"`
			Hidden int    `json:"hidden_size"`
		} `json:"model"`
		States struct {
			IDs []int `json:"layer_ids"`
		} `json:"hidden_states"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, notJSON("data_config.json", err)
	}
	if len(c.States.IDs) == 0 || c.Model.Hidden < 0 {
		return nil, fmt.Errorf("data_config.json has %d layer_ids and hidden_size %d, want at least one id and no negative size: %w", len(c.States.IDs), c.Model.Hidden, format.ErrCorrupt)
	}
	return &V1Config{LayerIDs: c.States.IDs, HiddenSize: c.Model.Hidden, Target: c.Model.Path}, nil
}

// AutomodelManifest is what Automodel says of its shards in its manifest.json.
type AutomodelManifest struct {
	LayerIDs      []int  // post-layer
	AuxHiddenDim  int    // the width of all aux states together
	FormatVersion int    // 2 is the only one known
	DType         string // as Automodel writes it: "bf16"
	SeqLength     int    // positions stored per sample, padding included
	NumSamples    int
	ShardSize     int // samples per shard
	TopK          int // 0: probabilities of the whole draft vocabulary
	VocabSize     int // of the target
	Target        string
}

// ParseAutomodelManifest reads a manifest.json. Its errors wrap [format.ErrCorrupt],
// or [format.ErrUnsupported] for a version that is not known.
func ParseAutomodelManifest(data []byte) (*AutomodelManifest, error) {
	var c struct {
		IDs       []int  `json:"aux_layer_ids"`
		Dim       int    `json:"aux_hidden_dim"`
		Version   int    `json:"format_version"`
		DType     string `json:"dtype"`
		Length    int    `json:"seq_length"`
		Samples   int    `json:"num_samples"`
		ShardSize int    `json:"shard_size"`
		TopK      int    `json:"target_probs_topk"`
		Vocab     int    `json:"target_vocab_size"`
		Target    string `json:"target_model"`
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, notJSON("manifest.json", err)
	}
	if c.Version != 2 {
		return nil, fmt.Errorf("manifest.json has format_version %d, want 2: %w", c.Version, format.ErrUnsupported)
	}
	if len(c.IDs) == 0 || c.Dim <= 0 || c.Dim%len(c.IDs) != 0 {
		return nil, fmt.Errorf("manifest.json has %d aux_layer_ids and aux_hidden_dim %d, want a width that they divide: %w", len(c.IDs), c.Dim, format.ErrCorrupt)
	}
	return &AutomodelManifest{
		LayerIDs: c.IDs, AuxHiddenDim: c.Dim, FormatVersion: c.Version, DType: c.DType, SeqLength: c.Length,
		NumSamples: c.Samples, ShardSize: c.ShardSize, TopK: c.TopK, VocabSize: c.Vocab, Target: c.Target,
	}, nil
}

func notJSON(name string, err error) error {
	return fmt.Errorf("%s cannot be read: %w: %w", name, format.ErrCorrupt, err)
}

// beside are the layers that the layout's own file beside the dump names, nil when
// there is none.
func (l *layout) beside(s Siblings) (layers format.Layers, from string, err error) {
	var ids []int
	switch {
	case l.name == "speculators-v1" && s.V1 != nil:
		ids, from = s.V1.LayerIDs, "data_config.json"
	case l.name == "automodel" && s.Automodel != nil:
		ids, from = s.Automodel.LayerIDs, "manifest.json"
	default:
		return nil, "", nil
	}
	layers, err = format.NewLayers(ids, format.PostLayer)
	if err != nil {
		return nil, "", &FieldError{Kind: format.ErrUnsupported, Err: fmt.Errorf("%s: %w", from, err)}
	}
	return layers, from, nil
}
