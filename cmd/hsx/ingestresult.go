package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"hsx/capture"
	"hsx/format"
	"hsx/format/producer"
	"hsx/shard"
)

// watch collects what a run has to tell; warnings and refusals are told at once.
func (r *ingestResult) watch(c *capture.Options, stderr io.Writer) {
	warned := 0
	c.Warn = func(input, message string) {
		line := printable(input) + ": " + message
		switch warned++; {
		case warned <= listed:
			r.Warnings = append(r.Warnings, line)
			say(stderr, "warning: %s", line)
		case warned == listed+1:
			say(stderr, "warning: further warnings are not printed")
		}
	}
	refused := 0
	c.Reject = func(rej format.Rejection) error {
		switch refused++; {
		case refused <= listed:
			r.Rejections = append(r.Rejections, rej)
			say(stderr, "rejected: %s: %s", printable(rej.Path), rej.Reason)
		case refused == listed+1:
			say(stderr, "rejected: further inputs are in rejected.jsonl")
		}
		return nil
	}
	c.Recognised = func(_ format.Input, m *producer.Match, _ int) {
		r.Producers[m.Producer]++
		if r.why[m.Producer] == "" {
			r.why[m.Producer] = m.Why
		}
	}
}

func (r *ingestResult) add(s capture.Stats) {
	r.Inputs, r.Samples, r.Tokens, r.Bytes = s.Inputs, s.Samples, s.Tokens, s.Bytes
	r.Rejected, r.Skipped, r.Side, r.Ignored = s.Rejected, s.Skipped, s.Side, s.Ignored
}

// print writes the result of a run.
func (r *ingestResult) print(w io.Writer, o ingestOptions) error {
	if o.asJSON {
		return printJSON(w, r)
	}
	var b strings.Builder
	what := fmt.Sprintf("%s (%s, %s of dumps)", count(int64(r.Samples), "sample"), count(r.Tokens, "token"), bytesText(r.Bytes))
	switch {
	case o.dryRun:
		fmt.Fprintf(&b, "would ingest %s\n", what)
	case r.Samples == 0:
		fmt.Fprintf(&b, "ingested nothing new into %s\n", o.out)
	default:
		fmt.Fprintf(&b, "ingested %s into %s\n", what, o.out)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Producers)) {
		fact(&b, "producer", "%s, %s", name, count(int64(r.Producers[name]), "input"))
		fact(&b, "", "by %s", r.why[name])
	}
	if r.manifest != nil {
		describeDataset(&b, r.manifest)
	}
	tallies(&b,
		tally{r.Skipped, "input", "in the dataset already"},
		tally{r.Side, "file", "beside the samples (vocabulary maps, configs, indexes)"},
		tally{r.Ignored, "file", "ignored"},
		tally{r.Rejected, "input", "rejected"},
	)
	if r.Follow != nil {
		r.Follow.describe(&b)
	}
	if r.Partial {
		b.WriteString("interrupted: all of the above is committed; run the same command to continue\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// producerInfo is one producer in the JSON document of hsx ingest --list-producers.
type producerInfo struct {
	Name      string      `json:"name"`
	What      string      `json:"what"`
	Keys      string      `json:"keys"`      // by which it is recognised
	Norm      format.Norm `json:"norm"`      // of its final state, by habit
	Numbering string      `json:"numbering"` // of the layers in its own config
}

// listProducers prints what hsx recognises.
func listProducers(w io.Writer, asJSON bool) error {
	list := []producerInfo{}
	var b strings.Builder
	for _, d := range producer.Describe() {
		list = append(list, producerInfo(d))
		fmt.Fprintf(&b, "%s (%s)\n", d.Name, d.What)
		fact(&b, "by", "%s", d.Keys)
		fact(&b, "layers", "%s", d.Numbering)
		fact(&b, "final", "%s", d.Norm)
	}
	if asJSON {
		return printJSON(w, list)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// describeDataset writes the facts of a manifest, one line each.
func describeDataset(b *strings.Builder, m *shard.Manifest) {
	facts(b, "states", layoutLines(m.Layout()))
	fact(b, "dataset", "%s, %s, %s", count(m.Rows, "sample"), count(m.Tokens, "token"), count(int64(len(m.Shards)), "shard"))
	if p := m.Partition; p != nil {
		state := "not done yet"
		if p.Done {
			state = "done"
		}
		fact(b, "partition", "%d/%d of plan %.12s, %s", p.Index, p.Of, p.Plan, state)
	}
}
