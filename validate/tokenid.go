package validate

import (
	"fmt"

	"hsx/format"
)

const (
	identityReach    = 2   // how far a shift is looked for, in tokens
	identityMin      = 8   // rows that a verdict on a sample needs
	identityClear    = 0.8 // share of rows whose token ranks first where the block tells
	identityFar      = 0.3 // at most this share ranks first where the token is another
	identityChance   = 0.05
	identitySuspects = 64 // kept until it is known whether the block tells
)

// Measured on a 5-layer model, share of tokens that rank first of 512: own token P_0
// 0.998, P_1 0.90, P_2 0.42; any other token at most 0.05. The mean rank of another
// sample's tokens is 0.16 of the table, that of the own at P_2 0.02.

// identityTally counts how the embedding row of one token ranks for some states.
type identityTally struct {
	Rows  int `json:"rows"`
	First int `json:"first"` // of them, where no other row lies nearer
	Ranks int `json:"ranks"` // sum over the rows
}

func (t identityTally) share() float64 {
	if t.Rows == 0 {
		return 0
	}
	return float64(t.First) / float64(t.Rows)
}

// identityTallies are those of the tokens at t-2 to t+2 for the state at t.
type identityTallies [2*identityReach + 1]identityTally

// at is the tally of the token s places on.
func (ts *identityTallies) at(s int) *identityTally { return &ts[s+identityReach] }

// best is the shift whose token ranks first most often.
func (ts *identityTallies) best() (shift int) {
	for s := -identityReach; s <= identityReach; s++ {
		if ts.at(s).Rows >= identityMin && ts.at(s).share() > ts.at(shift).share() {
			shift = s
		}
	}
	return shift
}

// identitySuspect is a sample whose states know none of its tokens.
type identitySuspect struct {
	Sample string        `json:"sample"`
	Own    identityTally `json:"own"`
}

// identityScan ranks, for states of shallow layers, the embedding row of their token
// among others by cosine. It is silent where no block is shallow enough to tell.
//
// Whether the shallowest block tells is seen from the data: other samples must pass.
// Deep blocks know the next token better than their own, so a sample in which any
// block knows its own tokens is not shifted, and only the shallow ones prove a shift.
type identityScan struct {
	layout format.Layout
	w      *Weights

	Clear    int               `json:"clear"`    // samples whose shallowest block knows its own tokens
	Vague    int               `json:"vague"`    // samples in which it is neither here nor there
	Strange  int               `json:"strange"`  // samples that are suspects
	Suspects []identitySuspect `json:"suspects"` // the first of them
}

// shallow is the deepest layer of which a shift is believed.
func (d *identityScan) shallow() format.Layer {
	return format.Layer(max(2, d.w.Target.Layers/8))
}

func (d *identityScan) sample(f *sampleFacts, out *Collector) {
	if !out.Enabled(ruleTokenShift) && !out.Enabled(ruleOtherSample) {
		return
	}
	var best identityTallies
	shift, column := 0, ""
	strange := true
	for i, st := range d.layout.States {
		shallow := st.Role == format.RoleLayer && st.Layer <= d.shallow()
		if i == 0 && !shallow {
			return
		}
		if st.Role == format.RoleFinal {
			break
		}
		ts := d.judge(f, i)
		own := ts.at(0)
		if own.Rows < identityMin {
			if i == 0 {
				return
			}
			continue
		}
		if own.share() >= identityClear {
			if i == 0 {
				d.Clear++
			}
			return
		}
		s := ts.best()
		strange = strange && ts.at(s).share() <= identityFar
		if shallow && s != 0 && ts.at(s).share() >= identityClear && own.share() <= identityFar && ts.at(s).share() > best.at(shift).share() {
			best, shift, column = ts, s, st.Column()
		}
		if i == 0 {
			strange = strange && float64(own.Ranks) >= identityChance*float64(own.Rows*len(d.w.ids))
			if best == (identityTallies{}) {
				best = ts
			}
		}
	}
	switch {
	case shift != 0:
		out.Add(Finding{
			Rule: ruleTokenShift, Severity: Error, Sample: f.Sample.ID, Column: column, Token: -1,
			Message: fmt.Sprintf("states are shifted by %+d against the tokens: row t lies nearest to the token at t%+d in %d of %d rows, to its own in %d of %d",
				shift, shift, best.at(shift).First, best.at(shift).Rows, best.at(0).First, best.at(0).Rows),
			Do: "move the tokens and the mask, or capture again",
		})
	case strange:
		d.Strange++
		if len(d.Suspects) < identitySuspects {
			d.Suspects = append(d.Suspects, identitySuspect{f.Sample.ID, *best.at(0)})
		}
	default:
		d.Vague++
	}
}

