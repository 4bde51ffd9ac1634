package validate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"hsx/format"
)

// FuzzCrossState reads stored scans, as a partial audit brings them: what is accepted
// can be added to a scan of the same states and finished, and reads again as it is.
func FuzzCrossState(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 9))
	m := &crossModel{width: 8, dtype: format.BFloat16, rng: rng}
	samples := []*format.Sample{m.good("a", crossText(rng, 40)), m.sample("b", crossText(rng, 35), crossTriple(), 4, 1, 3, crossDepth)}
	layout := samples[0].Layout()
	scans := crossScans(layout)
	for row, s := range samples {
		facts := &sampleFacts{Ref: Ref{0, row}, Sample: s, States: factsOf(s)}
		for i, sc := range scans {
			sc.sample(facts, NewCollector(1, nil))
			data, err := json.Marshal(sc)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), data)
		}
	}
	f.Add(uint8(2), []byte(`{"States":[],"Keys":{"1":null}}`))
	f.Add(uint8(1), []byte(`{"Orders":{"":{"Ranks":[9]}}}`))
	f.Fuzz(func(t *testing.T, kind uint8, data []byte) {
		fresh := func() scan { return crossScans(layout)[int(kind)%len(scans)] }
		read := fresh()
		if json.Unmarshal(data, read) != nil {
			return
		}
		stored, err := json.Marshal(read)
		if err != nil {
			t.Fatalf("%s is read and cannot be stored: %v", data, err)
		}
		again := fresh()
		if err := json.Unmarshal(stored, again); err != nil {
			t.Fatalf("%s is stored and cannot be read: %v", stored, err)
		}
		closed := func(Ref, func(*format.Sample)) error { return fmt.Errorf("closed") }
		out := NewCollector(2, nil)
		whole := fresh()
		whole.add(read)
		whole.add(again)
		whole.finish(closed, out)
		read.finish(closed, out)
	})
}
