package bench_test

import (
	"maps"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
	"hsx/bench/server"
)

func TestDifferences(t *testing.T) {
	t.Parallel()
	same := map[string]string{"tp_size": "8", "dtype": "bfloat16"}
	l := pair(118, func(s, b *simulated) {
		s.info.Arguments, b.info.Arguments = maps.Clone(same), maps.Clone(same)
		s.info.Version, b.info.Version = "0.5.9", "0.5.9"
		maps.Copy(s.info.Arguments, map[string]string{
			"speculative_num_steps": "3", "mem_fraction_static": "0.75", "port": "30000", "server_args.log_level": "info",
			"max_running_requests": "48", "disable-cuda-graph": "true", "new_flag": "on",
		})
		maps.Copy(b.info.Arguments, map[string]string{"mem_fraction_static": "0.88", "port": "30001", "max_running_requests": "256"})
	})
	want := []bench.Difference{
		{Argument: "disable-cuda-graph", Spec: "true", Baseline: "not set", Matters: "how a step is launched: without graphs each costs more"},
		{Argument: "max_running_requests", Spec: "48", Baseline: "256", Matters: "requests that run at once"},
		{Argument: "mem_fraction_static", Spec: "0.75", Baseline: "0.88", Matters: "room for the key-value cache: at high concurrency fewer requests run at once"},
		{Argument: "new_flag", Spec: "on", Baseline: "not set", Matters: "not known to be harmless"},
		{Argument: "speculative_num_steps", Spec: "3", Baseline: "not set"},
	}
	if d := cmp.Diff(want, bench.Analyse(l, bench.Judgement{}).Differences); d != "" {
		t.Errorf("differences (-want +got):\n%s", d)
	}
}

// TestDifferencesOfEngines lists what the two programs are, not all that only one of
// them has a name for.
func TestDifferencesOfEngines(t *testing.T) {
	t.Parallel()
	l := pair(118, func(s, b *simulated) {
		s.info.Arguments, s.info.Version = map[string]string{"tp_size": "8"}, "0.5.9"
		b.info.Engine, b.info.Version = server.VLLM, "0.32.0"
	})
	want := []bench.Difference{
		{Argument: "engine", Spec: "sglang", Baseline: "vllm", Matters: "another program"},
		{Argument: "engine version", Spec: "0.5.9", Baseline: "0.32.0", Matters: "another program"},
	}
	if d := cmp.Diff(want, bench.Analyse(l, bench.Judgement{}).Differences); d != "" {
		t.Errorf("differences (-want +got):\n%s", d)
	}
}
