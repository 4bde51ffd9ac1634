package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"hsx/shard"
)

// compressUsage is what --compress does, of every command that writes a dataset.
const compressUsage = "store 16-bit states in about two thirds of the bytes, without losing a bit"

func newRecompressCommand() *cobra.Command {
	var plain, asJSON bool
	var shardSize string
	cmd := &cobra.Command{
		Use:   "recompress DS",
		Short: "Make a dataset smaller in place, without losing a bit",
		Long: `Write the shards of a dataset anew, compressed, and join small ones. Every row is
compared with its digest on the way; its states stay the same to the last bit, and any
Arrow reader opens the result. About a third of bfloat16 and float16 states is saved;
float32 states stay as they are.

One shard at a time is written, put in the place of those that it is made of, and only
then are these removed, so little room is needed, and the dataset is whole at any
instant. A run that was stopped is completed by the same command. Readers that have the
dataset open must open it again. In a store, what was replaced stays for hsx gc.`,
		Example: `  hsx recompress ds
  hsx recompress --plain ds
  hsx recompress s3://bucket/runs/ds`,
		GroupID: "data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := parseSize(shardSize)
			if err != nil {
				return usagef("--shard-size: %w", err)
			}
			opt := shard.Options{ShardBytes: size, BatchBytes: min(size, shard.DefaultBatchBytes), WrittenBy: version(), Compress: !plain}
			return runRecompress(cmd, args[0], opt, asJSON)
		},
	}
	cmd.Flags().BoolVar(&plain, "plain", false, "store all states as they are again")
	cmd.Flags().StringVar(&shardSize, "shard-size", "1GiB", "up to how many bytes of states small shards are joined")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// recompressResult is the JSON document of hsx recompress.
type recompressResult struct {
	Before  shardsResult `json:"before"`
	After   shardsResult `json:"after"`
	Rows    int64        `json:"rows"`
	Tokens  int64        `json:"tokens"`
	Seconds float64      `json:"seconds"`
}

// shardsResult is how a dataset is stored.
type shardsResult struct {
	Shards     int   `json:"shards"`
	Compressed int   `json:"compressed"`
	Bytes      int64 `json:"bytes"`
}

func shardsOf(m *shard.Manifest) shardsResult {
	out := shardsResult{Shards: len(m.Shards)}
	for _, s := range m.Shards {
		out.Bytes += s.Bytes
		if s.Encoding != "" {
			out.Compressed++
		}
	}
	return out
}

func (r shardsResult) String() string {
	return fmt.Sprintf("%s in %s, %d of them compressed", bytesText(r.Bytes), count(int64(r.Shards), "shard"), r.Compressed)
}

func runRecompress(cmd *cobra.Command, dir string, opt shard.Options, asJSON bool) (err error) {
	start := time.Now()
	ds, err := openDataset(cmd.Context(), dir) // a writer would make one
	if err != nil {
		return err
	}
	m := ds.Manifest()
	res := recompressResult{Before: shardsOf(m), Rows: m.Rows, Tokens: m.Tokens}
	opt.Partition = m.Partition
	w, err := openWriter(cmd.Context(), dir, opt)
	if err != nil {
		return err
	}
	bar := newProgress(cmd.ErrOrStderr(), "recompress", res.Before.Bytes)
	var done atomic.Int64
	err = w.Recompress(cmd.Context(), func(n int64) { advance(bar, done.Add(n)) })
	finish(bar)
	if err := errors.Join(err, w.Close()); err != nil {
		return fmt.Errorf("recompress %s: %w", dir, err)
	}
	if ds, err = openDataset(cmd.Context(), dir); err != nil {
		return err
	}
	res.After = shardsOf(ds.Manifest())
	res.Seconds = time.Since(start).Seconds()
	if asJSON {
		return printJSON(cmd.OutOrStdout(), res)
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "recompressed %s: %s\n  before: %s\n  after:  %s (%.3f)\n",
		dir, count(res.Rows, "sample"), res.Before, res.After, float64(res.After.Bytes)/float64(max(1, res.Before.Bytes)))
	return err
}
