package validate

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

const smallKit = "../cmd/hsx/testdata/kit"

// kits are the fixture kits at hand, by name.
func kits(t *testing.T) map[string]string {
	t.Helper()
	return hsxtest.Kits(t, smallKit)
}

// fullKit is the fixture kit that has the model's weights; without it the test is
// skipped, which CI does not let pass.
func fullKit(t *testing.T) string {
	t.Helper()
	kit := kits(t)["full"]
	if kit == "" {
		t.Skip("HSX_FIXTURES is empty, want the directory of the full fixture kit")
	}
	return kit
}

// kitCase is a part of a kit that is ingested as one, as an index of the kit has it: a
// good dump, or a directory with a fault.
type kitCase struct {
	ID, Dir, DType, Container string // of a dump
	Convention                format.Convention
	Aux                       []string `json:"aux_layers"`
	IDs                       []int    `json:"ids_as_configured"`
	Final                     *struct{ Layer string }

	Case, Path, What string // of a fault
	Declared         *struct {
		Layers     []string
		IDs        []int
		Convention format.Convention
		Final      string
	}
	Expect []struct {
		Finding, Sample, Severity string
		Blocks                    []int
	}

	Samples []struct{ ID, File string }
}

// kitDumps are the good dumps of a kit, one of them in a container that is refused as a
// whole.
func kitDumps(t *testing.T, kit string) []kitCase {
	t.Helper()
	var index struct{ Dumps []kitCase }
	hsxtest.ReadJSON(t, filepath.Join(kit, "dumps/INDEX.json"), &index)
	return index.Dumps
}

// kitFaults are the directories of a kit in which something is wrong. The damaged
// containers beside them are no business of this package.
func kitFaults(t *testing.T, kit string) []kitCase {
	t.Helper()
	var index struct{ Cases []kitCase }
	hsxtest.ReadJSON(t, filepath.Join(kit, "faulty/INDEX.json"), &index)
	return slices.DeleteFunc(index.Cases, func(c kitCase) bool { return c.Declared == nil })
}

// path is the case's place in its kit.
func (c *kitCase) path() string {
	if c.Declared != nil {
		return filepath.Join("faulty", c.Path)
	}
	return filepath.Join("dumps", c.Dir)
}

// refused reports whether the dump is in torch's old format.
func (c *kitCase) refused() bool { return c.Container == "torch-legacy" }

// sampleName is the kit's name of a sample that is called after its file.
func (c *kitCase) sampleName(id string) string {
	for _, s := range c.Samples {
		if s.File == id {
			return s.ID
		}
	}
	return id
}

// asConfigured is what ingest has to be told, with the layers as the producer's
// configuration has them where it has any, the final among them.
func (c *kitCase) asConfigured(t *testing.T) producer.Facts {
	t.Helper()
	ids, convention := c.IDs, c.Convention
	if c.Declared != nil {
		ids, convention = c.Declared.IDs, c.Declared.Convention
	}
	f := producer.Facts{DType: c.dtype(t), Layers: kitLayers(t, c.Aux)}
	if ids != nil {
		layers, err := format.NewLayers(ids, convention)
		if err != nil {
			t.Fatal(err)
		}
		f.Layers, f.Convention = layers, convention
	}
	return f
}

// asNamed is the same with the layers and the final by the kit's names.
func (c *kitCase) asNamed(t *testing.T) producer.Facts {
	t.Helper()
	names, final := c.Aux, ""
	if c.Final != nil {
		final = c.Final.Layer
	}
	if c.Declared != nil {
		names, final = c.Declared.Layers, c.Declared.Final
	}
	f := producer.Facts{DType: c.dtype(t), Layers: kitLayers(t, names)}
	switch final {
	case "N":
		f.Final = producer.FinalPost
	case "P4":
		f.Final = producer.FinalPre
	}
	return f
}

// dtype is the type of the states where the container does not say it.
func (c *kitCase) dtype(t *testing.T) format.DType {
	t.Helper()
	if c.Container != "json" && c.ID != "npy_bf16_as_uint16" {
		return format.InvalidDType
	}
	d, err := format.ParseDType(c.DType)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// kitLayers reads the kit's names of layers: P3.
func kitLayers(t *testing.T, names []string) format.Layers {
	t.Helper()
	var layers format.Layers
	for _, name := range names {
		var l format.Layer
		if _, err := fmt.Sscanf(name, "P%d", &l); err != nil {
			t.Fatalf("layer %q: %v", name, err)
		}
		layers = append(layers, l)
	}
	return layers
}

// ingestKit makes a dataset of a file or directory of a kit, in shards and batches of
// the given size; 0 leaves that to the writer.
func ingestKit(t *testing.T, kit, path string, facts producer.Facts, shardBytes int64) *shard.Dataset {
	t.Helper()
	var err error
	if facts.Target, err = format.ParseTarget(hsxtest.Read(t, filepath.Join(kit, "model/config.json"))); err != nil {
		t.Fatal(err)
	}
	plan, err := capture.NewPlan(t.Context(), []string{filepath.Join(kit, path)}, capture.Options{Facts: facts})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.Options{ShardBytes: shardBytes, BatchBytes: shardBytes, Target: facts.Target})
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Run(t.Context(), w)
	if err := errors.Join(err, w.Commit(t.Context()), w.Close()); err != nil {
		t.Fatalf("ingest %s: %v", path, err)
	}
	return openDataset(t, dir)
}

// readAll reads a whole dataset into memory of the test's own.
func readAll(t *testing.T, ds *shard.Dataset) []*format.Sample {
	t.Helper()
	var out []*format.Sample
	for s, err := range ds.Samples(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, hsxtest.Clone(s))
	}
	return out
}
