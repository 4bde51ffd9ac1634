package bench_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"hsx/bench"
	"hsx/bench/server"
)

// sweepArm is a chain of k steps whose positions are each accepted with probability 0.6,
// on a server where verify takes 10 ms and each draft position 1 ms.
func sweepArm(k int, cv float64) simulated {
	joint, tau := make([]float64, k), 1.0
	for i := range joint {
		joint[i] = math.Pow(0.6, float64(i+1))
		tau += joint[i]
	}
	s := specArm(spread5(tau/(0.010+0.001*float64(k)), cv, k%2 == 0), tau)
	s.arm = bench.Arm{Name: fmt.Sprintf("steps=%d", k), Role: bench.Spec, Steps: k, URL: fmt.Sprintf("http://spec:%d", k)}
	s.info.Speculation.Steps = k
	s.request = func(r *bench.Request) {
		r.Accept.Steps, r.Accept.Drafted = 60, 60*float64(k)
		r.Accept.Positions = nil
		scale := r.Accept.Accepted / (60 * (tau - 1))
		for _, p := range joint {
			r.Accept.Positions = append(r.Accept.Positions, 60*p*scale)
		}
	}
	return s
}

func TestSweep(t *testing.T) {
	t.Parallel()
	r := bench.Analyse(logOf(concurrency(1), sweepArm(5, 0.01), sweepArm(1, 0.01), sweepArm(3, 0.01), baseArm(spread5(100, 0.01, true))), bench.Judgement{})
	var got []string
	for _, p := range r.Sweep.Points {
		got = append(got, fmt.Sprintf("%d %v %.0f %.2f %s", p.Steps, p.Predicted, p.Throughput.Value, p.Accept, p.Outcome))
	}
	want := "1 false 145 1.60 pays\n2 true 163 1.96 \n3 false 167 2.18 pays\n4 true 165 2.31 \n5 false 159 2.38 pays"
	if strings.Join(got, "\n") != want {
		t.Errorf("got points\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
	if s := r.Sweep.StepSeconds; len(s) != 2 || math.Abs(s[0]-0.010) > 1e-4 || math.Abs(s[1]-0.001) > 1e-4 {
		t.Errorf("got step seconds %v, want 0.010 and 0.001", s)
	}
	if want := "3 steps are best: 167 tok/s, 1.67× (1.64–1.70)"; r.Sweep.Best != 3 || !r.Sweep.Certain || r.Sweep.Sentence != want {
		t.Errorf("got %d, certain %v, %q, want 3, true, %q", r.Sweep.Best, r.Sweep.Certain, r.Sweep.Sentence, want)
	}
	if want := "Speculation with 3 steps pays: 1.67×"; !strings.HasPrefix(r.Verdict.Sentence, want) {
		t.Errorf("got verdict %q, want %q", r.Verdict.Sentence, want)
	}
}

func TestSweepSentence(t *testing.T) {
	t.Parallel()
	// The field case: 2 steps reach 94 tok/s against 90.
	field := func(k int, rate float64) simulated {
		s := sweepArm(k, 0)
		s.rates = spread5(rate, 0.03, k%2 == 0)
		return s
	}
	base := baseArm(spread5(90, 0.03, false)) // not correlated with the runs of even steps
	other := baseArm(spread5(90, 0.03, true))
	withTree := sweepArm(3, 0.01)
	withTree.info.Speculation.TopK = 4
	broken := sweepArm(3, 0.01)
	broken.info.Speculation.Synthetic = "a flag"
	tests := map[string]struct {
		arms   []simulated
		want   string
		points int
		levels []bench.Level
	}{
		"field case": {[]simulated{field(1, 80), field(2, 94), field(3, 93), base},
			"2 steps are best: 94 tok/s, 1.04× (0.99–1.10): not distinguishable from no speculation, nor from 3 steps", 3, concurrency(1)},
		"the best is slower": {[]simulated{field(1, 70), field(2, 60), other},
			"1 step is best: 70 tok/s, 0.78× (0.74–0.82): slower than no speculation", 2, concurrency(1)},
		"without a baseline": {[]simulated{field(1, 80), field(2, 94)}, "2 steps are best: 94 tok/s", 2, concurrency(1)},
		"between two points": {[]simulated{sweepArm(1, 0.01), sweepArm(4, 0.01)},
			"4 steps are best: 165 tok/s; 3 steps are predicted to give 167 tok/s, which is to be measured", 4, concurrency(1)},
		"no prediction for trees":       {[]simulated{sweepArm(1, 0.01), withTree}, "3 steps are best: 167 tok/s", 2, concurrency(1)},
		"no prediction in an open loop": {[]simulated{sweepArm(1, 0.01), sweepArm(3, 0.01)}, "3 steps are best: 167 tok/s", 2, []bench.Level{{Rate: 1}}},
		"void points are not best":      {[]simulated{sweepArm(1, 0.01), broken}, "1 step is best: 145 tok/s", 2, concurrency(1)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bench.Analyse(logOf(tt.levels, tt.arms...), bench.Judgement{}).Sweep
			if s == nil || s.Sentence != tt.want || len(s.Points) != tt.points {
				t.Errorf("got %+v\nwant %d points, %q", s, tt.points, tt.want)
			}
		})
	}
	if s := bench.Analyse(logOf(concurrency(1), sweepArm(3, 0.01), base), bench.Judgement{}).Sweep; s != nil {
		t.Errorf("got a sweep of one arm: %+v", s)
	}
}

// TestSweepUnderLoad gives the seconds of a step as one request sees them.
func TestSweepUnderLoad(t *testing.T) {
	t.Parallel()
	arms := []simulated{sweepArm(1, 0.01), sweepArm(3, 0.01)}
	for i := range arms {
		for j := range arms[i].rates {
			arms[i].rates[j] *= 8 // eight requests at once, each as fast as one alone
		}
	}
	s := bench.Analyse(logOf(concurrency(8), arms...), bench.Judgement{}).Sweep
	if got := s.StepSeconds; len(got) != 2 || math.Abs(got[0]-0.010) > 1e-4 {
		t.Errorf("got step seconds %v, want 0.010 and 0.001", got)
	}
}

// TestSweepWithoutAcceptance has a curve and no prediction.
func TestSweepWithoutAcceptance(t *testing.T) {
	t.Parallel()
	a, b := sweepArm(1, 0.01), sweepArm(3, 0.01)
	for _, s := range []*simulated{&a, &b} {
		s.tau, s.request, s.info.Speculation = 0, nil, server.Speculation{}
	}
	s := bench.Analyse(logOf(concurrency(1), a, b), bench.Judgement{}).Sweep
	if len(s.Points) != 2 || s.StepSeconds != nil || s.Best != 3 {
		t.Errorf("got %+v, want 2 points, no cost of steps, 3 best", s)
	}
}