func (d *identityScan) add(later scan) {
	o, ok := later.(*identityScan)
	if !ok {
		return
	}
	d.Clear += o.Clear
	d.Vague += o.Vague
	d.Strange += o.Strange
	d.Suspects = append(d.Suspects, o.Suspects[:min(len(o.Suspects), identitySuspects-len(d.Suspects))]...)
}

// finish reports the suspects if the block tells: of the samples that are not
// suspects, nearly all have to be clear.
func (d *identityScan) finish(_ opener, out *Collector) {
	if d.Clear == 0 || d.Clear < 4*d.Vague {
		return
	}
	col := d.layout.States[0].Column()
	for _, s := range d.Suspects {
		out.Add(Finding{
			Rule: ruleOtherSample, Severity: Error, Sample: s.Sample, Column: col, Token: -1,
			Message: fmt.Sprintf("states do not match the tokens: the own token ranks first in %d of %d rows and %.0f of %d in the mean, wanted first nearly always, as in %d of the samples",
				s.Own.First, s.Own.Rows, float64(s.Own.Ranks)/float64(s.Own.Rows), len(d.w.ids), d.Clear),
			Do: fmt.Sprintf("the states are another sample's (%d samples are like that): pair them again, or capture again", d.Strange),
		})
	}
}

// identityRows are up to n rows of a state on which its token can be told from its
// neighbours: not the first, and not in a run of one token, as padding and the
// places of images are.
func identityRows(f *sampleFacts, state, n int) []int {
	var out []int
	for t := 1; t < f.Sample.Hidden[state].Rows.N; t++ {
		id, ok := tokenOf(f.Sample, t)
		before, okBefore := tokenOf(f.Sample, t-1)
		after, okAfter := tokenOf(f.Sample, t+1)
		if ok && (!okBefore || before != id) && (!okAfter || after != id) && weightsUsable(f, state, t) {
			out = append(out, t)
		}
	}
	return weightsSpread(out, n)
}

// judge ranks the tokens around each row that is looked at.
func (d *identityScan) judge(f *sampleFacts, state int) identityTallies {
	h := d.layout.HiddenSize
	x, row := make([]float32, h), make([]float32, h)
	scores := make([]float32, len(d.w.ids))
	var ts identityTallies
	r := f.Sample.Hidden[state].Rows
	for _, t := range identityRows(f, state, min(max(1<<15/h, identityMin+2), 64)) {
		own, _ := tokenOf(f.Sample, t)
		r.DType.Floats(x, r.Row(t))
		for i, neg := range d.w.embed.rows {
			scores[i] = weightsDot(x, neg) * d.w.embed.inv[i]
		}
		for s := -identityReach; s <= identityReach; s++ {
			id, ok := tokenOf(f.Sample, t+s)
			if !ok || s != 0 && id == own || !weightsRow(row, d.w.Embed, id) {
				continue
			}
			rank := weightsRank(scores, d.w.ids, id, weightsDot(x, row)*weightsInverse(row))
			tally := ts.at(s)
			tally.Rows++
			tally.Ranks += rank
			if rank == 0 {
				tally.First++
			}
		}
	}
	return ts
}

// weightsRank is the number of scores above that of the true row, which may be among
// them under its id.
func weightsRank(scores []float32, ids []int32, id int32, score float32) int {
	n := 0
	for i, s := range scores {
		if s > score && ids[i] != id {
			n++
		}
	}
	return n
}
