package validate

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"hsx/format"
	"hsx/internal/hsxtest"
)

func TestRunVerdicts(t *testing.T) {
	t.Parallel()
	good := func() *format.Sample { return dataSample(dataLayout(format.BFloat16), 7, 9, 64) }
	only := Options{}
	for _, r := range dataRules() {
		only.Only = append(only.Only, r.Name)
	}
	tests := map[string]struct {
		damage func(s *format.Sample)
		opt    func(o *Options)
		want   Verdict
		rules  []string
	}{
		"sound":         {damage: func(*format.Sample) {}, want: Sound},
		"doubtful":      {damage: func(s *format.Sample) { s.LossMask[2] = 2 }, want: Doubtful, rules: []string{"mask-values"}},
		"unfit":         {damage: func(s *format.Sample) { s.LossMask[2] = 2; s.Tokens[1] = -1 }, want: Unfit, rules: []string{"token-range", "mask-values"}},
		"skipped":       {damage: func(s *format.Sample) { s.Tokens[1] = -1 }, opt: func(o *Options) { o.Skip = []string{"token-range"} }, want: Sound},
		"only another":  {damage: func(s *format.Sample) { s.Tokens[1] = -1 }, opt: func(o *Options) { o.Only = []string{"non-finite"} }, want: Sound},
		"only and skip": {damage: func(s *format.Sample) { s.Tokens[1] = -1 }, opt: func(o *Options) { o.Only, o.Skip = []string{"token-range"}, []string{"token-range"} }, want: Sound},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := good()
			tc.damage(s)
			_, ds := writeDataset(t, 1<<20, s)
			opt := Options{Only: slices.Clone(only.Only)}
			if tc.opt != nil {
				tc.opt(&opt)
			}
			total := int64(0)
			opt.Progress = func(done, all int64) { total = all - done }
			r, err := Run(t.Context(), ds, Input{}, opt)
			if err != nil {
				t.Fatal(err)
			}
			var rules []string
			for _, g := range r.Groups {
				rules = append(rules, g.Rule)
			}
			if r.Verdict != tc.want || !slices.Equal(rules, tc.rules) || r.Samples != 1 || r.Tokens != 9 || total != 0 {
				t.Errorf("Run: got %+v, want %s with %v", r, tc.want, tc.rules)
			}
		})
	}
}

func TestRunOptions(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 16<<10, manySamples(40)...)
	for want, opt := range map[string]Options{
		`rule "nan" is not known, want some of `: {Only: []string{"nan"}},
		`rule "" is not known`:                   {Skip: []string{""}},
		"sample -1":                              {Sample: -1},
		"workers -2":                             {Workers: -2},
	} {
		if _, err := Run(t.Context(), ds, Input{}, opt); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Run(%+v): got error %v, want %q", opt, err, want)
		}
	}
	r, err := Run(t.Context(), ds, Input{}, Options{Only: []string{"token-range", "duplicate-sample"}, Sample: 7})
	if err != nil {
		t.Fatal(err)
	}
	if r.Samples != 7 || !strings.HasPrefix(r.NotRead, "read 7 of 40 samples") {
		t.Errorf("Run: got %d samples and %q, want 7", r.Samples, r.NotRead)
	}
	if len(r.CouldNotRun) != 1 || !strings.Contains(r.CouldNotRun[0], "token-range: needs the target's vocabulary size") {
		t.Errorf("CouldNotRun: got %q, want token-range", r.CouldNotRun)
	}
	if r, err = Run(t.Context(), ds, Input{Target: format.Target{VocabSize: 512}}, Options{Only: []string{"token-range"}, All: true}); err != nil || r.Samples != 40 || r.NotRead != "" || len(r.CouldNotRun) != 0 {
		t.Errorf("Run of all: got %+v, %v, want 40 samples", r, err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"verdict":"sound"`, `"samples":40`, `"rules":["token-range"]`, `"could_not_run":[]`, `"not_read":""`, `"groups":[]`, `"seconds":`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("report: got %s, want %s in it", text, want)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range dataRules() {
		if seen[r.Name] || r.Name != strings.ToLower(r.Name) || r.Doc == "" || r.Cost == "" || r.Needs != "data" {
			t.Errorf("rule %+v: want a name of its own, a sentence, a cost and a need", r)
		}
		seen[r.Name] = true
	}
}

// TestRunInput: what is given decides which rules run.
func TestRunInput(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 1<<20, dataSample(dataLayout(format.BFloat16), 7, 9, 64))
	layers, err := format.NewLayers([]int{0, 2, 4}, format.PostLayer)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		in      Input
		needs   []string // of rules that could not run
		verdict Verdict
	}{
		"nothing": {Input{}, []string{"a list of layers", "the draft's checkpoint", "weights of the target", "a reference", "vocabulary size"}, Sound},
		"target":  {Input{Target: format.Target{VocabSize: 512}}, []string{"a list of layers", "the draft's checkpoint", "weights of the target", "a reference"}, Sound},
		"layers":  {Input{Config: ConfigInput{Wanted: layers}}, []string{"the draft's checkpoint", "weights of the target", "a reference", "vocabulary size"}, Unfit},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := Run(t.Context(), ds, tc.in, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != tc.verdict || len(r.CouldNotRun) != len(tc.needs) || r.Resolution == nil {
				t.Fatalf("Run: got %+v, want %s and %d needs", r, tc.verdict, len(tc.needs))
			}
			for i, want := range tc.needs {
				if !strings.Contains(r.CouldNotRun[i], want) {
					t.Errorf("CouldNotRun[%d]: got %q, want %q in it", i, r.CouldNotRun[i], want)
				}
			}
			for _, rule := range Rules() {
				if !slices.Contains(r.Rules, rule.Name) && !strings.Contains(strings.Join(r.CouldNotRun, "; "), rule.Name) {
					t.Errorf("rule %s neither ran nor is named among those that could not", rule.Name)
				}
			}
		})
	}
}

// TestLayersUnknown holds a dataset whose layers nobody named against nothing: that is
// doubtful by itself.
func TestLayersUnknown(t *testing.T) {
	t.Parallel()
	for name, role := range map[string]format.Role{"unknown": format.RoleBlock, "known": format.RoleLayer} {
		s := hsxtest.Sample(hsxtest.Spec{Hidden: 4, Layers: []format.Layer{2, 30}}, 0, 5)
		for i := range s.Hidden {
			s.Hidden[i].State.Role, s.Hidden[i].State.Block = role, i
			if role == format.RoleBlock {
				s.Hidden[i].State.Layer = 0
			} else {
				s.Hidden[i].State.Block = 0
			}
		}
		_, ds := writeDataset(t, 1<<20, s)
		r, err := Run(t.Context(), ds, Input{}, Options{Only: []string{ruleLayersUnknown}})
		if err != nil {
			t.Fatal(err)
		}
		if want := role == format.RoleBlock; want != (r.Verdict == Doubtful) || want && !strings.Contains(r.Groups[0].Findings[0].Message, "2 blocks") {
			t.Errorf("%s: Run: got verdict %s and %+v", name, r.Verdict, r.Groups)
		}
	}
}

func TestRunNothing(t *testing.T) {
	t.Parallel()
	_, ds := writeDataset(t, 1<<20)
	if r, err := Run(t.Context(), ds, Input{}, Options{}); err == nil || !strings.Contains(err.Error(), "holds no samples") {
		t.Errorf("Run of an empty dataset: got %+v, %v, want an error that says so", r, err)
	}
}
