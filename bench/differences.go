package bench

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"hsx/bench/server"
)

// differences are the arguments that are not the same in two servers, those that may
// explain a difference in speed first and speculation's own last. What says only where a
// server listens or logs is left out.
func differences(spec, base *ArmInfo) []Difference {
	if spec == nil || base == nil {
		return nil
	}
	x, y := arguments(&spec.Info), arguments(&base.Info)
	names := maps.Clone(x)
	maps.Copy(names, y)
	var out []Difference
	for _, name := range slices.Sorted(maps.Keys(names)) {
		u, inX := x[name]
		v, inY := y[name]
		matters, listed := matter(name)
		// Engines tell different arguments: one that only one arm tells is no difference.
		if u == v && inX == inY || !listed || spec.Info.Engine != base.Info.Engine && (!inX || !inY) {
			continue
		}
		out = append(out, Difference{name, cmp.Or(u, "not set"), cmp.Or(v, "not set"), matters})
	}
	slices.SortStableFunc(out, func(d, e Difference) int {
		return cmp.Compare(min(len(e.Matters), 1), min(len(d.Matters), 1))
	})
	return out
}

// arguments are those of a server, and what it is.
func arguments(info *server.Info) map[string]string {
	all := map[string]string{}
	maps.Copy(all, info.Arguments)
	for name, value := range map[string]string{"engine": string(info.Engine), "engine version": info.Version, "served model": info.Model} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}

// matter says why an argument may explain a difference in speed: "" for one of
// speculation itself. It is not listed when it cannot.
func matter(name string) (why string, listed bool) {
	name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
	last := name[strings.LastIndexByte(name, '.')+1:]
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(last, p) })
	}
	switch {
	case strings.Contains(name, "specul") || strings.Contains(name, "spec_") || has("draft", "eagle"):
		return "", true
	case last == "port" || last == "host" || last == "url" || last == "pid" || last == "alias",
		has("log", "_port", "seed", "served_model_name", "_addr", "metrics", "uptime", "watchdog", "api_key", "webui", "trace", "show_time"):
		return "", false
	case has("mem_fraction", "memory_utilization", "max_total_tokens", "max_total_num_tokens", "num_gpu_blocks", "kvcache", "kv_cache_size", "swap_space", "host_memory"):
		return "room for the key-value cache: at high concurrency fewer requests run at once", true
	case has("max_running", "max_num_seqs", "max_batch", "parallel_slots", "total_slots", "n_parallel"):
		return "requests that run at once", true
	case has("graph", "eager", "compil", "padding"):
		return "how a step is launched: without graphs each costs more", true
	case has("tp_size", "dp_size", "ep_size", "pp_size", "parallel", "dp_attention", "nnodes", "device", "gpu"):
		return "the work is spread over the hardware in another way", true
	case has("dtype", "quant", "load_format", "precision"):
		return "another number format: another speed and other text", true
	case has("backend", "kernel", "fusion", "flash", "allreduce", "nccl"):
		return "other kernels", true
	case has("radix", "prefix_cach", "cache"):
		return "prompts may come from the cache in one arm only", true
	case has("chunked_prefill", "batched_tokens", "prefill", "schedule", "overlap", "decode_steps", "interval"):
		return "prefill and decode are scheduled in another way", true
	case has("model", "revision", "tokenizer", "template", "parser"):
		return "another model, or other prompts", true
	case has("engine", "version"):
		return "another program", true
	case has("context", "max_len", "n_ctx", "max_seq"):
		return "another context length", true
	}
	return "not known to be harmless", true
}
