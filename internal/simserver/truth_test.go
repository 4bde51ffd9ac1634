package simserver_test

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/internal/simserver"
)

// The streams say what the truth says, token by token and request by request.
func TestTruthIsWhatTheStreamsSay(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s, url := start(t, simserver.Options{
				Engine: engine, Steps: 3, Accept: []float64{0.8, 0.6}, MinTokens: 20, MaxTokens: 90, Think: 7, Ranks: 2, PerRequest: true,
			})
			var tokens, steps, accepted, drafted int64
			for i := range 20 {
				r := chat(t, url, fmt.Sprint("prompt ", i), `"return_spec_tokens_details":true`)
				if !r.done || r.status != http.StatusOK {
					t.Fatalf("chat: got status %d, done %v", r.status, r.done)
				}
				last := r.last()
				tokens += count(last, "usage", "completion_tokens")
				for _, p := range []struct {
					path []any
					to   *int64
				}{
					{[]any{"metrics", "speculative_decoding", "num_spec_steps"}, &steps},
					{[]any{"metrics", "speculative_decoding", "num_accepted_draft_tokens"}, &accepted},
					{[]any{"metrics", "speculative_decoding", "num_draft_tokens"}, &drafted},
					{[]any{"sglext", "spec_tokens_details", "spec_verify_ct"}, &steps},
					{[]any{"sglext", "spec_tokens_details", "spec_num_correct_drafts"}, &accepted},
					{[]any{"sglext", "spec_tokens_details", "spec_num_proposed_drafts"}, &drafted},
					{[]any{"timings", "draft_n_accepted"}, &accepted},
					{[]any{"timings", "draft_n"}, &drafted},
				} {
					*p.to += count(last, p.path...)
				}
			}
			want := s.Truth()
			if tokens != want.Tokens || want.Requests != 20 {
				t.Errorf("usage: got %d tokens, want %d; requests %d, want 20", tokens, want.Tokens, want.Requests)
			}
			if got := 20 + want.Steps + want.Accepted; got != want.Tokens {
				t.Errorf("requests + steps + accepted: got %d, want the tokens, %d", got, want.Tokens)
			}
			if engine == simserver.VLLM || engine == simserver.SGLang {
				if steps != want.Steps {
					t.Errorf("steps: got %d, want %d", steps, want.Steps)
				}
			}
			if engine == simserver.VLLM || engine == simserver.SGLang || engine == simserver.LlamaCpp {
				if accepted != want.Accepted || drafted != want.Drafted {
					t.Errorf("accepted, drafted: got %d, %d, want %d, %d", accepted, drafted, want.Accepted, want.Drafted)
				}
			}
		})
	}
}

func TestCountersAreTheTruth(t *testing.T) {
	t.Parallel()
	names := map[string]struct {
		path, steps, drafted, accepted, positions, tokens, requests string
	}{
		simserver.VLLM: {
			"/metrics", "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total",
			"vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens_per_pos_total",
			"vllm:generation_tokens_total", "vllm:request_success_total",
		},
		simserver.SGLang: {
			"/metrics", "sglang:spec_verify_calls_total", "", "", "", "sglang:generation_tokens_total", "sglang:num_requests_total",
		},
		simserver.LlamaCpp: {
			"/metrics", "llamacpp:spec_decode_num_drafts_total", "llamacpp:spec_decode_num_draft_tokens_total",
			"llamacpp:spec_decode_num_accepted_tokens_total", "llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
			"llamacpp:tokens_predicted_total", "",
		},
		simserver.TRTLLM: {
			"/prometheus/metrics", "", "trtllm_spec_decode_num_draft_tokens_total", "trtllm_spec_decode_num_accepted_tokens_total", "",
			"trtllm_generation_tokens_total", "trtllm_request_success_total",
		},
	}
	for engine, n := range names {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s, url := start(t, simserver.Options{
				Engine: engine, Steps: 4, Accept: []float64{0.7}, MinTokens: 40, MaxTokens: 90, Ranks: 3,
			})
			for i := range 10 {
				chat(t, url, fmt.Sprint("prompt ", i))
				do(t, http.MethodPost, url+"/v1/completions", fmt.Sprintf(`{"prompt":"prompt %d"}`, i))
			}
			got, truth := scrape(t, url+n.path), s.Truth()
			want := map[string]int64{
				n.steps: truth.Steps, n.drafted: truth.Drafted, n.accepted: truth.Accepted,
				n.tokens: truth.Tokens, n.requests: truth.Requests,
			}
			if n.positions != "" {
				for k, at := range truth.Positions {
					want[n.positions+"/"+strconv.Itoa(k)] = at
				}
			}
			delete(want, "")
			for name, w := range want {
				if got[name] != float64(w) {
					t.Errorf("%s: got %v, want %d", name, got[name], w)
				}
			}
		})
	}
}

