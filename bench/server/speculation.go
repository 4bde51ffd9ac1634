package server

import (
	"math"
	"strconv"
	"strings"
)

// speculation puts together what the server says of speculation and what the probe
// showed. What runs is believed before what was asked for.
func (e *evidence) speculation(engine Engine, after Snapshot, probe *Outcome) Speculation {
	var s Speculation
	switch {
	case e.sglang != nil:
		s = e.sglang.speculation()
		e.sglangRuns(&s)
	case engine == LlamaCpp:
		s = e.llamaSpeculation(after)
	case engine == TRTLLM:
		s = e.trtSpeculation()
	}
	counted(&s, engine, after)
	probed(&s, engine, probe.Accept)
	return s
}

// sglangRuns reads the gauges of what runs now: they differ from the arguments when the
// server adapts. They are 0 before the first window.
func (e *evidence) sglangRuns(s *Speculation) {
	if !s.chain() {
		return
	}
	for _, m := range e.samples {
		switch {
		case m.name == "sglang_spec_num_steps" && m.value >= 1 && m.value < 1e3:
			s.runs(int(m.value), "sglang:spec_num_steps")
		case m.name == "sglang_spec_num_draft_tokens" && m.value >= 1 && m.value < 1e3:
			s.DraftTokens = int(m.value)
		}
	}
}

// chain reports whether SGLang drafts one token at each step, and verifies them all.
func (s *Speculation) chain() bool {
	switch s.Method {
	case "eagle", "eagle3", "nextn", "standalone":
		return s.On && s.TopK == 1 && s.Steps > 0
	}
	return false
}

// runs notes how many draft positions run, where it was seen and not only asked for.
func (s *Speculation) runs(positions int, seen string) {
	if positions == s.Steps {
		return
	}
	if s.Steps > 0 && s.AskedSteps == 0 {
		s.AskedSteps, s.AskedBy = s.Steps, "speculative_num_steps"
	}
	s.Steps = positions
	s.Evidence = joined(s.Evidence, seen)
}

// llamaSpeculation reads /slots, which has the types of speculation. What /props says
// of them is "none" whatever runs, and the counters are there without speculation too.
func (e *evidence) llamaSpeculation(after Snapshot) Speculation {
	var s Speculation
	for _, slot := range e.slots {
		if slot.Speculative == nil {
			continue
		}
		s.Known, s.On, s.Evidence = true, s.On || *slot.Speculative, "/slots"
		types, _ := slot.Params["speculative.types"].(string) // of a slot that was used
		if types = strings.TrimPrefix(types, "none,"); *slot.Speculative && types != "none" && types != "" {
			s.Method = printable(types, 80)
		}
	}
	if s.Known {
		return s
	}
	if after.Steps != nil && *after.Steps == 0 && after.Generated != nil && *after.Generated > 0 {
		return Speculation{Evidence: "no draft was counted yet, which n-gram methods may take long to make"}
	}
	return Speculation{}
}

// trtSpeculation reads the labels of TensorRT-LLM's configuration, when it exports them.
func (e *evidence) trtSpeculation() Speculation {
	var s Speculation
	for _, m := range e.samples {
		if m.name != "trtllm_speculative_config_info" {
			continue
		}
		method := strings.ToLower(m.labels["spec_method"])
		s = Speculation{
			Known:    true,
			On:       m.labels["spec_enabled"] == "true" || method != "" && method != "none",
			Evidence: m.name,
		}
		if s.On {
			s.Method, s.Draft = printable(method, 80), printable(m.labels["spec_draft_model"], maxArgument)
			if n, err := strconv.Atoi(m.labels["spec_num_tokens"]); err == nil && n > 0 && n < 1e3 {
				s.Steps = n
			}
		}
	}
	return s
}

// counted takes what the counters show after the probe: vLLM has those of speculation
// only when it is on, the others move them.
func counted(s *Speculation, engine Engine, after Snapshot) {
	if after.Source == "" {
		return
	}
	on := after.Steps != nil && *after.Steps > 0 || after.Drafted != nil && *after.Drafted > 0
	switch {
	case engine == VLLM:
		s.Known, s.On = true, after.Steps != nil
		s.Evidence = "no vllm:spec_decode metrics"
		if s.On {
			s.Evidence = "vllm:spec_decode metrics"
		}
	case on && !s.On:
		s.Known, s.On, s.Evidence = true, true, joined(s.Evidence, after.Source)
	case engine == TRTLLM && !s.Known && after.Load.Known: // it lists drafts with the rest of an iteration
		s.Known, s.Evidence = true, after.Source+" without drafts"
	}
	if s.On && s.Steps == 0 {
		s.Steps = len(after.Positions)
	}
}

// probed takes what the probe's own answer shows.
func probed(s *Speculation, engine Engine, a *Accept) {
	if a == nil || a.Steps <= 0 {
		return
	}
	if !s.On && (a.Drafted > 0 || a.Accepted > 0) {
		s.Known, s.On = true, true
		s.Evidence = joined(s.Evidence, a.Source)
	}
	if s.On && s.Steps == 0 && engine == VLLM {
		s.Steps = len(a.Positions)
	}
	perStep := a.Drafted / a.Steps
	if engine == SGLang && s.chain() && perStep >= 1 && perStep == math.Trunc(perStep) && perStep < 1e3 {
		s.runs(int(perStep), a.Source)
		s.DraftTokens = s.Steps + 1
	}
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	return a + ", " + b
}
