package producer

import (
	"fmt"

	"hsx/format"
)

// Container is the encoding that a dump came in, where it decides what the names
// can mean.
type Container uint8

// The containers.
const (
	Torch       Container = iota // an archive of torch.save
	Safetensors                  // a safetensors file
	Arrays                       // an .npz, or a directory of .npy: one record of named tensors
	JSON                         // an answer of an SGLang server: input_ids int64 [T], hidden_states float32 [T, W]
)

// Dump is one decoded container and what lies beside it.
type Dump struct {
	Container Container
	Value     format.Value      // *format.Record, or []format.Value of records
	Metadata  map[string]string // of a safetensors file
	Row       *Row              // this file's row of the dataset beside it; nil when there is none
	Siblings  Siblings
}

// Row is one row of the Hugging Face dataset that speculators writes beside its
// state files.
type Row struct {
	Index    int
	Tokens   []int32
	LossMask []byte // nil, or one value per token
}

// Siblings are facts from files that a producer writes beside its samples. A fact
// is used only for dumps of the producer that writes it.
type Siblings struct {
	V1        *V1Config          // data_config.json of speculators v1
	Automodel *AutomodelManifest // manifest.json of Automodel
}

// Facts are what the user says about a dump. A zero field means that nobody said.
type Facts struct {
	Producer   string            // the name of a producer, instead of recognition
	Layers     format.Layers     // of the aux states, in the order of the dump
	Convention format.Convention // in which Layers were given; for messages and records
	Final      Final
	Target     format.Target
	DType      format.DType // what untyped numbers are: uint16 arrays, numbers in JSON
	Map        []Mapping    // names of tensors that no producer gives
	// TrimPadding drops the trailing run of positions with id 0 and mask 0. It needs
	// a loss mask, and keeps at least one position.
	TrimPadding bool
}

// Final is what the user says about the final state.
type Final uint8

// The answers. FinalNone means that no state of the dump is to be read as the final:
// every slot is an aux state, and a tensor that can only be the final is left out.
const (
	FinalUnsaid Final = iota
	FinalPre
	FinalPost
	FinalNone
)

// String is "", "pre", "post" or "none".
func (f Final) String() string {
	switch f {
	case FinalPre:
		return "pre"
	case FinalPost:
		return "post"
	case FinalNone:
		return "none"
	}
	return ""
}

// ParseFinal reads "pre", "post", "none" or "" (nobody said).
func ParseFinal(s string) (Final, error) {
	for _, f := range []Final{FinalUnsaid, FinalPre, FinalPost, FinalNone} {
		if s == f.String() {
			return f, nil
		}
	}
	return FinalUnsaid, fmt.Errorf("final state %q is not known, want pre, post or none", s)
}

func (f Final) there() bool { return f == FinalPre || f == FinalPost }

// Description is one line of the table of producers.
type Description struct {
	Name      string
	What      string
	Keys      string      // the key set by which it is recognised
	Norm      format.Norm // of the final state, by the producer's habit
	Numbering string      // how the producer's own config numbers layers
}

// Describe is the table of all layouts, in the order in which they are tried. A
// name that has two layouts has two lines.
func Describe() []Description {
	all := specs()
	ds := make([]Description, len(all))
	for i, s := range all {
		ds[i] = Description{Name: s.name, What: s.title, Keys: s.keys(), Norm: s.norm, Numbering: s.numbering}
	}
	return ds
}

// Names are the names that [Facts].Producer can have, each once.
func Names() []string {
	var names []string
	seen := make(map[string]bool)
	for _, s := range specs() {
		if !seen[s.name] {
			seen[s.name] = true
			names = append(names, s.name)
		}
	}
	return names
}
