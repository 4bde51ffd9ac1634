package server

import (
	"fmt"
	"strings"
	"testing"
)

func TestContent(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		parts            []string
		thinking, answer string
		spokenAt         int // index of the part with the answer's first text, -1 for none
	}{
		"answer only":             {[]string{"He", "llo"}, "", "Hello", 0},
		"white space first":       {[]string{" \n", "Hello"}, "", " \nHello", 1},
		"thinking":                {[]string{"<think>", "Well.", "</think>", "\n\n", "Yes"}, "Well.", "Yes", 4},
		"tags cut in two":         {[]string{"<thi", "nk>Well.</th", "ink>Yes"}, "Well.", "Yes", 2},
		"opened by the template":  {[]string{"Well", ".\n</think>\n", "Yes"}, "Well.\n", "Yes", 2},
		"all in one":              {[]string{"\n<think>Well.</think>Yes"}, "Well.", "Yes", 0},
		"never closed":            {[]string{"<think>", "Well, ", "on and on"}, "Well, on and on", "", -1},
		"empty thinking":          {[]string{"<think>\n\n</think>\n\n", "Yes"}, "\n\n", "Yes", 1},
		"no answer":               {[]string{"<think>Well.</think>", "\n"}, "Well.", "", -1},
		"the close tag again":     {[]string{"<think>Well.</think>", "It ends in </think>."}, "Well.", "It ends in </think>.", 1},
		"open tag in the middle":  {[]string{"The tag <think> opens"}, "", "The tag <think> opens", 0},
		"thinking, then its name": {[]string{strings.Repeat("x", 100), "</think>a"}, strings.Repeat("x", 100), "a", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c content
			spoken := -1
			for i, part := range tc.parts {
				if c.add(part) {
					spoken = -1
				}
				if spoken < 0 && c.spoken {
					spoken = i
				}
			}
			thinking, answer := c.parts()
			if thinking != tc.thinking || answer != tc.answer || spoken != tc.spokenAt {
				t.Errorf("got %q, %q, spoken at %d, want %q, %q, %d", thinking, answer, spoken, tc.thinking, tc.answer, tc.spokenAt)
			}
		})
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	if got := digest("", ""); got != "" {
		t.Errorf("digest of nothing: got %q, want nothing", got)
	}
	seen := map[string]string{}
	for _, pair := range [][2]string{{"a", ""}, {"", "a"}, {"a", "b"}, {"ab", ""}, {"", "ab"}} {
		d := digest(pair[0], pair[1])
		if other, twice := seen[d]; twice || len(d) != 32 {
			t.Errorf("digest(%q): got %q, as for %s, want 32 digits of its own", pair, d, other)
		}
		seen[d] = fmt.Sprintf("%q", pair)
	}
}

func TestDistinct4(t *testing.T) {
	t.Parallel()
	var prose strings.Builder
	for i := range 200 {
		fmt.Fprintf(&prose, "word%d of%d ", i, i*7)
	}
	for name, tc := range map[string]struct {
		text      string
		low, high float64
	}{
		"nothing":          {"", 1, 1},
		"short":            {"yes yes yes yes yes yes yes yes", 1, 1},
		"prose":            {prose.String(), 1, 1},
		"two words":        {strings.Repeat("the cat ", 200), 0, 0.01},
		"one sign":         {strings.Repeat("!", 400), 0, 0.01},
		"one letter":       {strings.Repeat("a", 4000), 0, 0.01},
		"a sentence":       {strings.Repeat("Lily was sad and did not know what to do. ", 40), 0.02, 0.04},
		"Chinese":          {strings.Repeat("今天天气很好我们去公园", 40), 0.02, 0.04},
		"half of it loops": {prose.String() + strings.Repeat("the cat ", 200), 0.45, 0.55},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := distinct4(tc.text); got < tc.low || got > tc.high {
				t.Errorf("got %.4f, want %.2f to %.2f", got, tc.low, tc.high)
			}
		})
	}
}
