package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hsx/shard"
)

func newGCCommand() *cobra.Command {
	var olderThan time.Duration
	var yes, asJSON bool
	cmd := &cobra.Command{
		Use:   "gc DS",
		Short: "List, and remove, what killed writers left beside a dataset",
		Long: `List what lies beside a dataset and belongs to no commit: shards and lines that a
writer had sent when it was killed or overtaken, lines that later commits replaced,
and, in a store, uploads that were begun and never completed, which take room and
which no listing of objects shows. --yes removes it.

What is younger than --older-than is left alone: a writer may be about to commit it,
and a reader that opened the dataset then may still need it.`,
		Example: `  hsx gc s3://bucket/runs/ds
  hsx gc --older-than 1h --yes s3://bucket/runs/ds`,
		GroupID: "data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if olderThan < 0 {
				return usagef("--older-than: %v, want a duration such as 24h", olderThan)
			}
			found, err := sweep(cmd.Context(), args[0], time.Now().Add(-olderThan), yes)
			if err != nil {
				return fmt.Errorf("gc %s: %w", args[0], err)
			}
			res := gcResult{Garbage: append([]shard.Garbage{}, found...), Removed: yes}
			for _, g := range found {
				res.Bytes += g.Bytes
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), res)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), res.text(args[0]))
			return err
		},
	}
	f := cmd.Flags()
	f.DurationVar(&olderThan, "older-than", 24*time.Hour, "leave alone what is younger")
	f.BoolVar(&yes, "yes", false, "remove what is found")
	f.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// gcResult is the JSON document of hsx gc.
type gcResult struct {
	Garbage []shard.Garbage `json:"garbage"` // oldest first
	Bytes   int64           `json:"bytes"`   // of all whose size is known
	Removed bool            `json:"removed"`
}

func sweep(ctx context.Context, name string, before time.Time, remove bool) ([]shard.Garbage, error) {
	p, err := placeOf(ctx, name)
	if err != nil {
		return nil, err
	}
	if p.store == nil {
		return shard.SweepDir(p.path, before, remove)
	}
	found, err := shard.FindGarbage(ctx, p.store, before)
	if err == nil && remove {
		err = shard.RemoveGarbage(ctx, p.store, found)
	}
	return found, err
}

func (r gcResult) text(name string) string {
	if len(r.Garbage) == 0 {
		return fmt.Sprintf("nothing to remove in %s\n", name)
	}
	var b strings.Builder
	for _, g := range r.Garbage {
		what := bytesText(g.Bytes)
		if g.Upload != "" {
			what = "an upload that was not completed"
		}
		fmt.Fprintf(&b, "%s  %s, %s\n", g.Modified.UTC().Format(time.DateTime+" MST"), g.Name, what)
	}
	what := fmt.Sprintf("%s, %s", count(int64(len(r.Garbage)), "leftover"), bytesText(r.Bytes))
	if r.Removed {
		fmt.Fprintf(&b, "removed from %s: %s\n", name, what)
	} else {
		fmt.Fprintf(&b, "left in %s: %s (--yes removes them)\n", name, what)
	}
	return b.String()
}
