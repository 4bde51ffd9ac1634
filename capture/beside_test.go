package capture_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
)

// answer is a server's answer with rows of 2 values.
func answer(rows int, output, meta string) string {
	values := strings.TrimSuffix(strings.Repeat("[1,2],", rows), ",")
	if output != "" {
		output = `"output_ids":[` + output + `],`
	}
	return `{` + output + `"meta_info":{` + meta + `"hidden_states":[` + values + `]}}`
}

func TestSGLang(t *testing.T) {
	t.Parallel()
	const ask = `"sampling_params":{},"return_hidden_states":true}`
	three := `{"input_ids":[1,2,3],` + ask
	tests := map[string]struct {
		answer, request string
		name, beside    string // names of the files, response.json and request.json when empty
		want            string // id:tokens
		reason          string
	}{
		"prompt only":           {answer: answer(3, "", ""), request: three, want: "response.json:3"},
		"one new token":         {answer: answer(3, "9", ""), request: three, want: "response.json:3"},
		"two new tokens":        {answer: answer(4, "9,8", ""), request: three, want: "response.json:4"},
		"a row for the last":    {answer: answer(5, "9,8", ""), request: three, want: "response.json:5"},
		"counted":               {answer: answer(4, "9,8", `"prompt_tokens":3,"completion_tokens":2,`), request: three, want: "response.json:4"},
		"packed":                {answer: string(gzipped(t, []byte(answer(3, "", "")))), request: string(zstded(t, []byte(three))), want: "response.json:3"},
		"batch":                 {answer: "[" + answer(2, "5", "") + "," + answer(3, "6", "") + "]", request: `{"input_ids":[[1,2],[1,2,3]],` + ask, want: "response.json#0:2 response.json#1:3"},
		"numbered":              {answer: answer(3, "", ""), request: three, name: "d/response_7.json", beside: "d/request_7.json", want: "d/response_7.json:3"},
		"request missing":       {answer: answer(3, "", ""), request: three, beside: "request_0.json", reason: "response.json: SGLang answer: token ids of the prompt are not in an answer: put the request beside it"},
		"another name":          {answer: answer(3, "", ""), request: three, name: "out.json", reason: "out.json: SGLang answer: token ids of the prompt are not in an answer"},
		"text":                  {answer: answer(3, "", ""), request: `{"text":"a",` + ask, reason: "response.json: SGLang answer: request.json holds the token ids of 0 prompts, want those of 1 answers (prompts sent as text have none)"},
		"more prompts":          {answer: answer(3, "", ""), request: `{"input_ids":[[1,2,3],[4]],` + ask, reason: "response.json: SGLang answer: request.json holds the token ids of 2 prompts, want those of 1 answers"},
		"another prompt":        {answer: answer(4, "", `"prompt_tokens":4,"completion_tokens":1,`), request: three, reason: "response.json: SGLang answer: answer 0 counts 4 prompt tokens, request.json has 3: they do not belong together"},
		"too many rows":         {answer: answer(6, "9,8", ""), request: three, reason: "response.json: SGLang answer: answer 0 has 6 rows for a prompt of 3 tokens and 2 new ones, want 4"},
		"rows dropped":          {answer: answer(2, "", ""), request: three, reason: "response.json: SGLang answer: answer 0 has 2 rows for a prompt of 3 tokens and 0 new ones, want 3"},
		"rows of few dropped":   {answer: answer(3, "9,8", ""), request: three, reason: "response.json: SGLang answer: answer 0 has 3 rows for a prompt of 3 tokens and 2 new ones, want 4: rows that a cache dropped would shift all others"},
		"the second dropped":    {answer: "[" + answer(2, "5", "") + "," + answer(2, "6", "") + "]", request: `{"input_ids":[[1,2],[1,2,3]],` + ask, reason: "response.json: SGLang answer: answer 1 has 2 rows"},
		"request cut":           {answer: answer(3, "", ""), request: three[:50], reason: "response.json: request.json: sglang json"},
		"packed request cut":    {answer: answer(3, "", ""), request: string(gzipped(t, []byte(three))[:20]), reason: "response.json: request.json: gzip"},
		"request is a big file": {answer: answer(3, "", ""), request: "{" + strings.Repeat(" ", 64<<20), reason: "response.json: request.json has 67108865 bytes, at most 67108864 are read"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "other.txt", []byte("keeps the root"))
			if tc.name == "" {
				tc.name = "response.json"
			}
			if tc.beside == "" {
				tc.beside = "request.json"
			}
			write(t, dir, tc.name, []byte(tc.answer))
			path := write(t, dir, tc.beside, []byte(tc.request))
			opt := capture.Options{Facts: producer.Facts{Final: producer.FinalPost}}
			r := ingest(t, &record{}, opt, filepath.Join(dir, tc.name), filepath.Join(dir, "other.txt"))
			var got []string
			for _, s := range r.taken {
				got = append(got, fmt.Sprintf("%s:%d", s.ID, s.Tokens))
			}
			if got := strings.Join(got, " "); got != tc.want || r.err != nil {
				t.Errorf("samples: got %q, error %v, want %q", got, r.err, tc.want)
			}
			if got := r.reasons(); (got == "") != (tc.reason == "") || !strings.HasPrefix(got, tc.reason) {
				t.Errorf("rejections: got %q, want %q", got, tc.reason)
			}
			_ = os.Remove(path) // one is large
		})
	}
}

