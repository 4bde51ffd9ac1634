package stats

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
)

const (
	resamples = 2000

	// minBootstrap is the number of prompts from which on a percentile interval covers
	// nearly what it says; for 5 a nominal 95 % is 80 to 85 %.
	minBootstrap = 20
)

// ClusterRatio is Σnum/Σden over prompts, each with num[i] ≥ 0 and den[i] > 0, such as
// the accept length from emitted tokens and verify steps. The interval is that of the
// percentile bootstrap of 2000 resamples of whole prompts, the same for the same seed;
// for 2 to 19 prompts it is Student's t of the linearised ratio, cut at 0.
func ClusterRatio(num, den []float64, level float64, seed uint64) Estimate {
	var nums, dens []float64
	for i := range min(len(num), len(den)) {
		if usable(num[i]) && num[i] >= 0 && positive(den[i]) {
			nums, dens = append(nums, num[i]), append(dens, den[i])
		}
	}
	e := cluster(nums, dens, level, seed)
	e.Low = max(e.Low, 0)
	e.Dropped = max(len(num), len(den)) - len(nums)
	return e
}

// ClusterGeoMean is the geometric mean of one positive value per prompt, such as its
// speedup, with intervals as in ClusterRatio.
func ClusterGeoMean(xs []float64, level float64, seed uint64) Estimate {
	logs, dropped := logarithms(xs)
	e := cluster(logs, slices.Repeat([]float64{1}, len(logs)), level, seed).exp()
	e.Dropped = dropped
	return e
}

// cluster estimates Σnum/Σden; a mean is the case of den all 1.
func cluster(num, den []float64, level float64, seed uint64) Estimate {
	n := len(num)
	total := floats.Sum(den)
	ratio := floats.Sum(num) / total
	if n < minBootstrap {
		// What each prompt moves the ratio by, to first order: values whose mean is the
		// ratio and whose standard error is its own.
		moves := make([]float64, n)
		for i := range moves {
			moves[i] = ratio + float64(n)*(num[i]/total-ratio*(den[i]/total))
		}
		return student(moves, 0, level, "prompts")
	}
	e := unbounded(ratio, n, 0, level, "prompts")
	e.Low, e.High = bootstrap(num, den, e.Level, resamples, seed)
	e.Bounded, e.Method = true, fmt.Sprintf("bootstrap over %d prompts", n)
	return e
}

// bootstrap is the percentile interval of Σnum/Σden over resampled units.
func bootstrap(num, den []float64, level float64, resamples int, seed uint64) (low, high float64) {
	rng := rand.New(rand.NewPCG(seed, 0))
	ratios := make([]float64, resamples)
	for i := range ratios {
		var n, d float64
		for range num {
			j := rng.IntN(len(num))
			n += num[j]
			d += den[j]
		}
		ratios[i] = n / d
	}
	slices.Sort(ratios)
	tail := (1 - level) / 2
	return Quantile(ratios, tail), Quantile(ratios, 1-tail)
}
