package validate

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"

	"hsx/format"
)

// Bounds of what the statistics keep, whatever the data holds.
const (
	statMostIDs     = 1 << 20 // token ids that are counted one by one; larger ones are out of range
	statGroupsKept  = 1024    // source groups that are told apart while scanning
	statNameBytes   = 128     // of a group's name
	statExamples    = 10      // short samples, top ids, outlier channels
	statChannelRows = 8       // rows of a sample and state whose channels are looked at
	statShort       = 8       // a sample of fewer tokens teaches a draft nothing
	statFresh       = 1 << 16 // tokens that are counted at once
)

// StatScan gathers the statistics of an audit. Its memory is bounded by the hidden
// size, the vocabulary and the number of shards. Every field adds without regard to
// order, so that scans of any parts of a dataset merge to that of the whole, and all
// are exported for JSON alone: [StatScan.Stats] has the figures for people.
type StatScan struct {
	HiddenSize int                   `json:"hidden_size"`
	Columns    []string              `json:"columns"`
	Vocab      int                   `json:"vocab"` // 0: unknown
	Draft      []byte                `json:"draft"` // bit i: id i is in the draft vocabulary; null: not given
	Groups     map[string]*statGroup `json:"groups"`
	Other      *statGroup            `json:"other"` // of groups beyond those that are kept
	All        []int64               `json:"all"`   // by token id
	Supervised []int64               `json:"supervised"`
	OutOfRange int64                 `json:"out_of_range"` // tokens with a negative or too large id
	States     []statState           `json:"states"`
	Shards     []statShard           `json:"shards"` // ascending
	Short      []statSample          `json:"short"`  // the first short samples
	fresh      []uint32              // tokens that are not in All and Supervised yet: 2 · id + whether it is supervised
	values     []float32             // scratch, [HiddenSize]
	squares    []float64             // scratch, [HiddenSize]
}

// statGroup is what the samples of one source have.
type statGroup struct {
	Samples    int64       `json:"samples"`
	Tokens     int64       `json:"tokens"`
	Bytes      int64       `json:"bytes"`         // of states
	Masked     int64       `json:"masked"`        // samples that have a loss mask
	MaskTokens int64       `json:"masked_tokens"` // tokens of those
	Supervised int64       `json:"supervised"`    // tokens of those with a mask other than 0
	Short      int64       `json:"short"`
	Shortest   int         `json:"shortest"` // tokens
	Longest    int         `json:"longest"`
	Lengths    statLengths `json:"lengths"`
}

// statState is what the rows of one state have. Rows with NaN or Inf are left out of
// all but their count.
type statState struct {
	NonFinite   int64      `json:"non_finite"`
	MaxAbs      float32    `json:"max_abs"`
	Positions   []statMean `json:"positions"`    // of the rows' RMS, by bits.Len of the position
	ChannelRows int64      `json:"channel_rows"` // evenly spaced rows of each sample, not row 0
	Channels    []statSum  `json:"channels"`     // of squares, over those rows
}

// statShard is the RMS of a shard's rows, row 0 of longer samples left out.
type statShard struct {
	Shard  int        `json:"shard"`
	Rows   int64      `json:"rows"` // samples
	Tokens int64      `json:"tokens"`
	RMS    []statMean `json:"rms"` // by state
}

type statSample struct {
	Shard      int    `json:"shard"`
	Row        int    `json:"row"`
	ID         string `json:"id"`
	Tokens     int    `json:"tokens"`
	Supervised int    `json:"supervised"` // -1: no mask
}

// newStatScan makes a scan for samples of layout l. The target has v token ids, 0 when
// that is unknown; inDraft says whether the draft can say one, nil when there is no
// draft.
func newStatScan(l format.Layout, v int, inDraft func(tok int32) bool) *StatScan {
	s := &StatScan{
		HiddenSize: l.HiddenSize, Columns: make([]string, len(l.States)), Vocab: v,
		Groups: map[string]*statGroup{}, Other: &statGroup{}, States: make([]statState, len(l.States)),
	}
	for i, st := range l.States {
		s.Columns[i] = st.Column()
		s.States[i].Channels = make([]statSum, l.HiddenSize)
	}
	if inDraft != nil {
		s.Draft = make([]byte, (s.ids()+7)/8)
		for tok := range s.ids() {
			if inDraft(int32(tok)) {
				s.Draft[tok/8] |= 1 << (tok % 8)
			}
		}
	}
	return s
}

