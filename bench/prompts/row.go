package prompts

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// placeholder is what SPEED-Bench publishes in place of prompts that its authors may
// not pass on. A server answers it, so that measuring it would go unnoticed.
const placeholder = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE"

// row is one object of a dataset.
type row map[string]json.RawMessage

// has is whether there is anything under key. Tables exported to JSON have every
// column in every row.
func (r row) has(key string) bool { return r[key] != nil && string(r[key]) != "null" }

// id is the row's own id, "" if there is none.
func (r row) id() string {
	for _, key := range []string{"question_id", "id", "task_id", "unique_id"} {
		var s string
		if json.Unmarshal(r[key], &s) == nil && s != "" {
			return s
		}
		var n json.Number
		if json.Unmarshal(r[key], &n) == nil && n != "" {
			return n.String()
		}
	}
	return ""
}

// category is "" if there is none.
func (r row) category() string {
	var s string
	_ = json.Unmarshal(r["category"], &s) // what is no text is no category
	return s
}

// prompt is what the row says in form f, without id and category. It has no turns if
// the row is one to leave out.
func (r row) prompt(f Form) (p Prompt, err error) {
	i := slices.IndexFunc(f.keys(), r.has)
	if i < 0 {
		have := fmt.Sprintf("%q", slices.Sorted(maps.Keys(r)))
		return p, fmt.Errorf("no prompt in it: has keys %.200s, want one of %s", have, strings.Join(f.keys(), ", "))
	}
	key := f.keys()[i]
	switch key {
	case keyTurns:
		p.Turns, err = turns(r[key])
	case keyConversations:
		p, err = shared(r[key])
	case keyMessages:
		p, err = messages(r[key])
	case keyInstruction:
		p.Turns, err = r.instruction()
	default:
		p.Turns = make([]string, 1)
		p.Turns[0], err = text(r[key])
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", key, err)
	}
	for i, turn := range p.Turns {
		switch {
		case strings.TrimSpace(turn) == "":
			return p, fmt.Errorf("%s: turn %d is empty", key, i+1)
		case strings.HasPrefix(turn, placeholder):
			return p, fmt.Errorf("%s: turn %d is a placeholder, want the text that SPEED-Bench's prepare_data.py puts there", key, i+1)
		}
	}
	return p, nil
}

// instruction is the instruction, followed by its input if there is one.
func (r row) instruction() ([]string, error) {
	s, err := text(r[keyInstruction])
	if err != nil || !r.has("input") {
		return []string{s}, err
	}
	input, err := text(r["input"])
	if err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	if input != "" {
		s += "\n\n" + input
	}
	return []string{s}, nil
}

// turns are a list of texts, or one text alone.
func turns(raw json.RawMessage) ([]string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	var list []string
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errors.New("is empty, want at least one turn")
	}
	return list, nil
}

// text is a string, or the texts of a list of content parts, each on a line of its own
// as chat templates have it.
func text(raw json.RawMessage) (string, error) {
	var s string
	if raw == nil || json.Unmarshal(raw, &s) == nil {
		return s, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(raw, &parts); err != nil {
		return "", fmt.Errorf("is neither a string nor a list of text parts: %w", err)
	}
	texts := make([]string, len(parts))
	for i, part := range parts {
		if part.Type != "text" {
			return "", fmt.Errorf("has a part of type %q, want text", part.Type)
		}
		texts[i] = part.Text
	}
	return strings.Join(texts, "\n"), nil
}

const (
	roleUser   = "user"
	roleSystem = "system"
)

// spoken is a message with its role in the words of the OpenAI API, and its content
// not yet read: that of a message to be dropped may be anything.
type spoken struct {
	role    string
	content json.RawMessage
}

func conversation(raw json.RawMessage) ([]spoken, error) {
	var list []struct {
		Role, From     string
		Content, Value json.RawMessage
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	out := make([]spoken, len(list))
	for i, m := range list {
		out[i] = spoken{m.Role, m.Content}
		if m.Role == "" {
			out[i] = spoken{m.From, m.Value}
		}
		if out[i].role == "human" {
			out[i].role = roleUser
		}
	}
	return out, nil
}

// shared is a conversation in the ShareGPT form.
func shared(raw json.RawMessage) (p Prompt, err error) {
	list, err := conversation(raw)
	if err != nil {
		return p, err
	}
	for i, m := range list {
		before := m.role == roleSystem && len(p.Turns) == 0
		if m.role != roleUser && !before {
			continue
		}
		content, err := text(m.content)
		switch {
		case err != nil:
			return p, fmt.Errorf("message %d: %w", i+1, err)
		case strings.TrimSpace(content) == "":
		case before:
			p.Before = append(p.Before, Message{m.role, content})
		default:
			p.Turns = append(p.Turns, content)
		}
	}
	return p, nil
}

// messages is a conversation in the OpenAI form.
func messages(raw json.RawMessage) (p Prompt, err error) {
	list, err := conversation(raw)
	if err != nil {
		return p, err
	}
	for len(list) > 0 && list[len(list)-1].role != roleUser {
		list = list[:len(list)-1]
	}
	if len(list) == 0 {
		return p, errors.New("no user message in it")
	}
	first := len(list) - 1
	for first > 0 && list[first-1].role == roleUser {
		first--
	}
	for i, m := range list {
		content, err := text(m.content)
		if err != nil {
			return p, fmt.Errorf("message %d: %w", i+1, err)
		}
		if i >= first {
			p.Turns = append(p.Turns, content)
			continue
		}
		switch m.role {
		case roleSystem, "developer", roleUser, "assistant":
			p.Before = append(p.Before, Message{m.role, content})
		default: // a tool's answer is nothing without its call
			return p, fmt.Errorf("message %d has role %q, want system, developer, user or assistant", i+1, m.role)
		}
	}
	return p, nil
}
