package main

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hsx/export"
	"hsx/format"
	"hsx/internal/mapped"
	"hsx/shard"
	"hsx/validate"
)

// exportFlags are the flags of hsx export.
type exportFlags struct {
	to, out, layers, convention, final, target, draft string
	ids, split, configOut, server, family             string
	minTokens, maxTokens, limit                       int
	seed                                              uint64
	shuffle, dryRun, asJSON                           bool
	given                                             func(flag string) bool
}

func (f *exportFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.given = fl.Changed
	names := targetNames()
	fl.StringVar(&f.to, "to", "", "whose files to write: "+strings.Join(names, ", ")+" (specforge is specforge-eagle3)")
	fl.StringVar(&f.out, "out", "", "directory of the files, made if need be")
	fl.StringVar(&f.layers, "layers", "", "layers to write, such as 2,30,58 (default: all but the embedding)")
	fl.StringVar(&f.convention, "convention", "post", "how --layers counts: post (k is the output of layer k) or boundary (k is its input)")
	fl.StringVar(&f.final, "final", "", "write the final state pre (before the norm) or post (after it), where the reader takes both")
	fl.StringVar(&f.target, "target", "", "the target: its directory (config.json and weights, of which the final norm is read), or its config.json alone")
	fl.StringVar(&f.draft, "draft", "", "directory of a draft whose vocabulary map (d2t, t2d) is to lie beside the files")
	fl.StringVar(&f.ids, "select", "", "take the samples with ids of this pattern; * matches any text")
	fl.IntVar(&f.minTokens, "min-tokens", 0, "leave shorter samples out")
	fl.IntVar(&f.maxTokens, "max-tokens", 0, "leave longer samples out")
	fl.IntVar(&f.limit, "limit", 0, "take this many of the samples that are left")
	fl.BoolVar(&f.shuffle, "shuffle", false, "number samples in a random order, before --limit")
	fl.Uint64Var(&f.seed, "seed", 0, "of --shuffle")
	fl.StringVar(&f.split, "split", "", "shares and directories, such as train=0.98,val=0.02; the digest of a sample decides, so it never moves")
	fl.StringVar(&f.configOut, "draft-config-out", "", "write to this file the part of a draft's config that makes the trainer and --server read these layers")
	fl.StringVar(&f.server, "server", "", "the server that is to run the draft: "+strings.Join(validate.Servers(), ", "))
	fl.StringVar(&f.family, "family", "", "the target's family, where servers make a difference: "+strings.Join(validate.Families(), ", ")+" (default: by its name)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "say what would be written, write nothing")
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON document")
	for name, values := range map[string][]string{
		"to": append(names, "specforge"), "convention": {"post", "boundary"}, "final": {"pre", "post"}, "server": validate.Servers(), "family": validate.Families(),
	} {
		// Only a flag that does not exist is an error.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func targetNames() []string {
	var names []string
	for _, t := range export.Targets() {
		names = append(names, t.Name)
	}
	return names
}

// options translates the flags that need no file.
func (f *exportFlags) options() (o export.Options, err error) {
	o = export.Options{
		To: f.to, Select: f.ids, MinTokens: f.minTokens, MaxTokens: f.maxTokens, Limit: f.limit,
		Shuffle: f.shuffle, Seed: f.seed, WrittenBy: version(),
	}
	if f.to == "" {
		return o, usagef("--to is missing: name whose files to write, one of %s", strings.Join(targetNames(), ", "))
	}
	if err := oneOf("--to", f.to, append(targetNames(), "specforge")); err != nil {
		return o, err
	}
	if f.out == "" && !f.dryRun {
		return o, usagef("--out is missing: name the directory of the files")
	}
	if f.out, err = onDisk(f.out); err != nil {
		return o, err
	}
	if o.Layers, _, err = parseLayers(f.layers, f.convention); err != nil {
		return o, err
	}
	if f.final != "" {
		if err := oneOf("--final", f.final, []string{"pre", "post"}); err != nil {
			return o, usagef("--final: %q is not known, want pre or post", f.final)
		}
		o.Final, _ = format.ParseNorm(f.final) // it is one of the two
	}
	if _, err := path.Match(f.ids, ""); err != nil {
		return o, usagef("--select: %q: %w", f.ids, err)
	}
	if f.minTokens < 0 || f.maxTokens < 0 || f.limit < 0 {
		return o, usagef("--min-tokens, --max-tokens, --limit: %d, %d and %d, want none below 0", f.minTokens, f.maxTokens, f.limit)
	}
	if f.maxTokens > 0 && f.maxTokens < f.minTokens {
		return o, usagef("--max-tokens: %d is less than --min-tokens %d", f.maxTokens, f.minTokens)
	}
	if f.given("seed") && !f.shuffle {
		return o, usagef("--seed: nothing is random without --shuffle")
	}
	if o.Splits, err = parseSplits(f.split); err != nil {
		return o, usagef("--split: %w", err)
	}
	if err := oneOf("--server", f.server, validate.Servers()); err != nil {
		return o, err
	}
	return o, oneOf("--family", f.family, validate.Families())
}

// parseSplits reads a list such as train=0.98,val=0.02.
func parseSplits(s string) ([]export.Split, error) {
	if s == "" {
		return nil, nil
	}
	var out []export.Split
	for _, part := range strings.Split(s, ",") {
		name, share, ok := strings.Cut(part, "=")
		v, err := strconv.ParseFloat(share, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("%q is not name=share, such as val=0.02", part)
		}
		out = append(out, export.Split{Name: name, Share: v})
	}
	return out, export.CheckSplits(out)
}

// readTarget takes what is known of the target, and where its final norm is to be had.
func (f *exportFlags) readTarget(o *export.Options, m *shard.Manifest) error {
	if f.target == "" {
		return nil
	}
	t, config, err := readTarget(f.target)
	if err != nil {
		return err
	}
	if t.HiddenSize != m.HiddenSize {
		return fmt.Errorf("read --target %s: its hidden size is %d, that of the dataset %d", f.target, t.HiddenSize, m.HiddenSize)
	}
	if n := m.Target.Layers; n > 0 && t.Layers != n {
		return fmt.Errorf("read --target %s: it has %d layers, that of the dataset %d", f.target, t.Layers, n)
	}
	o.Target = t
	o.Norm = func() (n *export.Norm, err error) {
		c, err := openCheckpoint(f.target)
		if err == nil && c == nil {
			err = errors.New("it has no weights, and those of the final norm are needed")
		}
		if err != nil {
			return nil, fmt.Errorf("read --target %s: %w", f.target, err)
		}
		defer c.close()
		err = mapped.Guard(func() error {
			w, err := validate.NewWeights(config, c.tensor)
			if err == nil {
				n, err = export.ReadNorm(config, w.Norm)
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read --target %s: %w", f.target, err)
		}
		return n, nil
	}
	return nil
}

// vocabMap reads the vocabulary map of the draft.
func (f *exportFlags) vocabMap() (*format.Record, error) {
	if f.draft == "" {
		return nil, nil
	}
	c, err := openCheckpoint(f.draft)
	if err == nil && c == nil {
		err = errors.New("it is no directory with a checkpoint")
	}
	if err != nil {
		return nil, fmt.Errorf("read --draft %s: %w", f.draft, err)
	}
	defer c.close()
	rec := &format.Record{}
	err = mapped.Guard(func() error {
		for _, name := range []string{"d2t", "t2d"} {
			if t := c.tensor(name); t != nil {
				own := *t
				own.Data = bytes.Clone(t.Data)
				rec.Fields = append(rec.Fields, format.Field{Key: name, Value: &own})
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read --draft %s: %w", f.draft, err)
	}
	return rec, nil
}
