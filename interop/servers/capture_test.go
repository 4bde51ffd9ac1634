//go:build servers

package servers_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hsx/format"
	"hsx/shard"
)

// capturePrompts are token ids with a mask and messages: long and short ones, prefixes
// that the server has cached, and more tokens than it prefills at once.
func capturePrompts() []map[string]any {
	var out []map[string]any
	for i, n := range []int{1, 2, 7, 64, 127, 128, 129, 200, 256, 300, 400, 400, 400, 480} {
		ids, mask := make([]int, n), make([]int, n)
		for k := range ids {
			ids[k], mask[k] = 300+k%97, k%2
			if k >= 260+i {
				ids[k] = 7 + i // the same before, another end
			}
		}
		out = append(out, map[string]any{"id": fmt.Sprintf("ids-%d", i), "input_ids": ids, "loss_mask": mask})
	}
	for i := range 6 {
		messages := []map[string]string{{"role": "user", "content": strings.Repeat("Once upon a time ", i+1)}}
		if i%2 == 1 {
			messages = append(messages, map[string]string{"role": "assistant", "content": "there was a girl."})
		}
		out = append(out, map[string]any{"id": fmt.Sprintf("chat-%d", i), "messages": messages})
	}
	return out
}

func writePrompts(t *testing.T, ps []map[string]any) string {
	t.Helper()
	var b bytes.Buffer
	for _, p := range ps {
		if err := json.NewEncoder(&b).Encode(p); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// captured are the samples of a dataset by their ids, each of which is there once.
func captured(t *testing.T, dir string) map[string]*format.Sample {
	t.Helper()
	ds, err := shard.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*format.Sample{}
	for s, err := range ds.Samples(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if out[s.ID] != nil {
			t.Errorf("%s is in the dataset twice", s.ID)
		}
		own := *s
		own.Tokens, own.LossMask, own.Hidden = append([]int32{}, s.Tokens...), bytes.Clone(s.LossMask), nil
		for _, h := range s.Hidden {
			h.Rows.Data = bytes.Clone(h.Rows.Data)
			own.Hidden = append(own.Hidden, h)
		}
		out[s.ID] = &own
	}
	return out
}

// wantStates holds every value of the samples against the same model in transformers.
func wantStates(t *testing.T, samples map[string]*format.Sample) {
	t.Helper()
	const hidden = 64
	var in, talk bytes.Buffer
	var ids []string
	for id, s := range samples {
		if err := json.NewEncoder(&in).Encode(s.Tokens); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(env(t, "HSX_VLLM"), "bin/python"), "states.py", filepath.Join(env(t, "HSX_MODELS"), "stories260k-hf-hd32"))
	cmd.Stdin, cmd.Stderr = &in, &talk
	want, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, talk.String())
	}
	values, worst := 0, 0.0
	for _, id := range ids {
		s := samples[id]
		if len(s.Hidden) != 4 {
			t.Fatalf("%s: %d states, want 4", id, len(s.Hidden))
		}
		row := make([]float32, hidden)
		for i, h := range s.Hidden {
			wantState := format.State{Role: format.RoleLayer, Layer: []format.Layer{0, 1, 3, 0}[i], DType: format.Float32}
			if i == 3 {
				wantState = format.State{Role: format.RoleFinal, Norm: format.NormPre, DType: format.Float32}
			}
			if h.State.Role != wantState.Role || h.State.Norm != wantState.Norm || h.State.DType != wantState.DType || i < 3 && h.State.Layer != wantState.Layer {
				t.Errorf("%s: state %d is %+v, want %+v", id, i, h.State, wantState)
			}
			if h.Rows.N != len(s.Tokens) || h.Rows.Width != hidden {
				t.Fatalf("%s: state %d is [%d, %d], want [%d, %d]", id, i, h.Rows.N, h.Rows.Width, len(s.Tokens), hidden)
			}
			for n := range h.Rows.N {
				format.Float32.Floats(row, h.Rows.Data[n*h.Rows.Stride:])
				for k, got := range row {
					x := float64(math.Float32frombits(binary.LittleEndian.Uint32(want)))
					want = want[4:]
					diff := math.Abs(float64(got) - x)
					worst = max(worst, diff)
					if values++; diff > 2e-5 || math.IsNaN(diff) {
						t.Fatalf("%s: state %d, row %d, channel %d: got %v, want %v", id, i, n, k, got, x)
					}
				}
			}
		}
	}
	if len(want) != 0 {
		t.Errorf("%d bytes of states are left over", len(want))
	}
	t.Logf("%d values compared, at most %.1e apart", values, worst)
}

