package sglang_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/format"
	"hsx/format/sglang"
	"hsx/internal/hsxtest"
)

func TestGolden(t *testing.T) {
	t.Parallel()
	type want struct {
		ID                         string
		Output                     []int64
		Prompt, Completion, Cached int
		Shape                      []int64
		Sum                        string
	}
	const s03 = "a5f7fbcbb4b08801189ec61779fc7af388f5cfe0582ebb79b96fef87520eda94" // of the fp32 bytes
	tests := map[string][]want{
		"response.json": {{"4fa8f494786a76351153d012701ba25e", []int64{383, 286, 261, 376, 298, 315, 421, 395, 317, 426}, 6, 10, 0, []int64{15, 64}, s03}},
		"batch_response.json": {
			{"c9396e72862903cc59129c71b4e97e69", []int64{419}, 8, 1, 0, []int64{8, 64}, ""},
			{"", []int64{426}, 15, 1, 0, []int64{15, 64}, s03},
		},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs, err := sglang.DecodeResponses(hsxtest.Golden(t, name))
			if err != nil {
				t.Fatal(err)
			}
			if len(rs) != len(want) {
				t.Fatalf("got %d responses, want %d", len(rs), len(want))
			}
			for i, r := range rs {
				w := want[i]
				if w.ID != "" && r.ID != w.ID {
					t.Errorf("response %d: ID = %q, want %q", i, r.ID, w.ID)
				}
				got := []any{r.OutputIDs, r.PromptTokens, r.CompletionTokens, r.CachedTokens, r.States.Shape, r.States.DType}
				if d := cmp.Diff([]any{w.Output, w.Prompt, w.Completion, w.Cached, w.Shape, format.Float32}, got); d != "" {
					t.Errorf("response %d (-want +got):\n%s", i, d)
				}
				if err := r.States.Check(); err != nil {
					t.Error(err)
				}
				sum := sha256.Sum256(r.States.Data)
				if got := hex.EncodeToString(sum[:]); w.Sum != "" && got != w.Sum {
					t.Errorf("response %d: states have sha256 %s, want %s", i, got, w.Sum)
				}
			}
		})
	}
}

// answer writes an answer whose first prompt rows share a list.
func answer(rows [][]float32, prompt int) []byte {
	states := []any{rows[:prompt]}
	for _, r := range rows[prompt:] {
		states = append(states, r)
	}
	data, err := json.Marshal(map[string]any{
		"text":       `a "quoted" text with ] and }`,
		"output_ids": make([]int64, len(rows)-prompt+1),
		"meta_info": map[string]any{
			"id": "r\u00e9", "prompt_tokens": prompt, "completion_tokens": len(rows) - prompt + 1, "hidden_states": states,
		},
	})
	if err != nil {
		panic(err)
	}
	return data
}

func randomRows(n, width int) ([][]float32, []byte) {
	rng := rand.New(rand.NewPCG(uint64(n), uint64(width)))
	rows := make([][]float32, n)
	var data []byte
	for i := range rows {
		rows[i] = make([]float32, width)
		for j := range rows[i] {
			v := math.Float32frombits(rng.Uint32())
			for math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				v = math.Float32frombits(rng.Uint32())
			}
			rows[i][j] = v
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	return rows, data
}

// Every float32 comes back with its bits, denormals and negative zero among them.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024, 1025} {
		for _, shape := range [][2]int{{n, 3}, {3, n}} {
			t.Run(fmt.Sprintf("%dx%d", shape[0], shape[1]), func(t *testing.T) {
				t.Parallel()
				rows, want := randomRows(shape[0], shape[1])
				rs, err := sglang.DecodeResponses(answer(rows, (shape[0]+1)/2))
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff([]int64{int64(shape[0]), int64(shape[1])}, rs[0].States.Shape); d != "" {
					t.Errorf("shape (-want +got):\n%s", d)
				}
				if string(rs[0].States.Data) != string(want) {
					t.Error("states differ from those written")
				}
				if rs[0].ID != "ré" {
					t.Errorf("ID = %q, want %q", rs[0].ID, "ré")
				}
			})
		}
	}
}

