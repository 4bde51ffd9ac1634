// Package export writes the samples of a dataset as the files that a trainer reads:
// each complete or absent, durable when the export says so, and with a journal beside
// them from which the same export goes on. What the files are named and hold is the habit
// of their reader; nothing that it needs is invented.
//
// A [Plan] says what would be written, and why not what else; its Run writes it. Beside the
// data lie two files: hsx-export.jsonl, the journal, which says what each file holds, and
// hsx-export.json, a [Mapping], which is written last.
package export

import (
	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/atomicfile"
)

// Options are the choices of an export. To has to be given; the zero value of the rest
// takes every sample as it is.
type Options struct {
	To     string        // one of [Targets]
	Layers format.Layers // to write, all of them captured; nil: every one but the embedding
	Final  format.Norm   // to write the final in; unknown: as it is, or else as the reader takes it
	Target format.Target // what is known of it beside the dataset; zero fields are unknown

	// Norm gives the final norm of the target, when one is needed to write after it what
	// was captured before it; nil when there is none.
	Norm func() (*Norm, error)

	Select    string // a pattern of ids, * matching any text; "": all
	MinTokens int    // leaves shorter samples out
	MaxTokens int    // leaves longer samples out, unless 0
	Limit     int    // of the samples that are left the first ones, unless 0
	Shuffle   bool   // number samples in an order that Seed and their digests decide
	Seed      uint64
	Splits    []Split // into directories of these names; none: no such directories

	VocabMap  *format.Record // tensors d2t and t2d of a draft, for readers that want them; nil: not written
	WrittenBy string         // for the mapping beside the data

	Refused  func(Refusal)           // is told of each sample that the reader would not take; nil: nobody
	Progress func(done, total int64) // bytes of states; one call at a time; nil: nobody

	fs atomicfile.FS // set by tests
}

// Reader is one tool, and what makes it read the exported layers.
type Reader struct {
	Name  string `json:"name"`
	Write string `json:"write"` // "write KEY: [ids]" into the draft's config, or what else to do
}

// Refusal is a sample that was selected and that the reader would not take.
type Refusal struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// datasets is the target that [producer.Emit] does not make: whole rows of an Arrow table.
const datasets = "datasets"

// Targets is the table of what can be exported to: those of [producer.Targets], and
// "datasets".
func Targets() []producer.TargetDescription {
	all := producer.Targets()
	plain, _ := producer.FindTarget(anyStates) // it is in the table
	plain.Name, plain.What = datasets, "Hugging Face datasets: one row for each sample, bfloat16 as uint16"
	plain.Files = "data-<i>-of-<n>.arrow, which load_from_disk opens"
	return append(all, plain)
}

// anyStates is a target that takes any states, as "datasets" does.
const anyStates = "safetensors"

// findTarget is the description of a name, and the name that [producer.Choose] knows it by.
func findTarget(name string) (t producer.TargetDescription, choose string, err error) {
	if name == datasets {
		all := Targets()
		return all[len(all)-1], anyStates, nil
	}
	t, err = producer.FindTarget(name)
	return t, t.Name, err
}
