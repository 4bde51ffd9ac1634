package simserver

import "fmt"

// flushCache forgets the lifetime averages, as SGLang's does together with its prefix
// cache. It does nothing, and reports false, while requests run.
func (s *Server) flushCache() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running+s.waiting > 0 {
		return false
	}
	for i := range s.windows {
		s.windows[i] = window{}
	}
	return true
}

// sglangInfo is /server_info: the arguments, and the state of each rank.
func (s *Server) sglangInfo() any {
	v := s.shown()
	info := map[string]any{
		"model_path": s.opt.Model, "served_model_name": s.opt.Model, "tokenizer_path": s.opt.Model,
		"context_length": s.opt.Context, "dtype": "bfloat16", "tp_size": 1, "dp_size": s.opt.Ranks,
		"mem_fraction_static": 0.85, "max_running_requests": nil, "disable_cuda_graph": false,
		"api_key": orNil(s.opt.Key), "reasoning_parser": nil, "random_seed": s.opt.Seed,
		"speculative_algorithm": nil, "speculative_draft_model_path": nil, "speculative_num_steps": nil,
		"speculative_eagle_topk": nil, "speculative_num_draft_tokens": nil,
		"status": "ready", "max_total_num_tokens": 1 << 20, "version": s.opt.Version,
	}
	if s.opt.Think > 0 && !s.opt.ThinkInline {
		info["reasoning_parser"] = "simulated"
	}
	if s.opt.Steps > 0 {
		info["speculative_algorithm"] = "EAGLE3"
		info["speculative_draft_model_path"] = s.opt.Model + "-draft"
		info["speculative_num_steps"] = s.opt.Steps
		info["speculative_eagle_topk"] = 1
		info["speculative_num_draft_tokens"] = s.opt.Steps + 1
		if s.opt.AskedSteps > 0 {
			info["speculative_num_draft_tokens"] = s.opt.AskedSteps
		}
	}
	for k, a := range s.opt.Arguments {
		info[k] = a
	}
	states := make([]any, len(v.ranks))
	for i, w := range v.windows {
		state := map[string]any{"last_gen_throughput": 0.0, "load": v.running}
		if w.lifeSteps > 0 {
			state["avg_spec_accept_length"] = 1 + ratio(w.lifeAccepted, w.lifeSteps)
		}
		states[i] = state
	}
	info["internal_states"] = states
	return info
}

// sglangMetrics is what SGLang shows: gauges of each rank's scheduler, and counters of
// the one process that takes requests.
func (s *Server) sglangMetrics() string {
	v := s.shown()
	m := s.metrics()
	own := fmt.Sprintf(`engine_type="unified",model_name="%s"`, escape(s.opt.Model))
	gauge := func(name, help string, get func(i int) float64) {
		var out []sample
		for i := range v.ranks {
			labels := own + `,moe_ep_rank="0",pp_rank="0",tp_rank="0"`
			if len(v.ranks) > 1 {
				labels = fmt.Sprintf(`dp_rank="%d",`, i) + labels
			}
			out = append(out, sample{labels, get(i)})
		}
		m.family(name, "gauge", help, out...)
	}
	first := func(n int) func(int) float64 {
		return func(i int) float64 {
			if i > 0 {
				return 0
			}
			return float64(n)
		}
	}
	gauge("sglang:num_running_reqs", "The number of running requests.", first(v.running))
	gauge("sglang:num_queue_reqs", "The number of requests in the waiting queue.", first(v.waiting))
	gauge("sglang:gen_throughput", "The generation throughput (token/s).", first(0))
	gauge("sglang:spec_accept_length", "The average acceptance length of speculative decoding.",
		func(i int) float64 { return v.windows[i].last })
	gauge("sglang:spec_accept_rate", "The average acceptance rate of speculative decoding.", func(i int) float64 {
		if s.opt.Steps == 0 || v.windows[i].last == 0 {
			return 0
		}
		return (v.windows[i].last - 1) / float64(s.opt.Steps)
	})
	sum := v.sum()
	if s.opt.Steps > 0 {
		gauge("sglang:spec_num_steps", "The number of speculative steps.",
			func(int) float64 { return float64(s.opt.Steps) })
		gauge("sglang:spec_num_draft_tokens", "The number of draft tokens.",
			func(int) float64 { return float64(s.opt.Steps + 1) })
		m.counter("sglang:spec_verify_calls_total", "Number of verify calls.", own, sum.steps)
	}
	split := func(name, help string, all, whole int64) {
		m.family(name, "counter", help,
			sample{own + `,is_streaming="true"`, float64(all - whole)},
			sample{own + `,is_streaming="false"`, float64(whole)})
	}
	split("sglang:prompt_tokens_total", "Number of prefill tokens processed.", sum.prompt, 0)
	m.malformed("sglang:cached_tokens_total")
	split("sglang:generation_tokens_total", "Number of generation tokens processed.", sum.tokens, sum.wholeTokens)
	split("sglang:num_requests_total", "Number of requests processed.", sum.requests, sum.wholeRequests)
	return m.b.String()
}
