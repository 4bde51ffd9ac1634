package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"hsx/shard"
)

func newVerifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify DS",
		Short: "Check that every byte of a dataset is as it was written",
		Long: `Check that every byte of a dataset is as it was written, against the checksums in its
manifest. All damage is reported, with the samples it touches (exit 3). Whether the
right layers were captured is another question: 'hsx inspect' shows what they are.`,
		Example: "  hsx verify ds",
		GroupID: "data",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return runVerify(cmd, args[0], asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// verifyResult is the JSON document of hsx verify.
type verifyResult struct {
	OK      bool     `json:"ok"`
	Shards  int      `json:"shards"`
	Rows    int64    `json:"rows"`
	Bytes   int64    `json:"bytes"`
	Damage  []damage `json:"damage"`
	Seconds float64  `json:"seconds"`
}

type damage struct {
	File   string `json:"file"`
	Row    int    `json:"row"` // -1: no row, or all of them
	ID     string `json:"id,omitempty"`
	Reason string `json:"reason"`
}

func runVerify(cmd *cobra.Command, dir string, asJSON bool) error {
	start := time.Now()
	res := verifyResult{Damage: []damage{}}
	report := func(c *shard.CorruptError) {
		res.Damage = append(res.Damage, damage{c.File, c.Row, c.ID, c.Err.Error()})
		say(cmd.ErrOrStderr(), "damaged: %s", c)
	}
	ds, err := openDataset(cmd.Context(), dir)
	var c *shard.CorruptError
	if errors.As(err, &c) { // the manifest itself: a finding, as any other damage
		report(c)
	} else if err != nil {
		return err
	} else {
		m := ds.Manifest()
		res.Shards, res.Rows = len(m.Shards), m.Rows
		for _, s := range m.Shards {
			res.Bytes += s.Bytes
		}
		bar := newProgress(cmd.ErrOrStderr(), "verify", res.Bytes)
		var done atomic.Int64
		err := ds.Verify(cmd.Context(), report, func(n int64) { advance(bar, done.Add(n)) })
		finish(bar)
		if err != nil {
			return fmt.Errorf("verify %s: %w", dir, err)
		}
	}
	res.OK = len(res.Damage) == 0
	res.Seconds = time.Since(start).Seconds()
	if asJSON {
		err = printJSON(cmd.OutOrStdout(), res)
	} else if res.OK {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "verified %s: %s in %s, every byte is as it was written (%s)\n",
			dir, count(res.Rows, "sample"), count(int64(res.Shards), "shard"), bytesText(res.Bytes))
	} else {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "verified %s: %s of damage\n", dir, count(int64(len(res.Damage)), "piece"))
	}
	if err == nil && !res.OK {
		return errBadData
	}
	return err
}
