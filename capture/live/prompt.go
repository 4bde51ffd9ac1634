package live

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"hsx/format"
)

// Prompt is one request: token ids, or messages that the server's chat template makes
// token ids of.
type Prompt struct {
	ID       string          // of its sample, unique in the dataset
	InputIDs []int32         // nil when there are messages
	LossMask []byte          // nil, or one value for each of InputIDs
	Messages json.RawMessage // a list in the form of the OpenAI API, nil when there are ids
}

// Input is what a dataset knows the prompt by: a digest of what is sent and of the
// mask, without the id.
func (p *Prompt) Input() format.Input {
	h := sha256.New()
	n := int64(len(p.Messages))
	if p.Messages != nil {
		_, _ = h.Write(append([]byte("messages "), p.Messages...)) // never fails
	} else {
		buf := []byte("ids ")
		for _, id := range p.InputIDs {
			buf = binary.LittleEndian.AppendUint32(buf, uint32(id))
		}
		n = int64(len(buf) - len("ids ") + len(p.LossMask))
		if p.LossMask != nil { // what the ids could not say
			buf = append(append(buf, "mask "...), p.LossMask...)
		}
		_, _ = h.Write(buf) // never fails
	}
	return format.Input{Path: "prompt/" + hex.EncodeToString(h.Sum(nil)[:16]), Bytes: n}
}

// maxLine bounds what is held of a file of prompts at a time, in bytes.
const maxLine = 64 << 20

// IsPrompts reports whether the first line of a file has the keys that ReadPrompts
// wants.
func IsPrompts(line []byte) bool {
	var keys map[string]json.RawMessage
	return json.Unmarshal(line, &keys) == nil && (keys["input_ids"] != nil || keys["messages"] != nil)
}

// ReadPrompts reads lines of JSON: {"id", "input_ids": […], "loss_mask": […]} or
// {"id", "messages": […]}. A mask is optional and belongs to ids: nobody but who
// tokenised knows which tokens a loss is for. All messages are sent, the last answer
// too. A line without an id gets "line-N". Errors name the line.
func ReadPrompts(r io.Reader) ([]Prompt, error) {
	var out []Prompt
	ids := map[string]int{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	n := 0
	for sc.Scan() {
		n++
		if len(bytes.TrimSpace(sc.Bytes())) == 0 {
			continue
		}
		p, err := parsePrompt(sc.Bytes(), n)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if first, ok := ids[p.ID]; ok {
			return nil, fmt.Errorf("line %d: id %q is that of line %d too", n, p.ID, first)
		}
		ids[p.ID] = n
		out = append(out, p)
	}
	switch err := sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return nil, fmt.Errorf("line %d: longer than %d bytes", n+1, maxLine)
	case err != nil:
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	case len(out) == 0:
		return nil, errors.New("no prompts")
	}
	return out, nil
}

func parsePrompt(line []byte, n int) (Prompt, error) {
	var row struct {
		ID       json.RawMessage `json:"id"`
		InputIDs []int64         `json:"input_ids"`
		LossMask []int64         `json:"loss_mask"`
		Messages json.RawMessage `json:"messages"`
	}
	p := Prompt{ID: fmt.Sprintf("line-%d", n)}
	if err := json.Unmarshal(line, &row); err != nil {
		return p, err
	}
	if row.ID != nil && string(row.ID) != "null" {
		if json.Unmarshal(row.ID, &p.ID) != nil {
			p.ID = string(row.ID) // a number
		}
	}
	switch {
	case row.InputIDs != nil && row.Messages != nil:
		return p, errors.New("it has input_ids and messages, want one of them")
	case row.Messages != nil:
		if row.LossMask != nil {
			return p, errors.New("loss_mask beside messages: a mask has one value for each token id, so it needs input_ids")
		}
		var list []json.RawMessage
		if err := json.Unmarshal(row.Messages, &list); err != nil || len(list) == 0 {
			return p, errors.New("messages is not a list of at least one message")
		}
		var b bytes.Buffer
		err := json.Compact(&b, row.Messages)
		p.Messages = b.Bytes()
		return p, err
	case len(row.InputIDs) == 0:
		return p, errors.New("no input_ids and no messages")
	case row.LossMask != nil && len(row.LossMask) != len(row.InputIDs):
		return p, fmt.Errorf("loss_mask has %d values for %d input_ids", len(row.LossMask), len(row.InputIDs))
	}
	for _, id := range row.InputIDs {
		if id < 0 || id > math.MaxInt32 {
			return p, fmt.Errorf("input_ids: %d is no token id", id)
		}
		p.InputIDs = append(p.InputIDs, int32(id))
	}
	for _, v := range row.LossMask {
		if v != 0 && v != 1 {
			return p, fmt.Errorf("loss_mask: %d is neither 0 nor 1", v)
		}
		p.LossMask = append(p.LossMask, byte(v))
	}
	return p, nil
}

// answered reports whether the last message is the assistant's, so that the template
// must not open another answer.
func answered(messages json.RawMessage) bool {
	var list []struct {
		Role string `json:"role"`
	}
	return json.Unmarshal(messages, &list) == nil && len(list) > 0 && list[len(list)-1].Role == "assistant"
}
