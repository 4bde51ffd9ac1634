package main

import (
	"testing"
	"time"
	"unicode/utf8"

	"hsx/bench"
)

// TestDescribed has the line of a measurement's progress in terminals of every width.
func TestDescribed(t *testing.T) {
	t.Parallel()
	p := bench.Progress{
		Key:  bench.Key{Arm: "speculation", Level: bench.Level{Concurrency: 32}, Run: 2},
		Runs: 5, Done: 3, Total: 1070, Tokens: 5000, Elapsed: 10 * time.Second, Left: 200 * time.Second,
	}
	for most, want := range map[int]string{
		80: "speculation, concurrency 32, run 2/5, 3m20s left, 500 tok/s",
		50: "speculation, concurrency 32, run 2/5, 3m20s left",
		40: "speculation, concurrency 32, run 2/5",
		12: "speculation,",
		-3: "",
	} {
		if got := described(p, most); got != want {
			t.Errorf("in %d columns: got %q, want %q", most, got, want)
		}
	}
	p.Starting, p.Waiting = true, "connection refused, and a very long reason for it that nobody has the room for"
	for most := range 120 {
		if got := described(p, most); utf8.RuneCountInString(got) > most {
			t.Errorf("in %d columns: got %q", most, got)
		}
	}
}