func TestIterationsAreReadOnce(t *testing.T) {
	t.Parallel()
	s, url := start(t, simserver.Options{Engine: simserver.TRTLLM, Steps: 3, Accept: []float64{0.7}, MinTokens: 500, Ranks: 2})
	var steps, accepted, drafted, completed, last int64
	read := func() int {
		list := at(map[string]any{"list": decode(t, do(t, http.MethodGet, url+"/metrics", "").body)}, "list").([]any)
		for _, row := range list {
			if count(row, "attentionDpRank") == 0 {
				steps += count(row, "specDecodingStats", "numRequestsWithDraftTokens")
				accepted += count(row, "specDecodingStats", "numAcceptedTokens")
				drafted += count(row, "specDecodingStats", "numDraftTokens")
				completed += count(row, "numCompletedRequests")
				if n := count(row, "iter"); n != last+1 {
					t.Errorf("iteration: got %d after %d", n, last)
				}
				last++
			}
		}
		return len(list)
	}
	for i := range 3 {
		chat(t, url, fmt.Sprint(i))
		if read() == 0 {
			t.Error("iterations after a request: got none")
		}
	}
	if n := read(); n != 0 {
		t.Errorf("iterations once they were read: got %d, want 0", n)
	}
	if truth := s.Truth(); steps != truth.Steps || accepted != truth.Accepted || drafted != truth.Drafted || completed != 3 {
		t.Errorf("iterations: got %d steps, %d accepted, %d drafted, %d requests, want %+v", steps, accepted, drafted, completed, truth)
	}
}

// The mean over many steps is that of the model, within four standard deviations.
func TestAcceptLengthIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	conditional := []float64{0.8, 0.6, 0.5}
	s, url := start(t, simserver.Options{Steps: 4, Accept: conditional, MinTokens: 20000, Seed: 5})
	chat(t, url, "a long one")
	truth := s.Truth()
	joint, reached := 1.0, float64(truth.Steps)
	for k, got := range truth.Positions {
		c := conditional[min(k, 2)]
		joint *= c
		if d := math.Abs(float64(got) - reached*c); d > 4*math.Sqrt(reached*c*(1-c)) {
			t.Errorf("accepted at position %d: got %d of %.0f, want a share of %v", k, got, reached, c)
		}
		reached = float64(got)
	}
	if len(truth.Positions) != 4 {
		t.Errorf("positions: got %d, want 4", len(truth.Positions))
	}
}

func TestTextDoesNotDependOnSpeculation(t *testing.T) {
	t.Parallel()
	text := func(t *testing.T, o simserver.Options, prompt string) [2]string {
		o.MinTokens, o.MaxTokens, o.Think = 50, 200, 5
		_, url := start(t, o)
		thinking, answer, _ := chat(t, url, prompt).text()
		if answer == "" || thinking == "" {
			t.Fatalf("answer, thinking: got %q, %q", answer, thinking)
		}
		return [2]string{thinking, answer}
	}
	want := text(t, simserver.Options{}, "one prompt")
	for _, engine := range engines() {
		for _, steps := range []int{0, 1, 5} {
			got := text(t, simserver.Options{Engine: engine, Steps: steps, Accept: []float64{0.9, 0.5}}, "one prompt")
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s with %d steps (-want +got):\n%s", engine, steps, d)
			}
		}
	}
	if got := text(t, simserver.Options{}, "another prompt"); got == want {
		t.Error("two prompts: got the same text")
	}
	if got := text(t, simserver.Options{Seed: 1}, "one prompt"); got == want {
		t.Error("two seeds: got the same text")
	}
}

func TestManyClients(t *testing.T) {
	t.Parallel()
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s, url := start(t, simserver.Options{Engine: engine, Steps: 2, Accept: []float64{0.7}, MinTokens: 60, Ranks: 2, Slots: 16})
			tokens := make([]int64, 64)
			var wg sync.WaitGroup
			for i := range tokens {
				wg.Go(func() {
					for turn := range 3 {
						tokens[i] += count(chat(t, url, fmt.Sprint(i, turn)).last(), "usage", "completion_tokens")
						do(t, http.MethodGet, url+"/metrics", "")
					}
				})
			}
			wg.Wait()
			var got int64
			for _, n := range tokens {
				got += n
			}
			if truth := s.Truth(); got != truth.Tokens || truth.Requests != 64*3 {
				t.Errorf("clients saw %d tokens, truth is %+v", got, truth)
			}
		})
	}
}

func engines() []string {
	return []string{simserver.VLLM, simserver.SGLang, simserver.LlamaCpp, simserver.TRTLLM, simserver.OpenAI}
}
