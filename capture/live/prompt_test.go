package live_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/capture/live"
	"hsx/format"
)

func TestReadPrompts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   string
		want []live.Prompt
		err  string
	}{
		"ids, a mask, messages": {
			in: `{"id":"a","input_ids":[1,2],"loss_mask":[0,1]}` + "\n\n" + `{"id":7,"input_ids":[3]}` + "\n" + `{"messages": [ {"role": "user", "content": "hi"} ]}`,
			want: []live.Prompt{
				{ID: "a", InputIDs: []int32{1, 2}, LossMask: []byte{0, 1}}, {ID: "7", InputIDs: []int32{3}},
				{ID: "line-4", Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`)},
			},
		},
		"nothing":            {in: "\n", err: "no prompts"},
		"no JSON":            {in: "x", err: "line 1"},
		"neither":            {in: `{"id":"a"}`, err: "no input_ids and no messages"},
		"both":               {in: `{"input_ids":[1],"messages":[{}]}`, err: "want one of them"},
		"no ids":             {in: `{"input_ids":[]}`, err: "no input_ids"},
		"no message":         {in: `{"messages":[]}`, err: "at least one message"},
		"a short mask":       {in: `{"input_ids":[1,2],"loss_mask":[1]}`, err: "loss_mask has 1 values for 2"},
		"a mask of messages": {in: `{"messages":[{}],"loss_mask":[1]}`, err: "needs input_ids"},
		"a weight as mask":   {in: `{"input_ids":[1],"loss_mask":[2]}`, err: "neither 0 nor 1"},
		"no token":           {in: `{"input_ids":[-1]}`, err: "-1 is no token id"},
		"an id twice":        {in: `{"id":"a","input_ids":[1]}` + "\n" + `{"id":"a","input_ids":[2]}`, err: `line 2: id "a" is that of line 1 too`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := live.ReadPrompts(strings.NewReader(c.in))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
				t.Errorf("got %v, difference:\n%s", err, diff)
			}
		})
	}
}

// TestInput: what is sent, and the mask, make the digest; the id does not.
func TestInput(t *testing.T) {
	t.Parallel()
	base := live.Prompt{ID: "a", InputIDs: []int32{1, 2}, LossMask: []byte{0, 1}}
	same := base
	same.ID = "b"
	if base.Input() != same.Input() {
		t.Error("the id is in the digest, want it left out")
	}
	seen := map[string]bool{}
	for _, p := range []live.Prompt{
		base, {InputIDs: []int32{1, 2}}, {InputIDs: []int32{2, 1}}, {InputIDs: []int32{1, 2}, LossMask: []byte{1, 1}},
		{InputIDs: []int32{1, 2, 3, 4}, LossMask: make([]byte, 4)}, {InputIDs: []int32{1, 2, 3, 4, 0}}, // the same bytes in a row
		{Messages: json.RawMessage(`[1]`)}, {Messages: json.RawMessage(`[2]`)},
	} {
		if in := p.Input(); seen[in.Path] {
			t.Errorf("%+v has the digest of another", p)
		} else {
			seen[in.Path] = true
		}
	}
}

func TestServerLayers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want, err string }{
		"script": {in: `--speculative-config '{"x":{"eagle_aux_hidden_state_layer_ids":[1,2,4,5]}}'`, want: "1,2,4,5"},
		"log":    {in: `args: {'eagle_aux_hidden_state_layer_ids': [5, 1, 2]}` + "\n" + `again "eagle_aux_hidden_state_layer_ids\": [1,2,5]`, want: "1,2,5"},
		"none":   {in: "vllm serve"},
		"two":    {in: "eagle_aux_hidden_state_layer_ids: [1]\neagle_aux_hidden_state_layer_ids: [2]", err: "two lists"},
		"twice":  {in: "eagle_aux_hidden_state_layer_ids: [1,1]", err: "repeated"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := live.ServerLayers([]byte(c.in))
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got %v, want %q", err, c.err)
				}
				return
			}
			if err != nil || got.IDs(format.Boundary) != c.want {
				t.Errorf("got %q, %v, want %q", got.IDs(format.Boundary), err, c.want)
			}
		})
	}
}

func FuzzReadPrompts(f *testing.F) {
	f.Add([]byte(`{"id":"a","input_ids":[1,2],"loss_mask":[0,1]}`))
	f.Add([]byte("\n" + `{"messages": [ {"role": "user", "content": "hi"} ]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		ps, err := live.ReadPrompts(bytes.NewReader(data))
		if (err == nil) != (len(ps) > 0) {
			t.Fatalf("%d prompts and error %v", len(ps), err)
		}
		ids := map[string]bool{}
		for _, p := range ps {
			if ids[p.ID] || (p.InputIDs == nil) == (p.Messages == nil) || p.LossMask != nil && len(p.LossMask) != len(p.InputIDs) || p.Messages != nil && !json.Valid(p.Messages) {
				t.Fatalf("got %+v", p)
			}
			ids[p.ID] = true
			if p.Input().Bytes > int64(8*len(data)) {
				t.Fatalf("prompt of %d bytes from %d", p.Input().Bytes, len(data))
			}
		}
	})
}
