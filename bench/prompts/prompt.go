package prompts

import (
	"crypto/sha256"
	_ "embed" // for the two sets below
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Embedded text has to be in package variables; nothing writes to them.
var (
	//go:embed builtin.jsonl
	builtinText string
	//go:embed warmup.jsonl
	warmUpText string
)

// Prompt is one conversation: what stands before, then the user's turns, each sent
// after the answer to the one before.
type Prompt struct {
	ID       string    `json:"id"` // unique in its set
	Category string    `json:"category,omitempty"`
	Before   []Message `json:"before,omitempty"` // system message and earlier messages that are given
	Turns    []string  `json:"turns"`            // user turns, at least one
}

// Message is one message of a conversation, in the roles of the OpenAI API.
type Message struct {
	Role    string `json:"role"` // system, developer, user or assistant
	Content string `json:"content"`
}

// Builtin is the embedded set to measure with: 80 prompts, ten in each of eight
// categories, 27 of them with a second turn. Each eight in a row hold one of every
// category, two or three of them with a second turn.
func Builtin() []Prompt { return embedded(builtinText) }

// WarmUp is the embedded set to send before measuring: 16 prompts of one turn, two in
// each category. They open unlike those of [Builtin], so that no prefix cached for one
// serves the other.
func WarmUp() []Prompt { return embedded(warmUpText) }

// embedded panics only if hsx was built with a broken set, which its tests exclude.
func embedded(text string) []Prompt {
	ps, err := Read(strings.NewReader(text), FastChat)
	if err != nil {
		panic("prompts: embedded set: " + err.Error())
	}
	return ps
}

// Select picks n of ps, none twice and in the order of ps, always the same ones for a
// seed. Seed 0 picks the first n. All are picked when n is not positive or not less
// than their number. The slice is new, and its prompts share their turns with ps.
func Select(ps []Prompt, n int, seed uint64) []Prompt {
	if n <= 0 || n >= len(ps) {
		return slices.Clone(ps)
	}
	if seed == 0 {
		return slices.Clone(ps[:n])
	}
	rng := rand.New(rand.NewPCG(seed, 0))
	out := make([]Prompt, 0, n)
	for i, p := range ps {
		if rng.IntN(len(ps)-i) < n-len(out) {
			out = append(out, p)
		}
	}
	return out
}

// Digest is a short fingerprint, 16 hexadecimal digits, of what is sent and in which
// order: ids, messages before and turns. Two runs of equal digest used the same prompts.
// The category is a label and does not enter.
func Digest(ps []Prompt) string {
	h := sha256.New()
	var buf []byte
	put := func(s string) { buf = fmt.Appendf(buf, "%d:%s", len(s), s) } // no two lists run together alike
	for _, p := range ps {
		buf = buf[:0]
		put(p.ID)
		buf = fmt.Appendf(buf, "%d,%d;", len(p.Before), len(p.Turns))
		for _, m := range p.Before {
			put(m.Role)
			put(m.Content)
		}
		for _, turn := range p.Turns {
			put(turn)
		}
		h.Write(buf)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