func TestSpeculators(t *testing.T) {
	t.Parallel()
	masked := taken{"hs_1.safetensors", "hs_1.safetensors", "speculators", 9, true}
	tests := map[string]struct {
		change  func(t *testing.T, dir string)
		facts   producer.Facts
		path    string
		want    []string // producers of hs_0, hs_1 …
		reason  string
		warning string
	}{
		"whole":        {want: []string{"speculators", "speculators"}, warning: "state.json: 3 of 5 rows have no hidden-state file: 2, 3, 4"},
		"states alone": {path: "hidden_states", want: []string{"speculators", "speculators"}, warning: "../state.json: 3 of 5 rows have no hidden-state file: 2, 3, 4"},
		"one file":     {path: "hidden_states/hs_1.safetensors", want: []string{"speculators"}, warning: "../state.json: 3 of 5 rows have no hidden-state file: 2, 3, 4"},
		"beside state.json": {change: func(t *testing.T, dir string) {
			for _, f := range []string{"hs_0.safetensors", "hs_1.safetensors"} {
				if err := os.Rename(filepath.Join(dir, "hidden_states", f), filepath.Join(dir, f)); err != nil {
					t.Fatal(err)
				}
			}
		}, want: []string{"speculators", "speculators"}, warning: "state.json: 3 of 5 rows"},
		"no dataset": {change: func(t *testing.T, dir string) { remove(t, dir, "state.json") },
			want: []string{"vllm", "vllm"}},
		"state.json of another program": {change: func(t *testing.T, dir string) { write(t, dir, "state.json", []byte(`{"step": 3}`)) },
			path: "hidden_states", want: []string{"vllm", "vllm"}},
		"state.json cut": {change: func(t *testing.T, dir string) { write(t, dir, "state.json", []byte(`{"_data_files": [{`)) },
			path: "hidden_states", reason: "hs_0.safetensors: dataset of the token ids: state.json at byte 18: file is truncated"},
		"state.json leads elsewhere": {change: func(t *testing.T, dir string) {
			write(t, dir, "state.json", []byte(`{"_data_files": [{"filename": "../x"}]}`))
		}, path: "hidden_states", reason: `hs_0.safetensors: dataset of the token ids: state.json: _data_files names "../x"`},
		"named by the user": {change: func(t *testing.T, dir string) { write(t, dir, "state.json", []byte(`{"_data_files": [{`)) },
			path: "hidden_states", facts: producer.Facts{Producer: "vllm"}, want: []string{"vllm", "vllm"}},
		"stream missing": {change: func(t *testing.T, dir string) { remove(t, dir, "data-00000-of-00001.arrow") },
			reason: "hidden_states/hs_0.safetensors: dataset of the token ids: data-00000-of-00001.arrow: open "},
		"stream cut": {change: func(t *testing.T, dir string) {
			write(t, dir, "data-00000-of-00001.arrow", hsxtest.Golden(t, "speculators/data-00000-of-00001.arrow")[:3000])
		}, path: "hidden_states", reason: "hs_0.safetensors: dataset of the token ids: data-00000-of-00001.arrow: arrow stream"},
		"rows beyond": {change: func(t *testing.T, dir string) {
			remove(t, dir, "hidden_states/hs_0.safetensors")
			write(t, dir, "hidden_states/hs_5.safetensors", dump(t, 2))
			write(t, dir, "hidden_states/hs_99999999999999999999.safetensors", dump(t, 2))
		}, want: []string{"speculators"}, reason: "hidden_states/hs_5.safetensors: dataset of the token ids: row 5 is not there: it has 5 rows\n" +
			"hidden_states/hs_99999999999999999999.safetensors: dataset of the token ids: row 9223372036854775807 is not there", warning: "state.json: 4 of 5 rows have no hidden-state file: 0, 2, 3, 4"},
		"another row's": {change: func(t *testing.T, dir string) {
			write(t, dir, "hidden_states/hs_0.safetensors", hsxtest.Golden(t, "speculators/hidden_states/hs_1.safetensors"))
		}, want: []string{"speculators"}, reason: "hidden_states/hs_0.safetensors: token_ids has 9 values, row 0 of the dataset has 1 tokens", warning: "state.json: 3 of 5"},
		"a row twice": {change: func(t *testing.T, dir string) {
			write(t, dir, "hidden_states/hs_01.safetensors", hsxtest.Golden(t, "speculators/hidden_states/hs_1.safetensors"))
		}, want: []string{"speculators", "speculators", "speculators"}, warning: "state.json: 3 of 5 rows have no hidden-state file: 2, 3, 4"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyGolden(t, "speculators")
			if tc.change != nil {
				tc.change(t, dir)
			}
			r := ingest(t, &record{}, capture.Options{Facts: tc.facts}, filepath.Join(dir, tc.path))
			var got []string
			for _, s := range r.taken {
				got = append(got, s.Producer)
			}
			if strings.Join(got, " ") != strings.Join(tc.want, " ") || r.err != nil {
				t.Errorf("producers: got %s, rejections %q, error %v, want %s", got, r.reasons(), r.err, tc.want)
			}
			if got := r.reasons(); (got == "") != (tc.reason == "") || !strings.HasPrefix(got, tc.reason) {
				t.Errorf("rejections: got %q, want %q", got, tc.reason)
			}
			if got := strings.Join(r.warnings, "\n"); (got == "") != (tc.warning == "") || !strings.HasPrefix(got, tc.warning) {
				t.Errorf("warnings: got %q, want %q", got, tc.warning)
			}
			if tc.path == "hidden_states" && len(tc.want) == 2 && tc.want[0] == "speculators" && r.taken[1] != masked {
				t.Errorf("sample: got %+v, want %+v", r.taken[1], masked)
			}
		})
	}
}

