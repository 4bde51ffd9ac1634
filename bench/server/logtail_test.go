package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLogCounters(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "server.log")
	write := func(flag int, text string) {
		t.Helper()
		f, err := os.OpenFile(name, flag|os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	window := func(running int, accept float64) string {
		return fmt.Sprintf("[2026] Decode batch, #running-req: %d, #token: 5, accept len: %.2f, accept rate: 0.5\n", running, accept)
	}
	c := served(t, SGLang, Options{LogFile: name}, nil)
	if s := c.Counters(t.Context()); s.LogSteps != nil || !strings.Contains(strings.Join(s.Problems, " "), "read server log: open") {
		t.Errorf("Counters without the log: got %+v, want a problem", s)
	}
	write(0, window(5, 9))
	before := c.Counters(t.Context())
	half := window(1, 2)
	write(os.O_APPEND, window(1, 1.5)+window(3, 2.5)+half[:40])
	middle := c.Counters(t.Context())
	write(os.O_APPEND, half[40:])
	after := c.Counters(t.Context())
	for name, tc := range map[string]struct {
		after         Snapshot
		steps, tokens float64
	}{
		"whole lines":         {middle, 4, 9},
		"a line in two parts": {after, 5, 11},
	} {
		if s := tc.after; *before.LogSteps != 0 || *s.LogSteps != tc.steps || *s.LogTokens != tc.tokens {
			t.Errorf("%s: got %g and %g, want %g and %g", name, *s.LogSteps, *s.LogTokens, tc.steps, tc.tokens)
		}
	}
	write(os.O_TRUNC, window(2, 2))
	if s := c.Counters(t.Context()); *s.LogSteps != 7 {
		t.Errorf("Counters of a log begun anew: got %g, want 7", *s.LogSteps)
	}
}
