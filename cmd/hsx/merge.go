package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"hsx/format"
	"hsx/shard"
)

func newMergeCommand() *cobra.Command {
	var out string
	var doCopy, asJSON bool
	cmd := &cobra.Command{
		Use:   "merge --out DS DS...",
		Short: "Make one dataset of several, without copying",
		Long: `Make one dataset of several that hold the same capture (layers, norm, dtypes and
producer) and no sample twice. Shards become hard links: they take no room and are
never modified, so the datasets stay independent. The last step of a job array: parts
that 'hsx ingest --partition' made come in their order, however they are given, and a
part that is missing, there twice, not done or of another plan is named and refused.

Names of inputs and ids have to be unique over all datasets. Dumps with the same file
names are told apart by 'hsx ingest --root DIR' with a directory above them all. Of
parts with an id in common, move one of the two inputs away and make the parts again.`,
		Example: `  hsx merge --out ds monday tuesday
  hsx ingest --out ds.parts/1-of-2 --partition 1/2 --layers 2,30,58 dumps/
  hsx ingest --out ds.parts/2-of-2 --partition 2/2 --layers 2,30,58 dumps/
  hsx merge --out ds ds.parts/*-of-2`,
		GroupID: "data",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return usagef("--out is missing: name the new dataset's directory")
			}
			m, doubt, err := mergeInto(cmd.Context(), out, args, shard.MergeOptions{Copy: doCopy, WrittenBy: version()})
			if err != nil {
				return fmt.Errorf("merge into %s: %w", out, err)
			}
			if doubt != "" {
				say(cmd.ErrOrStderr(), "warning: %s", doubt)
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), mergeResult{Datasets: len(args), Shards: len(m.Shards), Rows: m.Rows, Tokens: m.Tokens})
			}
			var b strings.Builder
			fmt.Fprintf(&b, "merged %s into %s\n", count(int64(len(args)), "dataset"), out)
			describeDataset(&b, m)
			_, err = fmt.Fprint(cmd.OutOrStdout(), b.String())
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory of the new dataset")
	cmd.Flags().BoolVar(&doCopy, "copy", false, "copy shards that lie on another file system")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// mergeInto merges datasets into one where the user named it. doubt, if not empty, says
// what may be wrong with that.
func mergeInto(ctx context.Context, out string, names []string, opt shard.MergeOptions) (m *shard.Manifest, doubt string, err error) {
	to, err := placeOf(ctx, out)
	if err != nil {
		return nil, "", err
	}
	var sources []*shard.Dataset
	for _, name := range names {
		ds, err := datasetAt(ctx, name)
		if err != nil {
			return nil, "", err
		}
		sources = append(sources, ds)
	}
	doubt = otherTarget(names, sources)
	if to.store != nil {
		m, err = shard.MergeObjects(ctx, to.store, sources, opt)
	} else {
		m, err = shard.Merge(to.path, sources, opt)
	}
	return m, doubt, err
}

// otherTarget is a sentence about the first dataset whose target has another name than
// one before, "" when there is none. One model can have two names, so it is a doubt.
func otherTarget(names []string, sources []*shard.Dataset) string {
	var first format.Target
	from := ""
	for i, ds := range sources {
		t := ds.Manifest().Target
		if !t.SameName(first) {
			return fmt.Sprintf("the target of %s is named %q, that of %s %q: if these are two models, make two datasets of them", names[i], t.Name, from, first.Name)
		}
		if first.Name == "" {
			first, from = t, names[i]
		}
	}
	return ""
}

// mergeResult is the JSON document of hsx merge.
type mergeResult struct {
	Datasets int   `json:"datasets"`
	Shards   int   `json:"shards"`
	Rows     int64 `json:"rows"`
	Tokens   int64 `json:"tokens"`
}
