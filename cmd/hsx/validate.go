package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"hsx/validate"
)

func newValidateCommand() *cobra.Command {
	var a againstFlags
	var opt validate.Options
	var asJSON, list bool
	cmd := &cobra.Command{
		Use:   "validate [flags] DS",
		Short: "Do dataset, draft and server mean the same layers, and is the data sound?",
		Long: `Hold a dataset against the layers that are wanted, the draft's config and checkpoint,
the servers that may run it, a few weights of the target, and itself: whether blocks
are the embedding, permuted, swapped, shifted or of other layers shows in the states.
Whether every byte is as it was written is another question: 'hsx verify'.

By default 256 samples are read, chosen so that they speak for the whole; the report
says what was not read. Nothing in the dataset is changed. Exit 3 when something is
wrong.`,
		Example: `  hsx validate --layers 2,30,58 --draft draft/config.json ds
  hsx validate --layers 2,30,58 --draft draft/ --target target/ --server sglang ds
  hsx validate --all --reference target.json ds
  hsx validate --list-rules`,
		GroupID: "data",
		Args: func(cmd *cobra.Command, args []string) error {
			if list {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if list {
				return listRules(cmd.OutOrStdout(), asJSON)
			}
			return runValidate(cmd, args[0], a, opt, asJSON)
		},
	}
	a.add(cmd)
	f := cmd.Flags()
	f.IntVar(&opt.Sample, "sample", validate.DefaultSample, "how many samples to read")
	f.BoolVar(&opt.All, "all", false, "read every sample")
	f.IntVar(&opt.Keep, "keep", 3, "findings that are shown of each rule")
	f.BoolVar(&list, "list-rules", false, "list the rules and what each proves")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func runValidate(cmd *cobra.Command, dir string, a againstFlags, opt validate.Options, asJSON bool) error {
	in, done, err := a.input()
	defer done()
	if err != nil {
		return err
	}
	if opt.Sample < 1 || opt.Keep < 1 {
		return usagef("--sample, --keep: %d and %d, want both above 0", opt.Sample, opt.Keep)
	}
	ds, err := openDataset(cmd.Context(), dir)
	if err != nil {
		return err
	}
	opt.Only, opt.Skip = a.only, a.skip
	meter := newMeter(cmd.ErrOrStderr(), "validate")
	opt.Progress = meter.set
	var r *validate.Report
	err = guarded(func() (err error) {
		r, err = validate.Run(cmd.Context(), ds, in, opt)
		return err
	})
	meter.finish()
	if err != nil {
		return fmt.Errorf("validate %s: %w", dir, err)
	}
	if err := someRule(r); err != nil {
		return fmt.Errorf("validate %s: %w", dir, err)
	}
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), r)
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), reportText(dir, r))
	}
	if err != nil {
		return err
	}
	return a.verdict(r)
}

// someRule reports an error when none could run: that nothing speaks against a dataset
// would then say nothing.
func someRule(r *validate.Report) error {
	if len(r.Rules) > 0 {
		return nil
	}
	return fmt.Errorf("no rule could run: %s", strings.Join(r.CouldNotRun, "; "))
}

// reportText is a report for people: the verdict, who reads which layers, and the
// findings, most severe first.
func reportText(dir string, r *validate.Report) string {
	var b strings.Builder
	worst := map[validate.Verdict]string{
		validate.Sound:    "sound: no rule speaks against training on it",
		validate.Doubtful: "doubtful: read the warnings before training on it",
		validate.Unfit:    "unfit: do not train on it before the errors are mended",
	}
	fmt.Fprintf(&b, "%s is %s\n\n", dir, worst[r.Verdict])
	if r.Resolution != nil {
		b.WriteString(r.Resolution.Table())
		b.WriteByte('\n')
	}
	for _, g := range r.Groups {
		fmt.Fprintf(&b, "%s %s: %s\n", g.Severity, g.Rule, count(int64(g.Count), "finding"))
		for _, f := range g.Findings {
			if place := findingPlace(f); place != "" {
				fmt.Fprintf(&b, "  %s\n", place)
			}
			paragraph(&b, 4, "%s", f.Message)
			if f.Do != "" {
				paragraph(&b, 4, "→ %s", f.Do)
			}
		}
		if more := g.Count - len(g.Findings); more > 0 {
			fmt.Fprintf(&b, "  and %d more\n", more)
		}
	}
	if len(r.Groups) > 0 {
		b.WriteByte('\n')
	}
	if r.NotRead != "" {
		fmt.Fprintf(&b, "%s\n", r.NotRead)
	} else {
		fmt.Fprintf(&b, "read %s (%s, %s of states)\n", count(r.Samples, "sample"), count(r.Tokens, "token"), bytesText(r.Bytes))
	}
	fmt.Fprintf(&b, "%s ran\n", count(int64(len(r.Rules)), "rule"))
	for _, m := range r.CouldNotRun {
		paragraph(&b, 0, "%s", shortened(m))
	}
	return b.String()
}

// shortened says of rules that could not run how many they are and what they need;
// their names are in the JSON document and in the list of rules.
func shortened(couldNotRun string) string {
	names, need, _ := strings.Cut(couldNotRun, ": ")
	if n := strings.Count(names, ",") + 1; n > 1 {
		return fmt.Sprintf("%d rules did not: they %s", n, need)
	}
	need = strings.TrimPrefix(strings.TrimPrefix(need, "needs "), "need ")
	return fmt.Sprintf("%s did not: it needs %s", names, need)
}

// findingPlace is where a finding is: sample, column and token, as far as it has them.
func findingPlace(f validate.Finding) string {
	var parts []string
	if f.Sample != "" {
		parts = append(parts, printable(f.Sample))
	}
	if f.Column != "" {
		parts = append(parts, f.Column)
	}
	if f.Token >= 0 {
		parts = append(parts, fmt.Sprintf("token %d", f.Token))
	}
	return strings.Join(parts, ", ")
}

func listRules(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, validate.Rules())
	}
	var b strings.Builder
	for _, r := range validate.Rules() {
		fmt.Fprintf(&b, "%s (%s; needs %s)\n", r.Name, r.Severity, r.Needs)
		fact(&b, "proves", "%s", r.Doc)
		fact(&b, "reads", "%s", r.Cost)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