// ids is how many token ids are counted one by one.
func (s *StatScan) ids() int {
	if s.Vocab <= 0 {
		return statMostIDs
	}
	return min(s.Vocab, statMostIDs)
}

func (s *StatScan) inDraft(tok int) bool {
	return tok/8 < len(s.Draft) && s.Draft[tok/8]>>(tok%8)&1 != 0
}

func (s *StatScan) sample(f *sampleFacts, _ *Collector) {
	supervised := s.tokens(f.Sample)
	s.group(f, supervised)
	shard := s.shard(f.Ref.Shard)
	shard.Rows++
	shard.Tokens += int64(len(f.Sample.Tokens))
	for i := range min(len(f.Sample.Hidden), len(s.States)) {
		s.States[i].rows(f.States[i], s.HiddenSize, &shard.RMS[i])
		s.channels(&s.States[i], f.Sample.Hidden[i].Rows, f.States[i])
	}
}

// tokens takes ids and returns the number of supervised ones, -1 without a mask.
func (s *StatScan) tokens(sample *format.Sample) int {
	limit, supervised := s.ids(), 0
	if sample.LossMask == nil {
		supervised = -1
	}
	for i, tok := range sample.Tokens {
		mark := uint32(0)
		if i < len(sample.LossMask) && sample.LossMask[i] != 0 {
			supervised++
			mark = 1
		}
		if tok >= 0 && int(tok) < limit {
			s.fresh = append(s.fresh, 2*uint32(tok)+mark)
		} else {
			s.OutOfRange++
		}
	}
	if len(s.fresh) >= statFresh {
		s.flush()
	}
	return supervised
}

func (s *StatScan) flush() {
	s.count(s.fresh)
	s.fresh = s.fresh[:0]
}

// count counts fresh tokens. The tables are as long as the largest id, and many more than
// the tokens of a span of wide states, which does without them.
func (s *StatScan) count(fresh []uint32) {
	if len(fresh) == 0 {
		return
	}
	n := int(slices.Max(fresh)/2) + 1
	s.All, s.Supervised = statGrow(s.All, n), statGrow(s.Supervised, n)
	for _, tok := range fresh {
		s.All[tok/2]++
		s.Supervised[tok/2] += int64(tok % 2)
	}
}

// group counts a sample for its source.
func (s *StatScan) group(f *sampleFacts, supervised int) {
	n := len(f.Sample.Tokens)
	one := statGroup{Samples: 1, Tokens: int64(n), Bytes: f.Sample.Bytes(), Shortest: n, Longest: n}
	if supervised >= 0 {
		one.Masked, one.MaskTokens, one.Supervised = 1, int64(n), int64(supervised)
	}
	if n < statShort || supervised == 0 {
		one.Short = 1
		s.short(statSample{f.Ref.Shard, f.Ref.Row, statName(f.Sample.ID), n, supervised})
	}
	g := s.groupOf(statSource(f.Sample.Input.Path))
	g.merge(&one)
	g.Lengths.add(n)
}

// statSource is the group of a source: its first directory, "." when it has none.
func statSource(path string) string {
	first, _, nested := strings.Cut(strings.TrimLeft(path, "/"), "/")
	if !nested || first == "" {
		return "."
	}
	return statName(first)
}

// statName bounds a name from the data, and makes it survive JSON.
func statName(name string) string {
	return strings.ToValidUTF8(name[:min(len(name), statNameBytes)], "�")
}

// groupOf is the group of a name, new when there is none. Beyond the bound the
// alphabetically last group goes into the rest, with all that it has: which groups are
// left, and what they hold, does then not depend on the order in which they came.
func (s *StatScan) groupOf(name string) *statGroup {
	if g := s.Groups[name]; g != nil {
		return g
	}
	g := &statGroup{}
	s.Groups[name] = g
	if len(s.Groups) <= statGroupsKept {
		return g
	}
	last := ""
	for name := range s.Groups {
		last = max(last, name)
	}
	s.Other.merge(s.Groups[last])
	delete(s.Groups, last)
	if last == name {
		return s.Other
	}
	return g
}

