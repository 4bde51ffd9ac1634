package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"hsx/validate"
	"hsx/validate/report"
)

type auditOptions struct {
	against         againstFlags
	html, partition string
	merge, asJSON   bool
	keep            int
}

func newAuditCommand() *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit [flags] DS\n  hsx audit --merge [flags] PART...",
		Short: "Read everything, and report what is worth knowing before training",
		Long: `Read every sample of a dataset with all the rules of 'hsx validate', and add what a
careful person would want to know: lengths, supervised share, coverage of the
vocabulary, magnitudes by position and shard, outlier channels, duplicates; each also
by source. --html writes one file that opens offline.

--partition i/n reads a share of the shards and prints a partial report; --merge makes
the whole one of all parts, equal to that of a single run. Give both the same flags.`,
		Example: `  hsx audit ds
  hsx audit --html report.html --target target/ --draft draft/ ds
  hsx audit --partition 1/2 ds > 1.json
  hsx audit --partition 2/2 ds > 2.json
  hsx audit --merge --html report.html 1.json 2.json`,
		GroupID: "data",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return runAudit(cmd, args, o) },
	}
	o.against.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.html, "html", "", "write the report to this file")
	f.StringVar(&o.partition, "partition", "", "read share i of n of the shards, as i/n, and print a partial report")
	f.BoolVar(&o.merge, "merge", false, "the arguments are partial reports of all shares")
	f.IntVar(&o.keep, "keep", validate.DefaultKeep, "findings that are kept of each rule")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON document")
	return cmd
}

func runAudit(cmd *cobra.Command, args []string, o auditOptions) error {
	part, parts, err := parsePartition(o.partition)
	switch {
	case err != nil:
		return err
	case o.keep < 1:
		return usagef("--keep: %d, want a number above 0", o.keep)
	case !o.merge && len(args) != 1:
		return usagef("audit takes one dataset, got %d arguments (partial reports are merged with --merge)", len(args))
	case parts > 0 && (o.merge || o.html != ""):
		return usagef("--partition gives a partial report, which --merge and --html take later")
	}
	if err := placeFor(cmd.Context(), "--html", o.html); err != nil {
		return err
	}
	in, done, err := o.against.input()
	defer done()
	if err != nil {
		return err
	}
	dir := args[0]
	var partials []*validate.Partial
	if o.merge {
		if partials, err = readPartials(cmd.Context(), args); err != nil {
			return err
		}
		dir = partials[0].Dataset
	}
	ds, err := openDataset(cmd.Context(), dir)
	if err != nil {
		return err
	}
	meter := newMeter(cmd.ErrOrStderr(), "audit")
	opt := validate.Options{Only: o.against.only, Skip: o.against.skip, Keep: o.keep, Progress: meter.set}
	var a *validate.Audit
	var partial *validate.Partial
	err = guarded(func() (err error) {
		switch {
		case o.merge:
			a, err = validate.MergeAudit(cmd.Context(), ds, in, opt, partials)
		case parts > 0:
			partial, err = validate.RunPartial(cmd.Context(), ds, in, opt, dir, version(), part, parts)
		default:
			a, err = validate.RunAudit(cmd.Context(), ds, in, opt, dir, version())
		}
		if err == nil && a != nil {
			err = someRule(a.Report)
		}
		return err
	})
	meter.finish()
	if err != nil {
		return fmt.Errorf("audit %s: %w", dir, err)
	}
	if partial != nil {
		return printJSON(cmd.OutOrStdout(), partial)
	}
	return o.print(cmd, a)
}

func readPartials(ctx context.Context, paths []string) ([]*validate.Partial, error) {
	var out []*validate.Partial
	for _, path := range paths {
		data, err := readFile(ctx, path)
		if err != nil {
			return nil, err
		}
		p := &validate.Partial{}
		if err := json.Unmarshal(data, p); err != nil {
			return nil, fmt.Errorf("read %s: not a partial report: %w", path, err)
		}
		if p.Format == 0 { // some other JSON document
			return nil, fmt.Errorf("read %s: not a partial report, which 'hsx audit --partition' prints", path)
		}
		out = append(out, p)
	}
	return out, nil
}

func (o *auditOptions) print(cmd *cobra.Command, a *validate.Audit) error {
	var err error
	if o.asJSON {
		err = printJSON(cmd.OutOrStdout(), a)
	} else {
		_, err = io.WriteString(cmd.OutOrStdout(), auditText(a))
	}
	if err == nil && o.html != "" {
		err = writePage(cmd.Context(), o.html, func(w io.Writer) error { return report.Write(w, a) })
	}
	if err != nil {
		return err
	}
	return o.against.verdict(a.Report)
}

// auditText is an audit for people: the report, then the figures.
func auditText(a *validate.Audit) string {
	var b strings.Builder
	b.WriteString(reportText(a.Dataset, a.Report))
	b.WriteByte('\n')
	groups := a.Stats.Groups
	if len(groups) > 1 {
		groups = append([]validate.GroupStats{a.Stats.Total}, groups...)
	}
	for _, g := range groups {
		name := g.Name
		if name == "" {
			name = "all"
		}
		l := g.Lengths
		fact(&b, printable(name), "%s, %s; length %d to %d, median %s, 95 %% up to %s", count(g.Samples, "sample"), count(g.Tokens, "token"), l.Min, l.Max, l.Text(l.P50), l.Text(l.P95))
		if g.SupervisedShare != nil {
			fact(&b, "", "%.1f %% of the tokens supervised", 100**g.SupervisedShare)
		}
	}
	v := a.Stats.Vocabulary
	fact(&b, "vocabulary", "%s, %d supervised", count(int64(v.Distinct), "distinct id"), v.Supervised)
	if a.Stats.Duplicates > 0 {
		fact(&b, "duplicates", "%s", count(int64(a.Stats.Duplicates), "sample"))
	}
	return b.String()
}
