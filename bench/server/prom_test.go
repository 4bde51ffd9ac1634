package server

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseProm(t *testing.T) {
	t.Parallel()
	type labels = map[string]string
	for name, tc := range map[string]struct {
		text    string
		want    []sample
		problem string
	}{
		"nothing":                {text: "\n# HELP a b\n# TYPE a counter\n# EOF\n"},
		"no labels":              {text: "a 1\n", want: []sample{{name: "a", value: 1}}},
		"no newline at the end":  {text: "a 1", want: []sample{{name: "a", value: 1}}},
		"carriage return":        {text: "a 1\r\n", want: []sample{{name: "a", value: 1}}},
		"colon":                  {text: "vllm:a 1\n", want: []sample{{name: "vllm_a", value: 1}}},
		"exponent":               {text: "a 1.796e+09\n", want: []sample{{name: "a", value: 1.796e9}}},
		"infinite":               {text: "a +Inf\nb -Inf\n", want: []sample{{name: "a", value: math.Inf(1)}, {name: "b", value: math.Inf(-1)}}},
		"timestamp":              {text: "a 1 1700000000000\n", want: []sample{{name: "a", value: 1}}},
		"exemplar":               {text: `a{x="y"} 1 # {trace_id="z # 3"} 0.5 1.7e9` + "\n", want: []sample{{"a", labels{"x": "y"}, 1}}},
		"exemplar and timestamp": {text: `a 1 1.7e9 # {} 0.5` + "\n", want: []sample{{name: "a", value: 1}}},
		"escaped label":          {text: `a{x="q\"b\\n\nc}, y=1 # "} 2` + "\n", want: []sample{{"a", labels{"x": "q\"b\\n\nc}, y=1 # "}, 2}}},
		"spaces and last comma":  {text: `a { x = "1" , y = "2", } 3` + "\n", want: []sample{{"a", labels{"x": "1", "y": "2"}, 3}}},
		"last comma":             {text: `a{x="1",y="2",} 3` + "\n", want: []sample{{"a", labels{"x": "1", "y": "2"}, 3}}},
		"empty labels":           {text: "a{} 3\n", want: []sample{{"a", labels{}, 3}}},
		"malformed lines cost themselves": {
			text:    "llamacpp:n_busy nan nan nan\nb{x=\"1} 2\nc\nd 1_0\ne 0x10\n0f 1\ng{9=\"1\"} 1\nh 2\n",
			want:    []sample{{name: "h", value: 2}},
			problem: `7 malformed metrics lines left out, the first is "llamacpp:n_busy nan nan nan"`,
		},
		"terminal control": {text: "\x1b[2J\n", problem: `1 malformed metrics lines left out, the first is " [2J"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, problem := parseProm([]byte(tc.text))
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(sample{})); diff != "" {
				t.Errorf("parseProm(%q): (-want +got)\n%s", tc.text, diff)
			}
			if problem != tc.problem {
				t.Errorf("parseProm(%q): got problem %s, want %s", tc.text, problem, tc.problem)
			}
		})
	}
}

func FuzzProm(f *testing.F) {
	f.Add([]byte("# TYPE vllm:x counter\nvllm:spec_decode_num_drafts_total{engine=\"0\",model_name=\"a\"} 184.0\n# EOF"))
	f.Add([]byte(`vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="99999999999"} 1e308` + "\n" +
		`vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="2",position="1"} 1e308` + "\n" +
		`vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="3",position="1"} 1e308`))
	f.Add([]byte("sglang:num_running_reqs{tp_rank=\"0\",priority=\"\"} NaN\nsglang:num_running_reqs{priority=\"1\"} +Inf\nsglang:spec_accept_length 1e308"))
	f.Add([]byte("trtllm_spec_decode_drafted_tokens_total{token_position=\"0\"} 5 # {a=\"b\"} 1\nprocess_start_time_seconds 1e999"))
	f.Fuzz(func(t *testing.T, body []byte) {
		samples, problem := parseProm(body)
		lines := 1 + strings.Count(string(body), "\n")
		if len(samples) > lines {
			t.Fatalf("%d samples of %d lines", len(samples), lines)
		}
		for _, r := range problem {
			if r < ' ' {
				t.Fatalf("problem %q has a control character", problem)
			}
		}
		e, ok := newExposition(samples, "a")
		if !ok {
			return
		}
		s := e.snapshot()
		numbers := append([]float64{s.Load.Running, s.Load.Waiting}, s.Positions...)
		for _, n := range []*float64{s.Steps, s.Accepted, s.Drafted, s.Generated, s.Finished, s.Window} {
			if n != nil {
				numbers = append(numbers, *n)
			}
		}
		for _, n := range numbers {
			if !finite(n) {
				t.Fatalf("snapshot %+v has %g", s, n)
			}
		}
		if len(s.Positions) > 1024 {
			t.Fatalf("%d positions", len(s.Positions))
		}
	})
}
