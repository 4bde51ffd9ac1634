package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hsx/bench/prompts"
	"hsx/capture/live"
	"hsx/format"
	"hsx/shard"
)

type captureOptions struct {
	out, prompts, serverArgs, shardSize string
	facts                               factFlags
	reach                               reachFlags // its key alone
	live                                live.Options
	asJSON, compress                    bool
}

func newCaptureCommand() *cobra.Command {
	var o captureOptions
	cmd := &cobra.Command{
		Use:   "capture --url URL --prompts FILE --out DS [flags]",
		Short: "Have a running server compute hidden states, and keep them",
		Long: `Send prompts to a running vLLM (extract_hidden_states with its file connector) or
SGLang (return_hidden_states) and take the states of every prompt into a dataset. Each
answer is checked: a row for each token, and the tokens that were sent. vLLM's files
are removed after the commit that holds them; hsx has to run where it can read and
remove them, as the server's user.

The same command again continues: prompts that are in the dataset are not sent again.
^C finishes the requests on their way and commits. A refused prompt is kept in
DS/rejected.jsonl, and the rest goes on (exit 3).

FILE has lines {"id", "input_ids": [...], "loss_mask": [...]} or {"id", "messages":
[...]}, or any form that bench reads. Nobody but who tokenised knows which tokens a
loss is for: there is a loss mask only where FILE gives one.`,
		Example: `  hsx capture --url http://127.0.0.1:8000 --prompts p.jsonl --out ds --layers 3,31,59,61 --convention boundary
  hsx capture --url http://127.0.0.1:8000 --prompts p.jsonl --out ds --server-args serve.sh --server-root /srv/vllm`,
		GroupID: "data",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runCapture(cmd, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.live.URL, "url", "", "the server, such as http://127.0.0.1:8000")
	f.StringVar(&o.prompts, "prompts", "", "file of prompts")
	f.StringVar(&o.out, "out", "", "directory of the dataset, made if need be")
	f.StringVar(&o.live.Engine, "engine", "", "vllm or sglang (default: ask the server)")
	f.StringVar(&o.live.Model, "model", "", "the model's name at the server (default: the first that it lists)")
	f.StringVar(&o.reach.keyEnv, "api-key-env", "", "environment variable that holds the bearer token")
	f.StringVar(&o.reach.keyFile, "api-key-file", "", "file that holds the bearer token")
	o.facts.add(cmd)
	f.StringVar(&o.serverArgs, "server-args", "", "vLLM's start script or log: the layers that it stores are read from it")
	f.StringVar(&o.live.Root, "server-root", "", "vLLM's working directory, when the path of its files is relative")
	f.IntVar(&o.live.Concurrency, "concurrency", 8, "requests at a time")
	f.IntVar(&o.live.Retries, "retries", 3, "times a request is sent again after 429, 5xx and lost connections")
	f.DurationVar(&o.live.Timeout, "timeout", 10*time.Minute, "longest time of one request")
	f.DurationVar(&o.live.LockTimeout, "lock-timeout", 30*time.Second, "how long to wait for vLLM to write a file")
	f.DurationVar(&o.live.CommitEvery, "commit-every", 30*time.Second, "commit at least so often; each commit ends a shard")
	f.StringVar(&o.shardSize, "shard-size", "1GiB", "where shards are cut")
	f.BoolVar(&o.compress, "compress", false, compressUsage)
	f.BoolVar(&o.asJSON, "json", false, "print one JSON document")
	_ = cmd.RegisterFlagCompletionFunc("engine", cobra.FixedCompletions([]string{live.VLLM, live.SGLang}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

// captureResult is the JSON document of hsx capture.
type captureResult struct {
	Server *live.Info `json:"server"`
	live.Stats
	Layers      string             `json:"layers"`     // in both conventions, empty when nobody said
	Warnings    []string           `json:"warnings"`   // the first of them
	Rejections  []format.Rejection `json:"rejections"` // the first of them; all are in rejected.jsonl
	Shards      int                `json:"shards"`     // of the whole dataset
	Rows        int64              `json:"rows"`       // of the whole dataset
	Seconds     float64            `json:"seconds"`
	Interrupted bool               `json:"interrupted"`
}

// options checks the flags and completes what they say. Nothing is sent or written.
func (o *captureOptions) options() error {
	for _, f := range []struct{ name, value string }{{"url", o.live.URL}, {"prompts", o.prompts}, {"out", o.out}} {
		if f.value == "" {
			return usagef("--%s is missing", f.name)
		}
	}
	if !strings.HasPrefix(o.live.URL, "http://") && !strings.HasPrefix(o.live.URL, "https://") {
		return usagef("--url: %q is not a server, want http://HOST:PORT", o.live.URL)
	}
	if o.live.Engine != "" {
		if err := oneOf("--engine", o.live.Engine, []string{live.VLLM, live.SGLang}); err != nil {
			return err
		}
	}
	if o.live.Concurrency < 1 || o.live.Retries < 0 {
		return usagef("--concurrency %d, --retries %d: want at least 1 and 0", o.live.Concurrency, o.live.Retries)
	}
	for name, d := range map[string]time.Duration{"timeout": o.live.Timeout, "lock-timeout": o.live.LockTimeout, "commit-every": o.live.CommitEvery} {
		if d <= 0 {
			return usagef("--%s: %s is not a time to wait, want more than 0s", name, d)
		}
	}
	var err error
	if o.out, err = onDisk(o.out); err != nil {
		return err
	}
	if o.live.CommitBytes, err = parseSize(o.shardSize); err != nil {
		return usagef("--shard-size: %w", err)
	}
	if o.live.Key, err = o.reach.key(); err != nil {
		return err
	}
	if o.live.Facts, err = o.facts.facts(); err != nil {
		return err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = o.live.Concurrency
	o.live.Client = &http.Client{Transport: transport}
	o.live.Pending = filepath.Join(o.out, "capture.jsonl")
	return o.serverLayers()
}

// serverLayers takes the layers from the server's arguments; flags have to agree, and
// may leave out the last, which is the final state.
func (o *captureOptions) serverLayers() error {
	if o.serverArgs == "" {
		return nil
	}
	text, err := readHead(o.serverArgs)
	if err != nil {
		return fmt.Errorf("read --server-args: %w", err)
	}
	stored, err := live.ServerLayers(text)
	if err != nil {
		return fmt.Errorf("read --server-args %s: %w", o.serverArgs, err)
	}
	facts := &o.live.Facts
	switch said := facts.Layers; {
	case stored == nil:
		return usagef("--server-args: %s holds no eagle_aux_hidden_state_layer_ids", o.serverArgs)
	case said == nil:
		facts.Layers, facts.Convention = stored, format.Boundary
	case !slices.Equal(said, stored) && !slices.Equal(said, stored[:len(stored)-1]):
		return usagef("--layers: %s differs from what the server stores, %s by --server-args", said, stored)
	}
	if err := facts.Layers.Check(facts.Target.Layers); err != nil {
		return usagef("--server-args: %w", err)
	}
	return nil
}

// readHead reads the first 8 MiB of a file: a log may be long, and begins with the
// server's arguments.
func readHead(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, 8<<20))
	return data, errors.Join(err, f.Close())
}

func runCapture(cmd *cobra.Command, o captureOptions) error {
	if err := o.options(); err != nil {
		return err
	}
	ctx, stderr := cmd.Context(), cmd.ErrOrStderr()
	start := time.Now()
	res := captureResult{Warnings: []string{}, Rejections: []format.Rejection{}}
	list, left, err := readCapturePrompts(o.prompts)
	if err != nil {
		return fmt.Errorf("read --prompts %s: %w", o.prompts, err)
	}
	if left > 0 {
		say(stderr, "note: %s with further turns: only the first is sent", count(int64(left), "prompt"))
	}
	if res.Server, err = live.Preflight(ctx, o.live); err != nil {
		return fmt.Errorf("preflight of %s: %w", o.live.URL, err)
	}
	facts := &o.live.Facts
	if res.Server.Engine == live.VLLM && facts.Layers == nil {
		return usagef("--layers is missing: a vLLM server does not tell a client which layers it stores; pass --layers, --draft or --server-args")
	}
	if facts.Target.Name == "" {
		facts.Target.Name = res.Server.Model
	}
	res.describePreflight(stderr, facts.Layers)
	if ds, err := shard.Open(o.out); err == nil {
		if err := sameCapture(o.out, ds.Manifest(), *facts); err != nil {
			return err
		}
	}
	w, err := shard.OpenWriter(o.out, shard.Options{
		ShardBytes: o.live.CommitBytes, BatchBytes: min(o.live.CommitBytes, shard.DefaultBatchBytes), WrittenBy: version(), Target: facts.Target,
		Compress: o.compress,
	})
	if err != nil {
		return fmt.Errorf("open dataset: %w", err)
	}
	defer func() { _ = w.Close() }()      // after the commit there is nothing to lose
	if err := w.Commit(ctx); err != nil { // only a dataset may hold the list of files to remove
		return fmt.Errorf("commit %s: %w", o.out, err)
	}
	err = res.capture(ctx, list, o.live, w, stderr)
	if err != nil && !res.Interrupted {
		return fmt.Errorf("capture from %s: %w", o.live.URL, err)
	}
	ds, oerr := shard.Open(o.out)
	if oerr != nil {
		return errors.Join(err, oerr)
	}
	res.Shards, res.Rows = len(ds.Manifest().Shards), ds.Manifest().Rows
	res.Seconds = time.Since(start).Seconds()
	if perr := res.print(cmd.OutOrStdout(), o, ds.Manifest()); perr != nil {
		return errors.Join(err, perr)
	}
	if err == nil && res.Rejected > 0 {
		return errBadData
	}
	return err
}

// capture sends the prompts and tells of what is refused.
func (r *captureResult) capture(ctx context.Context, list []live.Prompt, lo live.Options, w *shard.Writer, stderr io.Writer) error {
	lo.Has = w.Has
	lo.Reject = func(rej format.Rejection) error {
		if len(r.Rejections) < listed {
			r.Rejections = append(r.Rejections, rej)
			say(stderr, "rejected: %s", printable(rej.Reason))
		}
		return w.Reject(rej)
	}
	lo.Warn = func(message string) {
		if len(r.Warnings) < listed {
			r.Warnings = append(r.Warnings, message)
			say(stderr, "warning: %s", printable(message))
		}
	}
	bar := newProgress(stderr, "capture", -1)
	lo.OnProgress = func(s live.Stats) {
		if bar != nil {
			bar.Describe(fmt.Sprintf("capture: %d of %s, %d refused", s.Samples+s.Skipped, count(int64(s.Prompts), "prompt"), s.Rejected))
			advance(bar, s.Bytes)
		}
	}
	var err error
	r.Stats, err = live.Run(ctx, list, r.Server, lo, w)
	finish(bar)
	r.Interrupted = errors.Is(err, context.Canceled)
	return err
}

// describePreflight says what the server is and which layers are taken from it.
func (r *captureResult) describePreflight(stderr io.Writer, layers format.Layers) {
	say(stderr, "server: %s %s, model %s", r.Server.Engine, printable(r.Server.Version), printable(r.Server.Model))
	if layers != nil {
		r.Layers = layers.String()
		say(stderr, "layers: %s", layers)
	}
	for _, n := range r.Server.Notes {
		say(stderr, "note: %s", n)
	}
}

func (r *captureResult) print(w io.Writer, o captureOptions, m *shard.Manifest) error {
	if o.asJSON {
		return printJSON(w, r)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "captured %s (%s, %s of states) into %s\n", count(int64(r.Samples), "sample"), count(r.Tokens, "token"), bytesText(r.Bytes), o.out)
	fact(&b, "server", "%s %s, model %s", r.Server.Engine, printable(r.Server.Version), printable(r.Server.Model))
	describeDataset(&b, m)
	tallies(&b,
		tally{r.Skipped, "prompt", "in the dataset already, or given twice"},
		tally{r.Retries, "request", "sent again"},
		tally{r.Removed, "file", "of the server removed after the commit"},
		tally{r.Rejected, "prompt", "rejected"},
	)
	if r.Interrupted {
		b.WriteString("interrupted: all of the above is committed; run the same command to continue\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// readCapturePrompts reads prompts in the forms of live.ReadPrompts, or else in those
// that bench reads, and says how many had more turns than the one that is sent.
func readCapturePrompts(path string) (list []live.Prompt, left int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = f.Close() }() // read to its end
	r := bufio.NewReaderSize(f, 1<<16)
	head, err := firstLine(f, r)
	if err != nil {
		return nil, 0, err
	}
	if live.IsPrompts(head) {
		list, err = live.ReadPrompts(r)
		return list, 0, err
	}
	ps, err := prompts.Read(r, prompts.Auto)
	for _, p := range ps {
		messages, err := json.Marshal(append(slices.Clone(p.Before), prompts.Message{Role: "user", Content: p.Turns[0]}))
		if err != nil {
			return nil, 0, err
		}
		if len(p.Turns) > 1 {
			left++
		}
		list = append(list, live.Prompt{ID: p.ID, Messages: messages})
	}
	return list, left, err
}

// firstLine is the first line of a file that is not blank; r reads it again.
func firstLine(f io.ReadSeeker, r *bufio.Reader) ([]byte, error) {
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() && len(bytes.TrimSpace(sc.Bytes())) == 0 {
		continue
	}
	line := bytes.Clone(sc.Bytes())
	if err := sc.Err(); err != nil && !errors.Is(err, bufio.ErrTooLong) { // an array on one line is not ours
		return nil, err
	}
	_, err := f.Seek(0, io.SeekStart)
	r.Reset(f)
	return line, err
}
