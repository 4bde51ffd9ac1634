package prompts_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/prompts"
)

func one(id, category string, turns ...string) []prompts.Prompt {
	return []prompts.Prompt{{ID: id, Category: category, Turns: turns}}
}

func TestRead(t *testing.T) {
	t.Parallel()
	system := []prompts.Message{{Role: "system", Content: "be brief"}}
	answered := []prompts.Message{{Role: "user", Content: "hi"}, {Role: "assistant", Content: "hello"}}
	tests := map[string]struct {
		form prompts.Form // that is not to be found out
		in   string
		want []prompts.Prompt
	}{
		"fastchat": {prompts.FastChat, `{"question_id": 81, "category": "writing", "turns": ["a", "b"], "reference": ["r"]}`, one("81", "writing", "a", "b")},
		"speed-bench": {prompts.FastChat, `{"question_id": "9f", "category": "coding", "sub_category": null, "turns": ["a"], "source": "s", "src_id": "7", "difficulty": "", "multiturn": false}`,
			one("9f", "coding", "a")},
		"speed-bench prepared": {prompts.OpenAI, `{"question_id": "9f", "category": "coding", "messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]}`,
			one("9f", "coding", "a", "b")},
		"turns of one text": {prompts.FastChat, `{"turns": "a"}`, one("line-1", "", "a")},
		"sharegpt": {prompts.ShareGPT, `{"id": "x_0", "conversations": [{"from": "system", "value": "be brief"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}, {"from": "human", "value": "c"}]}`,
			[]prompts.Prompt{{ID: "x_0", Before: system, Turns: []string{"a", "c"}}}},
		"sharegpt with roles": {prompts.ShareGPT, `{"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`, one("line-1", "", "a")},
		"sharegpt that begins with an answer": {prompts.ShareGPT,
			`{"conversations": [{"from": "gpt", "value": "z"}, {"from": "human", "value": "a"}, {"from": "system", "value": "late"}, {"from": "human", "value": " "}]}`, one("line-1", "", "a")},
		"sharegpt in which nobody asks": {prompts.ShareGPT,
			`[{"id": "p", "conversations": []}, {"id": "q", "conversations": [{"from": "gpt", "value": "z"}]}, {"id": "r", "conversations": [{"from": "human", "value": "a"}]}]`, one("r", "", "a")},
		"sharegpt array": {prompts.ShareGPT, "[\n{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}]},\n {\"id\": \"\", \"conversations\": [{\"from\": \"user\", \"value\": \"b\"}]}\n]\n",
			append(one("item-1", "", "a"), one("item-2", "", "b")...)},
		"openai": {prompts.OpenAI, `{"messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "a"}]}`,
			[]prompts.Prompt{{ID: "line-1", Before: system, Turns: []string{"a"}}}},
		"openai with answers": {prompts.OpenAI, `{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": null}]}`,
			[]prompts.Prompt{{ID: "line-1", Before: answered, Turns: []string{"a"}}}},
		"openai parts":          {prompts.OpenAI, `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]}`, one("line-1", "", "a\nb")},
		"humaneval":             {prompts.Plain, `{"task_id": "HumanEval/0", "prompt": "def f():\n", "canonical_solution": "x", "test": "y"}`, one("HumanEval/0", "", "def f():\n")},
		"gsm8k":                 {prompts.Plain, `{"question": "a", "answer": "#### 3"}`, one("line-1", "", "a")},
		"mbpp":                  {prompts.Plain, `{"task_id": 11, "text": "a", "code": "b"}`, one("11", "", "a")},
		"math":                  {prompts.Plain, `{"problem": "a", "solution": "b", "unique_id": "test/1.json", "level": 3}`, one("test/1.json", "", "a")},
		"alpaca":                {prompts.Plain, `{"instruction": "a", "input": "b", "output": "c"}`, one("line-1", "", "a\n\nb")},
		"alpaca without input":  {prompts.Plain, `{"instruction": "a", "input": "", "output": "c"}`, one("line-1", "", "a")},
		"columns that are null": {prompts.Plain, `{"id": null, "category": null, "turns": null, "messages": null, "prompt": "a"}`, one("line-1", "", "a")},
		"category of no text":   {prompts.Plain, `{"category": 7, "id": [1], "prompt": "a"}`, one("line-1", "", "a")},
		"windows":               {prompts.Plain, "\ufeff\r\n \t\r\n{\"prompt\": \"a\"}\r\n\r\n{\"prompt\": \"b\"}", append(one("line-3", "", "a"), one("line-5", "", "b")...)},
		"ids that repeat": {prompts.Plain, `{"id": "a", "prompt": "1"}
			{"id": "a#2", "prompt": "2"}
			{"id": "a", "prompt": "3"}
			{"id": "a", "prompt": "4"}
			{"id": "a#2", "prompt": "5"}
			{"prompt": "6"}
			{"id": "line-6", "prompt": "7"}`, []prompts.Prompt{
			{ID: "a", Turns: []string{"1"}}, {ID: "a#2", Turns: []string{"2"}}, {ID: "a#3", Turns: []string{"3"}}, {ID: "a#4", Turns: []string{"4"}},
			{ID: "a#2#2", Turns: []string{"5"}}, {ID: "line-6", Turns: []string{"6"}}, {ID: "line-6#2", Turns: []string{"7"}}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, form := range []prompts.Form{prompts.Auto, tt.form} {
				got, err := prompts.Read(iotest.OneByteReader(strings.NewReader(tt.in)), form)
				if err != nil {
					t.Fatalf("Read(%s, %v): %v", tt.in, form, err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("Read(%s, %v) (-want +got):\n%s", tt.in, form, diff)
				}
			}
		})
	}
}

func TestReadMixedForms(t *testing.T) {
	t.Parallel()
	const in = `{"prompt": "a", "turns": ["b"]}` + "\n" + `{"text": "c", "messages": [{"role": "user", "content": "d"}]}` + "\n"
	want := append(one("line-1", "", "b"), one("line-2", "", "d")...)
	got, err := prompts.Read(strings.NewReader(in), prompts.Auto)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Read(%s, auto): got error %v, (-want +got):\n%s", in, err, diff)
	}
	want = append(one("line-1", "", "a"), one("line-2", "", "c")...)
	got, err = prompts.Read(strings.NewReader(in), prompts.Plain)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("Read(%s, plain): got error %v, (-want +got):\n%s", in, err, diff)
	}
}

