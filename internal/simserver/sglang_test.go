package simserver_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/internal/simserver"
)

func TestGenerate(t *testing.T) {
	t.Parallel()
	for generation, want := range map[string][]string{
		"A": {"spec_verify_ct"},
		"B": {"spec_accept_length", "spec_accept_rate", "spec_verify_ct"},
		"C": {
			"spec_accept_histogram", "spec_accept_length", "spec_accept_rate", "spec_accept_token_num",
			"spec_draft_token_num", "spec_verify_ct",
		},
		"D": {
			"spec_accept_histogram", "spec_accept_length", "spec_accept_rate", "spec_accepted_drafts",
			"spec_proposed_drafts", "spec_verify_ct",
		},
		"E": {
			"spec_accept_histogram", "spec_accept_length", "spec_accept_rate", "spec_accepted_drafts",
			"spec_correct_drafts_histogram", "spec_num_correct_drafts", "spec_num_proposed_drafts",
			"spec_proposed_drafts", "spec_verify_ct",
		},
	} {
		t.Run(generation, func(t *testing.T) {
			t.Parallel()
			s, url := start(t, simserver.Options{
				Engine: simserver.SGLang, Generation: generation, Steps: 3, Accept: []float64{0.7}, MinTokens: 80,
			})
			r := do(t, http.MethodPost, url+"/generate", `{"text":"x","stream":true,"sampling_params":{"max_new_tokens":60}}`)
			before := ""
			for i, e := range r.events {
				text, _ := at(e, "text").(string)
				if !strings.HasPrefix(text, before) || (at(e, "meta_info", "finish_reason") == nil) != (i < len(r.events)-1) {
					t.Fatalf("event %d: got %v after text %q", i, e, before)
				}
				before = text
			}
			meta, _ := at(r.last(), "meta_info").(map[string]any)
			var got []string
			for k := range meta {
				if strings.HasPrefix(k, "spec_") {
					got = append(got, k)
				}
			}
			slices.Sort(got)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("names (-want +got):\n%s", d)
			}
			truth := s.Truth()
			if count(meta, "spec_verify_ct") != truth.Steps || count(meta, "completion_tokens") != 60 || !r.done {
				t.Errorf("meta_info: got %v, truth is %+v", meta, truth)
			}
			if got := at(meta, "finish_reason", "type"); got != "length" {
				t.Errorf("finish reason: got %v, want length", got)
			}
		})
	}
}

func TestSpecDetailsAreAskedFor(t *testing.T) {
	t.Parallel()
	const asked = `"return_spec_tokens_details":true`
	for name, test := range map[string]struct {
		opt  simserver.Options
		more string
		want bool
	}{
		"asked":          {simserver.Options{Steps: 2, PerRequest: true}, asked, true},
		"not asked":      {simserver.Options{Steps: 2, PerRequest: true}, `"n":1`, false},
		"older server":   {simserver.Options{Steps: 2}, asked, false},
		"no speculation": {simserver.Options{PerRequest: true}, asked, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.opt.Engine = simserver.SGLang
			_, url := start(t, test.opt)
			if got := at(chat(t, url, "x", test.more).last(), "sglext", "spec_tokens_details") != nil; got != test.want {
				t.Errorf("details: got %v, want %v", got, test.want)
			}
		})
	}
}

func TestServerInfo(t *testing.T) {
	t.Parallel()
	s, url := start(t, simserver.Options{
		Engine: simserver.SGLang, Steps: 1, AskedSteps: 16, Accept: []float64{0.6}, MinTokens: 300, Ranks: 2, Key: "",
		Arguments: map[string]any{"tp_size": 8},
	})
	info := func() map[string]any { return do(t, http.MethodGet, url+"/server_info", "").document(t) }
	i := info()
	for k, want := range map[string]int64{"speculative_num_steps": 1, "speculative_num_draft_tokens": 16, "speculative_eagle_topk": 1, "tp_size": 8} {
		if got := count(i, k); got != want {
			t.Errorf("%s: got %d, want %d", k, got, want)
		}
	}
	if got := at(i, "internal_states", 0, "avg_spec_accept_length"); got != nil {
		t.Errorf("accept length of no step: got %v, want none", got)
	}
	for n := range 6 {
		chat(t, url, fmt.Sprint(n))
	}
	truth := s.Truth()
	want := 1 + float64(truth.Accepted)/float64(truth.Steps)
	for rank := range 2 {
		got, _ := at(info(), "internal_states", rank, "avg_spec_accept_length").(float64)
		if got < want-0.1 || got > want+0.1 {
			t.Errorf("accept length of rank %d: got %v, want about %v", rank, got, want)
		}
	}
	if got := scrape(t, url+"/metrics"); got["sglang:spec_accept_length"] < 2 || got["sglang:spec_num_steps"] != 2 {
		t.Errorf("gauges of two ranks: got %v, %v", got["sglang:spec_accept_length"], got["sglang:spec_num_steps"])
	}
	do(t, http.MethodPost, url+"/flush_cache", "")
	if got := at(info(), "internal_states", 1, "avg_spec_accept_length"); got != nil {
		t.Errorf("accept length after a flush: got %v, want none", got)
	}
	if got := scrape(t, url+"/metrics")["sglang:spec_verify_calls_total"]; got != float64(truth.Steps) {
		t.Errorf("counter after a flush: got %v, want %d", got, truth.Steps)
	}
}

// SGLang counts when an answer ends: those that broke are missing.
func TestCountersAtTheEnd(t *testing.T) {
	t.Parallel()
	s, url := start(t, simserver.Options{Engine: simserver.SGLang, MinTokens: 50, Faults: simserver.Faults{CutEvery: 2}})
	chat(t, url, "a")
	chat(t, url, "b")
	if got := scrape(t, url+"/metrics")["sglang:generation_tokens_total"]; got != 50 || s.Truth().Tokens <= 50 {
		t.Errorf("counter: got %v, truth is %+v", got, s.Truth())
	}
}

func TestStaleGauge(t *testing.T) {
	t.Parallel()
	_, url := start(t, simserver.Options{
		Engine: simserver.SGLang, Steps: 3, Accept: []float64{0.1}, MinTokens: 300, Faults: simserver.Faults{StaleGauge: true},
	})
	chat(t, url, "a")
	if got := scrape(t, url+"/metrics")["sglang:spec_accept_length"]; got != 4 {
		t.Errorf("gauge: got %v, want 4", got)
	}
}
