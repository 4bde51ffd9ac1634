package validate

import (
	"math"

	"hsx/format"
)

// rowFacts is what one pass over a row of a state gives: all that most rules need.
type rowFacts struct {
	Hash      uint64  // XXH3-64 of the row's bytes: equal rows, equal hashes
	SumSq     float64 // of the finite values
	MaxAbs    float32 // of the finite values
	NonFinite int32   // number of NaN and Inf values
	Saturated int32   // fp16 values at ±65504; 0 for other types
	Zero      bool    // every value is +0 or -0
	Constant  bool    // every value has the same bits, and there are several
}

// rms is the root of the mean of the squares of n channels.
func (f *rowFacts) rms(n int) float64 { return math.Sqrt(f.SumSq / float64(n)) }

// sampleFacts is a sample with the facts of each row of each state.
type sampleFacts struct {
	Ref    Ref
	Sample *format.Sample
	States [][]rowFacts // [state][token]
}

// tokenOf is the token whose state row t is, and ok false when the sample does not hold
// it. Some producers store ids shifted left by one against the states: the token of row 0
// is then not in the sample.
func tokenOf(s *format.Sample, t int) (id int32, ok bool) {
	if s.Shifted {
		t--
	}
	if t < 0 || t >= len(s.Tokens) {
		return 0, false
	}
	return s.Tokens[t], true
}

// Ref is the place of a sample in its dataset.
type Ref struct{ Shard, Row int }

// scan is what a group of data rules keeps while samples go by. Each worker has one
// of its own, and scans of later samples are added in the order of the dataset, so
// that the result does not depend on the number of workers.
type scan interface {
	// sample looks at one sample and reports what it shows by itself. The states alias
	// a map: values are copied, not kept.
	sample(f *sampleFacts, out *Collector)
	// add takes over what a scan of the same kind kept of later samples.
	add(later scan)
	// finish reports what only all samples together show. open reads a sample again.
	finish(open opener, out *Collector)
}

// opener reads one sample of the dataset and hands it to use, while its memory lives.
type opener func(ref Ref, use func(s *format.Sample)) error
