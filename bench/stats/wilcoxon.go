package stats

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat/distuv"
)

// Wilcoxon is the two-sided p-value of the signed-rank test that differences, such as
// logarithms of ratios, lie symmetrically around 0. Zeros are left out, equal sizes share
// their mean rank. Up to 50 differences it is exact, with ties too; above, normal with
// continuity correction. It is 1 when nothing is left.
func Wilcoxon(d []float64) (p float64) {
	d, _ = collect(len(d), func(i int) (float64, bool) { return d[i], usable(d[i]) && d[i] != 0 })
	slices.SortFunc(d, func(a, b float64) int { return cmp.Compare(math.Abs(a), math.Abs(b)) })

	// Ranks are doubled, which makes the mean rank of ties a whole number.
	ranks := make([]int, 0, len(d))
	total, plus := 0, 0
	for i := 0; i < len(d); {
		end := i + 1
		for end < len(d) && math.Abs(d[end]) == math.Abs(d[i]) {
			end++
		}
		rank := i + 1 + end
		for ; i < end; i++ {
			ranks = append(ranks, rank)
			total += rank
			if d[i] > 0 {
				plus += rank
			}
		}
	}
	smaller := min(plus, total-plus)
	if len(ranks) <= 50 {
		return min(2*rankSumAtMost(ranks, total, smaller), 1)
	}
	variance := 0.0
	for _, r := range ranks {
		variance += float64(r) * float64(r) / 4
	}
	// One unit of a rank sum is two of the doubled: the correction by half is 1.
	z := (float64(total)/2 - float64(smaller) - 1) / math.Sqrt(variance)
	return min(2*distuv.UnitNormal.Survival(z), 1)
}

// rankSumAtMost is the probability that the ranks of positive sign sum to at most limit,
// if each sign is the toss of a coin.
func rankSumAtMost(ranks []int, total, limit int) float64 {
	dist := make([]float64, total+1)
	dist[0] = 1
	for _, r := range ranks {
		for s := total; s >= 0; s-- {
			dist[s] /= 2
			if s >= r {
				dist[s] += dist[s-r] / 2
			}
		}
	}
	return floats.Sum(dist[:limit+1])
}
