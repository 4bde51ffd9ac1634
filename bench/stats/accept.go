package stats

import (
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// JointToConditional turns the share of verify steps that accept at least k draft tokens,
// p[k-1], into the share of those that accepted k-1 which accept the k-th as well: 0
// where none did. Shares are cut to [0, 1], and NaN is 0.
func JointToConditional(p []float64) []float64 {
	conditional := make([]float64, len(p))
	before := 1.0
	for i, v := range p {
		v = share(v)
		if before > 0 {
			conditional[i] = share(v / before)
		}
		before = v
	}
	return conditional
}

// AcceptLength is 1 + Σ p[k-1] for k ≤ steps: the tokens that a verify step emits, its
// own included, from the joint shares that JointToConditional takes. Positions beyond
// those given add nothing.
func AcceptLength(p []float64, steps int) float64 {
	length := 1.0
	for _, v := range p[:min(max(steps, 0), len(p))] {
		length += share(v)
	}
	return length
}

// BreakEven is the accept length at which speculation is as fast as the baseline, τ·B/S,
// if a step costs what it cost at accept length tau and rates base and spec, which have
// one unit. It is 0 unless all three are positive.
func BreakEven(tau, base, spec float64) float64 {
	if !positive(tau) || !positive(base) || !positive(spec) {
		return 0
	}
	return tau * base / spec
}

// PredictSpeed is the decode rate in tokens per second that a chain of k draft steps
// would have: AcceptLength(p, k) over verify + k·draft, both in seconds, as FitStepCost
// gives them. It is a prediction, not a measurement, and 0 where there is none: for k
// beyond the positions measured or negative, and for costs that are negative or sum to 0.
func PredictSpeed(p []float64, verify, draft float64, k int) float64 {
	cost := verify + float64(k)*draft
	if k < 0 || k > len(p) || !(verify >= 0) || !(draft >= 0) || !positive(cost) {
		return 0
	}
	return AcceptLength(p, k) / cost
}

// FitStepCost fits the seconds of a speculative step as verify + k·draft over k draft
// steps, by least squares with neither below 0. It is false for fewer than two different
// k; points with a negative k or a time that is not positive are left out.
func FitStepCost(ks []int, stepSeconds []float64) (verify, draft float64, ok bool) {
	var x, y []float64
	for i := range min(len(ks), len(stepSeconds)) {
		if ks[i] >= 0 && positive(stepSeconds[i]) {
			x, y = append(x, float64(ks[i])), append(y, stepSeconds[i])
		}
	}
	if len(x) == 0 || floats.Min(x) == floats.Max(x) {
		return 0, 0, false
	}
	verify, draft = stat.LinearRegression(x, y, nil, false)
	if draft < 0 {
		return stat.Mean(y, nil), 0, true
	}
	if verify < 0 {
		return 0, floats.Dot(x, y) / floats.Dot(x, x), true
	}
	return verify, draft, true
}

func share(v float64) float64 { return min(max(clamp(v), 0), 1) }
