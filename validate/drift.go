package validate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"hsx/shard"
)

const (
	// driftRatio is the least relative gap in RMS between two groups of shards. Texts
	// of another kind move it by less; neighbouring layers are 1 to 44 % apart, a state
	// before the norm and after it 30 % or far more. Layers that are nearer to each
	// other need prefix consistency or a reference.
	driftRatio = 0.15
	// driftFewRatio is the same for fewer than driftFew shards, whose own variation is
	// hardly known.
	driftFewRatio = 0.25
	driftFew      = 4
	// driftSpread is how many times the gap must exceed the width of either group:
	// shards that scatter have no gap that stands out.
	driftSpread = 3
	// driftRowSD is the least gap in standard deviations of a single row's RMS, and
	// driftError that in standard errors of a shard's mean, added to it. The rows of one
	// sample are alike, so a shard counts as one observation in eight rows.
	driftRowSD = 0.5
	driftError = 4
	driftAlike = 8
	// driftRows is the fewest rows that a shard is judged by. A last shard of a few short
	// samples can hold nothing but first tokens, which are unlike all others.
	driftRows = 64
)

// driftShard is a shard's RMS of one state.
type driftShard struct {
	index int
	f     shard.Fingerprint
}

// checkDrift compares the fingerprints of the shards: a group of them with another RMS
// was captured with other layers, or in another norm state. It reads the manifest
// alone.
func checkDrift(m *shard.Manifest, out *Collector) {
	if !out.Enabled(ruleDrift) {
		return
	}
	for i := range m.States {
		var shards []driftShard
		for j, s := range m.Shards {
			if i >= len(s.Fingerprint) {
				continue
			}
			if f := s.Fingerprint[i]; f.Rows >= driftRows && f.RMS > 0 && !math.IsInf(f.RMS, 0) {
				shards = append(shards, driftShard{j, f})
			}
		}
		if f, ok := driftFinding(m, shards); ok {
			f.Column = m.States[i].Column
			out.Add(f)
		}
	}
}

// driftFinding splits the shards at the widest gap between their RMS values, and
// reports the smaller group when the gap stands out.
func driftFinding(m *shard.Manifest, shards []driftShard) (Finding, bool) {
	if len(shards) < 2 {
		return Finding{}, false
	}
	slices.SortFunc(shards, func(a, b driftShard) int {
		return cmp.Or(cmp.Compare(a.f.RMS, b.f.RMS), a.index-b.index)
	})
	cut, gap := 1, 0.0
	for i := 1; i < len(shards); i++ {
		if g := shards[i].f.RMS / shards[i-1].f.RMS; g > gap {
			cut, gap = i, g
		}
	}
	low, high := shards[:cut], shards[cut:]
	below, above := low[len(low)-1].f.RMS, high[0].f.RMS
	width := max(below-low[0].f.RMS, high[len(high)-1].f.RMS-above)
	ratio := driftRatio
	if len(shards) < driftFew {
		ratio = driftFewRatio
	}
	if above-below <= max(ratio*below, driftSpread*width, driftNoise(low), driftNoise(high)) {
		return Finding{}, false
	}
	odd, rest := low, high
	if len(high) < len(low) || len(high) == len(low) && holdsFirst(low) {
		odd, rest = high, low
	}
	return Finding{
		Rule: ruleDrift, Severity: Warning, Token: -1,
		Message: fmt.Sprintf("RMS is %s in %s and %s in the other %d of %d shards, want one range: a jump of %.0f %%",
			driftRange(odd), driftNames(m, odd), driftRange(rest), len(rest), len(shards), 100*(above/below-1)),
		Do: "look whether these shards were captured with other layers, another norm state or another model; texts of another kind alone rarely do this",
	}, true
}

// driftNoise is the gap that the group's own rows allow.
func driftNoise(group []driftShard) float64 {
	noise := 0.0
	for _, s := range group {
		n := max(1, float64(s.f.Rows)/driftAlike)
		noise = max(noise, s.f.RMSSD*(driftRowSD+driftError/math.Sqrt(n)))
	}
	return noise
}

func holdsFirst(group []driftShard) bool {
	return slices.ContainsFunc(group, func(s driftShard) bool { return s.index == 0 })
}

func driftRange(group []driftShard) string {
	low, high := fmt.Sprintf("%.3g", group[0].f.RMS), fmt.Sprintf("%.3g", group[len(group)-1].f.RMS)
	if low == high {
		return low
	}
	return low + " to " + high
}

// driftNames lists the first few shards of a group, in their order.
func driftNames(m *shard.Manifest, group []driftShard) string {
	const most = 4
	var index []int
	for _, s := range group {
		index = append(index, s.index)
	}
	slices.Sort(index)
	var names []string
	for _, i := range index[:min(most, len(index))] {
		names = append(names, m.Shards[i].Name)
	}
	list := strings.Join(names, ", ")
	if more := len(index) - len(names); more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return list
}
