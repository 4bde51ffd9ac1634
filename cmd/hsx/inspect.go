package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hsx/capture"
	"hsx/format"
	"hsx/internal/objstore"
	"hsx/shard"
)

// largestBatch is where readers of newer Arrow libraries begin to refuse a record
// batch, unless they are told a higher limit.
const largestBatch = 256 << 20

func newInspectCommand() *cobra.Command {
	var facts factFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect DS|FILE",
		Short: "Show what is in a dataset or in a dump file",
		Long: `Show what is in a dataset, from its manifest, or in any single dump file: its
tensors, the producer it was recognised as and why, and its first tokens. A dump file
that cannot be read is described as far as it goes (exit 3).`,
		Example: `  hsx inspect ds
  hsx inspect dumps/rows_0-2000/data_0.ckpt
  hsx inspect --target config.json --json response_0.json`,
		GroupID: "data",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if !objstore.Is(name) {
				p, err := placeOf(cmd.Context(), name)
				if err != nil {
					return err
				}
				name = p.path
			}
			if objstore.Is(name) || isDataset(name) {
				return inspectDataset(cmd.Context(), cmd.OutOrStdout(), name, asJSON)
			}
			f, err := facts.facts()
			if err != nil {
				return err
			}
			in, err := capture.Inspect(cmd.Context(), name, capture.Options{Facts: f})
			if err != nil {
				if info, serr := os.Stat(name); serr == nil && info.IsDir() && cmd.Context().Err() == nil {
					return fmt.Errorf("%w, and it is %w", err, shard.ErrNotDataset)
				}
				return err
			}
			return inspectDump(cmd.OutOrStdout(), in, asJSON)
		},
	}
	facts.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// isDataset tells a dataset from a directory of dumps, which may hold a
// manifest.json of a producer's own.
func isDataset(path string) bool {
	info, err := os.Stat(filepath.Join(path, "shards"))
	return err == nil && info.IsDir()
}

func inspectDataset(ctx context.Context, w io.Writer, dir string, asJSON bool) error {
	ds, err := openDataset(ctx, dir)
	if err != nil {
		return err
	}
	m := ds.Manifest()
	if asJSON {
		return printJSON(w, m)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "dataset %s (format %d, written by %s)\n", dir, m.Version, m.WrittenBy)
	fact(&b, "producer", "%s", orUnknown(m.Producer))
	describeDataset(&b, m)
	if m.Target == (format.Target{}) {
		fact(&b, "target", "unknown (pass --target when you ingest)")
	} else {
		fact(&b, "target", "%s", targetText(m.Target))
	}
	if m.Shifted {
		fact(&b, "shifted", "ids and mask are one position to the left of the states")
	}
	fact(&b, "inputs", "%d lines in inputs.jsonl, %d in rejected.jsonl", m.Inputs.Lines, m.Rejected.Lines)
	for _, s := range m.Shards {
		packed := ""
		if s.Encoding != "" {
			packed = fmt.Sprintf(", compressed to %.3f of its states", float64(s.Bytes)/float64(m.StateBytes(s)))
		}
		fact(&b, s.Name, "%s, %s, %s%s", count(s.Rows, "sample"), count(s.Tokens, "token"), bytesText(s.Bytes), packed)
		for _, f := range s.Fingerprint {
			name := f.Column
			for _, line := range fingerprintLines(f) {
				fmt.Fprintf(&b, "%13s%-10s %s\n", "", name, line)
				name = ""
			}
		}
		if s.LargestBatch > largestBatch {
			fact(&b, "", "one sample makes a record batch of %s: newer Arrow libraries read it only with a higher body-size limit", bytesText(s.LargestBatch))
		}
	}
	_, err = io.WriteString(w, b.String())
	return err
}

// fingerprintLines are what is known of the values of a state in a shard.
func fingerprintLines(f shard.Fingerprint) (lines []string) {
	if f.Rows > 0 {
		lines = append(lines, fmt.Sprintf("RMS %.4g ± %.2g, mean %.3g ± %.2g", f.RMS, f.RMSSD, f.Mean, f.MeanSD))
	}
	if f.NonFinite > 0 {
		lines = append(lines, fmt.Sprintf("%d of %s not finite", f.NonFinite, count(f.Rows+f.NonFinite, "sampled row")))
	}
	return lines
}

// targetText is what is known of a target.
func targetText(t format.Target) string {
	size := func(n int) string {
		if n == 0 {
			return "unknown"
		}
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s: %s layers, hidden size %s, vocabulary %s", orUnknown(printable(t.Name)), size(t.Layers), size(t.HiddenSize), size(t.VocabSize))
}

func orUnknown(s string) string {
	if s == "" {
		return "unknown"
	}
	return s
}

func inspectDump(w io.Writer, in *capture.Inspection, asJSON bool) error {
	bad := in.Problem != ""
	for _, s := range in.Samples {
		bad = bad || s.Problem != ""
	}
	var err error
	if asJSON {
		err = printJSON(w, in)
	} else {
		_, err = io.WriteString(w, dumpText(in))
	}
	if err == nil && bad {
		return errBadData
	}
	return err
}

func dumpText(in *capture.Inspection) string {
	var b strings.Builder
	line := func(name, f string, args ...any) { fact(&b, name, f, args...) }
	kind := in.Container
	if kind == "" {
		kind = "dump"
	}
	fmt.Fprintf(&b, "%s %s (%s)\n", kind, in.Path, bytesText(in.Bytes))
	switch {
	case in.Producer != "":
		line("producer", "%s (%s)", in.Producer, in.Title)
		line("because", "%s", in.Why)
	case in.Side != "":
		line("is", "%s", in.Side)
	}
	if in.Target != (format.Target{}) {
		line("target", "%s", targetText(in.Target))
	}
	facts(&b, "states", layoutLines(in.Layout))
	for i, t := range in.Tensors {
		name := ""
		if i == 0 {
			name = "holds"
		}
		switch {
		case t.DType == "":
			line(name, "%s = %s", printable(t.Key), printable(t.Value))
		case t.Strides != nil:
			line(name, "%s %s %v, a view with strides %v of storage %s", printable(t.Key), t.DType, t.Shape, t.Strides, printable(t.Storage))
		default:
			line(name, "%s %s %v", printable(t.Key), t.DType, t.Shape)
		}
	}
	for _, s := range in.Samples {
		if s.Problem != "" {
			line("sample", "cannot be taken: %s", s.Problem)
			continue
		}
		mask := "no loss mask"
		if s.Supervised >= 0 {
			mask = fmt.Sprintf("%d supervised", s.Supervised)
		}
		more := ""
		if s.Tokens > len(s.FirstTokens) {
			more = " …"
		}
		line("sample", "%s: %s, %s, ids %s%s", printable(s.ID), count(int64(s.Tokens), "token"), mask, strings.Trim(fmt.Sprint(s.FirstTokens), "[]"), more)
	}
	for _, n := range in.Notes {
		line("note", "%s", n)
	}
	if in.Problem != "" {
		line("problem", "%s", in.Problem)
	}
	return b.String()
}
