package validate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"hsx/shard"
)

// driftManifest has one state, with one shard for each RMS, of rows that vary by
// spread.
func driftManifest(t *testing.T, spread float64, rows int64, rms ...float64) *shard.Manifest {
	t.Helper()
	m := &shard.Manifest{}
	states := `{"states": [{"column": "layer_2", "layer": 2, "dtype": "bfloat16"}]}`
	if err := json.Unmarshal([]byte(states), m); err != nil {
		t.Fatal(err)
	}
	for i, v := range rms {
		m.Shards = append(m.Shards, shard.Info{Name: fmt.Sprintf("%06d.arrow", i),
			Fingerprint: []shard.Fingerprint{{Column: "layer_2", Rows: rows, RMS: v, RMSSD: spread * v}}})
	}
	return m
}

func TestDrift(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		spread float64
		rows   int64
		rms    []float64
		want   string // part of the message, "" for silence
	}{
		"none":                 {0.1, 1000, nil, ""},
		"one":                  {0.1, 1000, []float64{3}, ""},
		"equal":                {0, 1000, []float64{3, 3, 3}, ""},
		"two alike":            {0.1, 1000, []float64{3, 3.3}, ""},
		"two apart":            {0.1, 1000, []float64{3, 4.3}, "RMS is 4.3 in 000001.arrow and 3 in the other 1 of 2 shards"},
		"second half":          {0.1, 4000, []float64{5.8, 5.9, 5.7, 9.1, 9.2, 9.0}, "9 to 9.2 in 000003.arrow, 000004.arrow, 000005.arrow and 5.7 to 5.9"},
		"alternating":          {0.1, 4000, []float64{1.62, 2.1, 1.63, 2.12, 1.61}, "2.1 to 2.12 in 000001.arrow, 000003.arrow"},
		"many names":           {0.1, 4000, []float64{1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2}, "000010.arrow and 2 more"},
		"domains":              {0.15, 4000, []float64{5.5, 5.6, 5.9, 6.2, 6.3, 6.6}, ""},
		"rising":               {0.1, 4000, []float64{1, 1.3, 1.6, 2, 2.5, 3}, ""},
		"rows vary":            {0.9, 4000, []float64{3, 3, 4}, ""},
		"a last shard of rows": {0.3, 70, []float64{3, 3.02, 3.01, 4}, ""},
		"too few rows":         {0, 63, []float64{3, 9}, ""},
		"no finite rows":       {0.1, 0, []float64{3, 9}, ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := NewCollector(10, nil)
			checkDrift(driftManifest(t, tc.spread, tc.rows, tc.rms...), out)
			g := out.groups[ruleDrift]
			switch {
			case tc.want == "" && g != nil:
				t.Errorf("got %+v, want silence", g.Findings)
			case tc.want != "" && (g == nil || g.Count != 1 || g.Severity != Warning || g.Findings[0].Column != "layer_2" || !strings.Contains(g.Findings[0].Message, tc.want)):
				t.Errorf("got %+v, want one warning with %q", g, tc.want)
			}
		})
	}
}

// TestDriftNatural draws shards of one kind: whatever their number, none stands out.
func TestDriftNatural(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		spread, rows := 0.05+0.3*rng.Float64(), int64(8+rng.IntN(4000))
		rms := make([]float64, 1+rng.IntN(30))
		for i := range rms {
			rms[i] = 6 * (1 + 0.05*rng.NormFloat64())
		}
		out := NewCollector(10, nil)
		checkDrift(driftManifest(t, spread, rows, rms...), out)
		if g := out.groups[ruleDrift]; g != nil {
			t.Errorf("spread %.2g, %d rows, RMS %.3g: got %+v, want silence", spread, rows, rms, g.Findings)
		}
	}
}
