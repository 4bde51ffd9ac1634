package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"hsx/bench/stats"
)

const (
	maxPromise   = 1000 // accept length
	maxPositions = 64   // of a draft

	sectionEval  = "eval"
	sectionTrain = "train"

	perPosition = "per_position_acc"
)

// series is what a number for each position can be. A later one goes before an earlier.
type series int

const (
	seriesAccuracy    series = iota // share of the tokens at this position, the true tokens before them being given
	seriesJoint                     // share of all, with those before right too
	seriesConditional               // share of those whose predecessors were right
	numSeries
)

// trainRecord is one evaluation, or one line of training metrics.
type trainRecord struct {
	line     int
	values   [numSeries][]float64
	length   float64 // Σ Π without the bonus token, 0 when not logged
	tau      float64 // with it
	accuracy float64 // mean over positions or tokens
	form     string
}

// readPromise takes the promise from a list of numbers or a training log.
func readPromise(r io.Reader, source string) (*Promise, error) {
	br := bufio.NewReader(r)
	head, err := br.Peek(br.Size())
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, err
	}
	var list []float64
	if json.Unmarshal(bytes.TrimPrefix(head, []byte("\ufeff")), &list) == nil && len(list) > 0 {
		return promiseOfList(list, source)
	}
	var eval, train records
	if err := readMetrics(br, func(m metric) {
		if m.eval() {
			eval.add(m)
		} else {
			train.add(m)
		}
	}); err != nil {
		return nil, err
	}
	if rec := eval.last(); rec != nil {
		return rec.promise(source, "evaluation")
	}
	if rec := train.last(); rec != nil {
		return rec.promise(source, "training metrics")
	}
	return nil, errors.New("no accept length and no acceptance by position in it: want metrics such as eval/simulated_acc_len, eval/acc_0, eval/per_position_acc or val/cond_acc_0_epoch")
}

func promiseOfList(list []float64, source string) (*Promise, error) {
	for i, v := range list {
		if !(v >= 0 && v <= 1) {
			return nil, fmt.Errorf("entry %d is %g: want the acceptance of each position, between 0 and 1", i+1, v)
		}
	}
	if len(list) > maxPositions {
		return nil, fmt.Errorf("%d entries: want at most %d positions", len(list), maxPositions)
	}
	excludes := true
	return &Promise{Given: tauOf(list) - 1, Positions: list, ExcludesBonus: &excludes, Source: source, Form: "list"}, nil
}

// eval reports whether the metric is of an evaluation: its own name goes before words of
// its line.
func (m *metric) eval() bool {
	for i := len(m.path) - 1; i >= 0; i-- {
		first, _, _ := strings.Cut(m.path[i], "_") // HF trainers write eval_acc_0
		for _, w := range []string{m.path[i], first} {
			if s := sectionOf(w); s != "" {
				return s == sectionEval
			}
		}
	}
	// speculators names the means of a whole validation so.
	return m.section == sectionEval || strings.HasSuffix(m.path[len(m.path)-1], "_epoch")
}

// records are the evaluations of a log one after the other: a metric that comes again
// begins the next. Of them the last complete one is kept.
type records struct {
	now, best trainRecord
}

func (r *records) add(m metric) {
	name, at := metricName(m.path)
	if name == "" || !(m.value >= 0 && m.value <= maxPromise) {
		return
	}
	if at >= 0 {
		r.addPosition(name, at, m)
		return
	}
	slot, form := &r.now.length, "torchspec"
	switch name {
	case "simulated_acc_len", "sim_acc_len", "acc_len": // TorchSpec eagle3_trainer.py, controller/loop.py; SpecForge eval/evaluator.py
	case "eal": // speculators models/dflash/metrics.py
		form = "speculators"
	case "accept_len": // with the anchor: speculators models/dspark/metrics.py, SpecForge common/dflash_family_model.py
		slot, form = &r.now.tau, "speculators"
	case "avg_acc":
		slot, form = &r.now.accuracy, ""
	default:
		return
	}
	if *slot != 0 {
		r.finish()
	}
	*slot = m.value
	r.now.seen(m.line, form)
}

