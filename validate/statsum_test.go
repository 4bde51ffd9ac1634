package validate

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestStatSum(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		terms []float64
		want  float64
	}{
		"nothing":        {nil, 0},
		"one":            {[]float64{1.5}, 1.5},
		"carry":          {[]float64{0.75, 0.75, 0.5}, 2},
		"tiny and large": {[]float64{1 << 60, 1. / (1 << 40), -1, math.NaN(), 0}, 1 << 60},
		"smallest":       {[]float64{0x1p-64, 0x1p-64}, 0x1p-63},
		"below":          {[]float64{0x1p-65, 0x1p-65, math.SmallestNonzeroFloat64}, 0},
		"end":            {[]float64{math.Inf(1), 1e300, math.MaxFloat64}, 0x1p64},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s statSum
			for _, v := range tc.terms {
				s.add(v)
			}
			if got := s.value(); got != tc.want {
				t.Errorf("sum of %v: got %v, want %v", tc.terms, got, tc.want)
			}
		})
	}
}

func FuzzStatSumOrder(f *testing.F) {
	f.Add(uint64(1), 10, 3)
	f.Add(uint64(2), 100, 300)
	f.Fuzz(func(t *testing.T, seed uint64, n, scale int) {
		n = min(max(n, 0), 1000)
		rng := rand.New(rand.NewPCG(seed, 0))
		terms := make([]float64, n)
		var want statSum
		for i := range terms {
			terms[i] = math.Ldexp(rng.Float64(), rng.IntN(max(1, min(scale, 100)))-20)
			want.add(terms[i])
		}
		rng.Shuffle(n, func(i, j int) { terms[i], terms[j] = terms[j], terms[i] })
		cut := rng.IntN(n + 1)
		var a, b statSum
		for _, v := range terms[:cut] {
			a.add(v)
		}
		for _, v := range terms[cut:] {
			b.add(v)
		}
		if b.merge(a); b != want {
			t.Errorf("sum of %d terms is %v in one order and %v in another", n, want, b)
		}
	})
}

func TestStatLengths(t *testing.T) {
	t.Parallel()
	from, to := 0, 0
	for b := range statBin(math.MaxInt32) + 1 {
		if from, _ = statBinEdges(b); from != to {
			t.Fatalf("bin %d begins at %d, the one before ends at %d", b, from, to)
		}
		_, to = statBinEdges(b)
		for _, n := range []int{from, to - 1} {
			if got := statBin(n); got != b {
				t.Fatalf("statBin(%d): got %d, want %d", n, got, b)
			}
		}
		if to-from > 1 && to-from > from/statSubBins {
			t.Fatalf("bin %d from %d to %d is wider than 1/%d", b, from, to, statSubBins)
		}
	}
	tests := map[string]struct {
		lengths []int
		q       float64
		want    int
		within  float64
	}{
		"none":   {nil, 0.5, 0, 0},
		"zero":   {[]int{0}, 0.5, 0, 0},
		"small":  {[]int{1, 2, 3, 4, 5}, 0.5, 3, 0},
		"lowest": {[]int{1, 2, 3}, 0, 1, 0},
		"top":    {[]int{1, 2, 31}, 1, 31, 0},
		"large":  {[]int{1000, 2000, 3000, 4000}, 0.5, 2000, 0.0625},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h statLengths
			for _, n := range tc.lengths {
				h.add(n)
			}
			if got := h.quantile(tc.q); math.Abs(float64(got-tc.want)) > tc.within*float64(tc.want) {
				t.Errorf("quantile(%v) of %v: got %d, want %d within %v", tc.q, tc.lengths, got, tc.want, tc.within)
			}
		})
	}
}
