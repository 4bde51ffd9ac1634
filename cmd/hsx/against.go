package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"hsx/internal/mapped"
	"hsx/validate"
)

// againstFlags say what a dataset is held against, and which rules run.
type againstFlags struct {
	layers, convention, draft, target, server, family, reference string
	embedding, strict                                            bool
	only, skip                                                   []string
}

func (a *againstFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.layers, "layers", "", "the layers that the draft is to read, such as 2,30,58")
	f.StringVar(&a.convention, "convention", "post", "how --layers counts: post (k is the output of layer k) or boundary (k is its input)")
	f.StringVar(&a.draft, "draft", "", "the draft: its directory (config.json and checkpoint), or its config.json alone")
	f.StringVar(&a.target, "target", "", "the target: its directory (config.json and weights, of which few rows are read), or its config.json alone")
	f.StringVar(&a.server, "server", "", "the server that is to run the draft: "+strings.Join(validate.Servers(), ", "))
	f.StringVar(&a.family, "family", "", "the target's family, where servers make a difference: "+strings.Join(validate.Families(), ", ")+" (default: by its name)")
	f.StringVar(&a.reference, "reference", "", "a file of hsx fingerprint: how the target's layers look")
	f.BoolVar(&a.embedding, "allow-embedding", false, "P_-1 is meant, so an id -1 is no mistake")
	f.BoolVar(&a.strict, "strict", false, "warnings make the exit code 3 too")
	f.StringSliceVar(&a.only, "only", nil, "run these rules alone")
	f.StringSliceVar(&a.skip, "skip", nil, "do not run these rules")
	for name, values := range map[string][]string{
		"convention": {"post", "boundary"}, "server": validate.Servers(), "family": validate.Families(), "only": ruleNames(), "skip": ruleNames(),
	} {
		// Only a flag that does not exist is an error.
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
}

func ruleNames() []string {
	var names []string
	for _, r := range validate.Rules() {
		names = append(names, r.Name)
	}
	return names
}

// input reads what the flags name. done unmaps it and is to be called in any case.
func (a *againstFlags) input() (in validate.Input, done func(), err error) {
	var open []*checkpoint
	done = func() {
		for _, c := range open {
			c.close()
		}
	}
	if in.Config.Wanted, in.Config.Convention, err = parseLayers(a.layers, a.convention); err != nil {
		return in, done, err
	}
	if err := oneOf("--server", a.server, validate.Servers()); err != nil {
		return in, done, err
	}
	if err := oneOf("--family", a.family, validate.Families()); err != nil {
		return in, done, err
	}
	for _, list := range [][]string{a.only, a.skip} {
		for _, name := range list {
			if err := oneOf("--only, --skip", name, ruleNames()); err != nil {
				return in, done, err
			}
		}
	}
	if !slices.ContainsFunc(ruleNames(), func(name string) bool {
		return (len(a.only) == 0 || slices.Contains(a.only, name)) && !slices.Contains(a.skip, name)
	}) {
		return in, done, usagef("--only, --skip: leave no rule to run")
	}
	in.Config.Server, in.Config.Family, in.Config.Embedding = a.server, a.family, a.embedding
	for _, read := range []func(*validate.Input) (*checkpoint, error){a.readTarget, a.readDraft, a.readReference} {
		c, err := read(&in)
		if c != nil {
			open = append(open, c)
		}
		if err != nil {
			return in, done, err
		}
	}
	if err := in.Config.Wanted.Check(in.Target.Layers); err != nil {
		return in, done, usagef("--layers: %w", err)
	}
	return in, done, nil
}

func oneOf(flag, value string, known []string) error {
	if value == "" || slices.Contains(known, value) {
		return nil
	}
	return usagef("%s: %q is not known, want one of %s", flag, value, strings.Join(known, ", "))
}

// readTarget reads the target's config, and opens its weights when they are there.
func (a *againstFlags) readTarget(in *validate.Input) (*checkpoint, error) {
	if a.target == "" {
		return nil, nil
	}
	var config []byte
	var err error
	if in.Target, config, err = readTarget(a.target); err != nil {
		return nil, err
	}
	c, err := openCheckpoint(a.target)
	if c == nil || err != nil {
		return nil, err
	}
	err = mapped.Guard(func() (err error) {
		in.Weights, err = validate.NewWeights(config, c.tensor)
		return err
	})
	if err != nil {
		return c, fmt.Errorf("read --target %s: %w", a.target, err)
	}
	return c, nil
}

// readDraft reads the draft's config, and opens its checkpoint when it is there.
func (a *againstFlags) readDraft(in *validate.Input) (*checkpoint, error) {
	if a.draft == "" {
		return nil, nil
	}
	data, err := readConfig(a.draft)
	if err != nil {
		return nil, fmt.Errorf("read --draft: %w", err)
	}
	if in.Config.Config, err = validate.ParseConfig(data); err != nil {
		return nil, fmt.Errorf("read --draft %s: %w", a.draft, err)
	}
	c, err := openCheckpoint(a.draft)
	if c != nil {
		in.Draft = validate.NewCheckpoint(c.record)
	}
	return c, err
}

func (a *againstFlags) readReference(in *validate.Input) (*checkpoint, error) {
	if a.reference == "" {
		return nil, nil
	}
	data, err := os.ReadFile(a.reference)
	if err != nil {
		return nil, fmt.Errorf("read --reference: %w", err)
	}
	if in.Reference, err = validate.ParseReference(data); err != nil {
		return nil, fmt.Errorf("read --reference %s: %w", a.reference, err)
	}
	return nil, nil
}

// verdict is the exit of a report.
func (a *againstFlags) verdict(r *validate.Report) error {
	if r.Verdict == validate.Unfit || a.strict && r.Verdict == validate.Doubtful {
		return errBadData
	}
	return nil
}

// guarded runs work that touches mapped weights.
func guarded(work func() error) error {
	err := mapped.Guard(work)
	if errors.Is(err, mapped.ErrFault) {
		return fmt.Errorf("read weights or samples: %w", err)
	}
	return err
}