// TestCapture has a real server keep its states, with prefixes cached and prompts
// prefilled in chunks, and holds them against transformers.
func TestCapture(t *testing.T) {
	dir, port := t.TempDir(), freePort(t)
	s := start(t, port, "./serve-vllm-hs.sh", env(t, "HSX_VLLM"), env(t, "HSX_MODELS"), env(t, "HSX_PLUG"), dir, port, "--max-num-batched-tokens", "128")
	flags := []string{"capture", "--url", s.url, "--json", "--server-args", "serve-vllm-hs.sh", "--target", filepath.Join(env(t, "HSX_MODELS"), "stories260k-hf-hd32")}

	t.Run("states", func(t *testing.T) {
		ps := capturePrompts()
		ds := filepath.Join(t.TempDir(), "ds")
		args := append(flags, "--prompts", writePrompts(t, ps), "--out", ds)
		before := s.counters(t, "")
		code, out, talk := hsx(t, args...)
		if code != 0 {
			t.Fatalf("exit %d, want 0\n%s%s", code, talk, out)
		}
		wantText(t, talk, "vllm 0.32.0, model stories260k", "P_0 P_1 P_3 P_4 (post 0,1,3,4; boundary 1,2,4,5)", "prefix caching is on")
		if hits := grown(before, s.counters(t, ""))["prefix_cache_hits_total"]; hits == 0 {
			t.Error("no prefix came from the cache: the test would not see what it cuts")
		}
		samples := captured(t, ds)
		if len(samples) != len(ps) {
			t.Errorf("%d samples, want %d", len(samples), len(ps))
		}
		for _, p := range ps {
			s := samples[p["id"].(string)]
			if s == nil {
				t.Fatalf("%s is missing", p["id"])
			}
			if ids, ok := p["input_ids"].([]int); ok {
				if fmt.Sprint(s.Tokens) != fmt.Sprint(ids) || fmt.Sprintf("%d", s.LossMask) != fmt.Sprintf("%d", p["loss_mask"]) {
					t.Errorf("%s: tokens or mask are not the prompt's", s.ID)
				}
			} else if s.LossMask != nil {
				t.Errorf("%s: it has a loss mask that nobody gave", s.ID)
			}
		}
		wantStates(t, samples)
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 {
			t.Errorf("files are left: %q", left)
		}
		code, out, talk = hsx(t, args...)
		var again struct{ Samples, Skipped int }
		if err := json.Unmarshal([]byte(out), &again); err != nil || code != 0 || again.Samples != 0 || again.Skipped != len(ps) {
			t.Errorf("again: exit %d, %+v, want all %d skipped\n%s", code, again, len(ps), talk)
		}
	})

	t.Run("refused", func(t *testing.T) {
		long := make([]int, 600)
		ps := append([]map[string]any{{"id": "long", "input_ids": long}}, capturePrompts()[:3]...)
		ds := filepath.Join(t.TempDir(), "ds")
		code, _, talk := hsx(t, append(flags, "--prompts", writePrompts(t, ps), "--out", ds)...)
		if code != 3 || len(captured(t, ds)) != 3 {
			t.Errorf("a prompt that is too long: exit %d, want 3 and the others taken\n%s", code, talk)
		}
		wantText(t, talk, `prompt "long"`, "maximum context length")
		code, _, talk = hsx(t, "capture", "--url", s.url, "--layers", "0,1", "--prompts", writePrompts(t, ps), "--out", filepath.Join(t.TempDir(), "ds"))
		if code != 1 {
			t.Errorf("a list of two layers for four slots: exit %d, want 1", code)
		}
		wantText(t, talk, "dump has 4 slots, but 2 layers are named")
	})

	t.Run("kill", func(t *testing.T) {
		var ps []map[string]any
		for i := range 400 {
			ids := make([]int, 20+i%200)
			for k := range ids {
				ids[k] = 300 + (i*7+k*3)%97
			}
			ids[0], ids[1] = 3+i%250, 3+i/250
			ps = append(ps, map[string]any{"id": fmt.Sprintf("p%d", i), "input_ids": ids})
		}
		before, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
		ds := filepath.Join(t.TempDir(), "ds")
		args := append(flags, "--prompts", writePrompts(t, ps), "--out", ds, "--commit-every", "20ms")
		kills := 0
		for {
			cmd := exec.CommandContext(t.Context(), env(t, "HSX_BIN"), args...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- cmd.Wait() }()
			if kills < 12 {
				select {
				case <-done:
				case <-time.After(time.Duration(100+rand.IntN(900)) * time.Millisecond):
					_ = cmd.Process.Kill()
					kills++
					<-done
					continue
				}
			} else {
				<-done
			}
			if code := cmd.ProcessState.ExitCode(); code != 0 {
				t.Fatalf("exit %d, want 0", code)
			}
			break
		}
		samples := captured(t, ds)
		if len(samples) != len(ps) {
			t.Errorf("%d samples, want %d", len(samples), len(ps))
		}
		wantStates(t, samples)
		// Only of requests that were on their way at a kill does nobody know the file.
		after, _ := filepath.Glob(filepath.Join(dir, "*.safetensors"))
		if left := len(after) - len(before); left > 8*kills {
			t.Errorf("%d files are left of %d kills with 8 requests at a time", left, kills)
		}
		if _, err := os.Stat(filepath.Join(ds, "capture.jsonl")); err == nil {
			t.Error("the list of files to remove is left")
		}
		t.Logf("%d kills, %d files left", kills, len(after)-len(before))
	})
}
