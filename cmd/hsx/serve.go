package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hsx/capture/flight"
	"hsx/capture/receive"
	"hsx/format"
	"hsx/shard"
)

// serveMemory is what the Go heap of a receiver should take, of at most 512 MiB.
const serveMemory = 400 << 20

type serveOptions struct {
	out, shardSize string
	facts          factFlags
	serve          serveFlags
	asJSON         bool
	compress       bool
}

func newServeCommand() *cobra.Command {
	var o serveOptions
	cmd := &cobra.Command{
		Use:   "serve --out DS [flags]",
		Short: "Take samples over HTTP or Arrow Flight into a dataset",
		Long: `Take samples over HTTP, durably: POST /v1/samples/{id} with one safetensors file, as
the Python hook sends it. The answer 201 comes after the commit that holds the sample;
200 says that the same sample was there already, 409 that another one has its id, 422
why it is refused (also in DS/rejected.jsonl), 413 that it is too big, 429 that the
spool is full: try again. Whatever else comes, or nothing, says that it may not be there:
send it again, it is kept once.

--flight takes record batches with the dataset's columns over Arrow Flight (DoPut),
with the same guarantees: for each batch, once it is durable, the metadata of one
PutResult says what became of each sample (created, exists, conflict, rejected, failed).
RESOURCE_EXHAUSTED says that the spool is full: try again.

A commit waits for the samples of other clients, at most --commit-window, and ends a
shard; small shards are joined when 64 of them lie at the end, between commits.
GET /v1/status, /metrics (Prometheus) and /healthz say how it goes. ^C stops: what is on
its way comes in, is committed and answered.`,
		Example: `  hsx serve --out ds --target config.json
  hsx serve --out ds --flight 127.0.0.1:8601
  HSX_TOKEN=... hsx serve --out ds --listen :8600 --token-env HSX_TOKEN --tls-cert cert.pem --tls-key key.pem`,
		GroupID: "data",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runServe(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.out, "out", "", "directory of the dataset, made if need be")
	f.StringVar(&o.shardSize, "shard-size", "1GiB", "where shards are cut")
	f.BoolVar(&o.compress, "compress", false, compressUsage)
	f.BoolVar(&o.asJSON, "json", false, "print one JSON document at the end")
	o.facts.add(cmd)
	o.serve.add(cmd)
	return cmd
}

// serveResult is the JSON document of hsx serve.
type serveResult struct {
	receive.Status
	Shards      int     `json:"shards"` // of the whole dataset
	Seconds     float64 `json:"seconds"`
	HeapBytes   uint64  `json:"heap_bytes"` // the most that the Go heap took from the system
	Interrupted bool    `json:"interrupted"`
}

func runServe(cmd *cobra.Command, o serveOptions) (err error) {
	if o.out == "" {
		return usagef("--out is missing: name the dataset's directory")
	}
	if o.out, err = onDisk(o.out); err != nil {
		return err
	}
	facts, err := o.facts.facts()
	if err != nil {
		return err
	}
	size, err := parseSize(o.shardSize)
	if err != nil {
		return usagef("--shard-size: %w", err)
	}
	ropt, err := o.serve.options(o.out)
	if err != nil {
		return err
	}
	// Batches and joined shards are short-lived and large: collect them before the heap is
	// twice what is in use. GOMEMLIMIT says otherwise.
	if debug.SetMemoryLimit(-1) == math.MaxInt64 {
		debug.SetMemoryLimit(serveMemory)
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	ropt.Facts, ropt.Rejected, ropt.Uncompacted = facts, tellRejected(stderr), tellUncompacted(stderr)
	l, fl, err := o.serve.open() // before there is a dataset that an address with a typo leaves behind
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // when nothing was served; else that closed it
	if fl != nil {
		defer func() { _ = fl.Close() }()
	}
	w, err := shard.OpenWriter(o.out, shard.Options{
		ShardBytes: size, BatchBytes: min(size, shard.DefaultBatchBytes), WrittenBy: version(), Target: facts.Target, Compress: o.compress,
	})
	if err != nil {
		return fmt.Errorf("open dataset: %w", err)
	}
	defer func() { _ = w.Close() }()              // after the commit there is nothing to lose
	if ds, err := shard.Open(o.out); err == nil { // else it is new
		m := ds.Manifest()
		if err := sameCapture(o.out, m, facts); err != nil {
			return err
		}
		ropt.Rows = m.Rows
	}
	scheme, flightScheme := "http", "grpc"
	if ropt.TLS != nil {
		scheme, flightScheme = "https", "grpc+tls"
	} else if !loopback(o.serve.listen) || fl != nil && !loopback(o.serve.flight) {
		say(stderr, "warning: without --tls-cert the token and the samples cross the network in the clear")
	}
	listening := fmt.Sprintf("%s://%s", scheme, l.Addr())
	if fl != nil {
		ropt.Flight = fmt.Sprintf("%s://%s", flightScheme, fl.Addr())
		listening += ", for Arrow Flight on " + ropt.Flight
	}
	r, err := receive.New(w, ropt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var others []receive.Way
	if fl != nil {
		others = append(others, receive.Way{Listener: fl, Server: flight.New(r)})
	}
	say(stderr, "listening on %s, a sample waits at most %s for its commit", listening, o.serve.window)
	start := time.Now()
	if err := r.Serve(ctx, l, others...); err != nil {
		return fmt.Errorf("serve into %s: %w", o.out, err)
	}
	res := serveResult{Status: r.Status(), Seconds: time.Since(start).Seconds(), HeapBytes: heapPeak(), Interrupted: ctx.Err() != nil}
	res.Failed = false // it ended, and all is durable
	if ds, err := shard.Open(o.out); err == nil {
		res.Shards, res.Rows = len(ds.Manifest().Shards), ds.Manifest().Rows
	}
	if err := res.print(cmd.OutOrStdout(), o); err != nil {
		return err
	}
	return ctx.Err()
}

// print writes the result.
func (r *serveResult) print(w io.Writer, o serveOptions) error {
	if o.asJSON {
		return printJSON(w, r)
	}
	var b strings.Builder
	fact(&b, "taken", "%s (%s of states) in %s", count(r.Samples, "sample"), bytesText(r.Bytes), count(r.Commits, "commit"))
	if r.Known > 0 {
		fact(&b, "known", "%s that were there already", count(r.Known, "sample"))
	}
	if r.Rejected > 0 {
		fact(&b, "refused", "%s, kept in rejected.jsonl", count(r.Rejected, "sample"))
	}
	fact(&b, "dataset", "%s: %s in %s", o.out, count(r.Rows, "row"), count(int64(r.Shards), "shard"))
	_, err := io.WriteString(w, b.String())
	return err
}

// tellRejected tells of the first refusals.
func tellRejected(stderr io.Writer) func(format.Rejection) {
	n := 0
	return func(rej format.Rejection) {
		switch n++; {
		case n <= listed:
			say(stderr, "rejected: %s: %s", printable(rej.Path), rej.Reason)
		case n == listed+1:
			say(stderr, "rejected: further samples are in rejected.jsonl")
		}
	}
}
