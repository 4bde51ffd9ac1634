package prompts

import (
	"fmt"
	"slices"
)

// Form says under which keys the rows of a dataset hold their prompts. The zero value
// finds it out for each row.
type Form uint8

// The forms in use. A row's own id and category are kept in each.
const (
	// Auto takes the first of all the other forms' keys that a row has.
	Auto Form = iota

	// FastChat is {"question_id", "category", "turns": […]}, as MT-Bench, EAGLE,
	// Spec-Bench and SPEED-Bench have it.
	FastChat

	// ShareGPT is {"id", "conversations": [{"from": "human", "value": …}, …]}, also
	// with role and content. The user's messages become turns and a system message
	// ahead of them stands before. Recorded answers are left out, for the server gives
	// its own. Blank messages are left out too, and so is a row in which the user says
	// nothing: published files have such rows.
	ShareGPT

	// OpenAI is {"messages": [{"role", "content"}, …]}. The last user message is the
	// turn, what precedes it stands before and what follows it is dropped. User
	// messages with no answer between them are turns of their own: prepared SPEED-Bench
	// files write a conversation of several turns like that.
	OpenAI

	// Plain is one text: prompt (HumanEval), question (GSM8K), text (MBPP), instruction
	// with an optional input (Alpaca) or problem (MATH).
	Plain
)

// String is the flag value: auto, fastchat, sharegpt, openai or plain.
func (f Form) String() string {
	switch f {
	case FastChat:
		return "fastchat"
	case ShareGPT:
		return "sharegpt"
	case OpenAI:
		return "openai"
	case Plain:
		return "plain"
	}
	return "auto"
}

// ParseForm reads what [Form.String] writes.
func ParseForm(s string) (Form, error) {
	for f := Auto; f <= Plain; f++ {
		if f.String() == s {
			return f, nil
		}
	}
	return Auto, fmt.Errorf("dataset form %q is not known, want auto, fastchat, sharegpt, openai or plain", s)
}

// keys are those under which a prompt can stand, the first found counts.
func (f Form) keys() []string {
	switch f {
	case FastChat:
		return []string{keyTurns}
	case ShareGPT:
		return []string{keyConversations}
	case OpenAI:
		return []string{keyMessages}
	case Plain:
		return []string{"prompt", "question", "text", keyInstruction, "problem"}
	}
	return slices.Concat(FastChat.keys(), ShareGPT.keys(), OpenAI.keys(), Plain.keys())
}

// Keys whose values are more than one text.
const (
	keyTurns         = "turns"
	keyConversations = "conversations"
	keyMessages      = "messages"
	keyInstruction   = "instruction"
)
