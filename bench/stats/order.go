package stats

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// FirstRun compares the rate of run 1 with the median of the later runs, to see whether
// warm-up was enough. slower is the share that it lacks, negative when run 1 is faster.
// robustZ is its distance in robust standard deviations, 1.4826·MAD but not below 1 % of
// the median; it is 0 for fewer than four later runs. Run 1 is an outlier when it is more
// than 5 % slower or robustZ is beyond ±3.5. All is zero where run 1 is negative or
// unusable, or no later run is positive.
func FirstRun(rates []float64) (slower, robustZ float64, outlier bool) {
	if len(rates) == 0 || !usable(rates[0]) || rates[0] < 0 {
		return 0, 0, false
	}
	later, _ := collect(len(rates)-1, func(i int) (float64, bool) { return rates[i+1], positive(rates[i+1]) })
	if len(later) == 0 {
		return 0, 0, false
	}
	slices.Sort(later)
	median := Quantile(later, 0.5)
	slower = 1 - rates[0]/median
	if len(later) >= 4 {
		away := make([]float64, len(later))
		for i, r := range later {
			away[i] = math.Abs(r - median)
		}
		slices.Sort(away)
		// The MAD of a few runs is often near 0 by chance. With the floor, runs that
		// scatter by 2 % raise a false alarm 7 times in 100, without it 15 times.
		robustZ = (rates[0] - median) / max(1.4826*Quantile(away, 0.5), median/100)
	}
	return slower, robustZ, slower > 0.05 || math.Abs(robustZ) > 3.5
}

// Trend is the least-squares slope of positive values over the run's index, as a share of
// their mean per run, and its two-sided p-value. Unusable runs are left out and keep
// their place. It is 0 with p = 1 for fewer than three.
func Trend(xs []float64) (slopePerRun, p float64) {
	var index, values []float64
	for i, x := range xs {
		if positive(x) {
			index, values = append(index, float64(i)), append(values, x)
		}
	}
	mean := stat.Mean(values, nil)
	for i := range values {
		values[i] /= mean
	}
	return slope(index, values)
}

// OrderEffect says whether being measured first matters: ratios are those of the arms, A
// over B, of each pair of runs, and firstIsA tells which arm went first. effect is the
// share that the first arm gains in rate, negative if it loses, and p its two-sided
// p-value, from the t test of two samples with a common variance. It is 0 with p = 1 when
// either order is missing, for fewer than three pairs, and where ratios or firstIsA
// is the longer, its excess is left out.
func OrderEffect(ratios []float64, firstIsA []bool) (effect, p float64) {
	var first, logs []float64
	for i := range min(len(ratios), len(firstIsA)) {
		if !positive(ratios[i]) {
			continue
		}
		side := -1.0
		if firstIsA[i] {
			side = 1
		}
		first, logs = append(first, side), append(logs, math.Log(ratios[i]))
	}
	// A gain g of the first arm moves a logarithm by ±log(1+g): it is the slope.
	effect, p = slope(first, logs)
	return clamp(math.Expm1(effect)), p
}

// slope is that of the least-squares line and its two-sided p-value: 0 and 1 where there
// is no line or nothing to judge it by. Slopes below 1e-12 are rounding.
func slope(x, y []float64) (b, p float64) {
	n := float64(len(x))
	if n < 3 {
		return 0, 1
	}
	a, b := stat.LinearRegression(x, y, nil, false)
	if !(math.Abs(b) > 1e-12) {
		return 0, 1
	}
	rest := 0.0
	for i := range x {
		e := y[i] - a - b*x[i]
		rest += e * e
	}
	se := math.Sqrt(rest / (n - 2) / ((n - 1) * stat.Variance(x, nil)))
	if se == 0 {
		return b, 0
	}
	return b, clamp(2 * distuv.StudentsT{Sigma: 1, Nu: n - 2}.Survival(math.Abs(b/se)))
}
