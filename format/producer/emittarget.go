package producer

import (
	"fmt"
	"strings"

	"hsx/format"
)

// TargetDescription is one kind of files that [Emit] makes records for, and what their
// reader asks of a sample.
type TargetDescription struct {
	Name       string            // what Emit takes
	What       string            // the reader, for people
	Container  Container         // Torch; Safetensors, where strings are the file's metadata; or Arrays, one .npy for each tensor
	Files      string            // how the reader finds and names its files, for people
	Engine     string            // the trainer, by the name that the table of readers of drafts' configs has; "" for plain files
	Strategy   string            // the draft that it trains: "eagle3", "dflash" or "dspark"; "" for any
	Convention format.Convention // in which its own config writes layers
	Layers     int               // how many aux layers it wants; 0 for any number
	Final      []format.Norm     // the norm states that its final may have, the best first; nil when its files hold none
	NeedFinal  bool              // a sample without a final is refused
	NeedMask   bool              // a sample without a loss mask is refused
	NeedPair   bool              // a sample whose mask marks no two tokens in a row is refused
	Dataset    bool              // ids and masks also stand in a Hugging Face dataset, whose row i belongs to file i

	slots []slot
}

// slot is one value of a record, in the order in which its producer writes them.
type slot struct {
	key   string
	part  part
	batch bool // the tensor has a first dimension of 1
}

// part says what of a sample a slot holds.
type part uint8

const (
	partIDs      part = iota // int64 [T]
	partMask                 // int64 [T]; left out when the sample has none
	partByteMask             // uint8 [T], the same
	partAux                  // [T, A·H]: the aux states side by side
	partFinal                // [T, H]
	partStack                // [T, A+1, H]: the aux states, the final last
	partEach                 // one tensor [T, H] for each state, under the name of its column
	partID                   // the sample's id, a string
	partPrenorm              // true when the final is before the norm, else left out
	partFacts                // strings: what else is known, see facts
)

// Targets is the table of what [Emit] can make.
func Targets() []TargetDescription {
	ids, mask := slot{key: "input_ids"}, slot{key: "loss_mask", part: partMask}
	post := []format.Norm{format.NormPost}
	every := []format.Norm{format.NormPost, format.NormPre, format.NormUnknown}
	const rows = "rows_0-2000/data_<i>.ckpt, any .ckpt below the directory"
	return []TargetDescription{{
		Name: "specforge-eagle3", What: "SpecForge, offline EAGLE-3", Files: rows, Engine: "specforge", Strategy: "eagle3",
		Layers: 3, Final: post, NeedFinal: true, NeedMask: true,
		slots: []slot{ids, mask, {"aux_hidden_state", partAux, true}, {"hidden_state", partFinal, true}},
	}, {
		Name: "specforge-dflash", What: "SpecForge, DFlash and Domino", Files: rows, Engine: "specforge", Strategy: "dflash",
		NeedMask: true, NeedPair: true,
		slots: []slot{ids, mask, {"hidden_states", partAux, true}},
	}, {
		Name: "specforge-dspark", What: "SpecForge, DSpark", Files: rows, Engine: "specforge", Strategy: "dspark",
		Final: post, NeedFinal: true, NeedMask: true, NeedPair: true,
		slots: []slot{ids, mask, {"hidden_states", partAux, true}, {"target_last_hidden_states", partFinal, true}},
	}, {
		Name: "speculators", What: "speculators, states beside a dataset", Container: Safetensors, Engine: "speculators", Convention: format.Boundary,
		Files: "hidden_states/hs_<row>.safetensors beside a Hugging Face dataset",
		Final: []format.Norm{format.NormPre}, NeedFinal: true, NeedMask: true, Dataset: true,
		slots: []slot{{"hidden_states", partStack, false}, {"token_ids", partIDs, false}},
	}, {
		Name: "modelopt", What: "Model-Optimizer, offline", Files: "<conversation_id>.pt, any .pt below the directory", Engine: "modelopt",
		Final: []format.Norm{format.NormPost, format.NormPre}, NeedFinal: true,
		slots: []slot{
			ids, {"hidden_states", partFinal, false}, {"aux_hidden_states", partAux, false}, mask,
			{"conversation_id", partID, false}, {prenormKey, partPrenorm, false},
		},
	}, {
		Name: "angelslim", What: "AngelSlim, offline EAGLE-3", Files: "data_<i>.ckpt, any .ckpt below the directory", Engine: "angelslim", Strategy: "eagle3",
		Final: post, NeedFinal: true, NeedMask: true,
		slots: []slot{
			{"input_ids", partIDs, true}, {"loss_mask", partMask, true}, {"hidden_states", partAux, true}, {"target_hiddens", partFinal, true},
		},
	}, {
		Name: "torchspec", What: "TorchSpec, offline reader", Files: "data_<i>.ckpt, any .ckpt below the directory", Engine: "torchspec", Strategy: "eagle3",
		Final: post, NeedFinal: true, NeedMask: true,
		slots: []slot{ids, mask, {"aux_hidden_states", partAux, true}, {"hidden_states", partFinal, true}},
	}, {
		Name: "safetensors", What: "one tensor for each state, and what is known in the metadata", Container: Safetensors, Files: "<id>.safetensors",
		Final: every,
		slots: []slot{ids, {"loss_mask", partByteMask, false}, {part: partEach}, {part: partFacts}},
	}, {
		Name: "npy", What: "one NumPy array for each state, bfloat16 as uint16", Container: Arrays, Files: "<id>/<name>.npy",
		Final: every,
		slots: []slot{ids, {"loss_mask", partByteMask, false}, {part: partEach}},
	}}
}

// FindTarget is the description of a name. "specforge" means "specforge-eagle3".
func FindTarget(name string) (TargetDescription, error) {
	full := name
	if full == "specforge" {
		full = "specforge-eagle3"
	}
	all := Targets()
	names := make([]string, len(all))
	for i, t := range all {
		if t.Name == full {
			return t, nil
		}
		names[i] = t.Name
	}
	return TargetDescription{}, fmt.Errorf("target %q is not known, want one of %s", name, strings.Join(names, ", "))
}
