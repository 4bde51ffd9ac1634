package chart

import (
	_ "embed"
	"fmt"
	"html/template"
	"strings"
)

// Embedded text has to be in package variables; nothing writes to them.
var (
	//go:embed style.css
	styleText string
	//go:embed figure.tmpl
	figureText string
)

// Style is the style sheet of a page: its text, tables, verdict and figures, in a light
// and a dark scheme and in print.
func Style() template.CSS { return template.CSS(styleText) }

// Parse parses the template of a page. In its text {{template "figure" .}} draws a
// [Figure], and nothing for one that was not drawn; clip is [Clip] and count is [Count].
func Parse(text string, funcs template.FuncMap) (*template.Template, error) {
	t, err := template.New("page").Funcs(template.FuncMap{"clip": Clip, "count": Count}).Funcs(funcs).Parse(figureText)
	if err == nil {
		t, err = t.Parse(text)
	}
	if err != nil {
		return nil, fmt.Errorf("parse page template: %w", err)
	}
	return t, nil
}

// mostText is the number of runes that are shown of a text from elsewhere.
const mostText = 600

// Clip bounds a text that somebody else wrote, and makes it valid UTF-8.
func Clip(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= mostText {
		return s
	}
	n := 0
	for i := range s {
		if n == mostText {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

// Count writes an integer of any type with a comma for each thousand.
func Count(n any) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// RoundTicks marks multiples of 1, 2 or 5 times a power of ten, about five of them.
func RoundTicks(low, high int) []Tick {
	step := 1
	for i := 0; (high-low)/step > 5; i++ {
		if i%3 == 1 {
			step = step / 2 * 5
		} else {
			step *= 2
		}
	}
	ticks := []Tick{}
	for v := low / step * step; v <= high && len(ticks) < 8; v += step {
		ticks = append(ticks, Tick{Value: float64(v), Label: Count(v)})
	}
	return ticks
}
