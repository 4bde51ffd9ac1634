package validate

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"hsx/format"
	"hsx/format/safetensors"
	"hsx/internal/hsxtest"
)

// targetKitWeights are those of the kit's model.
func targetKitWeights(t *testing.T, kit string) *Weights {
	t.Helper()
	file, err := safetensors.Decode(hsxtest.Read(t, filepath.Join(kit, "model/model.safetensors")))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWeights(hsxtest.Read(t, filepath.Join(kit, "model/config.json")), file.Record.Tensor)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// targetFacts are the facts that the rules of this area look at.
func targetFacts(s *format.Sample) *sampleFacts {
	return &sampleFacts{Sample: s, States: factsOf(s)}
}

// targetRun scans samples in parts of n, each part with scans of its own that go
// through JSON, as partial reports do, and adds them up.
func targetRun(t *testing.T, samples []*format.Sample, n int, mk func() []scan) []Group {
	t.Helper()
	all, out := mk(), NewCollector(100, nil)
	for part := range slices.Chunk(samples, n) {
		scans, c := mk(), NewCollector(100, nil)
		for _, s := range part {
			f := targetFacts(s)
			for _, sc := range scans {
				sc.sample(f, c)
			}
		}
		for i, back := range mk() {
			data, err := json.Marshal(scans[i])
			if err != nil {
				t.Fatalf("Marshal of the state of a scan: got error %v", err)
			}
			if err := json.Unmarshal(data, back); err != nil {
				t.Fatalf("Unmarshal(%s): got error %v", data, err)
			}
			all[i].add(back)
		}
		out.Merge(c)
	}
	for _, sc := range all {
		sc.finish(nil, out)
	}
	return out.Groups()
}

// targetText is findings in short: rule severity sample column.
func targetText(groups []Group, least Severity) []string {
	var out []string
	for _, g := range groups {
		for _, f := range g.Findings {
			if f.Severity >= least {
				out = append(out, fmt.Sprintf("%s %s %s %s", f.Rule, f.Severity, f.Sample, f.Column))
			}
		}
	}
	return out
}
