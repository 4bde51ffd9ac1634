package live_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hsx/capture/live"
	"hsx/format"
	"hsx/format/producer"
)

// fakeSGLang answers as SGLang's documents and its own tests say: no real server was
// at hand.
func fakeSGLang(t *testing.T, arguments string, drop, cached int) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /get_server_info", func(w http.ResponseWriter, _ *http.Request) { say(w, "%s", arguments) })
	mux.HandleFunc("POST /generate", func(w http.ResponseWriter, r *http.Request) {
		var req struct {
			IDs    []int32 `json:"input_ids"`
			Return bool    `json:"return_hidden_states"`
			Params struct {
				Max int `json:"max_new_tokens"`
			} `json:"sampling_params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || !req.Return || req.Params.Max != 1 {
			t.Errorf("request %+v, %v: want states and one token", req, err)
		}
		rows := [][]float64{}
		for _, id := range req.IDs[drop:] {
			row := make([]float64, hidden)
			for k := range row {
				row[k] = float64(id) + 0.25
			}
			rows = append(rows, row)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"text": "a", "output_ids": []int{7},
			"meta_info": map[string]any{
				"id": "x", "prompt_tokens": len(req.IDs), "completion_tokens": 1, "cached_tokens": cached,
				"hidden_states": []any{rows},
			},
		})
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

const goodArguments = `{"model_path":"big/model","version":"0.5.3","disable_radix_cache":true,"chunked_prefill_size":-1,"enable_return_hidden_states":true}`

func TestSGLang(t *testing.T) {
	t.Parallel()
	opt := live.Options{URL: fakeSGLang(t, goodArguments, 0, 0), Facts: producer.Facts{DType: format.Float32, Final: producer.FinalPost}}
	store := &memory{}
	messages := live.Prompt{ID: "m", Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`)}
	stats, rejected, err := run(t, opt, append(somePrompts(12), messages), store)
	if err != nil || stats.Samples != 12 || store.committed != 12 || len(rejected) != 1 || !strings.Contains(rejected[0], "want input_ids") {
		t.Fatalf("got %+v, %v, rejected %q, want 12 samples and the messages refused", stats, err, rejected)
	}
	for i, p := range somePrompts(12) {
		s := store.samples[p.ID]
		if len(s.Hidden) != 1 || s.Hidden[0].State.Role != format.RoleFinal || s.Hidden[0].State.Norm != format.NormPost || s.Hidden[0].Rows.N != 4 {
			t.Fatalf("%s: got %+v, want the final after the norm", p.ID, s.Layout())
		}
		row := make([]float32, hidden)
		format.Float32.Floats(row, s.Hidden[0].Rows.Data)
		if want := float32(10+i) + 0.25; row[0] != want || string(s.LossMask) != string(p.LossMask) || s.Producer != "sglang" {
			t.Errorf("%s: got %v, mask %v, producer %s, want %v and the prompt's mask", p.ID, row[0], s.LossMask, s.Producer, want)
		}
	}
}

func TestSGLangCut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		drop, cached int
		want         string
	}{
		"rows missing":       {1, 0, "rows"},
		"cached and said so": {1, 1, ""},
		"cached, all rows":   {0, 2, "came from the server's cache"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opt := live.Options{URL: fakeSGLang(t, goodArguments, c.drop, c.cached), Facts: producer.Facts{DType: format.Float32, Final: producer.FinalPost}}
			stats, rejected, err := run(t, opt, somePrompts(2), &memory{})
			if err != nil || stats.Samples != 0 || len(rejected) != 2 || !strings.Contains(rejected[0], c.want) {
				t.Errorf("got %+v, %v, rejected %q, want %q", stats, err, rejected, c.want)
			}
		})
	}
}

func TestPreflightSGLang(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ old, new, want string }{
		"fine":        {"", "", ""},
		"radix cache": {`"disable_radix_cache":true`, `"disable_radix_cache":false`, "--disable-radix-cache"},
		"chunks":      {`"chunked_prefill_size":-1`, `"chunked_prefill_size":8192`, "8192 tokens"},
		"no states":   {`"enable_return_hidden_states":true`, `"enable_return_hidden_states":false`, "--enable-return-hidden-states"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, form := range []string{"%s", `{"version":"0.5.3","server_args":%s}`} {
				url := fakeSGLang(t, fmt.Sprintf(form, strings.Replace(goodArguments, c.old, c.new, 1)), 0, 0)
				info, err := live.Preflight(t.Context(), live.Options{URL: url})
				switch {
				case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
					t.Errorf("got %v, want %q", err, c.want)
				case c.want == "" && (err != nil || info.Engine != live.SGLang || info.Model != "big/model" || info.Version != "0.5.3"):
					t.Errorf("got %+v, %v", info, err)
				}
			}
		})
	}
}