func TestDepths(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		states string
		want   []int64
	}{
		"prompt":                  {`[[[1,2],[3,4]]]`, []int64{2, 2}},
		"prompt and new":          {`[[[1,2],[3,4]],[5,6]]`, []int64{3, 2}},
		"new only":                {` [ [ 1 , 2 ] , [ 3 , 4 ] ] `, []int64{2, 2}},
		"one number":              {`[[-1.5e-3]]`, []int64{1, 1}},
		"one level more":          {`[[[[1,2],[3,4]],[5,6],[7,8]]]`, []int64{4, 2}},
		"one level more new only": {`[[[1,2],[3,4]]]`, []int64{2, 2}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rs, err := sglang.DecodeResponses([]byte(`{"meta_info":{"hidden_states":` + tc.states + `}}`))
			if err != nil {
				t.Fatalf("DecodeResponses(%q): got error %v", tc.states, err)
			}
			if d := cmp.Diff(tc.want, rs[0].States.Shape); d != "" {
				t.Errorf("DecodeResponses(%q) shape (-want +got):\n%s", tc.states, d)
			}
		})
	}
}

func TestDecodeResponsesRefuses(t *testing.T) {
	t.Parallel()
	states := func(s string) []byte { return []byte(`{"meta_info":{"hidden_states":` + s + `}}`) }
	meta := func(s string) []byte { return []byte(`{"meta_info":{` + s + `}}`) }
	tests := map[string]struct {
		data []byte
		kind error
		want string
	}{
		"cut":          {hsxtest.Golden(t, "cut.json"), format.ErrCorrupt, "truncated"},
		"nan literal":  {hsxtest.Golden(t, "nan_literal.json"), format.ErrCorrupt, "holds NaN or Infinity"},
		"overflow":     {hsxtest.Golden(t, "overflow.json"), format.ErrCorrupt, "row 0 column 0 of hidden_states is 1e999, which is non-finite"},
		"ragged":       {hsxtest.Golden(t, "ragged.json"), format.ErrCorrupt, "row 1 of hidden_states is 63 wide, want 64"},
		"strings":      {hsxtest.Golden(t, "strings.json"), format.ErrCorrupt, "row 0 column 0 of hidden_states is a string, want a number"},
		"row count":    {hsxtest.Golden(t, "row_count.json"), format.ErrCorrupt, "has 3 rows, want 6 for prompt_tokens 5 and completion_tokens 2 (cached_tokens 3): the prefix cache held"},
		"deep":         {[]byte(strings.Repeat("[", 100000)), format.ErrLimit, "nests too deep"},
		"infinity":     {states(`[[-Infinity]]`), format.ErrCorrupt, "holds NaN or Infinity"},
		"empty":        {nil, format.ErrCorrupt, "truncated"},
		"two values":   {[]byte(`{} {}`), format.ErrCorrupt, "not JSON"},
		"number":       {[]byte(`1`), format.ErrUnsupported, "file is a number"},
		"empty list":   {[]byte(`[]`), format.ErrUnsupported, "at least one"},
		"list of list": {[]byte(`[[]]`), format.ErrUnsupported, "response 0: element is a list"},
		"no states":    {[]byte(`{"text":"","meta_info":{"id":"a"}}`), format.ErrUnsupported, "--enable-return-hidden-states"},
		"second":       {[]byte(`[{"meta_info":{"hidden_states":[[1]]}},{}]`), format.ErrUnsupported, "response 1: answer has no"},
		"null":         {states(`null`), format.ErrUnsupported, "answer has no"},
		"null number":  {states(`[[1,null]]`), format.ErrCorrupt, "row 0 column 1 of hidden_states is null"},
		"bool":         {states(`[[true]]`), format.ErrCorrupt, "is a boolean"},
		"object":       {states(`[[{}]]`), format.ErrCorrupt, "is an object"},
		"list":         {states(`[[1,[2]]]`), format.ErrCorrupt, "row 0 column 1 of hidden_states is a list"},
		"not rows":     {states(`"abc"`), format.ErrCorrupt, "is a string, want a list of rows"},
		"flat":         {states(`[1,2]`), format.ErrUnsupported, "1 deep"},
		"none":         {states(`[]`), format.ErrUnsupported, "1 deep"},
		"no numbers":   {states(`[[]]`), format.ErrCorrupt, "row 0 of hidden_states has no numbers"},
		"no prompt":    {states(`[[],[1]]`), format.ErrCorrupt, "row 0 of hidden_states has no numbers"},
		"row missing":  {states(`[[[1,2],3]]`), format.ErrCorrupt, "row 1 of hidden_states is a number"},
		"mixed":        {states(`[[1,2],3]`), format.ErrCorrupt, "row 1 of hidden_states is a number"},
		"per layer":    {states(`[[[1],[2]],[[3],[4]]]`), format.ErrUnsupported, "element 1 of hidden_states nests lists 2 deep"},
		"sequences":    {states(`[[[[1]]],[[[2]]]]`), format.ErrUnsupported, "more than one sequence"},
		"five deep":    {states(`[[[[[1]]]]]`), format.ErrUnsupported, "5 deep"},
		"float32 max":  {states(`[[3.5e38]]`), format.ErrCorrupt, "non-finite"},
		"twice":        {meta(`"hidden_states":[[1]],"hidden_states":[[2]]`), format.ErrCorrupt, "there twice"},
		"negative":     {meta(`"prompt_tokens":-1,"hidden_states":[[1]]`), format.ErrCorrupt, "prompt_tokens is -1"},
		"fraction":     {meta(`"prompt_tokens":1.5,"hidden_states":[[1]]`), format.ErrCorrupt, "prompt_tokens is 1.5, want an integer"},
		"count string": {meta(`"completion_tokens":"1","hidden_states":[[1]]`), format.ErrCorrupt, "completion_tokens is a string"},
		"chunked":      {meta(`"prompt_tokens":3,"completion_tokens":1,"hidden_states":[[1]]`), format.ErrCorrupt, "--chunked-prefill-size -1"},
		"ids":          {[]byte(`{"output_ids":["a"]}`), format.ErrCorrupt, "output_ids is a string, want an integer"},
		"long number":  {states(`[[1` + strings.Repeat("0", 5000) + `]]`), format.ErrCorrupt, "0…, which is non-finite"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := sglang.DecodeResponses(tc.data)
			if err == nil {
				t.Fatalf("DecodeResponses(%s): got no error, want %q", name, tc.want)
			}
			hsxtest.CheckDecodeError(t, err, len(tc.data))
			if !errors.Is(err, tc.kind) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("DecodeResponses(%s): got error %v, want a %v with %q", name, err, tc.kind, tc.want)
			}
			if len(err.Error()) > 400 {
				t.Errorf("DecodeResponses(%s): message has %d bytes, want at most 400", name, len(err.Error()))
			}
		})
	}
}

