package simserver

import (
	"hash/fnv"
	"strings"
)

// The marks around the thinking.
const (
	thinkOpens  = "<think>"
	thinkCloses = "</think>"
)

// step is one step of the target after the prefill.
type step struct {
	drafted  int
	accepted int // drafts that became part of the answer
}

// emits is the number of tokens that the step adds.
func (s step) emits() int { return s.accepted + 1 }

// answer is all that follows from a prompt: the text of each token, and the steps in
// which they come. The first token is that of the prefill, so that
// len(tokens) = 1 + len(steps) + Σ accepted.
type answer struct {
	tokens []string // the end token, where there is one, has no text
	think  int      // the first of them that are thinking
	steps  []step
	finish string // stop or length
}

// dice are random numbers that depend on the seed and the prompt alone, so that two
// servers with the same seed agree on them.
type dice uint64

// What is drawn.
const (
	drawLength = iota
	drawWord
	drawIdle
	drawAccept
	drawRequest
	drawPhase
)

func newDice(seed uint64, prompt string) dice {
	h := fnv.New64a()
	_, _ = h.Write([]byte(prompt)) // a hash never fails
	return dice(mix(seed ^ mix(h.Sum64())))
}

// at returns the draw of a kind at place i, j.
func (d dice) at(kind, i, j int) uint64 {
	return mix(uint64(d) ^ mix(uint64(kind)<<56^uint64(i)<<16^uint64(j)))
}

// unit is [dice.at] in [0, 1).
func (d dice) unit(kind, i, j int) float64 {
	return float64(d.at(kind, i, j)>>11) / (1 << 53)
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// compose returns the answer to what is asked, of at most limit tokens.
func (s *Server) compose(q ask, limit int) answer {
	d := newDice(s.opt.Seed, q.prompt)
	think := s.opt.Think
	if q.noThinking {
		think = 0
	}
	span := uint64(s.opt.MaxTokens - s.opt.MinTokens + 1)
	length := think + s.opt.MinTokens + int(d.at(drawLength, 0, 0)%span)
	a := answer{think: think, finish: "stop"}
	if q.ignoreEOS || s.opt.Faults.Loop || length > limit {
		length = limit
		a.finish = "length"
	}
	a.think = min(think, length)
	a.tokens = make([]string, length)
	own := strings.Fields(q.prompt)
	for i := range a.tokens {
		a.tokens[i] = s.word(d, own, i, think)
	}
	if a.finish == "stop" {
		a.tokens[length-1] = ""
	}
	a.steps = s.speculate(d, length-1)
	if s.opt.Faults.TruncateSilently {
		a.finish = "stop"
	}
	return a
}

// word is the text of the i-th token of an answer whose first think tokens are thinking.
func (s *Server) word(d dice, own []string, i, think int) string {
	switch f := s.opt.Faults; {
	case i == think-1:
		return thinkCloses
	case i == 0 && think > 0:
		return thinkOpens
	case f.Loop:
		return [2]string{" round", " again"}[i%2]
	case f.Echo && len(own) > 0:
		return " " + own[i%len(own)]
	}
	w := s.words[d.at(drawWord, i, 0)%uint64(len(s.words))]
	if d.unit(drawWord, i, 1) < 1.0/12 {
		w += "."
	}
	return " " + w
}

// speculate returns the steps that emit so many tokens. A last step that would emit
// more is cut, and what was cut is not counted as accepted.
func (s *Server) speculate(d dice, tokens int) []step {
	var steps []step
	for left := tokens; left > 0; {
		st := step{}
		if d.unit(drawIdle, len(steps), 0) >= s.opt.Undrafted {
			st.drafted = s.opt.Steps
		}
		if reach := s.opt.Reach; st.drafted > 0 && (reach == 0 || tokens-left < reach) {
			st.accepted = min(s.accepts(d, len(steps)), left-1)
		}
		left -= st.emits()
		steps = append(steps, st)
	}
	return steps
}

// accepts is the number of drafts that step i accepts.
func (s *Server) accepts(d dice, i int) int {
	k := s.opt.Steps
	switch {
	case s.opt.Faults.Loop:
		return k
	case s.opt.Faults.Synthetic:
		mean := s.meanAccepted()
		return int(float64(i+1)*mean) - int(float64(i)*mean)
	}
	n := 0
	for n < k && d.unit(drawAccept, i, n) < s.acceptance(n) {
		n++
	}
	return n
}

// acceptance is the chance of position k, counted from 0, given the one before it.
func (s *Server) acceptance(k int) float64 {
	if len(s.opt.Accept) == 0 {
		return 0
	}
	return s.opt.Accept[min(k, len(s.opt.Accept)-1)]
}

// meanAccepted is the expected number of accepted drafts of a step.
func (s *Server) meanAccepted() float64 {
	sum, joint := 0.0, 1.0
	for k := range s.opt.Steps {
		joint *= s.acceptance(k)
		sum += joint
	}
	return sum
}
