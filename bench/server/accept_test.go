package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The generations of SGLang's names and TensorRT-LLM's figure are written from their
// sources; vLLM's and llama.cpp's are also read from recordings, in streams_test.go.
func TestAccept(t *testing.T) {
	t.Parallel()
	const meta = "sglang meta_info"
	positions := []float64{120, 75, 26}
	for name, tc := range map[string]struct {
		claims     claims
		tokens     int
		speculates bool
		want       *Accept
		err        string
	}{
		"nothing": {tokens: 10},
		"sglang A": {
			claims: claims{meta: raw(`{"spec_verify_ct":180}`)}, tokens: 402,
			want: &Accept{Steps: 180, Accepted: 221, Tokens: 402, Approx: true, Source: meta},
		},
		"sglang B, of which the length is not used": {
			claims: claims{meta: raw(`{"spec_verify_ct":180,"spec_accept_rate":0.41,"spec_accept_length":2.24}`)}, tokens: 402,
			want: &Accept{Steps: 180, Accepted: 221, Tokens: 402, Approx: true, Source: meta},
		},
		"sglang C": {
			claims: claims{meta: raw(`{"spec_verify_ct":180,"spec_accept_token_num":221,"spec_draft_token_num":540,"spec_accept_histogram":[60,45,49,26]}`)}, tokens: 402,
			want: &Accept{Steps: 180, Accepted: 221, Drafted: 540, Positions: positions, Tokens: 402, Source: meta},
		},
		"sglang D": {
			claims: claims{meta: raw(`{"spec_verify_ct":180,"spec_accepted_drafts":221,"spec_proposed_drafts":540}`)}, tokens: 402,
			want: &Accept{Steps: 180, Accepted: 221, Drafted: 540, Tokens: 402, Source: meta},
		},
		"sglang E, with the names of C": {
			claims: claims{meta: raw(`{"spec_verify_ct":180,"spec_num_correct_drafts":221,"spec_num_proposed_drafts":540,"spec_correct_drafts_histogram":[60,45,49,26],"spec_accept_token_num":401,"spec_draft_token_num":720,"spec_accept_histogram":[1,2]}`)}, tokens: 402,
			want: &Accept{Steps: 180, Accepted: 221, Drafted: 540, Positions: positions, Tokens: 402, Source: meta},
		},
		"sglang E, nothing accepted": {
			claims: claims{meta: raw(`{"spec_verify_ct":9,"spec_num_correct_drafts":0,"spec_num_proposed_drafts":27,"spec_correct_drafts_histogram":[9,0,0,0]}`)}, tokens: 10,
			want: &Accept{Steps: 9, Drafted: 27, Positions: []float64{0, 0, 0}, Tokens: 10, Source: meta},
		},
		"sglang extension before meta_info": {
			claims: claims{sglext: raw(`{"spec_verify_ct":4,"spec_num_correct_drafts":5}`), meta: raw(`{"spec_verify_ct":1}`)}, tokens: 10,
			want: &Accept{Steps: 4, Accepted: 5, Tokens: 10, Source: "sglang sglext.spec_tokens_details"},
		},
		"sglang without speculation":     {claims: claims{meta: raw(`{"id":"x","finish_reason":null}`)}, tokens: 10},
		"sglang before the first step":   {claims: claims{meta: raw(`{"spec_verify_ct":0,"spec_accept_length":0}`)}, tokens: 1},
		"sglang A without usage":         {claims: claims{meta: raw(`{"spec_verify_ct":4}`)}, tokens: -1, err: "sglang meta_info: has verify steps only, and the server counted no tokens"},
		"sglang A, cut in its last step": {claims: claims{meta: raw(`{"spec_verify_ct":10}`)}, tokens: 10, want: &Accept{Steps: 10, Tokens: 10, Approx: true, Source: meta}},
		"sglang, accepted without usage": {claims: claims{meta: raw(`{"spec_verify_ct":4,"spec_num_correct_drafts":5}`)}, tokens: -1, want: &Accept{Steps: 4, Accepted: 5, Source: meta}},
		"vllm without usage": {
			claims: claims{vllm: raw(`{"num_spec_steps":4,"num_accepted_draft_tokens":5,"num_draft_tokens":12}`)}, tokens: -1,
			want: &Accept{Steps: 4, Accepted: 5, Drafted: 12, Source: "vllm metrics.speculative_decoding"},
		},
		"vllm with lists of steps only": {
			claims: claims{vllm: raw(`{"num_spec_steps":4,"num_accepted_draft_tokens":5,"num_draft_tokens":12,"per_step_accepted":[0,1,3,1]}`)}, tokens: 10,
			want: &Accept{Steps: 4, Accepted: 5, Drafted: 12, Positions: []float64{3, 1, 1}, Tokens: 10, Source: "vllm metrics.speculative_decoding"},
		},
		"vllm where nothing was drafted": {
			claims: claims{vllm: raw(`{"num_spec_steps":0,"num_accepted_draft_tokens":0,"num_draft_tokens":0,"acceptance_histogram":[0,0,0]}`)}, tokens: 10,
			want: &Accept{Positions: []float64{0, 0}, Tokens: 10, PlainStep: 9, Source: "vllm metrics.speculative_decoding"},
		},
		"vllm with a histogram that differs": {
			claims: claims{vllm: raw(`{"num_spec_steps":4,"num_accepted_draft_tokens":5,"acceptance_histogram":[1,1]}`)}, tokens: 10,
			want: &Accept{Steps: 4, Accepted: 5, Tokens: 10, Source: "vllm metrics.speculative_decoding"},
			err:  "vllm metrics.speculative_decoding: histogram says 2 steps and 1 accepted drafts, the counts say 4 and 5",
		},
		"vllm without counts": {claims: claims{vllm: raw(`{"mean_acceptance_length":2.4}`)}, tokens: 10, err: "vllm metrics.speculative_decoding: has no num_spec_steps or num_accepted_draft_tokens"},
		"vllm of another shape": {
			claims: claims{vllm: raw(`[1,2]`)}, tokens: 10,
			err: `vllm metrics.speculative_decoding: "all of it" is of type array`,
		},
		"vllm with a member of another type": {
			claims: claims{vllm: raw(`{"num_spec_steps":"4"}`)}, tokens: 10,
			err: `vllm metrics.speculative_decoding: "num_spec_steps" is of type string`,
		},
		"a negative count":     {claims: claims{meta: raw(`{"spec_verify_ct":-4,"spec_num_correct_drafts":5}`)}, tokens: 10, err: "sglang meta_info: -4 is no count"},
		"more than drafted":    {claims: claims{meta: raw(`{"spec_verify_ct":4,"spec_num_correct_drafts":9,"spec_num_proposed_drafts":8}`)}, tokens: 14, err: "sglang meta_info: accepted 9 of 8 draft tokens"},
		"llama.cpp undrafted":  {claims: claims{timings: raw(`{"predicted_n":48,"predicted_ms":7}`)}, tokens: 48},
		"llama.cpp impossible": {claims: claims{timings: raw(`{"predicted_n":4,"draft_n":9,"draft_n_accepted":9}`)}, tokens: 4, err: "llama.cpp timings: -6 is no count"},
		"tensorrt-llm": {
			claims: claims{perIter: 2.5}, tokens: 100,
			want: &Accept{Steps: 39, Accepted: 60, Tokens: 100, Approx: true, Source: "tensorrt-llm avg_decoded_tokens_per_iter"},
		},
		"tensorrt-llm plain":         {claims: claims{perIter: 1}, tokens: 100},
		"tensorrt-llm all rejected":  {claims: claims{perIter: 1}, tokens: 100, speculates: true, want: &Accept{Steps: 99, Tokens: 100, Approx: true, Source: "tensorrt-llm avg_decoded_tokens_per_iter"}},
		"tensorrt-llm without usage": {claims: claims{perIter: 2.5}, tokens: -1, err: "tensorrt-llm avg_decoded_tokens_per_iter: is 2.5, and the server counted no tokens"},
		"tensorrt-llm impossible":    {claims: claims{perIter: 1000}, tokens: 100, err: "tensorrt-llm avg_decoded_tokens_per_iter: -1 is no count"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.claims.accept(tc.tokens, tc.speculates)
			said := ""
			if err != nil {
				said = err.Error()
			}
			if said != tc.err {
				t.Errorf("got error %q, want %q", said, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("accept (-want +got):\n%s", diff)
			}
		})
	}
}
