package validate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"hsx/format"
	"hsx/shard"
)

// Input is what the data is held against. What is nil was not given, and the rules
// that need it are named in Report.CouldNotRun.
type Input struct {
	Target    format.Target // from the target's config; a zero field is taken from the manifest
	Config    ConfigInput   // what is said of layers; its Data, Target and FCWidth are filled in
	Draft     *Checkpoint   // of the draft
	Weights   *Weights      // a few weights of the target
	Reference *Reference    // what the target's layers look like
}

// Options are the choices of a run. The zero value runs all rules on a default sample.
type Options struct {
	Only []string // rules to run, all when empty
	Skip []string // rules not to run

	Sample  int  // how many samples to read, DefaultSample when 0
	All     bool // read every sample
	Workers int  // GOMAXPROCS when 0
	Keep    int  // findings that are kept of each rule, DefaultKeep when 0

	// Progress, if not nil, is told how many bytes of states were read, and are to be
	// read. It is called by one goroutine at a time.
	Progress func(done, total int64)

	spanBytes int64 // of the engine, for tests
}

// DefaultKeep is how many findings of each rule are kept unless said otherwise.
const DefaultKeep = 10

// Verdict is what a report comes to.
type Verdict string

// The verdicts, after the worst finding.
const (
	Sound    Verdict = "sound"    // nothing above Info
	Doubtful Verdict = "doubtful" // a Warning is the worst
	Unfit    Verdict = "unfit"    // there is an Error
)

// Report is the result of a run, and its JSON form is a documented output: members may
// be added to it.
type Report struct {
	Verdict     Verdict  `json:"verdict"` // sound, doubtful or unfit
	Read                 // samples, tokens and bytes of states that were read
	Rules       []string `json:"rules"`         // that ran
	CouldNotRun []string `json:"could_not_run"` // "rule, rule: need …"
	NotRead     string   `json:"not_read"`      // what share of the data was read, "" when all was
	Groups      []Group  `json:"groups"`        // findings by rule, most severe first
	Seconds     float64  `json:"seconds"`       // wall time

	// Resolution says who reads which layers from the draft's config.
	Resolution *Resolution `json:"resolution"`
}

// Run holds a dataset against what is known of its target and its draft. Findings are
// in the report; an error means that the options make no sense, that ctx has ended, or
// that something could not be read for another reason than damage.
func Run(ctx context.Context, ds *shard.Dataset, in Input, opt Options) (*Report, error) {
	start := time.Now()
	p, err := newPlan(ds, in, opt)
	if err != nil {
		return nil, err
	}
	read := wholeDataset(ds)
	if n := cmp.Or(opt.Sample, DefaultSample); !opt.All {
		if read, err = chooseSamples(ds, n); err != nil {
			return nil, err
		}
	}
	e := p.engine(ds, read.bytes)
	scans, err := e.run(ctx, jobsOf(ds, read.refs))
	if err != nil {
		return nil, err
	}
	if err := p.finish(ctx, ds, scans); err != nil {
		return nil, err
	}
	r := p.report(scans)
	r.NotRead, r.Seconds = read.note, time.Since(start).Seconds()
	return r, nil
}

func verdictOf(out *Collector) Verdict {
	switch worst, _ := out.Worst(); worst {
	case Error:
		return Unfit
	case Warning:
		return Doubtful
	}
	return Sound
}

// plan is what a run does, whichever samples it reads.
type plan struct {
	in      Input
	layout  format.Layout
	out     *Collector
	rules   []string // that can run
	missing []string // the others, by what they need
	opt     Options
	stats   bool             // of an audit are wanted too
	says    func(int32) bool // which tokens the draft can say, nil when that is not known
}

// engine is what reads total bytes of states for the plan.
func (p *plan) engine(ds *shard.Dataset, total int64) *engine {
	e := &engine{ds: ds, workers: cmp.Or(p.opt.Workers, runtime.GOMAXPROCS(0)), make: p.scans, out: p.out, spanBytes: p.opt.spanBytes}
	if p.opt.Progress != nil {
		done := int64(0)
		e.progress = func(bytes int64) {
			done += bytes
			p.opt.Progress(done, total)
		}
	}
	return e
}

// report is what the plan has shown when its scans are finished.
func (p *plan) report(scans []scan) *Report {
	return &Report{
		Verdict: verdictOf(p.out), Read: scans[0].(*tokenScan).Read, Rules: p.rules, CouldNotRun: p.missing,
		Groups: p.out.Groups(), Resolution: NewResolution(p.in.Config),
	}
}

