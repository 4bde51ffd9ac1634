package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// dialect is under which names an engine's Prometheus metrics have what is counted, with
// underscores for colons. An empty name is not exposed.
type dialect struct {
	engine                               Engine
	prefix                               string
	steps, accepted, drafted, accepted1  string // accepted1: with a label for the position
	drafted1                             string // drafts at each position: those at the first are the steps
	generated, finished, running, queued string
	window                               string // accept length of the last window
}

func dialects() []dialect {
	return []dialect{{
		engine: VLLM, prefix: "vllm_",
		steps: "spec_decode_num_drafts_total", accepted: "spec_decode_num_accepted_tokens_total",
		drafted: "spec_decode_num_draft_tokens_total", accepted1: "spec_decode_num_accepted_tokens_per_pos_total",
		generated: "generation_tokens_total", finished: "request_success_total",
		running: "num_requests_running", queued: "num_requests_waiting",
	}, {
		engine: SGLang, prefix: "sglang_",
		steps:     "spec_verify_calls_total",
		generated: "generation_tokens_total", finished: "num_requests_total",
		running: "num_running_reqs", queued: "num_queue_reqs", window: "spec_accept_length",
	}, {
		engine: LlamaCpp, prefix: "llamacpp_",
		steps: "spec_decode_num_drafts_total", accepted: "spec_decode_num_accepted_tokens_total",
		drafted: "spec_decode_num_draft_tokens_total", accepted1: "spec_decode_num_accepted_tokens_per_pos_total",
		generated: "tokens_predicted_total",
		running:   "requests_processing", queued: "requests_deferred",
	}, {
		engine: TRTLLM, prefix: "trtllm_",
		accepted: "spec_decode_num_accepted_tokens_total", drafted: "spec_decode_num_draft_tokens_total",
		accepted1: "spec_decode_accepted_tokens_total", drafted1: "spec_decode_drafted_tokens_total",
		generated: "generation_tokens_total", finished: "request_success_total",
		running: "num_requests_running", queued: "num_requests_waiting", window: "spec_decode_acceptance_length",
	}}
}

// exposition is the metrics of one URL in one dialect.
type exposition struct {
	dialect
	samples  []sample // of the chosen model
	problems []string
}

// newExposition finds the dialect. Of several models' series it keeps the chosen one's.
func newExposition(samples []sample, model string) (*exposition, bool) {
	for _, d := range dialects() {
		e := &exposition{dialect: d}
		models := map[string]bool{}
		for _, s := range samples {
			if !strings.HasPrefix(s.name, d.prefix) {
				continue
			}
			s.name = s.name[len(d.prefix):]
			e.samples = append(e.samples, s)
			if name, ok := s.labels["model_name"]; ok {
				models[name] = true
			}
		}
		switch {
		case len(e.samples) == 0:
			continue
		case len(models) > 1 && models[model]:
			e.samples = slices.DeleteFunc(e.samples, func(s sample) bool {
				name, ok := s.labels["model_name"]
				return ok && name != model
			})
		case len(models) > 1:
			e.problems = append(e.problems, fmt.Sprintf("counters of models %s are added up: none is %q",
				printable(strings.Join(slices.Sorted(maps.Keys(models)), ", "), 200), model))
		}
		return e, true
	}
	return nil, false
}

// snapshot adds up what was exposed.
func (e *exposition) snapshot() Snapshot {
	s := Snapshot{
		Source: string(e.engine) + " metrics",
		Steps:  e.sum(e.steps), Accepted: e.sum(e.accepted), Drafted: e.sum(e.drafted),
		Generated: e.sum(e.generated), Finished: e.sum(e.finished),
		Positions: e.byPosition(e.accepted1),
		Window:    e.mean(e.window),
	}
	if at := e.byPosition(e.drafted1); len(at) > 0 {
		// These two count at a request's end, the totals at each iteration: never mixed.
		s.Steps, s.Drafted, s.Accepted = &at[0], total(at), total(s.Positions)
	}
	running, queued := e.sum(e.running), e.sum(e.queued)
	if running != nil {
		s.Load = Load{Known: true, Running: *running}
		s.Ranks = len(e.ranks(e.running))
	}
	if queued != nil {
		s.Load.Waiting = *queued
	}
	slices.Sort(e.problems)
	s.Problems = slices.Compact(e.problems)
	return s
}

// ranks are the series of a metric, one for each data-parallel rank and whatever else
// its labels tell apart. Tensor- and pipeline-parallel ranks repeat each other, so that
// of each such set the largest is taken; with priorities, the series of priority "" has
// their sum already. Values that are no numbers are left out.
func (e *exposition) ranks(name string) []sample {
	if name == "" {
		return nil
	}
	byRank := map[string]sample{}
	summed := false
	for _, s := range e.samples {
		if s.name != name {
			continue
		}
		if !finite(s.value) {
			e.problems = append(e.problems, fmt.Sprintf("%s%s is %g: left out", e.prefix, name, s.value))
			continue
		}
		priority, ok := s.labels["priority"]
		summed = summed || ok && priority == ""
		key := rankKey(s.labels)
		if old, ok := byRank[key]; !ok || s.value > old.value {
			byRank[key] = s
		}
	}
	var kept []sample
	for _, key := range slices.Sorted(maps.Keys(byRank)) {
		if s := byRank[key]; !summed || s.labels["priority"] == "" {
			kept = append(kept, s)
		}
	}
	return kept
}

func rankKey(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch name {
		case "tp_rank", "pp_rank", "moe_ep_rank", "attn_tp_rank":
		default:
			b.WriteString(strconv.Quote(name) + strconv.Quote(labels[name]))
		}
	}
	return b.String()
}

func (e *exposition) sum(name string) *float64 {
	var values []float64
	for _, s := range e.ranks(name) {
		values = append(values, s.value)
	}
	sum := total(values)
	if sum != nil && !finite(*sum) {
		e.problems = append(e.problems, fmt.Sprintf("%s%s adds up to %g: left out", e.prefix, name, *sum))
		return nil
	}
	return sum
}

// mean is over the ranks that have seen anything: the gauges it is for are 0 before.
func (e *exposition) mean(name string) *float64 {
	var values []float64
	for _, s := range e.ranks(name) {
		if s.value > 0 {
			values = append(values, s.value)
		}
	}
	if mean := average(values); mean != nil && finite(*mean) {
		return mean
	}
	return nil
}

// byPosition adds up the series of each draft position.
func (e *exposition) byPosition(name string) []float64 {
	const most = 1024 // drafts in one step: no engine has a tenth
	var at []float64
	for _, s := range e.ranks(name) {
		label, ok := s.labels["position"]
		if !ok {
			label, ok = s.labels["token_position"]
		}
		if !ok { // TensorRT-LLM once counted under the same name without positions
			continue
		}
		i, err := strconv.Atoi(label)
		if err != nil || i < 0 || i >= most {
			e.problems = append(e.problems, fmt.Sprintf("%s%s has position %q: left out", e.prefix, name, printable(label, 40)))
			continue
		}
		for len(at) <= i {
			at = append(at, 0)
		}
		at[i] += s.value
	}
	if sum := total(at); sum != nil && !finite(*sum) {
		return nil
	}
	return at
}

// total is nil for no values.
func total(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return &sum
}

func average(values []float64) *float64 {
	sum := total(values)
	if sum == nil {
		return nil
	}
	*sum /= float64(len(values))
	return sum
}
