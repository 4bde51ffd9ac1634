package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hsx/bench"
	"hsx/bench/report"
	"hsx/bench/server"
	"hsx/format"
	"hsx/validate"
)

// judgeFlags say by what a measurement is judged and how the report is written. They
// apply to a stored one too.
type judgeFlags struct {
	promised, excludes                      string
	baseline                                string
	data, draft, target, family             string
	margin, confidence, maxTrunc, maxFailed float64
	gate                                    bool
	minSpeedup, minAccept                   float64
	asJSON, asCSV, asMarkdown               bool
	html                                    string

	layers *validate.ConfigInput // of data and draft, read by judgement; nil without them
}

func (j *judgeFlags) add(f *pflag.FlagSet) {
	f.StringVar(&j.promised, "promised", "", "accept length that training promised: a number, or a log or metrics file of SpecForge, speculators or TorchSpec")
	f.StringVar(&j.excludes, "promised-excludes-bonus", "auto", "whether the promised number leaves the bonus token out: true, false or auto")
	f.StringVar(&j.data, "data", "", "the dataset that the draft was trained on: do its layers reach it on this server?")
	f.StringVar(&j.draft, "draft", "", "the draft's directory or config.json, for the same question")
	f.StringVar(&j.target, "target", "", "the target's directory or config.json, where the draft's config does not tell its depth")
	f.StringVar(&j.family, "family", "", "the target's family, where servers make a difference (default: by its name)")
	f.Float64Var(&j.margin, "margin", 0.03, "gain that speculation must exceed to pay")
	f.Float64Var(&j.confidence, "confidence", 0.95, "of the intervals")
	f.Float64Var(&j.maxTrunc, "max-truncated", 0.2, "share of answers cut short above which there is no verdict")
	f.Float64Var(&j.maxFailed, "max-failed", 0.05, "share of failed requests above which there is no verdict")
	f.BoolVar(&j.gate, "gate", false, "exit 3 when speculation does not pay, 4 when that is not certain, 5 when there is no verdict")
	f.Float64Var(&j.minSpeedup, "min-speedup", 0, "with --gate: the speedup that must be certain")
	f.Float64Var(&j.minAccept, "min-accept-length", 0, "with --gate: the accept length that must be certain; alone, nothing is asked of the speedup")
	f.BoolVar(&j.asJSON, "json", false, "print one JSON document")
	f.BoolVar(&j.asCSV, "csv", false, "print the figures as CSV, one for each line")
	f.BoolVar(&j.asMarkdown, "md", false, "print Markdown, for pasting")
	f.StringVar(&j.html, "html", "", "write a page with plots to this file; it opens offline")
}

// addBaseline is for what is not compared with another journal already.
func (j *judgeFlags) addBaseline(f *pflag.FlagSet) {
	f.StringVar(&j.baseline, "baseline", "", "journal of an earlier measurement whose baseline, or only arm, stands in for --baseline-url")
}

// judgement reads what the flags name, before hours are spent on a measurement.
func (j *judgeFlags) judgement(ctx context.Context) (bench.Judgement, error) {
	out := bench.Judgement{Margin: j.margin, Confidence: j.confidence, MaxTruncated: j.maxTrunc, MaxFailed: j.maxFailed}
	for name, share := range map[string]float64{"margin": j.margin, "max-truncated": j.maxTrunc, "max-failed": j.maxFailed} {
		if !(share > 0 && share <= 1) {
			return out, usagef("--%s %g: want a share above 0, up to 1", name, share)
		}
	}
	if !(j.confidence > 0.5 && j.confidence < 1) {
		return out, usagef("--confidence %g: want a share between 0.5 and 1", j.confidence)
	}
	if !j.gate && (j.minSpeedup != 0 || j.minAccept != 0) {
		return out, usagef("--min-speedup, --min-accept-length: bounds of a gate, want --gate with them")
	}
	if !(j.minSpeedup >= 0 && j.minAccept >= 0) {
		return out, usagef("--min-speedup %g, --min-accept-length %g: want no negative bound", j.minSpeedup, j.minAccept)
	}
	if j.gate {
		out.Gate = &bench.Gate{MinSpeedup: j.minSpeedup, MinAcceptLength: j.minAccept}
	}
	n := 0
	for _, is := range []bool{j.asJSON, j.asCSV, j.asMarkdown} {
		if is {
			n++
		}
	}
	if n > 1 {
		return out, usagef("--json, --csv, --md: one form goes to the output, and --html to a file")
	}
	if err := oneOf("--family", j.family, validate.Families()); err != nil {
		return out, err
	}
	if err := placeFor(ctx, "--html", j.html); err != nil {
		return out, err
	}
	if err := j.readPromise(&out); err != nil {
		return out, err
	}
	if err := j.readLayers(ctx); err != nil {
		return out, err
	}
	if j.baseline != "" {
		log, err := readJournal(j.baseline)
		if err != nil {
			return out, fmt.Errorf("read --baseline: %w", err)
		}
		out.Baseline = log
	}
	return out, nil
}