func (g *statGroup) merge(o *statGroup) {
	switch {
	case o.Samples == 0:
		return
	case g.Samples == 0:
		g.Shortest = o.Shortest
	}
	g.Samples += o.Samples
	g.Tokens += o.Tokens
	g.Bytes += o.Bytes
	g.Masked += o.Masked
	g.MaskTokens += o.MaskTokens
	g.Supervised += o.Supervised
	g.Short += o.Short
	g.Shortest, g.Longest = min(g.Shortest, o.Shortest), max(g.Longest, o.Longest)
	g.Lengths.merge(o.Lengths)
}

// short keeps the first examples in the order of the dataset.
func (s *StatScan) short(e statSample) {
	i, found := slices.BinarySearchFunc(s.Short, e, func(a, b statSample) int {
		return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Row, b.Row))
	})
	if !found && i < statExamples {
		s.Short = slices.Insert(s.Short, i, e)
		s.Short = s.Short[:min(len(s.Short), statExamples)]
	}
}

// shard is the entry of a shard, new when there is none. It is valid until the next.
func (s *StatScan) shard(n int) *statShard {
	i, found := slices.BinarySearchFunc(s.Shards, n, func(a statShard, n int) int { return cmp.Compare(a.Shard, n) })
	if !found {
		s.Shards = slices.Insert(s.Shards, i, statShard{Shard: n, RMS: make([]statMean, len(s.States))})
	}
	return &s.Shards[i]
}

// rows takes the RMS of every row, by its position and for its shard.
func (st *statState) rows(facts []rowFacts, width int, shard *statMean) {
	st.Positions = statGrow(st.Positions, min(len(facts), 1)+bits.Len(uint(max(0, len(facts)-1))))
	for i := range facts {
		f := &facts[i]
		if f.NonFinite > 0 {
			st.NonFinite++
			continue
		}
		rms := math.Sqrt(f.SumSq / float64(width))
		st.MaxAbs = max(st.MaxAbs, f.MaxAbs)
		st.Positions[bits.Len(uint(i))].add(rms)
		if i > 0 || len(facts) == 1 {
			shard.add(rms)
		}
	}
}

// channels adds the squares of a few evenly spaced rows to the sums by channel. The rows
// of a sample are added as floats, always in the same order, then all at once.
func (s *StatScan) channels(st *statState, r format.Rows, facts []rowFacts) {
	if r.Width != s.HiddenSize {
		return
	}
	s.values, s.squares = statGrow(s.values, r.Width), statGrow(s.squares, r.Width)
	clear(s.squares)
	n := int64(0)
	for i := range r.Spread(statChannelRows) {
		if facts[i].NonFinite > 0 {
			continue
		}
		r.DType.Floats(s.values, r.Row(i))
		squares := s.squares[:len(s.values)]
		for c, v := range s.values {
			squares[c] += float64(v) * float64(v)
		}
		n++
	}
	if n == 0 {
		return
	}
	st.ChannelRows += n
	for c, v := range s.squares {
		st.Channels[c].add(v)
	}
}

// add takes over what another statistics scan of the same layout has.
func (s *StatScan) add(later scan) {
	o, ok := later.(*StatScan)
	if !ok {
		return
	}
	for name, g := range o.Groups {
		s.groupOf(name).merge(g)
	}
	s.Other.merge(o.Other)
	s.All, s.Supervised = statAddCounts(s.All, o.All), statAddCounts(s.Supervised, o.Supervised)
	s.count(o.fresh)
	s.OutOfRange += o.OutOfRange
	for i := range s.States {
		s.States[i].merge(&o.States[i])
	}
	for i := range o.Shards {
		from := &o.Shards[i]
		to := s.shard(from.Shard)
		to.Rows += from.Rows
		to.Tokens += from.Tokens
		for k := range to.RMS {
			to.RMS[k].merge(from.RMS[k])
		}
	}
	for _, e := range o.Short {
		s.short(e)
	}
}

func (st *statState) merge(o *statState) {
	st.NonFinite += o.NonFinite
	st.MaxAbs = max(st.MaxAbs, o.MaxAbs)
	st.Positions = statGrow(st.Positions, len(o.Positions))
	for i, m := range o.Positions {
		st.Positions[i].merge(m)
	}
	st.ChannelRows += o.ChannelRows
	for c, v := range o.Channels {
		st.Channels[c].merge(v)
	}
}

// finish reports nothing: statistics are not findings.
func (s *StatScan) finish(opener, *Collector) {}
