package server_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/server"
)

// TestTimes has a server that speaks at known times, on a clock that only waiting moves.
func TestTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		think := func(s string) string { return `{"choices":[{"delta":{"reasoning_content":"` + s + `"}}]}` }
		c, stop := pipeServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, e := range []struct {
				after time.Duration
				data  string
			}{
				{100 * time.Millisecond, role},
				{200 * time.Millisecond, think("Well")},
				{10 * time.Millisecond, think(".")},
				{20 * time.Millisecond, `{"choices":[{"delta":{"content":"\n\n"}}]}`},
				{30 * time.Millisecond, hello},
				{40 * time.Millisecond, `{"choices":[{"delta":{}}]}`},
				{50 * time.Millisecond, world},
				{60 * time.Millisecond, finished},
				{70 * time.Millisecond, counted},
				{80 * time.Millisecond, done},
			} {
				time.Sleep(e.after)
				emit(w, "data: %s\n\n", e.data)
			}
			time.Sleep(20 * time.Millisecond) // the end of the body is no part of the answer
		}), server.Options{})
		defer stop()
		began := time.Now()
		got := c.Do(t.Context(), ask(48))
		want := server.Outcome{
			Sent: began, Attempts: 1, Status: 200,
			FirstChunk: 100 * time.Millisecond, FirstToken: 300 * time.Millisecond, FirstAnswer: 360 * time.Millisecond,
			LastToken: 450 * time.Millisecond, Done: 660 * time.Millisecond,
			Usage: true, PromptTokens: 5, Tokens: 3, FinishReason: "stop", GapsUS: []int{10000, 20000, 30000, 90000},
			Text: "\n\nHello world", Reasoning: "Well.", TextDigest: got.TextDigest, TextBytes: 18, Distinct4: 1,
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got.TextDigest) != 32 {
			t.Errorf("Do (-want +got):\n%s", diff)
		}
	})
}

// TestThinkingInContent turns out to be thinking at the end of it only.
func TestThinkingInContent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, stop := pipeServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, text := range []string{"Well", ".</th", "ink>", `\n`, "Yes", "."} {
				time.Sleep(time.Second)
				emit(w, "data: {\"choices\":[{\"delta\":{\"content\":\"%s\"}}]}\n\n", text)
			}
			emit(w, "data: %s\n\ndata: %s\n\ndata: [DONE]\n\n", finished, counted)
		}), server.Options{})
		defer stop()
		got := c.Do(t.Context(), ask(48))
		if got.FirstToken != time.Second || got.FirstAnswer != 5*time.Second || got.LastToken != 6*time.Second || got.Text != "Yes." || got.Reasoning != "Well." {
			t.Errorf("got first token %v, first answer %v, last %v, %q after %q; want 1s, 5s, 6s, %q after %q", got.FirstToken, got.FirstAnswer, got.LastToken, got.Text, got.Reasoning, "Yes.", "Well.")
		}
	})
}