// The offset of an error leads to the byte that it is about.
func TestOffsets(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		`{"meta_info":{"hidden_states":[[1, 1e99]]}}`:                                                         "1e99",
		`{"meta_info":{"hidden_states":[[1], [2, 3]]}}`:                                                       "[2, 3]",
		`{"meta_info":{"hidden_states":[[1,"x"]]}}`:                                                           `"x"`,
		`{"meta_info":{"hidden_states":[[1,NaN]]}}`:                                                           "NaN",
		`{"meta_info":{"hidden_states": [[1]], "prompt_tokens": 9, "completion_tokens": 1}}`:                  "[[1]]",
		`[{"meta_info":{"hidden_states":[[1]]}}, {"meta_info":{"prompt_tokens": [], "hidden_states":[[1]]}}]`: "[], ",
	} {
		_, err := sglang.DecodeResponses([]byte(data))
		if err == nil {
			t.Fatalf("DecodeResponses(%q): got no error", data)
		}
		if de := hsxtest.DecodeError(t, err, len(data)); de.Offset < 0 || !strings.HasPrefix(data[de.Offset:], want) {
			t.Errorf("DecodeResponses(%q): got error %v, want it at %q", data, err, want)
		}
	}
}

func TestDecodeRequest(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data string
		want sglang.Request
	}{
		"golden": {string(hsxtest.Golden(t, "request.json")), sglang.Request{InputIDs: [][]int64{{1, 403, 407, 261, 378, 432}}, ReturnHiddenStates: true}},
		"batch": {string(hsxtest.Golden(t, "batch_request.json")), sglang.Request{
			InputIDs: [][]int64{{1, 326, 397, 355, 267, 337, 410, 408}, {1, 403, 407, 261, 378, 432, 383, 286, 261, 376, 298, 315, 421, 395, 317}}, ReturnHiddenStates: true}},
		"text":       {`{"text":"hi","sampling_params":{"a":[1]}}`, sglang.Request{Text: true}},
		"texts":      {`{"text":["hi","there"],"return_hidden_states":[true,true]}`, sglang.Request{Text: true, ReturnHiddenStates: true}},
		"not all":    {`{"text":["hi","there"],"return_hidden_states":[true,false]}`, sglang.Request{Text: true}},
		"null text":  {`{"text":null,"input_ids":[7]}`, sglang.Request{InputIDs: [][]int64{{7}}}},
		"both":       {`{"text":"hi","input_ids":[7]}`, sglang.Request{InputIDs: [][]int64{{7}}}},
		"escaped":    {`{"\u0069nput_ids":[7]}`, sglang.Request{InputIDs: [][]int64{{7}}}},
		"spaced out": {" { \"input_ids\" : [ [ 1 , 2 ] , [ 3 ] ] } \n", sglang.Request{InputIDs: [][]int64{{1, 2}, {3}}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := sglang.DecodeRequest([]byte(tc.data))
			if err != nil {
				t.Fatalf("DecodeRequest(%q): got error %v", tc.data, err)
			}
			if d := cmp.Diff(&tc.want, got); d != "" {
				t.Errorf("DecodeRequest(%q) (-want +got):\n%s", tc.data, d)
			}
		})
	}
}

