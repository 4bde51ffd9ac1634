package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hsx/export"
	"hsx/format"
	"hsx/shard"
)

func newExportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export --to TOOL --out DIR [flags] DS",
		Short: "Write a dataset as the files that a trainer reads",
		Long: `Write the samples of a dataset as the files that a trainer reads, with its names, shapes
and layout. What the trainer needs and the dataset lacks (a loss mask, a layer, a final
state) is refused, never invented. A final state before the norm is written after it where
the trainer wants that, with the weights of --target; the other way does not exist.

Beside the files lie hsx-export.json, which says which layers they hold in each convention,
and hsx-export.jsonl, which says what each file holds. Every file is complete or absent. The
same command again continues; another one is refused. ^C finishes the current files; a
second one stops at once.`,
		Example: `  hsx export --to specforge --out train ds
  hsx export --to specforge --target target/ --split train=0.98,val=0.02 --out data ds
  hsx export --to speculators --server vllm --draft-config-out layers.json --out data ds
  hsx export --to safetensors --layers 2,58 --select 'rows_0-2000/*' --out some ds
  hsx export --to datasets --dry-run ds`,
		GroupID: "data",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return runExport(cmd, args[0], f) },
	}
	f.add(cmd)
	return cmd
}

// exportResult is the JSON document of hsx export.
type exportResult struct {
	export.Mapping
	Out       string           `json:"out"`
	Bytes     int64            `json:"bytes"`      // of the states that are exported
	Written   int              `json:"written"`    // files written by this run; of npy, directories
	Kept      int              `json:"kept"`       // files that an earlier run wrote
	FileBytes int64            `json:"file_bytes"` // of what this run wrote
	LeftOut   int              `json:"left_out"`   // samples that were not selected
	Refused   int              `json:"refused"`    // samples that the reader would not take
	Refusals  []export.Refusal `json:"refusals"`   // the first of them
	Seconds   float64          `json:"seconds"`
	DryRun    bool             `json:"dry_run"`
	Partial   bool             `json:"interrupted"`

	what, normed string // is exported to, and how the final is normed, for people
}

func runExport(cmd *cobra.Command, dir string, f exportFlags) error {
	opt, err := f.options()
	if err != nil {
		return err
	}
	if err := placeFor(cmd.Context(), "--draft-config-out", f.configOut); err != nil {
		return err
	}
	if opt.VocabMap, err = f.vocabMap(); err != nil {
		return err
	}
	ds, err := openDataset(cmd.Context(), dir)
	if err != nil {
		return err
	}
	if err := f.readTarget(&opt, ds.Manifest()); err != nil {
		return err
	}
	start, ctx, stderr := time.Now(), cmd.Context(), cmd.ErrOrStderr()
	res := exportResult{Out: f.out, Refusals: []export.Refusal{}, DryRun: f.dryRun}
	opt.Refused = func(r export.Refusal) { res.refuse(stderr, r) }
	meter := newMeter(stderr, "export")
	opt.Progress = meter.set
	plan, err := export.NewPlan(ctx, ds, opt)
	if err != nil {
		err = fmt.Errorf("export %s: %w", dir, err)
		if errors.Is(err, format.ErrUnsupported) {
			return &hintError{err, "see 'hsx inspect " + dir + "' for what it holds"}
		}
		return err
	}
	lists := exportLists{layers: plan.Layers, trainer: plan.Target(), target: plan.Mapping().Target, server: f.server, family: f.family}
	var config []byte
	if f.configOut != "" {
		if config, err = lists.draftConfig(); err != nil {
			return fmt.Errorf("write --draft-config-out: %w", err)
		}
	}
	readers, err := lists.readers()
	if err != nil {
		return err
	}
	plan.SetReaders(readers)
	res.plan(plan)
	if !f.dryRun {
		var r export.Result
		r, err = plan.Run(ctx, f.out)
		meter.finish()
		res.Written, res.Kept, res.FileBytes = r.Written, r.Kept, r.Bytes
		if res.Partial = errors.Is(err, context.Canceled); err != nil && !res.Partial {
			err = fmt.Errorf("export %s into %s: %w", dir, f.out, err)
			if errors.Is(err, shard.ErrLocked) {
				return &hintError{err, "wait until the other export is done, or choose another --out"}
			}
			return err
		}
		if config != nil && err == nil {
			if err := writeFile(ctx, f.configOut, config); err != nil {
				return fmt.Errorf("write --draft-config-out: %w", err)
			}
		}
	}
	res.Seconds = time.Since(start).Seconds()
	if perr := res.print(cmd.OutOrStdout(), f.asJSON); perr != nil {
		return errors.Join(err, perr)
	}
	if err == nil && res.Refused > 0 {
		return errBadData
	}
	return err
}

// refuse notes a sample that the reader would not take, and tells it at once.
func (r *exportResult) refuse(stderr io.Writer, refusal export.Refusal) {
	switch r.Refused++; {
	case r.Refused <= listed:
		r.Refusals = append(r.Refusals, refusal)
		say(stderr, "refused: %s: %s", printable(refusal.ID), refusal.Reason)
	case r.Refused == listed+1:
		say(stderr, "refused: further samples are not printed")
	}
}

// plan takes what is known before anything is written.
func (r *exportResult) plan(p *export.Plan) {
	t := p.Target()
	r.Mapping, r.Bytes, r.LeftOut = p.Mapping(), p.Bytes, p.LeftOut
	r.what, r.normed = fmt.Sprintf("%s (%s): %s", t.Name, t.What, t.Files), p.Normed
}

// print writes the result of a run.
func (r *exportResult) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, r)
	}
	var b strings.Builder
	what := fmt.Sprintf("%s (%s, %s of states)", count(int64(r.Samples), "sample"), count(r.Tokens, "token"), bytesText(r.Bytes))
	switch {
	case r.DryRun:
		fmt.Fprintf(&b, "would export %s\n", what)
	case r.Partial:
		fmt.Fprintf(&b, "interrupted: %s of %s written to %s are complete; run the same command to continue\n",
			count(int64(r.Written+r.Kept), "file"), what, r.Out)
	case r.Written == 0:
		fmt.Fprintf(&b, "exported nothing new: %s in %s already\n", what, r.Out)
	default:
		fmt.Fprintf(&b, "exported %s to %s\n", what, r.Out)
	}
	fact(&b, "for", "%s", r.what)
	if len(r.Layers) > 0 {
		layers := make(format.Layers, len(r.Layers))
		for i, k := range r.Layers {
			layers[i] = format.Layer(k)
		}
		fact(&b, "layers", "%s", layers)
	}
	switch {
	case r.normed != "":
		fact(&b, "final", "after the norm, made of the state before it: %s", r.normed)
	case r.Final == "pre":
		fact(&b, "final", "before the norm")
	case r.Final == "post":
		fact(&b, "final", "after the norm")
	case r.Final == "unknown":
		fact(&b, "final", "unknown whether before or after the norm")
	}
	for _, tool := range r.Readers {
		fact(&b, tool.Name, "%s", tool.Write)
	}
	for _, s := range r.Splits {
		if s.Name != "" {
			fact(&b, s.Name, "%s, %s", count(int64(s.Samples), "sample"), count(s.Tokens, "token"))
		}
	}
	tallies(&b, tally{r.LeftOut, "sample", "not selected"}, tally{r.Refused, "sample", "refused"})
	if r.Written > 0 {
		tallies(&b, tally{r.Kept, "file", "there already"})
	}
	_, err := io.WriteString(w, b.String())
	return err
}
