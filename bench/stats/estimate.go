package stats

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// Estimate is a value with a two-sided interval. All its numbers are finite, so that it
// can be written as JSON.
type Estimate struct {
	Value   float64 `json:"value"`   // 0 when N is 0
	Low     float64 `json:"low"`     // Value when not Bounded
	High    float64 `json:"high"`    // Value when not Bounded
	Bounded bool    `json:"bounded"` // false when N is too small for an interval
	Level   float64 `json:"level"`   // of confidence, such as 0.95
	N       int     `json:"n"`       // independent units used: runs, pairs or prompts
	Dropped int     `json:"dropped"` // units left out because their values are unusable
	Method  string  `json:"method"`  // such as "Student t over 5 runs"
}

// String gives the value and its interval, as in "1.31 (1.27–1.35)"; the value alone
// when there is no interval, and "n/a" when there is no value.
func (e Estimate) String() string {
	digits := 2
	switch v := math.Abs(e.Value); {
	case e.N == 0:
		return "n/a"
	case v >= 100:
		digits = 0
	case v >= 10:
		digits = 1
	case v > 0 && v < 0.1:
		digits = 4
	}
	if !e.Bounded {
		return fmt.Sprintf("%.*f", digits, e.Value)
	}
	return fmt.Sprintf("%.*f (%.*f–%.*f)", digits, e.Value, digits, e.Low, digits, e.High)
}

// Mean is the arithmetic mean of one value per run, with Student's t interval from two
// runs on. A level outside (0, 1) means 0.95, here and in the other functions.
func Mean(xs []float64, level float64) Estimate {
	kept, dropped := collect(len(xs), func(i int) (float64, bool) { return xs[i], usable(xs[i]) })
	return student(kept, dropped, level, "runs")
}

// GeoMean is the geometric mean of one positive value per run, with Student's t interval
// of the logarithms from two runs on.
func GeoMean(xs []float64, level float64) Estimate {
	logs, dropped := logarithms(xs)
	return student(logs, dropped, level, "runs").exp()
}

// PairedRatio is the geometric mean of a[i]/b[i], with Student's t interval over the pairs
// from two pairs on. What is longer than the other is dropped.
func PairedRatio(a, b []float64, level float64) Estimate {
	logs, dropped := collect(max(len(a), len(b)), func(i int) (float64, bool) {
		if i >= min(len(a), len(b)) {
			return 0, false
		}
		return math.Log(a[i]) - math.Log(b[i]), positive(a[i]) && positive(b[i])
	})
	return student(logs, dropped, level, "pairs").exp()
}

// Ratio is the geometric mean of a over that of b, for runs that are not paired, with
// Welch's t interval of the logarithms from two runs in each on. N counts the runs of
// both, and is 0 when one has none.
func Ratio(a, b []float64, level float64) Estimate {
	la, droppedA := logarithms(a)
	lb, droppedB := logarithms(b)
	e := unbounded(0, 0, droppedA+droppedB, level, "runs in each arm")
	if len(la) == 0 || len(lb) == 0 {
		return e
	}
	e.N = len(la) + len(lb)
	e.Value = stat.Mean(la, nil) - stat.Mean(lb, nil)
	e.Low, e.High = e.Value, e.Value
	if min(len(la), len(lb)) < 2 {
		return e.exp()
	}
	na, nb := float64(len(la)), float64(len(lb))
	va, vb := stat.Variance(la, nil)/na, stat.Variance(lb, nil)/nb
	df := na + nb - 2
	if va+vb > 0 {
		df = (va + vb) * (va + vb) / (va*va/(na-1) + vb*vb/(nb-1))
	}
	return e.bounded(math.Sqrt(va+vb), df, fmt.Sprintf("Welch t over %d and %d runs", len(la), len(lb))).exp()
}

// student is the mean of values with its t interval; unit is what one value stands for.
func student(xs []float64, dropped int, level float64, unit string) Estimate {
	n := len(xs)
	if n == 0 {
		return unbounded(0, 0, dropped, level, unit)
	}
	e := unbounded(clamp(stat.Mean(xs, nil)), n, dropped, level, unit)
	if n < 2 {
		return e
	}
	se := stat.StdErr(stat.StdDev(xs, nil), float64(n))
	return e.bounded(se, float64(n-1), fmt.Sprintf("Student t over %d %s", n, unit))
}

// unbounded is an estimate that has no interval yet.
func unbounded(v float64, n, dropped int, level float64, unit string) Estimate {
	if !(level > 0 && level < 1) {
		level = 0.95
	}
	return Estimate{
		Value: v, Low: v, High: v, Level: level, N: n, Dropped: dropped,
		Method: "no interval: fewer than 2 " + unit,
	}
}

// bounded adds the t interval of a standard error.
func (e Estimate) bounded(se, df float64, method string) Estimate {
	half := tQuantile((1+e.Level)/2, df) * se
	e.Low, e.High = clamp(e.Value-half), clamp(e.Value+half)
	e.Bounded, e.Method = true, method
	return e
}

// exp turns an estimate of a logarithm into one of the value.
func (e Estimate) exp() Estimate {
	if e.N > 0 {
		e.Value, e.Low, e.High = clamp(math.Exp(e.Value)), clamp(math.Exp(e.Low)), clamp(math.Exp(e.High))
	}
	return e
}

// tQuantile is the quantile of Student's t of df ≥ 1. Beyond 10,000 degrees it is the
// normal's, from which it differs by 0.01 %: gonum's inverse loses digits there.
func tQuantile(p, df float64) float64 {
	if df > 1e4 {
		return clamp(distuv.UnitNormal.Quantile(p))
	}
	return clamp(distuv.StudentsT{Sigma: 1, Nu: df}.Quantile(p))
}
