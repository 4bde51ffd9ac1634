package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/format/safetensors"
	"hsx/shard"
)

// targetKit is the full fixture kit, which has the model's weights; "" when it is not
// at hand. CI must have it.
func targetKit(t *testing.T) string {
	t.Helper()
	kit := os.Getenv("HSX_FIXTURES")
	if kit == "" {
		if os.Getenv("CI") == "true" {
			t.Fatal("HSX_FIXTURES is empty, want the directory of the full fixture kit: CI runs on all of it")
		}
		t.Skip("HSX_FIXTURES is empty, want the directory of the full fixture kit")
	}
	return kit
}

func targetRead(t testing.TB, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// targetKitWeights are those of the kit's model.
func targetKitWeights(t *testing.T, kit string) *Weights {
	t.Helper()
	file, err := safetensors.Decode(targetRead(t, filepath.Join(kit, "model/model.safetensors")))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWeights(targetRead(t, filepath.Join(kit, "model/config.json")), file.Record.Tensor)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// targetCase is a directory of the kit and how its layers are declared.
type targetCase struct {
	Case, Dir, Path string
	DType           string
	Aux             []string `json:"aux_layers"`
	Final           *struct{ Layer, Norm string }
	Declared        *struct {
		Layers []string
		Final  string
	}
	Samples []struct{ ID, File string }
}

// id is the kit's name of a sample that is called after its file.
func (c *targetCase) id(sample string) string {
	for _, s := range c.Samples {
		if s.File == sample {
			return s.ID
		}
	}
	return sample
}

// targetIngest makes a dataset of a directory of the kit.
func targetIngest(t *testing.T, kit, dir string, c targetCase) *shard.Dataset {
	t.Helper()
	target, err := format.ParseTarget(targetRead(t, filepath.Join(kit, "model/config.json")))
	if err != nil {
		t.Fatal(err)
	}
	facts := producer.Facts{Target: target}
	layers := c.Aux
	final := ""
	if c.Final != nil {
		final = c.Final.Layer
	}
	if c.Declared != nil {
		layers, final = c.Declared.Layers, c.Declared.Final
	}
	for _, l := range layers {
		var k int
		if _, err := fmt.Sscanf(l, "P%d", &k); err != nil {
			t.Fatal(err)
		}
		facts.Layers = append(facts.Layers, format.Layer(k))
	}
	switch final {
	case "N":
		facts.Final = producer.FinalPost
	case "P4":
		facts.Final = producer.FinalPre
	}
	if c.DType != "" && (strings.Contains(dir, "json") || strings.Contains(dir, "uint16")) {
		if facts.DType, err = format.ParseDType(c.DType); err != nil {
			t.Fatal(err)
		}
	}
	ctx := context.Background()
	p, err := capture.NewPlan(ctx, []string{filepath.Join(kit, dir)}, capture.Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	w, err := shard.OpenWriter(out, shard.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Run(ctx, w); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ds, err := shard.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	return ds
}

// targetFacts are the facts that the rules of this area look at.
func targetFacts(s *format.Sample) *sampleFacts {
	f := &sampleFacts{Sample: s, States: make([][]rowFacts, len(s.Hidden))}
	x := make([]float32, s.Hidden[0].Rows.Width)
	for i, h := range s.Hidden {
		f.States[i] = make([]rowFacts, h.Rows.N)
		for t := range h.Rows.N {
			weightsWiden(x, h.Rows.DType, h.Rows.Row(t))
			r := &f.States[i][t]
			r.Zero = true
			for _, v := range x {
				if v-v != 0 {
					r.NonFinite++
				}
				r.Zero = r.Zero && v == 0
			}
		}
	}
	return f
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

// targetSamples reads a whole dataset into memory of the test's own.
func targetSamples(t *testing.T, ds *shard.Dataset) []*format.Sample {
	t.Helper()
	var out []*format.Sample
	for s, err := range ds.Samples(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		c := *s
		c.Tokens, c.LossMask = slices.Clone(s.Tokens), slices.Clone(s.LossMask)
		c.Hidden = slices.Clone(s.Hidden)
		for i := range c.Hidden {
			c.Hidden[i].Rows.Data = slices.Clone(c.Hidden[i].Rows.Data)
		}
		out = append(out, &c)
	}
	return out
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
