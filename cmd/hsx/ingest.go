package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/internal/mapped"
	"hsx/internal/objstore"
	"hsx/shard"
)

type ingestOptions struct {
	out, root, partition, onBad, shardSize string
	facts                                  factFlags
	workers                                int
	lockTimeout                            time.Duration
	dryRun, asJSON, list, compress         bool
	follow                                 followFlags
}

func newIngestCommand() *cobra.Command {
	var o ingestOptions
	cmd := &cobra.Command{
		Use:   "ingest --out DS [flags] PATH...",
		Short: "Read dump files into a dataset",
		Long: `Read dumps of any known producer into a dataset, durably. Inputs are recognised by
their content; a bad one is named, kept in DS/rejected.jsonl and left where it is, and
the rest goes on (exit 3).

The same command again continues: inputs that are in the dataset are not read again,
refused ones are tried again, and a source that changed is named. ^C and SIGTERM finish
the current batch and commit; a second one stops at once, which loses nothing committed.

A dump does not say which layers it holds. Pass --layers (or --draft), or the dataset
will say that they are unknown. Lists are printed in both conventions.`,
		Example: `  hsx ingest --out ds --layers 2,30,58 --target config.json dumps/
  hsx ingest --out ds --layers 3,31,59,61 --convention boundary --target config.json vllm/
  hsx ingest --out ds --draft draft/config.json dumps/
  hsx ingest --dry-run dumps/
  hsx ingest --list-producers
  hsx ingest --out ds.parts/1-of-8 --partition 1/8 --layers 2,30,58 dumps/
  hsx ingest --out ds --follow --delete-source --until-idle 10m --layers 2,30,58 spool/`,
		GroupID: "data",
		Args: func(cmd *cobra.Command, args []string) error {
			if o.list {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.list {
				return listProducers(cmd.OutOrStdout(), o.asJSON)
			}
			return runIngest(cmd, args, o)
		},
	}
	o.addReading(cmd)
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "directory of the dataset, made if need be")
	f.StringVar(&o.partition, "partition", "", "take share i of n of the inputs, by bytes, as i/n: for job arrays, with a dataset each ('hsx plan' shows them); then merge")
	f.BoolVar(&o.dryRun, "dry-run", false, "read and recognise everything, write nothing")
	f.BoolVar(&o.list, "list-producers", false, "list the producers, and by which tensors each is recognised")
	f.BoolVar(&o.asJSON, "json", false, "print one JSON document")
	o.follow.add(cmd)
	return cmd
}

