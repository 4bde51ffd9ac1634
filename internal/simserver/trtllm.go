package simserver

import (
	"fmt"
	"net/http"
)

// trtllmDialect is that of TensorRT-LLM's trtllm-serve, after its sources: none was
// recorded.
func trtllmDialect() dialect {
	return dialect{
		version: "1.2.0",
		routes:  trtllmRoutes,
		models:  func(s *Server) any { return s.modelList("tensorrt_llm", nil) },
		refuse: func(_ *Server, r refusal) any {
			return map[string]any{
				"object": "error", "message": r.message, "type": r.kind, "param": orNil(r.param), "code": r.status,
			}
		},
		open: func(x *exchange) []any {
			return x.roleEvent(choice{Logprobs: null(), Stop: null()}, "", x.trtllmUsage())
		},
		tokens: trtllmTokens,
		end:    func(x *exchange) []any { return x.usageEvent(x.trtllmUsage(), nil) },
		whole:  trtllmWhole,
	}
}

func trtllmRoutes(s *Server) {
	s.mux.HandleFunc("GET /health", okay)
	s.mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"version": s.opt.Version})
	})
	s.mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, s.trtllmIterations())
	})
	s.mux.HandleFunc("GET /prometheus/metrics", func(w http.ResponseWriter, _ *http.Request) {
		writeMetrics(w, "text/plain; version=0.0.4; charset=utf-8", s.trtllmMetrics())
	})
}

func (x *exchange) trtllmUsage() *usage {
	u := x.usage()
	u.PromptDetails = map[string]any{"cached_tokens": 0}
	return u
}

// trtllmPerStep is the tokens of an iteration so far, the prefill counted as one.
func (x *exchange) trtllmPerStep() float64 {
	return ratio(x.sofar.tokens, x.sofar.decodes)
}

func trtllmTokens(x *exchange, from, to int) []any {
	c := x.choice()
	perStep := x.trtllmPerStep()
	c.Logprobs, c.Stop, c.TokensPerStep = null(), null(), &perStep
	thinking, answer := x.split(from, to)
	if !c.put(x, thinking, answer) {
		return nil
	}
	e := x.event(c)
	if x.wantsUsage(true) {
		e.Usage = x.trtllmUsage()
	}
	return []any{e}
}

func trtllmWhole(x *exchange) any {
	doc := x.document("reasoning_content", x.trtllmUsage(), nil)
	doc["choices"].([]any)[0].(map[string]any)["avg_decoded_tokens_per_iter"] = x.trtllmPerStep()
	return doc
}

// The iterations of TensorRT-LLM are of a batch. Here one has so many verify steps of
// requests, and when nobody reads, the last one grows.
const (
	iterationSteps = 32
	maxIterations  = 1000
)

// iteration is the counts of one iteration.
type iteration struct{ requests, drafted, accepted, completed int64 }

// iterate adds a step, or the end of an answer, to the iterations that nobody has read.
// The caller holds s.mu.
func (s *Server) iterate(c counters) {
	if s.opt.Engine != TRTLLM {
		return
	}
	last := len(s.iterations) - 1
	if last < 0 || s.iterations[last].requests >= iterationSteps && last+1 < maxIterations {
		s.iterations = append(s.iterations, iteration{})
		last++
	}
	it := &s.iterations[last]
	it.requests += c.steps
	it.drafted += c.drafted
	it.accepted += c.accepted
	it.completed += c.requests
}

// trtllmIterations is /metrics: the iterations since it was last read, each copied to
// every rank.
func (s *Server) trtllmIterations() any {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []any{}
	for _, it := range s.iterations {
		s.iteration++
		for rank := range s.opt.Ranks {
			row := map[string]any{
				"iter": s.iteration, "iterLatencyMS": 1.0, "numActiveRequests": s.running, "numQueuedRequests": s.waiting,
				"numCompletedRequests": it.completed, "attentionDpRank": rank,
				"inflightBatchingStats": map[string]any{"numGenRequests": it.requests, "numContextRequests": 0},
			}
			if s.opt.Steps > 0 {
				row["specDecodingStats"] = map[string]any{
					"numDraftTokens": it.drafted, "numAcceptedTokens": it.accepted, "numRequestsWithDraftTokens": it.requests,
					"acceptanceLength": 1 + ratio(it.accepted, it.requests), "iterLatencyMS": 0.1, "draftOverhead": 0.1,
				}
			}
			list = append(list, row)
		}
	}
	s.iterations = nil
	return list
}

// trtllmMetrics is the Prometheus text, which has no counter of steps.
func (s *Server) trtllmMetrics() string {
	v := s.shown()
	m := s.metrics()
	sum := v.sum()
	own := fmt.Sprintf(`engine_type="trtllm",model_name="%s"`, escape(s.opt.Model))
	m.counter("trtllm_prompt_tokens_total", "Prompt tokens.", own, sum.prompt)
	m.counter("trtllm_generation_tokens_total", "Generated tokens.", own, sum.tokens)
	m.malformed("trtllm_request_queue_time_seconds_sum")
	m.family("trtllm_request_success_total", "counter", "Requests that succeeded.",
		sample{own + `,finished_reason="end_id"`, float64(sum.requests - sum.cut)},
		sample{own + `,finished_reason="length"`, float64(sum.cut)})
	m.family("trtllm_num_requests_running", "gauge", "Requests that run.", sample{own, float64(v.running)})
	m.family("trtllm_num_requests_waiting", "gauge", "Requests that wait.", sample{own, float64(v.waiting)})
	if s.opt.Steps > 0 {
		m.family("trtllm_speculative_config_info", "gauge", "Speculation as configured.", sample{
			own + fmt.Sprintf(`,spec_enabled="true",spec_method="Eagle",spec_num_tokens="%d",spec_draft_model="%s-draft"`,
				s.opt.Steps, escape(s.opt.Model)), 1,
		})
		m.counter("trtllm_spec_decode_num_draft_tokens_total", "Draft tokens.", own, sum.drafted)
		m.counter("trtllm_spec_decode_num_accepted_tokens_total", "Accepted draft tokens.", own, sum.accepted)
		m.family("trtllm_spec_decode_acceptance_length", "gauge", "Acceptance length of the last iteration.",
			sample{own, v.windows[0].last})
	}
	return m.b.String()
}