func TestDecodeRequestRefuses(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		``:                                    "truncated",
		`{"input_ids":[1`:                     "truncated",
		`[]`:                                  "file is a list",
		`{}`:                                  "neither input_ids nor text",
		`{"input_ids":[]}`:                    "input_ids is empty",
		`{"input_ids":[[1],[]]}`:              "prompt 1 of input_ids is empty",
		`{"input_ids":[[1],2]}`:               "is a number, want a list",
		`{"input_ids":[1,[2]]}`:               "is a list, want an integer",
		`{"input_ids":[[[1]]]}`:               "is a list, want an integer",
		`{"input_ids":"1"}`:                   "is a string",
		`{"input_ids":[1.0]}`:                 "is 1.0, want an integer",
		`{"input_ids":[9223372036854775808]}`: "want an integer of 64 bits",
		`{"input_ids":[1],"return_hidden_states":1}`: "want true or false",
	} {
		_, err := sglang.DecodeRequest([]byte(data))
		if err == nil {
			t.Errorf("DecodeRequest(%q): got no error, want %q", data, want)
			continue
		}
		hsxtest.CheckDecodeError(t, err, len(data))
		if !strings.Contains(err.Error(), want) {
			t.Errorf("DecodeRequest(%q): got error %v, want %q", data, err, want)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		data []byte
		want sglang.Kind
	}{
		"response":       {hsxtest.Golden(t, "response.json"), sglang.KindResponse},
		"batch response": {hsxtest.Golden(t, "batch_response.json"), sglang.KindResponse},
		"cut response":   {hsxtest.Golden(t, "cut.json"), sglang.KindResponse},
		"head":           {hsxtest.Golden(t, "response.json")[:200], sglang.KindResponse},
		"request":        {hsxtest.Golden(t, "request.json"), sglang.KindRequest},
		"batch request":  {hsxtest.Golden(t, "batch_request.json"), sglang.KindRequest},
		"state.json":     {[]byte(`{"_data_files":[{"filename":"a"}]}`), sglang.KindOther},
		"value":          {[]byte(`{"a":"meta_info"}`), sglang.KindOther},
		"below":          {[]byte(`{"a":{"meta_info":1}}`), sglang.KindOther},
		"text only":      {[]byte(`{"text":"a"}`), sglang.KindOther},
		"empty":          {nil, sglang.KindOther},
		"deep":           {[]byte(strings.Repeat("[", 1<<20)), sglang.KindOther},
		"deep objects":   {[]byte(strings.Repeat(`{"a":`, 1<<20)), sglang.KindOther},
		"not JSON":       {[]byte(`{"a":,"b":}}]"\`), sglang.KindOther},
		"bare quote":     {[]byte(`{"`), sglang.KindOther},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := sglang.Classify(tc.data); got != tc.want {
				t.Errorf("Classify(%s) = %v, want %v", name, got, tc.want)
			}
		})
	}
}
