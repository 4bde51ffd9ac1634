package validate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Stats are the figures of an audit, as documents and reports show them. All shares
// are from 0 to 1; a null share has nothing that it could be a share of.
type Stats struct {
	Total      GroupStats    `json:"total"`
	Groups     []GroupStats  `json:"groups"` // by source, most tokens first, at most 50 and "other"
	Vocabulary VocabStats    `json:"vocabulary"`
	States     []StateStats  `json:"states"`
	Shards     []ShardStats  `json:"shards"`
	Short      []ShortSample `json:"short"`      // the first few
	Duplicates int           `json:"duplicates"` // samples that repeat another, from the findings
}

// GroupStats are the samples of one source: of one first directory of their paths,
// "." for those without.
type GroupStats struct {
	Name            string      `json:"name"`
	Samples         int64       `json:"samples"`
	Tokens          int64       `json:"tokens"`
	Bytes           int64       `json:"bytes"`            // of states
	WithMask        int64       `json:"with_mask"`        // samples that have a loss mask
	SupervisedShare *float64    `json:"supervised_share"` // of the tokens of samples that have a loss mask
	Short           int64       `json:"short"`            // samples of fewer than 8 tokens, or with none supervised
	Lengths         LengthStats `json:"lengths"`
}

// LengthStats are sequence lengths in tokens. Quantiles are exact below 32 and within
// 6 % above.
type LengthStats struct {
	Min  int         `json:"min"`
	P5   int         `json:"p5"`
	P50  int         `json:"p50"`
	P95  int         `json:"p95"`
	P99  int         `json:"p99"`
	Max  int         `json:"max"`
	Mean float64     `json:"mean"`
	Bins []LengthBin `json:"bins"`
}

// Text is a quantile of the lengths, which says when it is not exact.
func (l LengthStats) Text(quantile int) string {
	if quantile < 2*statSubBins || l.Min == l.Max {
		return strconv.Itoa(quantile)
	}
	return fmt.Sprintf("about %d", quantile)
}

// LengthBin counts the samples of From up to To-1 tokens.
type LengthBin struct {
	From  int   `json:"from"`
	To    int   `json:"to"`
	Count int64 `json:"count"`
}

// VocabStats say which token ids occur.
type VocabStats struct {
	Size       int          `json:"size"`           // of the target, 0 when unknown
	Distinct   int          `json:"distinct"`       // ids that occur
	Supervised int          `json:"supervised"`     // ids that occur where the loss mask is set
	Share      *float64     `json:"share"`          // of the size that occurs
	OutOfRange int64        `json:"out_of_range"`   // tokens whose id is negative or too large
	Top        []TokenCount `json:"top"`            // most frequent ids
	Curve      []RankShare  `json:"curve"`          // how much the most frequent ids cover
	Draft      *DraftStats  `json:"draft_coverage"` // null when no draft vocabulary was given
}

// TokenCount is how often an id occurs, and how often of that it is supervised.
type TokenCount struct {
	ID         int   `json:"id"`
	Count      int64 `json:"count"`
	Supervised int64 `json:"supervised"`
}

// RankShare is the share of tokens that the Ids most frequent ids cover, of all and of
// the supervised tokens, each with its own ranking.
type RankShare struct {
	IDs        int     `json:"ids"`
	All        float64 `json:"all"`
	Supervised float64 `json:"supervised"`
}

// DraftStats say how much of the data a draft's vocabulary can say.
type DraftStats struct {
	Size            int          `json:"size"`             // ids in the draft vocabulary
	Unseen          int          `json:"unseen"`           // of those, ids that never occur
	Share           *float64     `json:"share"`            // of all tokens
	SupervisedShare *float64     `json:"supervised_share"` // of supervised tokens
	Missing         []TokenCount `json:"missing"`          // most frequent ids outside, supervised ones first
}

// StateStats are the values of one state. An RMS is that of a row, over its channels.
type StateStats struct {
	Column        string        `json:"column"`
	Rows          int64         `json:"rows"`
	NonFiniteRows int64         `json:"non_finite_rows"` // left out of all else
	RMS           float64       `json:"rms"`             // mean over rows, position 0 left out
	MaxAbs        float64       `json:"max_abs"`
	Positions     []PositionRMS `json:"positions"`
	Channels      ChannelStats  `json:"channels"`
}

// PositionRMS is the mean RMS of the rows at positions From up to To-1.
type PositionRMS struct {
	From int     `json:"from"`
	To   int     `json:"to"`
	Rows int64   `json:"rows"`
	RMS  float64 `json:"rms"`
}

