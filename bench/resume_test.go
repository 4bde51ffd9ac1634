package bench_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
	"hsx/bench/server"
)

// A measurement that is killed at any place is the same after it was resumed as one
// that was not.
func TestResumeAfterKill(t *testing.T) {
	t.Parallel()
	p := runPlan("spec", "base")
	name, whole := journalFile(t, p)
	want := runKeys(runRead(t, whole))
	slices.Sort(want)
	end := 0
	first := bytes.IndexByte(whole, '\n') + 1
	for line := range bytes.Lines(whole) {
		start := end
		end += len(line)
		if bytes.Contains(line, []byte(`"prompt":"w"`)) {
			continue // one line of a warm-up is like another
		}
		for _, cut := range []int{(start + end) / 2, end - 1, end} {
			if err := os.WriteFile(name, whole[:cut], 0o600); err != nil {
				t.Fatal(err)
			}
			j, log, err := bench.ResumeJournal(name)
			if cut < first {
				if err == nil {
					t.Fatalf("ResumeJournal of %d bytes, less than the plan: got no error", cut)
				}
				continue
			}
			if err != nil {
				t.Fatalf("ResumeJournal of %d bytes: got error %v, want none", cut, err)
			}
			servers := &runServers{}
			if err := bench.Run(t.Context(), p, j, bench.Options{Dial: servers.link, Resume: log}); err != nil {
				t.Fatalf("Run after a kill at byte %d: got error %v, want none", cut, err)
			}
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			resumed := runRead(t, data)
			got := runKeys(resumed)
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("passes after a kill at byte %d (-want +got):\n%s", cut, diff)
			}
			for _, pass := range resumed.Passes {
				if n := len(pass.Requests); !pass.WarmUp && n != 3 {
					t.Errorf("kill at byte %d: %v has %d requests, want 3", cut, pass.Key, n)
				}
			}
			if resumed.End == nil || resumed.Torn {
				t.Errorf("kill at byte %d: got end %+v, torn %v", cut, resumed.End, resumed.Torn)
			}
			kept := 0
			for _, pass := range log.Passes {
				if pass.Complete && !pass.WarmUp {
					kept++
				}
			}
			if measured := strings.Count(strings.Join(servers.log, "\n"), "{user three}"); measured != 4-kept {
				t.Errorf("kill at byte %d: measured %d runs, want the %d that were not complete", cut, measured, 4-kept)
			}
		}
	}
}

func TestResumeRefuses(t *testing.T) {
	t.Parallel()
	name, _ := journalFile(t, runPlan("spec", "base"))
	tests := map[string]struct {
		change func(p *bench.Plan)
		probe  func(arm string) (*server.Info, error)
		want   string
	}{
		"runs":       {func(p *bench.Plan) { p.Runs = 3 }, nil, "runs: the journal has 2, this one 3"},
		"prompts":    {func(p *bench.Plan) { p.Prompts = p.Prompts[:1] }, nil, "number of prompts: the journal has 2, this one 1"},
		"other text": {func(p *bench.Plan) { p.Prompts[0].Turns[0] = "uno" }, nil, "digest of the prompts: the journal has "},
		"levels":     {func(p *bench.Plan) { p.Levels[0].Concurrency = 8 }, nil, `levels: the journal has [{"concurrency":2}], this one [{"concurrency":8}]`},
		"parameters": {func(p *bench.Plan) { p.Params.Temperature = 1 }, nil, "parameters of requests: the journal has "},
		"arm":        {func(p *bench.Plan) { p.Arms[0].URL = "http://other" }, nil, "arms: the journal has "},
		"seed":       {func(p *bench.Plan) { p.Seed++ }, nil, "seed: the journal has 7, this one 8"},
		"other server": {func(*bench.Plan) {}, func(arm string) (*server.Info, error) {
			info := runInfo(arm)
			info.Model = "n"
			return info, nil
		}, `spec is not the server that was measured: model: was "m", is "n"`},
	}
	for name2, tt := range tests {
		t.Run(name2, func(t *testing.T) {
			t.Parallel()
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			// The end is cut off, so that there is something left to measure.
			cut := filepath.Join(t.TempDir(), "bench.jsonl")
			if err := os.WriteFile(cut, data[:len(data)*3/4], 0o600); err != nil {
				t.Fatal(err)
			}
			j, log, err := bench.ResumeJournal(cut)
			if err != nil {
				t.Fatalf("ResumeJournal: got error %v, want none", err)
			}
			p, servers := runPlan("spec", "base"), &runServers{probe: tt.probe}
			tt.change(&p)
			err = bench.Run(t.Context(), p, j, bench.Options{Dial: servers.link, Resume: log})
			if err == nil || !strings.HasPrefix(err.Error(), "resume "+cut+": ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Run: got error %v, want %q", err, tt.want)
			}
			if servers.n != 0 {
				t.Errorf("requests: got %d, want none", servers.n)
			}
			if err := j.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