func (j *judgeFlags) readPromise(out *bench.Judgement) error {
	if err := oneOf("--promised-excludes-bonus", j.excludes, []string{"auto", "true", "false"}); err != nil {
		return err
	}
	switch {
	case j.promised == "" && j.excludes != "auto":
		return usagef("--promised-excludes-bonus: says how --promised counts, want --promised with it")
	case j.promised == "":
		return nil
	}
	isFile := false
	p, err := bench.ParsePromise(j.promised, func(name string) (io.ReadCloser, error) {
		isFile = true
		return os.Open(name)
	})
	switch {
	case err != nil && isFile:
		return fmt.Errorf("read --promised: %w", err)
	case err != nil:
		return usagef("--promised: %w", err)
	}
	if j.excludes != "auto" {
		excludes := j.excludes == "true"
		p.ExcludesBonus = &excludes
	}
	out.Promise = p
	return nil
}

func readJournal(path string) (*bench.Log, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	log, err := bench.ReadLog(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return log, nil
}

// readLayers reads what data and draft say of the layers.
func (j *judgeFlags) readLayers(ctx context.Context) error {
	switch {
	case j.data+j.draft == "" && j.target+j.family != "":
		return usagef("--target, --family: are for the layers of --draft and --data, want one of these with them")
	case j.data+j.draft == "":
		return nil
	}
	j.layers = &validate.ConfigInput{Family: j.family}
	if j.data != "" {
		ds, err := datasetAt(ctx, j.data)
		if err != nil {
			return fmt.Errorf("open --data: %w", err)
		}
		m := ds.Manifest()
		j.layers.Data, j.layers.Target = m.Layout(), m.Target
	}
	if j.target != "" {
		var err error
		if j.layers.Target, _, err = readTarget(j.target); err != nil {
			return err
		}
	}
	if j.draft != "" {
		data, err := readConfig(j.draft)
		if err != nil {
			return fmt.Errorf("read --draft: %w", err)
		}
		if j.layers.Config, err = validate.ParseConfig(data); err != nil {
			return fmt.Errorf("read --draft %s: %w", j.draft, err)
		}
	}
	return nil
}

// mismatch asks the resolver of hsx validate which layers this server feeds the draft,
// and lists what speaks against data and draft.
func (j *judgeFlags) mismatch(log *bench.Log) []string {
	if j.layers == nil {
		return nil
	}
	in := *j.layers
	i := slices.IndexFunc(log.Arms, func(a bench.ArmInfo) bool { return a.Info.Speculation.On })
	if i < 0 {
		return []string{"no server with speculation was seen, so its reading of the draft's layers could not be looked up"}
	}
	info := log.Arms[i].Info
	if in.Server = resolverName(info.Engine); in.Server == "" {
		return []string{fmt.Sprintf("%s is not in the table of servers: which layers it feeds the draft is not known", info.Engine)}
	}
	if in.Target == (format.Target{}) {
		in.Target.Name = info.Model
	}
	found := validate.NewCollector(3, nil)
	validate.CheckConfig(in, found)
	var out []string
	for _, g := range found.Groups() {
		for _, f := range g.Findings {
			if f.Severity == validate.Info {
				continue
			}
			text := fmt.Sprintf("%s %s for %s %s: %s", f.Severity, f.Rule, info.Engine, info.Version, f.Message)
			if f.Do != "" {
				text += "; " + f.Do
			}
			out = append(out, text)
		}
	}
	return out
}

// resolverName is the engine in the resolver's table, "" when it is not there.
func resolverName(e server.Engine) string {
	return map[server.Engine]string{server.SGLang: "sglang", server.VLLM: "vllm", server.TRTLLM: "trtllm"}[e]
}

// write prints a report in the form that was asked for, and writes the page.
func (j *judgeFlags) write(cmd *cobra.Command, r *bench.Report) error {
	w := cmd.OutOrStdout()
	var err error
	switch {
	case j.asJSON:
		err = printJSON(w, r)
	case j.asCSV:
		err = report.CSV(w, r)
	case j.asMarkdown:
		err = report.Markdown(w, r)
	default:
		_, err = io.WriteString(w, benchText(r))
	}
	if err != nil || j.html == "" {
		return err
	}
	return writePage(cmd.Context(), j.html, func(w io.Writer) error { return report.HTML(w, r) })
}

// verdict is the exit of a report.
func (j *judgeFlags) verdict(r *bench.Report) error {
	if r.Gate == nil {
		return nil
	}
	switch r.Gate.Outcome {
	case "met":
		return nil
	case "not met":
		return errBadData
	case "inconclusive":
		return errUncertain
	}
	return errVoid
}