// ChannelStats are the channels over a few evenly spaced rows of each sample.
type ChannelStats struct {
	Rows      int64     `json:"rows"`
	MedianRMS float64   `json:"median_rms"` // over channels
	Outliers  []Channel `json:"outliers"`   // of at least 4 times the median, the strongest ten
}

// Channel is one channel, its RMS over rows, that over the median channel's (0 when
// the median is), and its share in the squares of all channels.
type Channel struct {
	Channel int     `json:"channel"`
	RMS     float64 `json:"rms"`
	Ratio   float64 `json:"ratio"`
	Energy  float64 `json:"energy"`
}

// ShardStats are the samples of one shard and the mean RMS of each state, in the order
// of the states, position 0 left out.
type ShardStats struct {
	Shard  int       `json:"shard"`
	Rows   int64     `json:"rows"`
	Tokens int64     `json:"tokens"`
	RMS    []float64 `json:"rms"`
}

// ShortSample is a sample that is too short, or that has nothing to learn.
type ShortSample struct {
	ID         string `json:"id"`
	Shard      int    `json:"shard"`
	Row        int    `json:"row"`
	Tokens     int    `json:"tokens"`
	Supervised *int   `json:"supervised"` // null: no loss mask
}

// Bounds of what is shown.
const (
	statGroupsShown  = 50
	statOutlierRatio = 4
)

// Stats are the figures of what the scan has seen.
func (s *StatScan) Stats() *Stats {
	s.flush()
	total := &statGroup{}
	total.merge(s.Other)
	groups := []GroupStats{}
	for name, g := range s.Groups {
		total.merge(g)
		groups = append(groups, g.stats(name))
	}
	slices.SortFunc(groups, func(a, b GroupStats) int {
		return cmp.Or(cmp.Compare(b.Tokens, a.Tokens), cmp.Compare(a.Name, b.Name))
	})
	rest := &statGroup{}
	rest.merge(s.Other)
	if len(groups) > statGroupsShown {
		for _, g := range groups[statGroupsShown:] {
			rest.merge(s.Groups[g.Name])
		}
		groups = groups[:statGroupsShown]
	}
	if rest.Samples > 0 {
		groups = append(groups, rest.stats("other"))
	}
	out := &Stats{Total: total.stats("all"), Groups: groups, Vocabulary: s.vocabulary(), Short: []ShortSample{}, States: []StateStats{}, Shards: []ShardStats{}}
	for i := range s.States {
		out.States = append(out.States, s.state(i))
	}
	for _, sh := range s.Shards {
		e := ShardStats{Shard: sh.Shard, Rows: sh.Rows, Tokens: sh.Tokens, RMS: make([]float64, len(sh.RMS))}
		for i, m := range sh.RMS {
			e.RMS[i] = m.mean()
		}
		out.Shards = append(out.Shards, e)
	}
	for _, e := range s.Short {
		short := ShortSample{ID: e.ID, Shard: e.Shard, Row: e.Row, Tokens: e.Tokens}
		if e.Supervised >= 0 {
			short.Supervised = &e.Supervised
		}
		out.Short = append(out.Short, short)
	}
	return out
}

func (g *statGroup) stats(name string) GroupStats {
	return GroupStats{
		Name: name, Samples: g.Samples, Tokens: g.Tokens, Bytes: g.Bytes, WithMask: g.Masked,
		SupervisedShare: statShare(g.Supervised, g.MaskTokens), Short: g.Short, Lengths: g.lengths(),
	}
}

func (g *statGroup) lengths() LengthStats {
	at := func(q float64) int { return min(max(g.Lengths.quantile(q), g.Shortest), g.Longest) }
	l := LengthStats{Min: g.Shortest, P5: at(0.05), P50: at(0.5), P95: at(0.95), P99: at(0.99), Max: g.Longest, Bins: []LengthBin{}}
	if g.Samples > 0 {
		l.Mean = float64(g.Tokens) / float64(g.Samples)
	}
	for b, c := range g.Lengths {
		if c > 0 {
			from, to := statBinEdges(b)
			l.Bins = append(l.Bins, LengthBin{From: from, To: to, Count: c})
		}
	}
	return l
}

func statShare(part, whole int64) *float64 {
	if whole <= 0 {
		return nil
	}
	share := float64(part) / float64(whole)
	return &share
}

