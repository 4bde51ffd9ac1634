package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"hsx/format"
	"hsx/format/producer"
	"hsx/validate"
)

// factFlags are the flags that say what a dump does not.
type factFlags struct {
	producer, layers, convention, final, target, draft, dtype string
	maps                                                      []string
	trimPadding                                               bool
}

func (f *factFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.producer, "producer", "", "take the dumps for this producer's: "+strings.Join(producer.Names(), ", "))
	fl.StringVar(&f.layers, "layers", "", "layers of the aux states in the order of the dump, such as 2,30,58")
	fl.StringVar(&f.convention, "convention", "post", "how --layers counts: post (k is the output of layer k) or boundary (k is its input)")
	fl.StringVar(&f.final, "final", "", "the final state is pre (before the norm), post (after it) or none (the dump has none)")
	fl.StringVar(&f.target, "target", "", "config.json of the target model, or its directory")
	fl.StringVar(&f.draft, "draft", "", "config.json of the draft model, or its directory, instead of --layers")
	fl.StringVar(&f.dtype, "dtype", "", "what numbers without a type are: bf16 for uint16 arrays; bf16, fp16 or fp32 for JSON")
	fl.StringArrayVar(&f.maps, "map", nil, "which arrays hold a column, such as layer_2=*.aux0.npy (repeatable)")
	fl.BoolVar(&f.trimPadding, "trim-padding", false, "drop the tail of positions with id 0 and mask 0")
	for name, values := range map[string][]string{
		"producer": producer.Names(), "convention": {"post", "boundary"}, "final": {"pre", "post", "none"}, "dtype": {"bf16", "fp16", "fp32"},
	} {
		// Only a flag that does not exist is an error.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

// facts reads the flags and the configs that they name.
func (f *factFlags) facts() (producer.Facts, error) {
	var out producer.Facts
	var err error
	if err := oneOf("--producer", f.producer, producer.Names()); err != nil {
		return out, err
	}
	out.Producer = f.producer
	if out.Layers, out.Convention, err = parseLayers(f.layers, f.convention); err != nil {
		return out, err
	}
	if out.Final, err = producer.ParseFinal(f.final); err != nil {
		return out, usagef("--final: %w", err)
	}
	if f.dtype != "" {
		if out.DType, err = format.ParseDType(f.dtype); err != nil || !out.DType.IsState() {
			return out, usagef("--dtype: %q is not a type of states, want bf16, fp16 or fp32", f.dtype)
		}
	}
	for _, m := range f.maps {
		mapping, err := producer.ParseMapping(m)
		if err != nil {
			return out, usagef("--map: %w", err)
		}
		out.Map = append(out.Map, mapping)
	}
	out.TrimPadding = f.trimPadding
	if f.target != "" {
		if out.Target, _, err = readTarget(f.target); err != nil {
			return out, err
		}
	}
	if f.draft != "" {
		if err := f.readDraft(&out); err != nil {
			return out, err
		}
	}
	if err := out.Layers.Check(out.Target.Layers); err != nil {
		// The boundary list of a slot layout may end with L, which is P_{L-1}: no
		// layer lies beyond.
		return out, usagef("--layers: %w", err)
	}
	return out, nil
}

// parseLayers reads --layers, nil when there are none, as --convention counts them.
func parseLayers(layers, convention string) (format.Layers, format.Convention, error) {
	c, err := format.ParseConvention(convention)
	switch {
	case err != nil:
		return nil, c, usagef("--convention: %w", err)
	case layers == "" && c != format.PostLayer: // a list from elsewhere says itself how it counts
		return nil, c, usagef("--convention: says how --layers counts, want --layers with it")
	case layers == "":
		return nil, c, nil
	}
	l, err := format.ParseLayers(layers, c)
	if err != nil {
		return nil, c, usagef("--layers: %w", err)
	}
	return l, c, nil
}

// readConfig reads config.json, given itself or by its directory.
func readConfig(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	return os.ReadFile(path)
}

// readTarget reads the target's config, and gives what was read too.
func readTarget(path string) (t format.Target, config []byte, err error) {
	if config, err = readConfig(path); err != nil {
		return t, nil, fmt.Errorf("read --target: %w", err)
	}
	if t, err = format.ParseTarget(config); err != nil {
		return t, nil, fmt.Errorf("read --target %s: %w", path, err)
	}
	return t, config, nil
}

// readDraft takes the layers from a draft's config; --layers has to agree with it.
func (f *factFlags) readDraft(out *producer.Facts) error {
	data, err := readConfig(f.draft)
	if err != nil {
		return fmt.Errorf("read --draft: %w", err)
	}
	c, err := validate.ParseConfig(data)
	if err != nil {
		return fmt.Errorf("read --draft %s: %w", f.draft, err)
	}
	layers, list, err := c.Layers()
	if err != nil {
		return fmt.Errorf("read --draft %s: %w", f.draft, err)
	}
	switch {
	case layers == nil && out.Layers == nil:
		return usagef("--draft: %s names no layers, so each tool would use a default of its own; pass --layers", f.draft)
	case layers == nil:
	case out.Layers == nil:
		out.Layers, out.Convention = layers, list.Convention
	case out.Layers.String() != layers.String():
		return usagef("--layers: %s differs from --draft, whose %s names %s", out.Layers, list.Key, layers)
	}
	return nil
}
