package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hsx/format"
	"hsx/shard"
)

// fakeSGLang is a server that answers with states as SGLang's documents say: element k
// of a row is the token's id + k/8. It refuses prompts of more than six tokens.
func fakeSGLang(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /get_server_info", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"model_path":"tiny","version":"0.5.3","disable_radix_cache":true,"chunked_prefill_size":-1}`))
	})
	mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			IDs []int32 `json:"input_ids"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || len(req.IDs) > 6 {
			http.Error(w, "too long", http.StatusBadRequest)
			return
		}
		var rows [][]float64
		for _, id := range req.IDs {
			row := make([]float64, 64)
			for k := range row {
				row[k] = float64(id) + float64(k)/8
			}
			rows = append(rows, row)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"output_ids": []int{1}, "meta_info": map[string]any{
			"prompt_tokens": len(req.IDs), "completion_tokens": 1, "cached_tokens": 0, "hidden_states": []any{rows}}})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// capturePrompts are a file of n prompts, the last of which is refused.
func capturePrompts(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	for i := range n {
		ids := "1,2,3"
		if i == n-1 {
			ids = "1,2,3,4,5,6"
		}
		fmt.Fprintf(&b, `{"id":"p%d","input_ids":[%d,%s]}`+"\n", i, 5+i, ids)
	}
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCapture(t *testing.T) {
	t.Parallel()
	ds := filepath.Join(t.TempDir(), "ds")
	args := []string{"capture", "--url", fakeSGLang(t), "--prompts", capturePrompts(t, 20), "--out", ds, "--final", "post", "--json"}
	var res captureResult
	code, out, talk := hsx(args...)
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != exitBadData {
		t.Fatalf("exit %d, want %d for the refused one: %v\n%s", code, exitBadData, err, talk)
	}
	if res.Samples != 19 || res.Rejected != 1 || res.Rows != 19 || len(res.Rejections) != 1 || !strings.Contains(res.Rejections[0].Reason, `prompt "p19"`) {
		t.Errorf("got %+v, want 19 samples and p19 refused", res)
	}
	if !strings.Contains(talk, "server: sglang 0.5.3, model tiny") {
		t.Errorf("talk lacks the server:\n%s", talk)
	}
	data, err := shard.Open(ds)
	if err != nil {
		t.Fatal(err)
	}
	if m := data.Manifest(); m.Target.Name != "tiny" || m.Producer != "sglang" || len(m.States) != 1 {
		t.Errorf("manifest: target %q, producer %s, %d states, want tiny, sglang, the final", m.Target.Name, m.Producer, len(m.States))
	}
	for s, err := range data.Samples(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		row := make([]float32, 64)
		format.Float32.Floats(row, s.Hidden[0].Rows.Data)
		if len(s.Tokens) != 4 || s.ID != fmt.Sprintf("p%d", s.Tokens[0]-5) || row[63] != float32(s.Tokens[0])+63.0/8 || s.LossMask != nil {
			t.Errorf("%s: tokens %v, row %v", s.ID, s.Tokens, row)
		}
	}
	if entries, err := os.ReadDir(ds); err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "capture.jsonl" }) {
		t.Errorf("the list of files is left, or %v", err)
	}
	code, out, _ = hsx(args...)
	if err := json.Unmarshal([]byte(out), &res); err != nil || code != exitBadData || res.Samples != 0 || res.Skipped != 19 || res.Rejected != 1 {
		t.Errorf("again: exit %d, %+v, want 19 skipped and the refused one tried", code, res)
	}
}

func TestCaptureUsage(t *testing.T) {
	t.Parallel()
	url, ps, ds := fakeSGLang(t), capturePrompts(t, 2), filepath.Join(t.TempDir(), "ds")
	dir := t.TempDir()
	script, blank, turns := filepath.Join(dir, "serve.sh"), filepath.Join(dir, "blank"), filepath.Join(dir, "turns.jsonl")
	for path, text := range map[string]string{
		script: `"eagle_aux_hidden_state_layer_ids":[1,2,4]`, blank: "", turns: `{"question_id":1,"turns":["a","b"]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no url":          {[]string{"--prompts", ps, "--out", ds}, exitUsage, "--url is missing"},
		"no prompts":      {[]string{"--url", url, "--out", ds}, exitUsage, "--prompts is missing"},
		"no out":          {[]string{"--url", url, "--prompts", ps}, exitUsage, "--out is missing"},
		"no server":       {[]string{"--url", "host:80", "--prompts", ps, "--out", ds}, exitUsage, "is not a server"},
		"engine":          {[]string{"--url", url, "--prompts", ps, "--out", ds, "--engine", "tgi"}, exitUsage, `"tgi" is not known`},
		"concurrency":     {[]string{"--url", url, "--prompts", ps, "--out", ds, "--concurrency", "0"}, exitUsage, "--concurrency 0"},
		"no time":         {[]string{"--url", url, "--prompts", ps, "--out", ds, "--timeout", "0s"}, exitUsage, "--timeout: 0s"},
		"no file":         {[]string{"--url", url, "--prompts", "absent", "--out", ds}, exitFailed, "read --prompts absent"},
		"empty file":      {[]string{"--url", url, "--prompts", blank, "--out", ds}, exitFailed, "no prompts"},
		"nobody there":    {[]string{"--url", "http://127.0.0.1:1", "--prompts", ps, "--out", ds}, exitFailed, "reach the server"},
		"layers disagree": {[]string{"--url", url, "--prompts", ps, "--out", ds, "--server-args", script, "--layers", "1,2,4"}, exitUsage, "differs from what the server stores"},
		"no layers in it": {[]string{"--url", url, "--prompts", ps, "--out", ds, "--server-args", ps}, exitUsage, "holds no eagle_aux_hidden_state_layer_ids"},
		"vLLM, no layers": {[]string{"--url", url, "--prompts", ps, "--out", ds, "--engine", "vllm", "--model", "m"}, exitUsage, "--layers is missing"},
		"messages, turns": {[]string{"--url", url, "--prompts", turns, "--out", filepath.Join(dir, "t"), "--final", "post"}, exitBadData, "1 prompt with further turns"},
		"which final?":    {[]string{"--url", url, "--prompts", capturePrompts(t, 9), "--out", filepath.Join(dir, "f")}, exitFailed, "--final decides"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, _, talk := hsx(append([]string{"capture"}, c.args...)...)
			if code != c.code || !strings.Contains(talk, c.want) {
				t.Errorf("exit %d, want %d and %q:\n%s", code, c.code, c.want, talk)
			}
			if _, err := os.Stat(ds); err == nil {
				t.Error("a dataset was made")
			}
		})
	}
}