func (r *records) addPosition(name string, at int, m metric) {
	kind, form := seriesAccuracy, ""
	switch name {
	case perPosition: // SpecForge eval/evaluator.py; its older scripts and EAGLE print it
		form = "specforge"
	case "acc", "acces", "epochacc": // SpecForge training/controller.py, TorchSpec eagle3_trainer.py, EAGLE traineagle3
	case "position_acc": // speculators models/dflash, dspark, peagle
		form = "speculators"
	case "full_acc": // speculators models/metrics.py: right at this position and at all before
		kind, form = seriesJoint, "speculators"
	case "cond_acc":
		kind, form = seriesConditional, "speculators"
	default:
		return
	}
	if at >= maxPositions || m.value > 1 {
		return
	}
	if v := r.now.values[kind]; at < len(v) && !math.IsNaN(v[at]) {
		r.finish()
	}
	v := &r.now.values[kind]
	for len(*v) <= at {
		*v = append(*v, math.NaN())
	}
	(*v)[at] = m.value
	r.now.seen(m.line, form)
}

func (t *trainRecord) seen(line int, form string) {
	if t.line == 0 {
		t.line = line
	}
	if t.form == "" || form == "specforge" || form == "speculators" {
		t.form = form
	}
}

// finish keeps the current record, unless it is cut: a log may end in the middle of one.
func (r *records) finish() {
	if was, is := len(r.best.conditional()), len(r.now.conditional()); is > 0 && is >= was || was == 0 && r.now.length+r.now.tau > 0 {
		r.best = r.now
	}
	r.now = trainRecord{}
}

func (r *records) last() *trainRecord {
	r.finish()
	if r.best.line == 0 {
		return nil
	}
	return &r.best
}

// conditional is the acceptance of each position given those before it, as far as it is
// known without a gap.
func (t *trainRecord) conditional() []float64 {
	for kind := numSeries - 1; kind >= 0; kind-- {
		v := t.values[kind]
		if len(v) > 1 && math.IsNaN(v[0]) { // block drafts count from their anchor, which is given
			v = v[1:]
		}
		if gap := slices.IndexFunc(v, math.IsNaN); gap >= 0 {
			v = v[:gap]
		}
		if len(v) == 0 {
			continue
		}
		if kind == seriesJoint {
			return stats.JointToConditional(v)
		}
		return v
	}
	return nil
}

// promise makes a promise of the record.
func (t *trainRecord) promise(source, what string) (*Promise, error) {
	p := &Promise{Source: source, Positions: t.conditional(), Form: t.form, Note: fmt.Sprintf("the last %s, line %d", what, t.line)}
	excludes := t.length > 0 || t.tau == 0
	p.Given = t.length
	if !excludes {
		p.Given = t.tau
	}
	if sum := tauOf(p.Positions) - 1; len(p.Positions) > 0 {
		switch {
		case p.Given == 0:
			p.Given = sum
		case t.length > 0 && math.Abs(t.length-1-sum) < math.Abs(t.length-sum):
			excludes = false // a fork that adds the bonus token: its positions show it
		}
		if p.Form == "" { // acc_0 and so on are SpecForge's names, and TorchSpec's with the sum beside them
			p.Form = "specforge"
		}
	} else if t.length > 0 && t.length == t.accuracy {
		// SpecForge writes the mean accuracy there for drafts without positions.
		return nil, fmt.Errorf("line %d: the accept length is only the mean accuracy, %g: no acceptance by position was logged", t.line, t.accuracy)
	}
	if p.Form == "torchspec" {
		p.Note += "; TorchSpec counts only tokens of the draft's own vocabulary, so a pruned one reaches less than is promised"
	}
	if p.Given <= 0 {
		return nil, fmt.Errorf("line %d: an accept length of %g is no promise", t.line, p.Given)
	}
	p.ExcludesBonus = &excludes
	return p, nil
}

// metricName is the name of a metric without its section, its position and the _epoch of
// speculators, and the position, -1 without one.
func metricName(path []string) (name string, position int) {
	if len(path) == 0 {
		return "", -1
	}
	last := strings.TrimSuffix(path[len(path)-1], "_epoch")
	if at, err := strconv.Atoi(last); err == nil && at >= 0 && len(path) > 1 { // per_position_acc/0
		return withoutSection(path[len(path)-2]), at
	}
	last = withoutSection(last)
	if mid, ok := strings.CutPrefix(last, "position_"); ok { // position_1_acc
		if n, found := strings.CutSuffix(mid, "_acc"); found {
			if at, err := strconv.Atoi(n); err == nil && at >= 0 {
				return "position_acc", at
			}
		}
	}
	if cut := strings.LastIndexByte(last, '_'); cut > 0 {
		if at, err := strconv.Atoi(last[cut+1:]); err == nil && at >= 0 {
			return last[:cut], at
		}
	}
	return last, -1
}

func withoutSection(name string) string {
	if first, rest, ok := strings.Cut(name, "_"); ok && sectionOf(first) != "" {
		return rest
	}
	return name
}
