package server

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Written from SGLang's documentation and source, not recorded: one payload for each
// form that the route has had.
const (
	infoFlat = `{"model_path":"/models/kimi","tokenizer_path":"/models/kimi","tp_size":8,"api_key":"hush","speculative_algorithm":"EAGLE3",
		"speculative_draft_model_path":"/models/draft","speculative_num_steps":3,"speculative_eagle_topk":1,"speculative_num_draft_tokens":4,
		"reasoning_parser":"kimi_k2","mem_fraction_static":0.85,"context_length":262144,"max_total_num_tokens":131072,"random_seed":815,
		"version":"0.5.23","internal_states":[{"last_gen_throughput":56.8,"avg_spec_accept_length":1.62,"api_key":"hush"}]}`
	infoNested = `{"server_args":{"model_path":"/models/kimi","speculative_algorithm":"EAGLE","speculative_num_steps":1,"speculative_eagle_topk":1,
		"speculative_num_draft_tokens":16},"version":"0.4.6","internal_states":[{"spec_accept_length":2.5},{"spec_accept_length":0}]}`
	infoApart = `{"prefill":[{"model_path":"/models/p","speculative_algorithm":null}],
		"decode":[{"model_path":"/models/d","speculative_algorithm":"NEXTN","speculative_num_steps":5,"speculative_eagle_topk":4,
		"speculative_num_draft_tokens":8,"internal_states":[{"avg_spec_accept_length":3.5}]}],
		"internal_states":[{"avg_spec_accept_length":null}]}`
	infoPlain = `{"model_path":"/models/kimi","speculative_algorithm":null,"speculative_num_steps":null,"version":"0.5.23","internal_states":[{}]}`
	infoBlock = `{"speculative_algorithm":"DFLASH","speculative_num_steps":1,"speculative_eagle_topk":1,"speculative_num_draft_tokens":16}`
	infoNgram = `{"speculative_algorithm":"NGRAM","speculative_num_steps":12,"speculative_num_draft_tokens":12}`
)

func TestServerInfo(t *testing.T) {
	t.Parallel()
	const evidence = "server arguments"
	for name, tc := range map[string]struct {
		body     string
		want     Speculation
		lifetime float64
	}{
		"arguments at the top": {infoFlat, Speculation{
			Known: true, On: true, Method: "eagle3", Draft: "/models/draft", Steps: 3, TopK: 1, DraftTokens: 4, Evidence: evidence,
		}, 1.62},
		"asked for 16, runs 1": {infoNested, Speculation{
			Known: true, On: true, Method: "eagle", Steps: 1, TopK: 1, DraftTokens: 2,
			AskedSteps: 15, AskedBy: "speculative_num_draft_tokens", Evidence: evidence,
		}, 2.5},
		"prefill and decode apart": {infoApart, Speculation{
			Known: true, On: true, Method: "nextn", Steps: 5, TopK: 4, DraftTokens: 8, Evidence: evidence,
		}, 3.5},
		"no speculation": {body: infoPlain, want: Speculation{Known: true, Evidence: evidence}},
		"a block of drafts is one step": {body: infoBlock, want: Speculation{
			Known: true, On: true, Method: "dflash", Steps: 15, TopK: 1, DraftTokens: 16, Evidence: evidence,
		}},
		"n-grams have no known depth": {body: infoNgram, want: Speculation{
			Known: true, On: true, Method: "ngram", DraftTokens: 12, Evidence: evidence,
		}},
		"absurd numbers": {body: `{"speculative_algorithm":"EAGLE","speculative_num_steps":1e300,"speculative_eagle_topk":-1,"speculative_num_draft_tokens":"x"}`,
			want: Speculation{Known: true, On: true, Method: "eagle", Evidence: evidence}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			info, ok := parseServerInfo([]byte(tc.body))
			if !ok {
				t.Fatalf("parseServerInfo(%s): not recognised", tc.body)
			}
			if diff := cmp.Diff(tc.want, info.speculation()); diff != "" {
				t.Errorf("speculation: (-want +got)\n%s", diff)
			}
			got := 0.0
			if v := info.lifetime(); v != nil {
				got = *v
			}
			if got != tc.lifetime {
				t.Errorf("lifetime: got %g, want %g", got, tc.lifetime)
			}
		})
	}
	for _, body := range []string{``, `null`, `[]`, `{}`, `{"vllm_config":"x"}`, `{"disaggregated_params":null}`} {
		if _, ok := parseServerInfo([]byte(body)); ok {
			t.Errorf("parseServerInfo(%s): recognised, want another server's", body)
		}
	}
}

func TestServerInfoArguments(t *testing.T) {
	t.Parallel()
	info, _ := parseServerInfo([]byte(infoFlat))
	got := (&evidence{sglang: info}).arguments("kimi")
	want := map[string]string{
		"model_path": "/models/kimi", "tokenizer_path": "/models/kimi", "tp_size": "8", "speculative_algorithm": "EAGLE3",
		"speculative_draft_model_path": "/models/draft", "speculative_num_steps": "3", "speculative_eagle_topk": "1",
		"speculative_num_draft_tokens": "4", "reasoning_parser": "kimi_k2", "mem_fraction_static": "0.85",
		"context_length": "262144", "max_total_num_tokens": "131072", "version": "0.5.23",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("arguments: (-want +got)\n%s", diff)
	}
}

