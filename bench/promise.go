package bench

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"hsx/bench/server"
	"hsx/bench/stats"
)

// The outcomes of a promise.
const (
	promiseKept     = "kept"
	promiseBroken   = "broken"
	promiseExceeded = "exceeded"
	promiseOpen     = "not comparable"
)

const promiseTolerance = 0.05 // by which an accept length may miss a promise that it keeps

// ParsePromise reads what a user gives as the promised accept length: a number ("2.95"),
// a list of the acceptance of each position ("[0.75, 0.7]"), or else the name of a file
// that open opens: a log or metrics file of SpecForge, TorchSpec or speculators, as JSON,
// JSON lines, trainer_state.json or console output, of any size. Of a log the last
// complete evaluation counts, and without one the last training metrics; Note says which.
func ParsePromise(flag string, open func(name string) (io.ReadCloser, error)) (*Promise, error) {
	if v, err := strconv.ParseFloat(strings.TrimSpace(flag), 64); err == nil {
		if !(v > 0 && v <= maxPromise) {
			return nil, fmt.Errorf("promise %q: want an accept length above 0, at most %d", flag, maxPromise)
		}
		return &Promise{Given: v, Source: "--promised " + flag, Form: "number"}, nil
	}
	if strings.HasPrefix(strings.TrimSpace(flag), "[") {
		return readPromise(strings.NewReader(flag), "--promised "+flag)
	}
	f, err := open(flag)
	if err != nil {
		return nil, fmt.Errorf("promise %q is no number: %w", flag, err)
	}
	p, err := readPromise(f, flag)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("read promise %s: %w", flag, err)
	}
	return p, nil
}

// promiseReport holds a promise against the accept length of the first speculating arm
// over all its loads. It is nil without a promise.
func promiseReport(p *Promise, accept []AcceptReport, info []ArmInfo) *PromiseReport {
	if p == nil {
		return nil
	}
	var a AcceptReport
	if len(accept) > 0 {
		a = accept[0]
	}
	r := &PromiseReport{Given: p.Given, Source: p.Source, Measured: a.Pooled}
	if p.Note != "" {
		r.Source += ": " + p.Note
	}
	if i := slices.IndexFunc(info, func(i ArmInfo) bool { return i.Arm == a.Arm }); i >= 0 {
		r.Steps = stepsRun(info[i].Info.Speculation, &a)
	} else {
		r.Steps = stepsRun(server.Speculation{}, &a)
	}
	readings := r.read(p)
	r.Gap = r.Measured.Value - r.Promised
	r.Outcome = outcomeOf(readings, a)
	if a.Pooled.N == 0 {
		r.Gap = 0
	}
	if a.Trust != server.Low {
		r.part(p, a)
	}
	r.Meaning = r.mean(a)
	return r
}

// read puts the promise in the definition of τ, cut to the steps served, and returns all
// that it can mean.
func (r *PromiseReport) read(p *Promise) (readings []float64) {
	if n := len(p.Positions); n > 0 {
		r.Includes = p.ExcludesBonus != nil && !*p.ExcludesBonus
		r.Why = "from the acceptance of each position, and the bonus token"
		if r.Steps > n {
			r.Why += fmt.Sprintf("; training looked at %s only, so more can be reached than is promised", counted(n, "position"))
		}
		served := cmp.Or(r.Steps, n)
		r.Promised = tauOf(p.Positions[:min(served, n)])
		r.Cut = r.Steps > 0
		return []float64{r.Promised}
	}
	excludes, known := false, p.ExcludesBonus != nil
	switch {
	case known && p.Form == "number":
		excludes, r.Why = *p.ExcludesBonus, "--promised-excludes-bonus says so"
	case known:
		excludes = *p.ExcludesBonus
		r.Why = p.Form + " logs it with the bonus token"
		if excludes {
			r.Why = p.Form + " logs it without the bonus token"
		}
	case p.Given < 1:
		excludes, known, r.Why = true, true, "below 1, which no accept length with the bonus token is"
	default:
		r.Why = "not said: read as servers and the EAGLE papers count, with the bonus token"
	}
	r.Includes = !excludes
	r.Promised, readings = r.cut(p.Given, excludes)
	if r.Estimated = r.Promised != withBonus(p.Given, excludes); r.Estimated {
		r.Cut = true
		r.Why += "; " + r.estimate(p.Given, excludes)
	}
	if !known {
		var more []float64
		r.Alternative, more = r.cut(p.Given, true)
		readings = append(readings, more...)
	}
	return readings
}

// cut is a promised number at the steps served, and all that it can mean there: what it
// says, if so much can be reached in these steps, and what is left of it if it was meant
// for more steps.
func (r *PromiseReport) cut(given float64, excludes bool) (tau float64, readings []float64) {
	whole := withBonus(given, excludes)
	if r.Steps == 0 {
		return whole, []float64{whole}
	}
	a := sameAcceptance(whole)
	tau = (1 - math.Pow(a, float64(r.Steps+1))) / (1 - a) // 1 + a + … + a^steps
	if whole <= float64(r.Steps+1) {
		return tau, []float64{tau, whole}
	}
	return tau, []float64{tau}
}

