package server

import (
	"fmt"
	"strings"
	"testing"
)

func TestIterations(t *testing.T) {
	t.Parallel()
	// Written from the documentation: an iteration with drafts, one without, and rank 1's copy.
	list := func(from, to int) string {
		var items []string
		for i := from; i <= to; i++ {
			items = append(items, fmt.Sprintf(`{"iter":%d,"attentionDpRank":0,"numActiveRequests":2,"numQueuedRequests":1,"numCompletedRequests":1,
				"specDecodingStats":{"numDraftTokens":6,"numAcceptedTokens":3,"numRequestsWithDraftTokens":2,"acceptanceLength":2.5}},
				{"iter":%d,"attentionDpRank":1,"numCompletedRequests":1,"specDecodingStats":{"numDraftTokens":6,"numAcceptedTokens":3,"numRequestsWithDraftTokens":2}}`, i, i))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	answers := map[string]string{"/metrics": list(0, 3)}
	c := served(t, TRTLLM, Options{}, answers)
	before := c.Counters(t.Context())
	answers["/metrics"] = list(4, 5)
	after := c.Counters(t.Context())
	if d := Delta(before, after, 0); d.Accept == nil || d.Accept.Steps != 4 || d.Accept.Accepted != 6 || d.Accept.Drafted != 12 || *d.Finished != 2 || d.Accept.Approx {
		t.Errorf("Delta: got %+v, want 6 of 12 drafts in 4 steps, counted", d.Accept)
	}
	if want := (Load{true, 2, 1}); after.Load != want {
		t.Errorf("Counters: got load %+v, want %+v", after.Load, want)
	}
	if again := c.Counters(t.Context()); *again.Steps != *after.Steps {
		t.Errorf("Counters of the same list: got %g steps, want %g: nothing ran", *again.Steps, *after.Steps)
	}
	answers["/metrics"] = "[]"
	if drained := c.Counters(t.Context()); *drained.Steps != *after.Steps || drained.Source != after.Source {
		t.Errorf("Counters of an empty list: got %+v, want the sums so far", drained)
	}
	answers["/metrics"] = list(9, 9)
	if lost := c.Counters(t.Context()); len(lost.Problems) != 1 || !strings.Contains(lost.Problems[0], "dropped 3 iterations") {
		t.Errorf("Counters after a gap: got problems %q, want 3 iterations dropped", lost.Problems)
	}
	answers["/metrics"] = list(0, 1)
	if d := Delta(after, c.Counters(t.Context()), 0); !d.Restarted {
		t.Errorf("Delta after iterations began again: got %+v, want a restart", d)
	}
	answers["/metrics"] = `[{"iter":"x"}]`
	if bad := c.Counters(t.Context()); bad.Source != "" || len(bad.Problems) != 1 {
		t.Errorf("Counters of a malformed list: got %+v, want a problem", bad)
	}
}