func FuzzServerInfo(f *testing.F) {
	for _, seed := range []string{infoFlat, infoNested, infoApart, infoPlain, infoBlock, infoNgram} {
		f.Add([]byte(seed))
	}
	f.Add([]byte(`{"internal_states":{"a":1},"decode":[1],"server_args":[],"x":{"y":[{"z":[[1]]}]},"c":"{\"api_key\":\"hush\",\"d\":{}}"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		info, ok := parseServerInfo(body)
		if !ok {
			return
		}
		info.arguments["planted_api_key"] = "planted-by-test"
		info.arguments["planted"] = map[string]any{"auth_token": "planted-by-test", "config": `{"password":"planted-by-test"}`}
		args := (&evidence{sglang: info}).arguments("m")
		if len(args) > maxArguments {
			t.Fatalf("%d arguments", len(args))
		}
		for name, value := range args {
			if strings.Contains(value, "planted-by-test") {
				t.Fatalf("argument %q is a secret: %q", name, value)
			}
			if n := len([]rune(value)); n > maxArgument+1 {
				t.Fatalf("argument %q has %d runes", name, n)
			}
		}
		s := info.speculation()
		if s.Steps < 0 || s.DraftTokens < 0 || s.TopK < 0 || s.AskedSteps < 0 || !s.On && s != (Speculation{Known: true, Evidence: s.Evidence}) {
			t.Fatalf("speculation %+v", s)
		}
		if v := info.lifetime(); v != nil && (!finite(*v) || *v < 1) {
			t.Fatalf("lifetime %g", *v)
		}
		if _, err := json.Marshal(args); err != nil {
			t.Fatal(err)
		}
	})
}

func TestFlatten(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		body string
		want map[string]string
	}{
		"kinds":   {`{"a":1,"b":1.50,"c":true,"d":null,"e":"x\u001b[2J","f":[1,"x"],"g":{"h":{"i":2}}}`, map[string]string{"a": "1", "b": "1.50", "c": "true", "d": "null", "e": "x [2J", "f": "[1 x]", "g.h.i": "2"}},
		"objects": {`{"a":[{"b":1},{"b":2}],"c":"{\"d\":{\"e\":3}}","f":[[1,2],[3]]}`, map[string]string{"a.0.b": "1", "a.1.b": "2", "c.d.e": "3", "f.0": "[1 2]", "f.1": "[3]"}},
		"secrets by name": {`{"api_key":"s","admin_api_key":"s","Password":"s","hf_token":"s","client_secret":"s","ssl_keyfile_password":"s",
			"token":{"a":"s"},"a":{"authorization":"s"},"b":"{\"api_key\":\"s\",\"ok\":1}","c":["--api-key","s"]}`, map[string]string{"b.ok": "1"}},
		"secrets by their look": {`{"a":"sk-s","b":"hf_s","c":"eyJs","d":"https://user:s@host/x","e":"Bearer s","f":"--api-key s","g":"x?token=s"}`, map[string]string{}},
		"no secrets": {`{"max_total_tokens":1,"num_tokens":"2","tokenizer":"t","tokenizer_path":"/t","speculative_token_map":"/m","stop_token_ids":[1,2],
			"api_key":null,"enable_routing_key":true,"url":"https://host/a@b","skip_tokenizer_init":false}`,
			map[string]string{"max_total_tokens": "1", "num_tokens": "2", "tokenizer": "t", "tokenizer_path": "/t", "speculative_token_map": "/m",
				"stop_token_ids": "[1 2]", "api_key": "null", "enable_routing_key": "true", "url": "https://host/a@b", "skip_tokenizer_init": "false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			object, err := decodeObject([]byte(tc.body))
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			flatten(got, "", object, 0)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("flatten(%s): (-want +got)\n%s", tc.body, diff)
			}
		})
	}
	many := map[string]any{}
	for i := range 3 * maxArguments {
		many[string(rune('a'+i%26))+string(rune('A'+i/26%1000))+string(rune(0x4e00+i))] = "x"
	}
	got := map[string]string{}
	if flatten(got, "", many, 0); len(got) != maxArguments {
		t.Errorf("flatten: got %d arguments, want the first %d", len(got), maxArguments)
	}
	deep := any("x")
	for range 100 {
		deep = map[string]any{"a": deep}
	}
	got = map[string]string{}
	if flatten(got, "", deep, 0); len(got) != 0 {
		t.Errorf("flatten: got %q of 100 levels, want nothing", slices.Collect(maps.Keys(got)))
	}
}

// Gotcha 13.
func TestSynthetic(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arguments map[string]string
		want      string
	}{
		"nothing":            {map[string]string{"a": "b"}, ""},
		"vllm":               {map[string]string{"speculative_config.rejection_sample_method": "synthetic"}, "speculative_config.rejection_sample_method=synthetic"},
		"vllm, honest":       {map[string]string{"speculative_config.rejection_sample_method": "strict", "speculative_config.synthetic_acceptance_length": "null"}, ""},
		"vllm, length":       {map[string]string{"speculative_config.synthetic_acceptance_length": "2.5"}, "speculative_config.synthetic_acceptance_length=2.5"},
		"sglang":             {map[string]string{"env.SGLANG_SIMULATE_ACC_LEN": "2.5"}, "env.SGLANG_SIMULATE_ACC_LEN=2.5"},
		"sglang, off":        {map[string]string{"env.SGLANG_SIMULATE_ACC_LEN": "-1"}, ""},
		"tensorrt-llm":       {map[string]string{"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "2"}, "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS=2"},
		"atom, as a flag":    {map[string]string{"spec-decode-acceptance-length": "3"}, "spec-decode-acceptance-length=3"},
		"tensorrt-llm, zero": {map[string]string{"TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS": "0"}, ""},
	} {
		if got := synthetic(tc.arguments); got != tc.want {
			t.Errorf("%s: synthetic(%v): got %q, want %q", name, tc.arguments, got, tc.want)
		}
	}
}
