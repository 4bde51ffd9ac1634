package stats

import (
	"math"
	"sort"
)

// DetectableDifference is the relative difference of two arms of n runs each that a test
// at 5 %, two-sided, finds with 80 % power; cv is the coefficient of variation of a run.
// It is infinite for fewer than two runs and for a cv that is negative or not finite.
func DetectableDifference(cv float64, n int) float64 {
	return detectable(cv*math.Sqrt2, n, 2*float64(n)-2)
}

// DetectablePaired is the same for n pairs of runs, where sd is the standard deviation of
// the logarithm of a pair's ratio.
func DetectablePaired(sd float64, n int) float64 {
	return detectable(sd, n, float64(n)-1)
}

func detectable(sd float64, n int, df float64) float64 {
	if n < 2 || !(sd >= 0) || math.IsInf(sd, 1) {
		return math.Inf(1)
	}
	return (tQuantile(0.975, df) + tQuantile(0.8, df)) * sd / math.Sqrt(float64(n))
}

// RunsToSettle is the smallest number of runs of each arm, or of pairs, at which an
// effect of that size is detectable: 2 to limit. sd is what DetectableDifference or, for
// pairs, DetectablePaired takes, and effect a relative difference of either sign. It is
// false when limit is not enough, or effect is 0 or not finite.
func RunsToSettle(sd, effect float64, paired bool, limit int) (n int, ok bool) {
	effect = math.Abs(effect)
	if !(effect > 0) || math.IsInf(effect, 1) || limit < 2 {
		return 0, false
	}
	detect := DetectableDifference
	if paired {
		detect = DetectablePaired
	}
	n = 2 + sort.Search(limit-1, func(i int) bool { return detect(sd, i+2) <= effect })
	if n > limit {
		return 0, false
	}
	return n, true
}
