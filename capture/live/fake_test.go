package live_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hsx/format"
	"hsx/format/safetensors"
)

const hidden = 64

// fakeVLLM answers as vLLM 0.32 with a file connector does, from recorded answers: the
// lock is held when the answer comes, and the file is whole when it is free. Faults are
// by the first token of a prompt.
type fakeVLLM struct {
	dir, version, caching string
	slots                 int
	relative              bool

	mu     sync.Mutex
	asked  map[int32]int
	faults map[int32]string
	dead   bool
	writes sync.WaitGroup
}

func newVLLM(t *testing.T, f *fakeVLLM) string {
	t.Helper()
	f.asked = map[int32]int{}
	if f.dir == "" {
		f.dir = t.TempDir()
	}
	if f.version == "" {
		f.version = "0.32.0"
	}
	if f.caching == "" {
		f.caching = "False"
	}
	if f.slots == 0 {
		f.slots = 3
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.dead {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) { say(w, `{"version":%q}`, f.version) })
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		say(w, `{"data":[{"id":"tiny"}]}`)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		say(w, "vllm:cache_config_info{block_size=\"128\",enable_prefix_caching=%q,engine=\"0\"} 1.0\n", f.caching)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { f.complete(t, w, r) })
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { f.chat(t, w, r) })
	s := httptest.NewServer(mux)
	t.Cleanup(func() { s.Close(); f.writes.Wait() })
	return s.URL
}

// chat answers with the token ids that a template would make: one for each message,
// and one that opens an answer.
func (f *fakeVLLM) chat(t *testing.T, w http.ResponseWriter, r *http.Request) {
	var req struct {
		Messages []json.RawMessage `json:"messages"`
		Open     *bool             `json:"add_generation_prompt"`
		Return   bool              `json:"return_token_ids"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Open == nil || !req.Return {
		t.Errorf("request %+v, %v: want token ids returned, and to be told whether to open an answer", req, err)
		return
	}
	ids := []int32{100}
	for range req.Messages {
		ids = append(ids, 5)
	}
	if *req.Open {
		ids = append(ids, 6)
	}
	path := filepath.Join(f.dir, fmt.Sprintf("chatcmpl-%d.safetensors", len(ids)))
	for name, data := range map[string][]byte{path: states(t, ids, len(ids), f.slots, false), path + ".lock": nil} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Error(err)
		}
	}
	say(w, `{"prompt_token_ids":%s,"usage":{"prompt_tokens":%d},"kv_transfer_params":{"hidden_states_path":%q}}`, must(json.Marshal(ids)), len(ids), path)
}

func (f *fakeVLLM) complete(t *testing.T, w http.ResponseWriter, r *http.Request) {
	var req struct {
		Prompt    []int32 `json:"prompt"`
		MaxTokens int     `json:"max_tokens"`
		N         int     `json:"n"`
		Stream    bool    `json:"stream"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.MaxTokens != 1 || req.N > 1 || req.Stream {
		t.Errorf("request %+v, %v: want one token, one answer, no stream", req, err)
	}
	f.mu.Lock()
	f.asked[req.Prompt[0]]++
	n := f.asked[req.Prompt[0]]
	fault := f.faults[req.Prompt[0]]
	f.mu.Unlock()
	ids := req.Prompt
	switch {
	case fault == "busy" && n < 3:
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	case fault == "too long":
		http.Error(w, "maximum context length", http.StatusBadRequest)
		return
	case fault == "broken":
		w.WriteHeader(http.StatusInternalServerError)
		return
	case fault == "dies":
		f.mu.Lock()
		f.dead = true
		f.mu.Unlock()
		w.WriteHeader(http.StatusInternalServerError)
		return
	case fault == "other ids":
		ids = append([]int32{9}, ids[1:]...)
	}
	path := filepath.Join(f.dir, fmt.Sprintf("cmpl-%d-%d.safetensors", req.Prompt[0], n))
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Error(err)
	}
	rows := len(ids)
	if fault == "cut" {
		rows--
	}
	f.writes.Go(func() {
		defer func() { _ = lock.Close() }() // lets go of it
		if fault == "no file" || fault == "no file once" && n == 1 {
			return
		}
		time.Sleep(time.Millisecond) // a client that does not wait finds nothing
		if err := os.WriteFile(path, states(t, ids, rows, f.slots, fault == "nan"), 0o600); err != nil {
			t.Error(err)
		}
	})
	named := path
	if f.relative {
		named = "./" + filepath.Base(path)
	}
	if fault == "no lock" {
		_ = os.Remove(path + ".lock")
	}
	say(w, `{"choices":[{"prompt_token_ids":%s}],"usage":{"prompt_tokens":%d},"kv_transfer_params":{"hidden_states_path":%q}}`,
		must(json.Marshal(req.Prompt)), len(req.Prompt), named)
}

// say writes an answer. A client that is gone is no fault of the server.
func say(w io.Writer, f string, args ...any) { _, _ = fmt.Fprintf(w, f, args...) }

func must(b []byte, _ error) []byte { return b }

// states is a file as the connector writes it: value (id, slot) in every channel.
func states(t *testing.T, ids []int32, rows, slots int, nan bool) []byte {
	var raw, data []byte
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
	}
	for i := range rows {
		for s := range slots {
			for range hidden {
				v := float32(ids[i]) + float32(s)/8
				if nan {
					v = float32(math.NaN())
				}
				data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
			}
		}
	}
	var b bytes.Buffer
	err := safetensors.Encode(&b, []*format.Tensor{
		{Name: "token_ids", DType: format.Int64, Shape: []int64{int64(len(ids))}, Data: raw},
		{Name: "hidden_states", DType: format.Float32, Shape: []int64{int64(rows), int64(slots), hidden}, Data: data},
	}, nil)
	if err != nil {
		t.Error(err)
	}
	return b.Bytes()
}
