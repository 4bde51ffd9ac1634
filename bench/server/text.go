package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"
	"unicode"
)

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// content is the text of an answer as it grows. A server without a reasoning parser
// leaves the thinking in it, up to </think>; whether the template or the model wrote the
// <think> before it shows only then, so what seemed to be answer can turn out to be
// thinking.
type content struct {
	text    []byte
	answer  int  // where in text the answer begins
	inside  bool // <think> is open
	settled bool // the thinking has ended, or has a field of its own
	spoken  bool // the answer has more than white space
}

// add reports whether what seemed to be answer was thinking.
func (c *content) add(s string) (turned bool) {
	old := len(c.text)
	c.text = append(c.text, s...)
	if !c.settled {
		if !c.inside && old < 64 && strings.HasPrefix(strings.TrimSpace(string(c.text[:min(len(c.text), 64)])), thinkOpen) {
			c.inside, c.spoken, turned = true, false, true
		}
		from := max(0, old-len(thinkClose)+1)
		if i := bytes.Index(c.text[from:], []byte(thinkClose)); i >= 0 {
			c.answer = from + i + len(thinkClose)
			c.settled, c.inside, c.spoken, turned = true, false, false, true
		}
	}
	if !c.inside && !c.spoken {
		c.spoken = len(bytes.TrimSpace(c.text[max(c.answer, old):])) > 0
	}
	return turned
}

// parts are the thinking within the text, and the answer.
func (c *content) parts() (thinking, answer string) {
	text := string(c.text)
	if c.inside {
		c.answer = len(text)
	}
	if c.answer == 0 {
		return "", text
	}
	thinking = strings.TrimPrefix(strings.TrimSpace(text[:c.answer]), thinkOpen)
	return strings.TrimSuffix(thinking, thinkClose), strings.TrimLeft(text[c.answer:], " \r\n\t")
}

// digest tells two texts apart.
func digest(thinking, answer string) string {
	if thinking == "" && answer == "" {
		return ""
	}
	h := sha256.New()
	_, _ = io.WriteString(h, thinking) // a hash never fails
	_, _ = h.Write([]byte{0})
	_, _ = io.WriteString(h, answer)
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// distinct4 is the share of distinct sequences of four words among all. Fewer than 32
// words say nothing, and give 1.
func distinct4(text string) float64 {
	const least = 32
	words := wordHashes(text)
	if len(words) < least {
		return 1
	}
	seen := make(map[[4]uint64]struct{}, len(words))
	for i := range len(words) - 3 {
		seen[[4]uint64(words[i:])] = struct{}{}
	}
	return float64(len(seen)) / float64(len(words)-3)
}

// wordHashes cuts a text into runs of letters and digits, at most 16 of them, and any
// other sign that is no space. A letter of a script without spaces is a word of its own.
func wordHashes(text string) []uint64 {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a, over runes
	var hashes []uint64
	word, length := uint64(offset), 0
	flush := func() {
		if length > 0 {
			hashes = append(hashes, word)
			word, length = offset, 0
		}
	}
	for _, r := range text {
		if unicode.IsSpace(r) {
			flush()
			continue
		}
		alone := !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r) ||
			unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
		if alone || length == 16 {
			flush()
		}
		word, length = (word^uint64(r))*prime, length+1
		if alone {
			flush()
		}
	}
	flush()
	return hashes
}