func newPlan(ds *shard.Dataset, in Input, opt Options) (*plan, error) {
	enabled, err := chooseRules(opt.Only, opt.Skip)
	if err != nil {
		return nil, err
	}
	if opt.Sample < 0 || opt.Workers < 0 || opt.Keep < 0 {
		return nil, fmt.Errorf("sample %d, workers %d and findings kept %d: want none below 0", opt.Sample, opt.Workers, opt.Keep)
	}
	m := ds.Manifest()
	if m.Rows == 0 {
		return nil, errors.New("dataset holds no samples, so there is nothing to judge")
	}
	in.Target = in.Target.Or(m.Target)
	in.Config.Data, in.Config.Target = m.Layout(), in.Target
	if in.Draft != nil {
		in.Config.FCWidth = in.Draft.FCWidth()
	}
	p := &plan{opt: opt, in: in, layout: m.Layout(), out: NewCollector(cmp.Or(opt.Keep, DefaultKeep), enabled)}
	p.rules, p.missing = in.ready(enabled)
	p.says = draftTokens(in.Draft)
	return p, nil
}

// scans makes the scans of all areas that can run. The first is a tokenScan, the last
// of an audit a StatScan.
func (p *plan) scans() []scan {
	s := []scan{newTokenScan(p.in)}
	s = append(s, dataScans(p.in.Target)...)
	s = append(s, crossScans(p.layout)...)
	if p.in.Weights != nil {
		s = append(s, targetScans(p.layout, p.in.Weights)...)
	}
	s = append(s, referenceScans(p.layout, p.in.Reference)...)
	if p.stats {
		s = append(s, newStatScan(p.layout, p.in.Target.VocabSize, p.says))
	}
	return s
}

// finish runs the rules that need all samples, and those that need no states.
func (p *plan) finish(ctx context.Context, ds *shard.Dataset, scans []scan) error {
	checkDrift(ds.Manifest(), p.out)
	checkLayersKnown(p.layout, p.out)
	if p.in.has("config") {
		CheckConfig(p.in.Config, p.out)
	}
	if p.in.Draft != nil {
		count := scans[0].(*tokenScan)
		CheckDraft(DraftInput{
			Checkpoint: p.in.Draft, Config: p.in.Config.Config, Target: p.in.Target, Data: p.layout,
			Server: p.in.Config.Server, Longest: count.Longest, Supervised: count.Supervised,
		}, p.out)
	}
	return finishScans(ctx, ds, scans, p.out)
}

// chooseRules is the set of rules to run: those of only, or all, without those of skip.
func chooseRules(only, skip []string) (map[string]bool, error) {
	known := map[string]bool{}
	var names []string
	for _, r := range Rules() {
		known[r.Name] = len(only) == 0
		names = append(names, r.Name)
	}
	for i, list := range [][]string{only, skip} {
		for _, name := range list {
			if _, ok := known[name]; !ok {
				return nil, fmt.Errorf("rule %q is not known, want some of %s", name, strings.Join(names, ", "))
			}
			known[name] = i == 0
		}
	}
	return known, nil
}

// ready tells apart the enabled rules whose needs are met and, by need, the others.
func (in Input) ready(enabled map[string]bool) (ready, missing []string) {
	ready, missing = []string{}, []string{}
	var needs []string
	lacking := map[string][]string{}
	for _, r := range Rules() {
		if !enabled[r.Name] {
			continue
		}
		if in.has(r.Needs) {
			ready = append(ready, r.Name)
			continue
		}
		if !slices.Contains(needs, r.Needs) {
			needs = append(needs, r.Needs)
		}
		lacking[r.Needs] = append(lacking[r.Needs], r.Name)
	}
	for _, n := range needs {
		missing = append(missing, strings.Join(lacking[n], ", ")+": "+needText(n))
	}
	if in.Target.VocabSize == 0 && enabled["token-range"] {
		missing = append(missing, "token-range: needs the target's vocabulary size, and finds only negative ids without")
	}
	return ready, missing
}

// has reports whether what a rule needs was given.
func (in Input) has(need string) bool {
	switch need {
	case "config":
		return in.Config.Config != nil || in.Config.Wanted != nil
	case "draft":
		return in.Draft != nil
	case "target":
		return in.Weights != nil
	case "reference":
		return in.Reference != nil
	}
	return need == "data"
}

func needText(need string) string {
	switch need {
	case "config":
		return "need a list of layers or the draft's config"
	case "draft":
		return "need the draft's checkpoint"
	case "target":
		return "need weights of the target"
	case "reference":
		return "need a reference, which hsx fingerprint writes"
	}
	return "need " + need
}