// estimate says how a number without positions was cut.
func (r *PromiseReport) estimate(given float64, excludes bool) string {
	whole, most := withBonus(given, excludes), float64(r.Steps+1)
	steps := counted(r.Steps, "step")
	if whole > most {
		return fmt.Sprintf("%.2f cannot be reached with %s, at most %.2f: estimated with one acceptance, %.2f, at each position", whole, steps, most, sameAcceptance(whole))
	}
	return fmt.Sprintf("cut to %s as an estimate, with one acceptance, %.2f, at each position; if it was promised for %s it stays %.2f", steps, sameAcceptance(whole), steps, whole)
}

func withBonus(given float64, excludes bool) float64 {
	if excludes {
		return given + 1
	}
	return given
}

// sameAcceptance is the acceptance that, the same at each of many positions, gives τ.
func sameAcceptance(tau float64) float64 { return max(1-1/tau, 0) }

// tauOf is the accept length, bonus token included, of the conditional acceptance of each
// position.
func tauOf(conditional []float64) float64 {
	joint, p := make([]float64, len(conditional)), 1.0
	for i, c := range conditional {
		p *= c
		joint[i] = p
	}
	return stats.AcceptLength(joint, len(joint))
}

// outcomeOf is broken only if that is so however the promise is read, and likewise kept
// and exceeded.
func outcomeOf(readings []float64, a AcceptReport) string {
	if a.Pooled.N == 0 || a.Trust == server.Low {
		return promiseOpen
	}
	judge := func(promised float64) string {
		switch {
		case a.Pooled.High < promised*(1-promiseTolerance):
			return promiseBroken
		case a.Pooled.Low > promised*(1+promiseTolerance):
			return promiseExceeded
		}
		return promiseKept
	}
	low, high := judge(slices.Min(readings)), judge(slices.Max(readings))
	switch {
	case low == high:
		return low
	case low == promiseBroken || high == promiseBroken:
		return promiseOpen
	}
	return promiseKept
}

// part finds the first position at which the promise and the measurement part.
func (r *PromiseReport) part(p *Promise, a AcceptReport) {
	promised, measured := p.Positions, a.Conditional
	if r.Steps == 1 && r.Promised > 1 && a.Pooled.N > 0 { // one position: what is above plain decoding is its own
		promised, measured = []float64{r.Promised - 1}, []float64{a.Pooled.Value - 1}
	}
	reached := a.Steps // steps that came as far as the position
	for i := range min(len(promised), len(measured), cmp.Or(r.Steps, len(measured))) {
		g := PositionGap{Position: i + 1, Promised: promised[i], Measured: measured[i]}
		r.Positions = append(r.Positions, g)
		var se float64
		if reached > 0 {
			se = math.Sqrt(g.Measured * (1 - g.Measured) / reached)
		}
		if r.Parts == 0 && g.Measured < g.Promised-max(0.05, 2*se) {
			r.Parts = g.Position
		}
		reached *= g.Measured
	}
}

// mean says what the position at which they part usually means.
func (r *PromiseReport) mean(a AcceptReport) string {
	falls := fallsWithLength(a.ByLength)
	switch {
	case r.Outcome == promiseOpen && a.Pooled.N == 0:
		return "no accept length was measured"
	case r.Outcome == promiseOpen && a.Trust == server.Low:
		return fmt.Sprintf("the source, %s, is not to be trusted with a verdict", a.Source)
	case r.Outcome == promiseOpen:
		return "kept or broken, as the number is read: the training log, or --promised-excludes-bonus, would settle it"
	case r.Parts == 1:
		return "the first position is where inputs show: wrong layers or their order, another chat template or dtype than in training, or a wrong vocabulary map"
	case r.Parts > 1:
		return "the first position is as promised and a later one is not: training without the draft's own states as inputs (training-time test), or positions or KV cache of the draft that are off in the server"
	case r.Outcome == promiseBroken && falls:
		return "the accept length falls with the length of the answer: a limit of the draft's positions, or training on short texts"
	case r.Outcome == promiseBroken && len(r.Positions) == 0:
		return "not known by position: the promise, the server or both do not tell the acceptance of each"
	}
	return ""
}

// fallsWithLength reports whether each bucket of longer answers has a lower accept length
// than the one before, and the last is 15 % below the first.
func fallsWithLength(b []LengthBucket) bool {
	if len(b) < 2 {
		return false
	}
	for i := range len(b) - 1 {
		if b[i+1].Accept >= b[i].Accept {
			return false
		}
	}
	return b[len(b)-1].Accept < 0.85*b[0].Accept
}
