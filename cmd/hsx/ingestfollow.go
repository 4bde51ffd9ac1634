package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"hsx/capture"
	"hsx/shard"
)

// followFlags are those of hsx ingest that need --follow.
type followFlags struct {
	on, deleteSource                     bool
	settle, poll, commitEvery, untilIdle time.Duration
	minFree                              string
}

func (o *followFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.on, "follow", false, "go on: take each file in the directories once it is complete, until ^C or --until-idle")
	f.DurationVar(&o.settle, "settle", 2*time.Second, "with --follow: a file is complete when it was unchanged for so long; one with a lock when that is free")
	f.DurationVar(&o.poll, "poll", 2*time.Second, "with --follow: look at the directories at least so often; events of the file system only make it sooner")
	f.DurationVar(&o.commitEvery, "commit-every", 30*time.Second, "with --follow: commit at least so often; each commit ends a shard")
	f.DurationVar(&o.untilIdle, "until-idle", 0, "with --follow: end after so long without a new complete file (default: never)")
	f.BoolVar(&o.deleteSource, "delete-source", false, "with --follow: remove a dump after the commit that holds all of its samples")
	f.StringVar(&o.minFree, "min-free", "", "with --follow: keep so much of the dataset's disk free, such as 50GiB: commit and remove sources, or stop")
}

// options checks the flags and translates them.
func (o *followFlags) options(cmd *cobra.Command, ingest ingestOptions, dirs []string) (capture.FollowOptions, error) {
	fo := capture.FollowOptions{
		Settle: o.settle, Poll: o.poll, CommitEvery: o.commitEvery, UntilIdle: o.untilIdle,
		DeleteSource: o.deleteSource, FreeDir: ingest.out,
	}
	if !o.on {
		for _, name := range []string{"settle", "poll", "commit-every", "until-idle", "delete-source", "min-free"} {
			if cmd.Flags().Changed(name) {
				return fo, usagef("--%s: it needs --follow", name)
			}
		}
		return fo, nil
	}
	if ingest.dryRun {
		return fo, usagef("--follow: it writes, and --dry-run does not")
	}
	for name, d := range map[string]time.Duration{"settle": o.settle, "poll": o.poll, "commit-every": o.commitEvery} {
		if d <= 0 {
			return fo, usagef("--%s: %s is not a time to wait, want more than 0s", name, d)
		}
	}
	if o.untilIdle < 0 {
		return fo, usagef("--until-idle: %s is not a time to wait", o.untilIdle)
	}
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err == nil && !info.IsDir() {
			return fo, usagef("--follow: %s is not a directory", dir)
		}
	}
	if o.minFree != "" {
		var err error
		if fo.MinFree, err = parseSize(o.minFree); err != nil {
			return fo, usagef("--min-free: %w", err)
		}
	}
	return fo, nil
}

// followResult is the member of the JSON document that only --follow has.
type followResult struct {
	Removed       int     `json:"removed"`         // inputs whose files were removed
	RemovedBytes  int64   `json:"removed_bytes"`   // of these inputs
	Vanished      int     `json:"vanished"`        // inputs that somebody else removed before they were read
	Waiting       int     `json:"waiting"`         // inputs and temporary files that were not complete at the end
	Backlog       int     `json:"backlog"`         // inputs that were complete and not taken at the end
	BacklogBytes  int64   `json:"backlog_bytes"`   // of these inputs
	LagSeconds    float64 `json:"lag_seconds"`     // from complete to committed, of the last commit
	MaxLagSeconds float64 `json:"max_lag_seconds"` // of any commit
	Polled        string  `json:"polled"`          // the file system without events, such as nfs; empty with events
}

// followedRows is how many rows of a dataset are durable, for the goroutine that
// follows; the writer's own sets it.
type followedRows struct {
	before int64
	now    atomic.Int64
}

func (r *followedRows) set(rows int64) { r.now.Store(rows) }

// since is the number of rows that this run made durable.
func (r *followedRows) since() int { return int(r.now.Load() - r.before) }

// followStore joins the small shards that its commits leave.
type followStore struct {
	*shard.Writer
	stderr io.Writer
	rough  bool // they could not be joined
}

func (s *followStore) Commit(ctx context.Context) error {
	if err := s.Writer.Commit(ctx); err != nil || s.rough {
		return err
	}
	if err := s.Compact(ctx); err != nil {
		s.rough = true
		tellUncompacted(s.stderr)(err)
	}
	return nil
}

// tellUncompacted warns that small shards could not be joined, which harms nothing.
func tellUncompacted(stderr io.Writer) func(err error) {
	return func(err error) {
		say(stderr, "warning: small shards stay as they are: %v; hsx recompress joins them later", err)
	}
}

// follow takes what comes.
func (r *ingestResult) follow(ctx context.Context, dirs []string, copt capture.Options, fo capture.FollowOptions, w *shard.Writer, rows *followedRows, stderr io.Writer) error {
	if ds, err := shard.Open(fo.FreeDir); err == nil { // else it is new
		rows.before = ds.Manifest().Rows
		rows.set(rows.before)
	}
	fo.Committed = rows.since
	bar := newProgress(stderr, "follow", -1)
	polled := false
	fo.OnProgress = func(s capture.FollowStats) {
		if s.Polled != "" && !polled {
			polled = true
			say(stderr, "note: %s has no events of other machines: the directories are looked at every %s", s.Polled, fo.Poll)
		}
		if bar != nil {
			bar.Describe(fmt.Sprintf("follow: %s, backlog %s (%s), lag %s", count(int64(s.Samples), "sample"),
				count(int64(s.Backlog), "input"), bytesText(s.BacklogBytes), s.Lag.Round(100*time.Millisecond)))
			advance(bar, s.Bytes)
		}
	}
	s, err := capture.Follow(ctx, dirs, copt, fo, &followStore{Writer: w, stderr: stderr})
	finish(bar)
	r.add(s.Stats)
	r.Follow = &followResult{
		Removed: s.Removed, RemovedBytes: s.RemovedBytes, Vanished: s.Vanished, Waiting: s.Waiting, Backlog: s.Backlog, BacklogBytes: s.BacklogBytes,
		LagSeconds: s.Lag.Seconds(), MaxLagSeconds: s.MaxLag.Seconds(), Polled: s.Polled,
	}
	if errors.Is(err, capture.ErrNoRoom) {
		return &hintError{fmt.Errorf("--min-free: %w", err), "what was taken is committed; make room, and run the same command again to continue (--delete-source makes room as it goes)"}
	}
	return err
}

// describe writes what only --follow has to tell.
func (r *followResult) describe(b *strings.Builder) {
	if r.MaxLagSeconds > 0 {
		fact(b, "lag", "%.1f s at most from complete to committed", r.MaxLagSeconds)
	}
	if r.Removed > 0 {
		fact(b, "removed", "%s (%s) after their commit", count(int64(r.Removed), "input"), bytesText(r.RemovedBytes))
	}
	if n := r.Vanished; n > 0 {
		fact(b, "vanished", "%s, removed by others before they were read", count(int64(n), "input"))
	}
	if n := r.Waiting + r.Backlog; n > 0 {
		fact(b, "left", "%s, not complete or not taken yet: run the same command to continue", count(int64(n), "input"))
	}
}
