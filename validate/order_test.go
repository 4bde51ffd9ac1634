package validate

import (
	"math"
	"testing"
)

// TestOrderNeighbours has blocks whose RMS falls a little with depth, as that of
// neighbouring layers of deep models does: no voter may take it for an inversion.
func TestOrderNeighbours(t *testing.T) {
	t.Parallel()
	for name, votes := range map[string][][]float64{
		"a little":  {{5.82, 5.75}, nil},
		"much":      {{9.1, 5.75}, {1, 0}},
		"ascending": {{5.75, 5.76}, {0, 1}},
		"equal":     {{1, 1, 1}, {0, 1, 2}},
		"one apart": {{1.228, 0.453, 0.89}, {2, 0, 1}},
		"infinite":  {{1, math.Inf(1)}, nil},
	} {
		values, want := votes[0], votes[1]
		got := orderVote(values, orderRatio)
		if (got == nil) != (want == nil) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
		for i := range got {
			if got[i] != int(want[i]) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
	}
}