func (s *StatScan) vocabulary() VocabStats {
	v := VocabStats{Size: s.Vocab, OutOfRange: s.OutOfRange}
	counts := []TokenCount{}
	for id, c := range s.All {
		if c > 0 {
			t := TokenCount{ID: id, Count: c}
			if id < len(s.Supervised) {
				t.Supervised = s.Supervised[id]
			}
			counts = append(counts, t)
			if t.Supervised > 0 {
				v.Supervised++
			}
		}
	}
	v.Distinct = len(counts)
	if s.Vocab > 0 {
		v.Share = statShare(int64(v.Distinct), int64(s.Vocab))
	}
	v.Draft = s.draft(counts)
	supervised := make([]int64, len(counts))
	for i, t := range counts {
		supervised[i] = t.Supervised
	}
	slices.SortFunc(counts, func(a, b TokenCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
	})
	slices.SortFunc(supervised, func(a, b int64) int { return cmp.Compare(b, a) })
	v.Top = slices.Clone(counts[:min(len(counts), statExamples)])
	v.Curve = statCurve(counts, supervised)
	return v
}

// statCurve takes both rankings at about 8 places per doubling.
func statCurve(counts []TokenCount, supervised []int64) []RankShare {
	curve := []RankShare{}
	var all, sup, allSum, supSum int64
	for i := range counts {
		allSum += counts[i].Count
		supSum += supervised[i]
	}
	next := 1
	for i := range counts {
		all += counts[i].Count
		sup += supervised[i]
		if i+1 < next && i+1 < len(counts) {
			continue
		}
		next = max(next+1, int(float64(next)*1.09))
		curve = append(curve, RankShare{IDs: i + 1, All: float64(all) / float64(max(1, allSum)), Supervised: float64(sup) / float64(max(1, supSum))})
	}
	return curve
}

// draft is the coverage by the draft vocabulary, nil when there is none.
func (s *StatScan) draft(counts []TokenCount) *DraftStats {
	if s.Draft == nil {
		return nil
	}
	d := &DraftStats{Missing: []TokenCount{}}
	for id := range 8 * len(s.Draft) {
		if s.inDraft(id) {
			d.Size++
			d.Unseen++
		}
	}
	var in, inSupervised, supervised int64
	all := s.OutOfRange
	for _, t := range counts {
		all += t.Count
		supervised += t.Supervised
		if s.inDraft(t.ID) {
			d.Unseen--
			in += t.Count
			inSupervised += t.Supervised
		} else {
			d.Missing = append(d.Missing, t)
		}
	}
	d.Share, d.SupervisedShare = statShare(in, all), statShare(inSupervised, supervised)
	slices.SortFunc(d.Missing, func(a, b TokenCount) int {
		return cmp.Or(cmp.Compare(b.Supervised, a.Supervised), cmp.Compare(b.Count, a.Count), cmp.Compare(a.ID, b.ID))
	})
	d.Missing = slices.Clone(d.Missing[:min(len(d.Missing), statExamples)])
	return d
}

func (s *StatScan) state(i int) StateStats {
	st := &s.States[i]
	out := StateStats{Column: s.Columns[i], Rows: st.NonFinite, NonFiniteRows: st.NonFinite, MaxAbs: float64(st.MaxAbs), Positions: []PositionRMS{}}
	var rms statMean
	for _, sh := range s.Shards {
		rms.merge(sh.RMS[i])
	}
	out.RMS = rms.mean()
	for b, m := range st.Positions {
		out.Rows += m.N
		if m.N > 0 {
			out.Positions = append(out.Positions, PositionRMS{From: 1 << b >> 1, To: 1 << b, Rows: m.N, RMS: m.mean()})
		}
	}
	out.Channels = st.channelStats()
	return out
}

func (st *statState) channelStats() ChannelStats {
	c := ChannelStats{Rows: st.ChannelRows, Outliers: []Channel{}}
	if st.ChannelRows <= 0 || len(st.Channels) == 0 {
		return c
	}
	all := make([]Channel, len(st.Channels))
	rms := make([]float64, len(st.Channels))
	var energy float64
	for i, sum := range st.Channels {
		v := sum.value()
		energy += v
		rms[i] = math.Sqrt(v / float64(st.ChannelRows))
		all[i] = Channel{Channel: i, RMS: rms[i], Energy: v}
	}
	slices.Sort(rms)
	c.MedianRMS = rms[(len(rms)-1)/2]
	strong := slices.DeleteFunc(all, func(ch Channel) bool { return ch.RMS == 0 || ch.RMS < statOutlierRatio*c.MedianRMS })
	slices.SortFunc(strong, func(a, b Channel) int {
		return cmp.Or(cmp.Compare(b.RMS, a.RMS), cmp.Compare(a.Channel, b.Channel))
	})
	for _, ch := range strong[:min(len(strong), statExamples)] {
		if c.MedianRMS > 0 {
			ch.Ratio = ch.RMS / c.MedianRMS
		}
		ch.Energy /= energy
		c.Outliers = append(c.Outliers, ch)
	}
	return c
}