func TestReadErrors(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		form     prompts.Form
		in, want string
	}{
		"empty":              {prompts.Auto, "", "no prompts"},
		"blank":              {prompts.Auto, "\ufeff\n \r\n", "no prompts"},
		"empty array":        {prompts.Auto, " [ ] ", "no prompts"},
		"nobody asks":        {prompts.Auto, `{"conversations": []}`, "no prompts"},
		"no known key":       {prompts.Auto, `{"prompt": "a"}` + "\n\n" + `{"b": 1, "a": 2}`, `line 3: no prompt in it: has keys ["a" "b"], want one of turns, conversations, messages, prompt, question, text, instruction, problem`},
		"key of other form":  {prompts.ShareGPT, `{"turns": ["a"]}`, `line 1: no prompt in it: has keys ["turns"], want one of conversations`},
		"bad json":           {prompts.Auto, `{"prompt": "a"}` + "\n" + `{"prompt": a}`, "line 2: byte 12: invalid character 'a' looking for beginning of value"},
		"cut json":           {prompts.Auto, `{"prompt": "a`, "line 1: byte 13: unexpected end of JSON input"},
		"two on a line":      {prompts.Auto, `{"prompt": "a"} {"prompt": "b"}`, "line 1: byte 17: invalid character '{' after top-level value"},
		"no object":          {prompts.Auto, ` 12`, `line 1: is JSON that begins with '1', want an object`},
		"no object in array": {prompts.Auto, `[{"prompt": "a"}, "b"]`, `item 2: is JSON that begins with '"', want an object`},
		"null":               {prompts.Auto, "null", "line 1: no prompt in it: has keys []"},
		"array cut":          {prompts.Auto, `[{"prompt": "a"},`, "item 2, from byte 16: unexpected EOF"},
		"array cut in item":  {prompts.Auto, `[{"prompt": "a"}, {`, "item 2, from byte 16: unexpected EOF"},
		"array bad":          {prompts.Auto, `[{"prompt": "a"} {"prompt": "b"}]`, "item 2, from byte 17: expected comma after array element"},
		"array bad in item":  {prompts.Auto, `[{"prompt": "a"}, {"prompt" "b"}]`, "item 2, from byte 16: invalid character '\"' after object key"},
		"array continued":    {prompts.Auto, `[{"prompt": "a"}] {}`, "byte 19: { follows the array, want nothing"},
		"array then text":    {prompts.Auto, `[{"prompt": "a"}] x`, "byte 18: invalid character 'x' looking for beginning of value"},
		"parquet":            {prompts.Auto, "PAR1\x15\x04", "is a Parquet file, want JSON lines or a JSON array"},
		"turns empty":        {prompts.Auto, `{"turns": []}`, "line 1: turns: is empty, want at least one turn"},
		"second turn blank":  {prompts.Auto, `{"turns": ["a", " \n"]}`, "line 1: turns: turn 2 is empty"},
		"turn of no text":    {prompts.Auto, `{"turns": [1]}`, "line 1: turns: json: cannot unmarshal number into Go value of type string"},
		"prompt blank":       {prompts.Auto, `{"prompt": ""}`, "line 1: prompt: turn 1 is empty"},
		"prompt of no text":  {prompts.Auto, `{"prompt": 3}`, "line 1: prompt: is neither a string nor a list of text parts: json: "},
		"input of no text":   {prompts.Auto, `{"instruction": "a", "input": 3}`, "line 1: instruction: input: is neither"},
		"placeholder": {prompts.Auto, `{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING SPECDEC_BENCH\n\n{article}"]}`,
			"line 1: turns: turn 1 is a placeholder, want the text that SPEED-Bench's prepare_data.py puts there"},
		"no user":        {prompts.Auto, `{"messages": [{"role": "system", "content": "a"}]}`, "line 1: messages: no user message in it"},
		"user blank":     {prompts.Auto, `{"messages": [{"role": "user"}]}`, "line 1: messages: turn 1 is empty"},
		"image":          {prompts.Auto, `{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, `line 1: messages: message 1: has a part of type "image_url", want text`},
		"tool":           {prompts.Auto, `{"messages": [{"role": "tool", "content": "a"}, {"role": "user", "content": "b"}]}`, `line 1: messages: message 1 has role "tool", want system, developer, user or assistant`},
		"no messages":    {prompts.Auto, `{"messages": "a"}`, "line 1: messages: json: cannot unmarshal string"},
		"no shared list": {prompts.Auto, `{"conversations": {}}`, "line 1: conversations: json: cannot unmarshal object"},
		"shared image":   {prompts.Auto, `{"conversations": [{"from": "human", "value": {}}]}`, "line 1: conversations: message 1: is neither"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := prompts.Read(strings.NewReader(tt.in), tt.form)
			if want := "read dataset: " + tt.want; err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("Read(%q): got %d prompts and error %v, want %q", tt.in, len(got), err, want)
			}
		})
	}
}

// A reader's own error is told, not what is wrong with the half of a line before it.
func TestReadFaults(t *testing.T) {
	t.Parallel()
	fault := errors.New("disk on fire")
	for _, in := range []string{"", "\n\n\n\n\n", `{"prompt": "a"}` + "\n" + `{"prom`, `[{"prompt": "a"}, {"prom`, `[{"prompt": "a"}`, `[{"prompt": "a"}] `} {
		got, err := prompts.Read(io.MultiReader(strings.NewReader(in), iotest.ErrReader(fault)), prompts.Auto)
		if !errors.Is(err, fault) {
			t.Errorf("Read(%q and a fault): got %d prompts and error %v, want %v", in, len(got), err, fault)
		}
	}
}

func TestReadLongRow(t *testing.T) {
	t.Parallel()
	const limit = 64 << 20
	for start, want := range map[string]string{
		"{\"prompt\": \"a\"}\n{\"prompt\": \"":  "read dataset: line 2: is longer than 64 MiB",
		"[{\"prompt\": \"a\"}, {\"prompt\": \"": "read dataset: item 2, from byte 16: is longer than 64 MiB",
	} {
		in := &counter{r: io.MultiReader(strings.NewReader(start), endless{})}
		_, err := prompts.Read(in, prompts.Auto)
		if err == nil || err.Error() != want {
			t.Errorf("Read(%q…): got error %v, want %q", start, err, want)
		}
		if in.n > limit+64<<10 {
			t.Errorf("Read(%q…): read %d bytes, want at most %d and a buffer's", start, in.n, limit)
		}
	}
	const long = 1 << 20 // longer than a scanner's usual limit
	got, err := prompts.Read(strings.NewReader(`{"prompt": "`+strings.Repeat("x", long)+`"}`), prompts.Auto)
	if err != nil || len(got) != 1 || len(got[0].Turns[0]) != long {
		t.Errorf("Read(a row of 1 MiB): got %d prompts and error %v, want one and none", len(got), err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return copy(p, strings.Repeat("x", len(p))), nil }

type counter struct {
	r io.Reader
	n int
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func TestParseForm(t *testing.T) {
	t.Parallel()
	for _, f := range []prompts.Form{prompts.Auto, prompts.FastChat, prompts.ShareGPT, prompts.OpenAI, prompts.Plain} {
		if got, err := prompts.ParseForm(f.String()); got != f || err != nil {
			t.Errorf("ParseForm(%q): got %v, %v, want %v", f.String(), got, err, f)
		}
	}
	const want = `dataset form "csv" is not known, want auto, fastchat, sharegpt, openai or plain`
	if got, err := prompts.ParseForm("csv"); err == nil || err.Error() != want {
		t.Errorf("ParseForm(%q): got %v, %v, want error %q", "csv", got, err, want)
	}
}