// addReading adds the flags that say how inputs are read, which 'hsx plan' hands on.
func (o *ingestOptions) addReading(cmd *cobra.Command) {
	o.facts.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.onBad, "on-bad", "skip", "what a bad input does: skip (it is kept in rejected.jsonl) or fail (stop there)")
	f.StringVar(&o.shardSize, "shard-size", "1GiB", "where shards are cut")
	f.BoolVar(&o.compress, "compress", false, compressUsage)
	f.StringVar(&o.root, "root", "", "name sources relative to this directory (default: the deepest one common to the paths)")
	f.IntVar(&o.workers, "workers", min(4, runtime.GOMAXPROCS(0)), "inputs opened ahead")
	f.DurationVar(&o.lockTimeout, "lock-timeout", 10*time.Second, "how long to wait for the writer of a locked file")
	_ = cmd.RegisterFlagCompletionFunc("on-bad", cobra.FixedCompletions([]string{"skip", "fail"}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
}

// ingestResult is the JSON document of hsx ingest.
type ingestResult struct {
	Inputs     int                `json:"inputs"`   // dumps looked at in this run
	Samples    int                `json:"samples"`  // put in this run
	Tokens     int64              `json:"tokens"`   // of these samples
	Bytes      int64              `json:"bytes"`    // of the dumps they came from
	Rejected   int                `json:"rejected"` // inputs and samples refused in this run
	Skipped    int                `json:"skipped"`  // inputs that were in the dataset already
	Side       int                `json:"side"`     // files that a producer writes beside its samples
	Ignored    int                `json:"ignored"`  // files that are no dumps
	Warnings   []string           `json:"warnings"`
	Rejections []format.Rejection `json:"rejections"` // the first of them; all are in rejected.jsonl
	Shards     int                `json:"shards"`     // of the whole dataset
	Rows       int64              `json:"rows"`       // of the whole dataset
	Producers  map[string]int     `json:"producers"`  // inputs by the producer they were recognised as
	Seconds    float64            `json:"seconds"`
	HeapBytes  uint64             `json:"heap_bytes"` // the most that the Go heap took from the system
	Partial    bool               `json:"interrupted"`
	Follow     *followResult      `json:"follow,omitempty"` // with --follow

	why      map[string]string // of each producer, the first input's reason
	manifest *shard.Manifest   // after the commit; nil in a dry run
}

// listed bounds what is kept of warnings and rejections for printing.
const listed = 20

func runIngest(cmd *cobra.Command, paths []string, o ingestOptions) error {
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	var err error
	if o.follow.on || !objstore.Is(o.out) {
		if o.out, err = onDisk(o.out); err != nil {
			return err
		}
	}
	facts, err := o.facts.facts()
	if err != nil {
		return err
	}
	copt, err := o.captureOptions(facts)
	if err != nil {
		return err
	}
	size, err := parseSize(o.shardSize)
	if err != nil {
		return usagef("--shard-size: %w", err)
	}
	if o.out == "" && !o.dryRun {
		return usagef("--out is missing: name the dataset's directory")
	}
	if paths, copt.Tree, err = o.inputs(ctx, paths); err != nil {
		return err
	}
	follow, err := o.follow.options(cmd, o, paths)
	if err != nil {
		return err
	}
	if ds, err := openDataset(ctx, o.out); err == nil { // else the writer makes one, or says why not
		if err := sameCapture(o.out, ds.Manifest(), facts); err != nil {
			return err
		}
	}
	if facts.Layers != nil {
		say(stderr, "layers: %s", facts.Layers)
	}
	start := time.Now()
	res := ingestResult{Warnings: []string{}, Rejections: []format.Rejection{}, Producers: map[string]int{}, why: map[string]string{}}
	res.watch(&copt, stderr)

	var sink capture.Sink = discard{}
	var w *shard.Writer
	var durable followedRows
	if !o.dryRun {
		note := copt.Reject
		copt.Has = func(in format.Input) (bool, error) { return w.Has(in) }
		copt.Renamed = func(in format.Input) string { return w.Renamed(in) }
		copt.Reject = func(r format.Rejection) error { return errors.Join(note(r), w.Reject(r)) }
	}
	var plan *capture.Plan // nil: to follow
	if !o.follow.on {
		if plan, err = capture.NewPlan(ctx, paths, copt); err != nil {
			return fmt.Errorf("list inputs: %w", err)
		}
	}
	if !o.dryRun {
		w, err = openWriter(ctx, o.out, shard.Options{
			ShardBytes: size, BatchBytes: min(size, shard.DefaultBatchBytes), WrittenBy: version(), Target: facts.Target, Compress: o.compress,
			Partition: partition(copt, plan), Committed: durable.set,
		})
		if err != nil {
			return err
		}
		defer func() { _ = w.Close() }() // after the commit there is nothing to lose
		sink = w
	}
	if o.follow.on {
		err = res.follow(ctx, paths, copt, follow, w, &durable, stderr)
	} else {
		err = res.once(ctx, plan, sink, stderr)
	}
	res.Partial = errors.Is(err, context.Canceled)
	stopped := err != nil && !res.Partial
	if w != nil && (!stopped || errors.Is(err, capture.ErrRejected)) {
		commit := w.Commit
		if err == nil {
			commit = w.Finish
		}
		if err := commit(context.WithoutCancel(ctx)); err != nil {
			return fmt.Errorf("commit %s: %w", o.out, err) // a result that is not there is not told
		}
		if ds, err := openDataset(context.WithoutCancel(ctx), o.out); err == nil {
			res.manifest = ds.Manifest()
			res.Shards, res.Rows = len(res.manifest.Shards), res.manifest.Rows
		}
	}
	if stopped {
		return err
	}
	res.Seconds = time.Since(start).Seconds()
	res.HeapBytes = heapPeak()
	if perr := res.print(cmd.OutOrStdout(), o); perr != nil {
		return errors.Join(err, perr)
	}
	if err == nil && res.Rejected > 0 {
		return errBadData
	}
	return err
}

// inputs is the local paths of what the user named, or the tree when that is in a store.
func (o *ingestOptions) inputs(ctx context.Context, names []string) (paths []string, in capture.Tree, err error) {
	for _, name := range names { // before the dataset is made
		if objstore.Is(name) && strings.HasPrefix(o.out, strings.TrimSuffix(name, "/")+"/") {
			return nil, nil, usagef("--out %s lies among the dumps in %s", o.out, name)
		}
		p, err := placeOf(ctx, name)
		switch {
		case err != nil:
			return nil, nil, err
		case p.store != nil && (len(names) > 1 || o.follow.on || o.root != ""):
			return nil, nil, usagef("%s: dumps in a store are read from one prefix at a time, without --follow and --root", name)
		case p.store != nil:
			return nil, dumpTree{p.store, mapped.NewChunks()}, nil
		}
		info, err := os.Stat(p.path)
		if err != nil {
			return nil, nil, fmt.Errorf("list inputs: %w", err)
		}
		if !info.IsDir() && !info.Mode().IsRegular() {
			return nil, nil, fmt.Errorf("list inputs: %s is neither a file nor a directory", p.path)
		}
		paths = append(paths, p.path)
	}
	return paths, nil, nil
}

// once reads what is there.
func (r *ingestResult) once(ctx context.Context, plan *capture.Plan, sink capture.Sink, stderr io.Writer) error {
	bar := newProgress(stderr, "ingest", plan.Bytes())
	plan.OnProgress(func(p capture.Progress) { advance(bar, p.Bytes) })
	stats, err := plan.Run(ctx, sink)
	finish(bar)
	r.add(stats)
	return err
}

// captureOptions translates the flags.
func (o *ingestOptions) captureOptions(facts producer.Facts) (capture.Options, error) {
	c := capture.Options{
		Facts: facts, Root: o.root, Exclude: o.out, Workers: o.workers,
		LockTimeout: o.lockTimeout, StopAtRejection: o.onBad == "fail",
	}
	if o.onBad != "skip" && o.onBad != "fail" {
		return c, usagef("--on-bad: %q is not known, want skip or fail", o.onBad)
	}
	if o.workers < 1 {
		return c, usagef("--workers: %d is too few, want at least 1", o.workers)
	}
	var err error
	c.Part, c.Parts, err = parsePartition(o.partition)
	return c, err
}

// parseSize reads a number of bytes such as 1GiB, 500MB or 65536.
func parseSize(s string) (int64, error) {
	units := []struct {
		name string
		n    int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"kB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}}
	number, unit := strings.TrimSpace(s), int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(number, u.name); ok {
			number, unit = strings.TrimSpace(rest), u.n
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/unit {
		return 0, fmt.Errorf("%q is not a size, want a number above 0 such as 1GiB or 500MB", s)
	}
	return n * unit, nil
}

// discard is the sink of a dry run.
type discard struct{}

// Put checks a sample as a dataset would, and forgets it.
func (discard) Put(_ context.Context, s *format.Sample) error {
	if err := s.Check(); err != nil {
		return fmt.Errorf("%w: %w", format.ErrRefused, err)
	}
	return nil
}

// say writes one line of talk.
func say(w io.Writer, f string, args ...any) {
	_, _ = io.WriteString(w, spoken(fmt.Sprintf(f, args...))+"\n") // talk that nobody hears is no failure
}

// heapPeak is the most that the Go heap ever held of the system's memory.
func heapPeak() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys
}