func remove(tb testing.TB, dir, name string) {
	tb.Helper()
	if err := os.Remove(filepath.Join(dir, name)); err != nil {
		tb.Fatal(err)
	}
}

func TestSiblings(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		name string
		data []byte
		want string // the columns of a sample of speculators v1
	}{
		"none":                  {want: "block_0,block_1,block_2,final"},
		"of the producer":       {name: "data_config.json", data: hsxtest.Golden(t, "v1/data_config.json"), want: "layer_0,layer_2,layer_3,final"},
		"cut":                   {name: "data_config.json", data: []byte(`{"hidden_states": `), want: "block_0,block_1,block_2,final"},
		"of another program":    {name: "data_config.json", data: []byte(`{"a": 1}`), want: "block_0,block_1,block_2,final"},
		"of another, a list":    {name: "manifest.json", data: []byte(`[]`), want: "block_0,block_1,block_2,final"},
		"of another, not JSON":  {name: "manifest.json", data: []byte("version 1"), want: "block_0,block_1,block_2,final"},
		"larger than it may be": {name: "manifest.json", data: bytes.Repeat([]byte{' '}, 64<<20+1), want: "data_4.pt: manifest.json has 67108865 bytes, at most 67108864 are read"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, "data_4.pt", hsxtest.Golden(t, "v1/data_4.pt"))
			if tc.name != "" {
				write(t, dir, tc.name, tc.data)
			}
			var columns []string
			r := &record{put: func(s *format.Sample) error {
				for _, h := range s.Hidden {
					columns = append(columns, h.State.Column())
				}
				return nil
			}}
			ingest(t, r, capture.Options{}, filepath.Join(dir, "data_4.pt"))
			if got := strings.Join(columns, ",") + r.reasons(); !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if tc.name != "" {
				remove(t, dir, tc.name)
			}
		})
	}
}

// TestMappedNames has a mapping tell the samples of a directory apart.
func TestMappedNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, n := range []int64{2, 10} {
		write(t, dir, fmt.Sprintf("d/%d.ids.npy", n), array(t, tensor("", format.Int64, n)))
		write(t, dir, fmt.Sprintf("d/%d.aux.npy", n), array(t, tensor("", format.Float16, n, 8)))
	}
	write(t, dir, "d/3.ids.npy", []byte("\x93NUMPY\x01\x00"))
	write(t, dir, "d/3.aux.npy", array(t, tensor("", format.Float16, 3, 8)))
	opt := capture.Options{Facts: producer.Facts{Map: []producer.Mapping{{Column: "input_ids", Glob: "*.ids.npy"}, {Column: "layer_2", Glob: "*.aux.npy"}}}}
	r := ingest(t, &record{}, opt, dir)
	if got, want := r.ids(), "d/2 d/10"; got != want {
		t.Errorf("samples: got %s, rejections %q, want %s", got, r.reasons(), want)
	}
	contains(t, "rejection", r.reasons(), "d/3: 3.ids.npy: npy")
}
