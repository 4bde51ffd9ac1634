package validate

import "hsx/format"

// tokenMost bounds the ids that are counted when the vocabulary is not known.
const tokenMost = 1 << 20

// tokenScan counts what is read, and what the rules of a draft's checkpoint need of it.
type tokenScan struct {
	Read
	Longest    int     // tokens of the longest sample
	Supervised []int64 // by id; nil when no draft is given

	vocab int
}

func newTokenScan(in Input) *tokenScan {
	t := &tokenScan{}
	if in.Draft != nil {
		if t.vocab = in.Target.VocabSize; t.vocab <= 0 || t.vocab > tokenMost {
			t.vocab = tokenMost
		}
	}
	return t
}

// count counts an id n times.
func (k *tokenScan) count(id int, n int64) {
	if id < 0 || id >= k.vocab {
		return // out of range, which is another rule's
	}
	if id >= len(k.Supervised) {
		k.Supervised = append(k.Supervised, make([]int64, id+1-len(k.Supervised))...)
	}
	k.Supervised[id] += n
}

func (k *tokenScan) sample(f *sampleFacts, _ *Collector) {
	s := f.Sample
	k.Read.add(readOf(s))
	k.Longest = max(k.Longest, len(s.Tokens))
	if k.vocab == 0 {
		return
	}
	for t, id := range s.Tokens {
		if s.LossMask == nil || s.LossMask[t] != 0 {
			k.count(int(id), 1)
		}
	}
}

func (k *tokenScan) add(later scan) {
	o := later.(*tokenScan)
	k.Read.add(o.Read)
	k.Longest = max(k.Longest, o.Longest)
	for id, n := range o.Supervised {
		if n > 0 {
			k.count(id, n)
		}
	}
}

func (*tokenScan) finish(opener, *Collector) {}

// Read is how much was looked at.
type Read struct {
	Samples int64 `json:"samples"`
	Tokens  int64 `json:"tokens"`
	Bytes   int64 `json:"bytes"` // of states
}

func (r *Read) add(o Read) {
	r.Samples += o.Samples
	r.Tokens += o.Tokens
	r.Bytes += o.Bytes
}

// readOf is one sample.
func readOf(s *format.Sample) Read {
	return Read{Samples: 1, Tokens: int64(len(s.Tokens)), Bytes: s.Bytes()}
}
