package prompts_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"hsx/bench/prompts"
)

// FuzzRead reads anything. What is accepted has unique ids, turns that are not blank
// and known roles, and is read again from the OpenAI form as the same.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"question_id": 81, "category": "writing", "turns": ["a", "b"]}`,
		`[{"id": "x", "conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}, {"id": "x", "turns": "c"}]`,
		"\ufeff\r\n" + `{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "r"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}]}` + "\r\n",
		`{"id": "a", "prompt": "1"}` + "\n" + `{"id": "a#2", "question": "2"}` + "\n" + `{"id": "a", "instruction": "3", "input": "4"}`,
		`{"turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"]}`,
		`[{"prompt": "\ud800"}, {"prompt": "b"}`,
		"PAR1",
	} {
		f.Add([]byte(seed), uint8(prompts.Auto))
	}
	f.Add([]byte(`{"text": "a", "problem": "b"}`), uint8(prompts.Plain))
	f.Fuzz(func(t *testing.T, data []byte, form uint8) {
		ps, err := prompts.Read(bytes.NewReader(data), prompts.Form(form))
		if err != nil {
			if len(ps) > 0 || !strings.HasPrefix(err.Error(), "read dataset: ") {
				t.Fatalf("Read: got %d prompts and error %q, want none and one that begins with what was done", len(ps), err)
			}
			return
		}
		if len(ps) == 0 {
			t.Fatal("Read: got no prompts and no error, want either")
		}
		var again bytes.Buffer
		enc := json.NewEncoder(&again)
		ids := map[string]bool{}
		for _, p := range ps {
			if p.ID == "" || ids[p.ID] || len(p.Turns) == 0 {
				t.Fatalf("Read: got prompt %+v, want a new id and a turn", p)
			}
			ids[p.ID] = true
			all := p.Before
			for _, m := range p.Before {
				if !strings.Contains(" system developer user assistant ", " "+m.Role+" ") {
					t.Fatalf("Read: got a message with role %q, want one of the API's", m.Role)
				}
			}
			for _, turn := range p.Turns {
				if strings.TrimSpace(turn) == "" {
					t.Fatalf("Read: got a blank turn in %+v, want none", p)
				}
				all = append(all, prompts.Message{Role: "user", Content: turn})
			}
			if err := enc.Encode(map[string]any{"id": p.ID, "category": p.Category, "messages": all}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := prompts.Read(&again, prompts.OpenAI)
		if err != nil {
			t.Fatalf("Read again: %v", err)
		}
		if diff := cmp.Diff(ps, got, cmpopts.EquateEmpty()); diff != "" || prompts.Digest(ps) != prompts.Digest(got) {
			t.Errorf("Read again (-first +again):\n%s", diff)
		}
	})
}
