package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hsx/capture"
	"hsx/shard"
)

// mostParts is more than any job array has.
const mostParts = 1 << 16

func newPlanCommand() *cobra.Command {
	var o ingestOptions
	var parts int
	cmd := &cobra.Command{
		Use:   "plan --parts N [flags] PATH...",
		Short: "Divide an ingest among the nodes of a cluster",
		Long: `Show how the inputs under the paths are divided into n parts of about the same bytes,
and the command lines that ingest each part and merge them. Pass the flags of ingest:
they are handed on. Nothing is read but names and sizes, and nothing is written.

Each part is a run of the inputs in their order, so that the merged dataset has the
samples of one run, in its order. The plan is a digest of the inputs and of the flags
that say what they are: it is kept in each part, and parts of two plans do not merge.
Nor do parts with a sample id in common, which only reading the inputs can show: a run
without --partition takes the first of the two and names the second.`,
		Example: `  hsx plan --parts 8 --out ds --layers 2,30,58 --target config.json dumps/
  hsx plan --parts 64 --json --layers 2,30,58 dumps/ | jq -r .plan
  hsx plan --parts 4 --layers 2,30,58 dumps/ | sed -n 's/^  hsx ingest/hsx ingest/p' | xargs -d '\n' -P 4 -n 1 sh -c`,
		GroupID: "data",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPlan(cmd, args, o, parts)
		},
	}
	o.addReading(cmd)
	f := cmd.Flags()
	f.IntVar(&parts, "parts", 0, "number of parts, which is that of the runs of ingest")
	f.StringVar(&o.out, "out", "ds", "the dataset that is to be made; its parts lie beside it, in OUT.parts")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON document")
	return cmd
}

// planResult is the JSON document of hsx plan.
type planResult struct {
	Plan   string     `json:"plan"` // digest of the inputs and of what was said of them
	Inputs int        `json:"inputs"`
	Bytes  int64      `json:"bytes"`
	Parts  []planPart `json:"parts"`
	Merge  []string   `json:"merge"` // the command that makes the dataset of its parts
}

// planPart is one part of a plan.
type planPart struct {
	Part    int      `json:"part"` // from 1
	Inputs  int      `json:"inputs"`
	Bytes   int64    `json:"bytes"`
	First   string   `json:"first"` // input, empty when there is none
	Last    string   `json:"last"`
	Out     string   `json:"out"`
	Command []string `json:"command"`
}

func runPlan(cmd *cobra.Command, paths []string, o ingestOptions, parts int) error {
	if parts < 1 || parts > mostParts {
		return usagef("--parts: %d is not a number of parts, want 1 to %d", parts, mostParts)
	}
	facts, err := o.facts.facts()
	if err != nil {
		return err
	}
	copt, err := o.captureOptions(facts)
	if err != nil {
		return err
	}
	if _, err := parseSize(o.shardSize); err != nil {
		return usagef("--shard-size: %w", err)
	}
	local, tree, err := o.inputs(cmd.Context(), paths)
	if err != nil {
		return err
	}
	copt.Tree = tree
	plan, err := capture.NewPlan(cmd.Context(), local, copt)
	if err != nil {
		return fmt.Errorf("list inputs: %w", err)
	}
	res := planResult{Plan: plan.Digest(), Inputs: plan.Inputs(), Bytes: plan.Bytes(), Merge: []string{"hsx", "merge", "--out", o.out}}
	flags := handedOn(cmd)
	for i, s := range plan.Split(parts) {
		p := planPart{Part: i + 1, Inputs: s.Inputs, Bytes: s.Bytes, First: s.First, Last: s.Last, Out: partDir(o.out, i+1, parts)}
		p.Command = append([]string{"hsx", "ingest", "--out", p.Out, "--partition", fmt.Sprintf("%d/%d", i+1, parts)}, flags...)
		p.Command = append(p.Command, paths...)
		res.Parts = append(res.Parts, p)
		res.Merge = append(res.Merge, p.Out)
	}
	if o.asJSON {
		return printJSON(cmd.OutOrStdout(), res)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), res.text())
	return err
}

func (r *planResult) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plan %.12s: %s, %s, in %s\n", r.Plan, count(int64(r.Inputs), "input"), bytesText(r.Bytes), count(int64(len(r.Parts)), "part"))
	for _, p := range r.Parts {
		which := ""
		switch {
		case p.Inputs == 1:
			which = ": " + printable(p.First)
		case p.Inputs > 1:
			which = fmt.Sprintf(": %s to %s", printable(p.First), printable(p.Last))
		}
		fact(&b, strconv.Itoa(p.Part), "%s, %s%s", count(int64(p.Inputs), "input"), bytesText(p.Bytes), which)
	}
	b.WriteString("run each, in any order, wherever the same files are seen:\n")
	for _, p := range r.Parts {
		fmt.Fprintf(&b, "  %s\n", commandLine(p.Command))
	}
	fmt.Fprintf(&b, "then:\n  %s\n", commandLine(r.Merge))
	return b.String()
}

// partDir is the place of a part of the dataset out: beside it, since it may be a
// directory or a place in a store, whose options follow a question mark.
func partDir(out string, i, n int) string {
	place, options := out, ""
	if at := strings.IndexByte(out, '?'); at >= 0 && strings.Contains(out, "://") {
		place, options = out[:at], out[at:]
	}
	return fmt.Sprintf("%s.parts/%d-of-%d%s", strings.TrimRight(place, "/"), i, n, options)
}

// handedOn is the flags of ingest as they were given to cmd.
func handedOn(cmd *cobra.Command) []string {
	var args []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "out", "parts", "json":
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			if args = append(args, "--"+f.Name); f.Value.Type() != "bool" {
				args = append(args, v)
			} else if v != "true" {
				args[len(args)-1] += "=" + v
			}
		}
	})
	return args
}

// parsePartition reads i/n; an empty text is 0 of 0, which is all.
func parsePartition(s string) (part, parts int, err error) {
	if s == "" {
		return 0, 0, nil
	}
	before, after, ok := strings.Cut(s, "/")
	i, err1 := strconv.Atoi(before)
	n, err2 := strconv.Atoi(after)
	if !ok || err1 != nil || err2 != nil || i < 1 || i > n {
		return 0, 0, usagef("--partition: %q is not i/n with i from 1 to n, such as 3/8", s)
	}
	return i, n, nil
}

// partition is what a dataset says of the part that it is, nil when it is none. Without
// a plan the run follows.
func partition(o capture.Options, plan *capture.Plan) *shard.Partition {
	if o.Parts == 0 {
		return nil
	}
	p := &shard.Partition{Index: o.Part, Of: o.Parts}
	if plan == nil {
		p.Plan = o.FollowDigest()
	} else {
		p.Plan = plan.Digest()
	}
	return p
}
