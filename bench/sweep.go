package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hsx/bench/server"
	"hsx/bench/stats"
)

// swept is a point of the curve and the arm that it was measured on.
type swept struct {
	SweepPoint
	side *side
	arm  *ArmReport
}

// sweep is the curve over steps under the first load, nil unless two arms have steps.
func (a *analysis) sweep(levels []LevelReport) *SweepReport {
	var points []swept
	for _, s := range a.speculating() {
		if s.Steps > 0 && len(levels) > 0 {
			points = append(points, a.point(s, &levels[0]))
		}
	}
	if len(points) < 2 {
		return nil
	}
	slices.SortStableFunc(points, func(p, q swept) int { return cmp.Compare(p.Steps, q.Steps) })
	r := &SweepReport{}
	for _, p := range points {
		r.Points = append(r.Points, p.SweepPoint)
	}
	valid := slices.DeleteFunc(points, func(p swept) bool { return p.Throughput.N == 0 || p.Outcome == Void })
	predicted := a.predict(r, valid, levels[0].Level)
	r.Points = append(r.Points, predicted...)
	slices.SortStableFunc(r.Points, func(p, q SweepPoint) int { return cmp.Compare(p.Steps, q.Steps) })
	r.rank(valid, predicted, a.j.Confidence)
	return r
}

func (a *analysis) point(s *side, l *LevelReport) swept {
	p := swept{side: s, arm: l.arm(s.Name)}
	p.Steps, p.Throughput, p.Outcome = s.Steps, p.arm.Throughput, Measured
	if c := l.compared(s.Name); c != nil {
		p.Speedup, p.Outcome = &c.Speedup, c.Outcome
	} else if len(a.voids(s, l.Level)) > 0 {
		p.Outcome = Void
	}
	if t := a.acceptOf(s.Name, l.Level); t != nil && t.Trust != server.Low {
		p.Accept = t.Pooled.Value
	}
	return p
}

// predict gives the points between those measured, from the acceptance of each position
// on the longest chain and a cost of steps that is fitted to the curve. It holds for
// chains only, and in a closed loop, where speed is that of steps.
func (a *analysis) predict(r *SweepReport, valid []swept, l Level) []SweepPoint {
	if len(valid) < 2 || l.Rate != 0 || !slices.ContainsFunc(valid, isChain) {
		return nil
	}
	var ks []int
	var seconds []float64
	for _, p := range valid {
		if !isChain(p) {
			return nil
		}
		ks, seconds = append(ks, p.Steps), append(seconds, over(p.Accept, p.Throughput.Value))
	}
	verify, draft, ok := stats.FitStepCost(ks, seconds)
	longest := valid[len(valid)-1]
	t := a.acceptOf(longest.side.Name, l)
	if !ok || t == nil || longest.Accept == 0 {
		return nil
	}
	// The curve is of all requests at once: one request waits for as many steps in all.
	at := float64(max(l.Concurrency, 1))
	r.StepSeconds = []float64{verify * at, draft * at}
	var points []SweepPoint
	for k := 1; k < longest.Steps; k++ {
		rate := stats.PredictSpeed(t.Joint, verify, draft, k)
		if slices.Contains(ks, k) || rate == 0 {
			continue
		}
		points = append(points, SweepPoint{
			Steps: k, Predicted: true, Accept: stats.AcceptLength(t.Joint, k),
			Throughput: stats.Estimate{Value: rate, Low: rate, High: rate, N: 1, Method: "predicted from the acceptance of each position and the fitted cost of a step"},
		})
	}
	return points
}

// isChain reports whether every step drafts one chain of the steps that were asked.
func isChain(p swept) bool {
	if p.side.info == nil {
		return true
	}
	spec := p.side.info.Info.Speculation
	return spec.TopK <= 1 && !strings.Contains(spec.Method, "ngram")
}

// rank finds the best of the measured points, and says how sure that is.
func (r *SweepReport) rank(valid []swept, predicted []SweepPoint, confidence float64) {
	if len(valid) == 0 {
		r.Sentence = "no number of steps has a valid measurement"
		return
	}
	faster := func(p, q swept) int { return cmp.Compare(q.Throughput.Value, p.Throughput.Value) }
	slices.SortStableFunc(valid, faster)
	best := valid[0]
	r.Best = best.Steps
	r.Sentence = fmt.Sprintf("%s best: %.*f tok/s", are(best.Steps), digits(best.Throughput.Value), best.Throughput.Value)
	apart := "; not distinguishable from "
	if best.Speedup != nil && best.Speedup.N > 0 {
		r.Sentence += ", " + ratio(*best.Speedup, false)
		switch {
		case best.Outcome == DoesNotPay:
			r.Sentence += ": slower than no speculation"
		case best.Outcome == Inconclusive && best.Speedup.Low > 1 && best.Speedup.Bounded:
			r.Sentence += ": perhaps not faster than no speculation by the margin"
		case best.Outcome == Inconclusive:
			r.Sentence += ": not distinguishable from no speculation"
			apart = ", nor from "
		}
	}
	if len(valid) > 1 {
		lead := stats.Ratio(best.arm.ByRun, valid[1].arm.ByRun, confidence)
		r.Certain = lead.Bounded && lead.Low > 1
		if !r.Certain {
			r.Sentence += apart + counted(valid[1].Steps, "step")
		}
	}
	for _, p := range predicted {
		if p.Throughput.Value > best.Throughput.Value {
			r.Sentence += fmt.Sprintf("; %s predicted to give %.*f tok/s, which is to be measured", are(p.Steps), digits(p.Throughput.Value), p.Throughput.Value)
		}
	}
}

func are(steps int) string {
	if steps == 1 {
		return "1 step is"
	}
	return counted(steps, "step") + " are"
}

// digits are those after the point that a rate in tokens per second deserves.
func digits(rate float64) int {
	if rate >= 10 {
		return 0
	}
	return 2
}
