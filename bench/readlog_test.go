package bench_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench"
)

const (
	readlogPlan  = `{"type":"plan","journal":1,"began":"2026-01-02T03:04:05Z","arms":[{"name":"a"}],"runs":2}` + "\n"
	readlogBegin = `{"type":"begin","arm":"a","level":{"concurrency":1},"run":1}` + "\n"
	readlogReq   = `{"type":"request","arm":"a","level":{"concurrency":1},"run":1,"prompt":"p","sent_ns":5,"done_ns":7,"sent":"2026-01-02T03:04:05Z","answer":"long"}` + "\n"
	readlogPass  = `{"type":"pass","arm":"a","level":{"concurrency":1},"run":1,"complete":true,"wall_ns":9}` + "\n"
	readlogEnd   = `{"type":"end","at":"2026-01-02T03:04:05Z"}` + "\n"
)

func TestReadLog(t *testing.T) {
	t.Parallel()
	type summary struct {
		Passes   []string
		Requests []int
		Events   []string
		Arms     int
		End      bool
		Torn     bool
	}
	tests := map[string]struct {
		journal string
		want    summary
		err     string
	}{
		"whole":                 {readlogPlan + readlogBegin + readlogReq + readlogPass + readlogEnd, summary{Passes: []string{"a 1"}, Requests: []int{1}, End: true}, ""},
		"only a plan":           {readlogPlan, summary{}, ""},
		"killed":                {readlogPlan + readlogBegin + readlogReq + readlogReq, summary{Passes: []string{"a 1!"}, Requests: []int{2}}, ""},
		"killed at once":        {readlogPlan + readlogBegin, summary{Passes: []string{"a 1!"}, Requests: []int{0}}, ""},
		"torn":                  {readlogPlan + readlogBegin + readlogReq + readlogPass[:30], summary{Passes: []string{"a 1!"}, Requests: []int{1}, Torn: true}, ""},
		"torn at its end":       {readlogPlan + readlogBegin + readlogReq + strings.TrimSuffix(readlogPass, "\n"), summary{Passes: []string{"a 1!"}, Requests: []int{1}, Torn: true}, ""},
		"torn into zeros":       {readlogPlan + "\x00\x00\x00\x00", summary{Torn: true}, ""},
		"second try":            {readlogPlan + readlogBegin + readlogReq + readlogReq + readlogBegin + readlogReq + readlogPass, summary{Passes: []string{"a 1"}, Requests: []int{1}}, ""},
		"later pass wins":       {readlogPlan + readlogBegin + readlogReq + readlogPass + readlogBegin, summary{Passes: []string{"a 1!"}, Requests: []int{0}}, ""},
		"resumed after its end": {readlogPlan + readlogEnd + `{"type":"event","at":"2026-01-02T03:04:05Z","text":"resumed"}` + "\n", summary{Events: []string{"resumed"}}, ""},
		"without begin":         {readlogPlan + readlogReq + readlogPass, summary{Passes: []string{"a 1"}, Requests: []int{1}}, ""},
		"arms":                  {readlogPlan + `{"type":"arm","arm":"a","info":{"engine":"vllm"}}` + "\n", summary{Arms: 1}, ""},
		"unknown":               {readlogPlan + `{"type":"weather","sky":[1]}` + "\n" + strings.Replace(readlogPass, "{", `{"later":{"x":1},`, 1), summary{Passes: []string{"a 1"}, Requests: []int{0}}, ""},

		"empty":         {"", summary{}, "read journal: no whole line in it, want a plan: nothing was measured yet"},
		"torn plan":     {readlogPlan[:50], summary{}, "read journal: no whole line in it, want a plan: nothing was measured yet"},
		"other version": {strings.Replace(readlogPlan, `"journal":1`, `"journal":2`, 1), summary{}, "read journal: line 1: is of a journal of version 2, want 1"},
		"no plan":       {readlogPass, summary{}, `read journal: line 1: has type "pass", want a plan in the first line and nowhere else`},
		"two plans":     {readlogPlan + readlogPlan, summary{}, `read journal: line 2: has type "plan", want a plan in the first line and nowhere else`},
		"damaged":       {readlogPlan + readlogBegin + readlogReq[:50] + "\n" + readlogPass, summary{}, "read journal: line 3: no JSON object: unexpected end of JSON input"},
		"wrong type":    {readlogPlan + strings.Replace(readlogReq, `"p"`, `7`, 1), summary{}, "read journal: line 2: request: json: cannot unmarshal number"},
		"not a journal": {"hello\n", summary{}, "read journal: line 1: no JSON object: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, err := bench.ReadLog(strings.NewReader(tt.journal))
			if tt.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tt.err) {
					t.Errorf("ReadLog: got error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("ReadLog: got error %v, want none", err)
			}
			got := summary{Passes: runKeys(log), Events: log.Events, Arms: len(log.Arms), End: log.End != nil, Torn: log.Torn}
			for _, p := range log.Passes {
				got.Requests = append(got.Requests, len(p.Requests))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("ReadLog (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadLogMembers(t *testing.T) {
	t.Parallel()
	log := runRead(t, []byte(readlogPlan+readlogBegin+readlogReq+readlogPass))
	r := log.Passes[0].Requests[0]
	if r.Prompt != "p" || r.Sent != 5 || r.Done != 7 || r.Outcome.Sent.Year() != 2026 || r.Answer != "" {
		t.Errorf("request: got %+v, want prompt p, sent 5 ns into the pass in 2026, done after 7, and no text", r)
	}
	if log.Plan.Runs != 2 || log.Plan.Arms[0].Name != "a" || log.Began.Year() != 2026 || log.Passes[0].Wall != 9 {
		t.Errorf("plan: got %+v, begun %v, want 2 runs of a in 2026", log.Plan, log.Began)
	}
}

// Whatever is cut off, what is read is what was whole.
func TestReadLogPrefixes(t *testing.T) {
	t.Parallel()
	p := runPlan("spec")
	p.WarmUpRuns = 0
	_, whole := journalFile(t, p)
	head := bytes.IndexByte(whole, '\n') + 1
	for cut := range len(whole) + 1 {
		log, err := bench.ReadLog(bytes.NewReader(whole[:cut]))
		if (err != nil) != (cut < head) {
			t.Fatalf("ReadLog of %d of %d bytes: got error %v", cut, len(whole), err)
		}
		if err != nil {
			continue
		}
		if torn := whole[cut-1] != '\n'; log.Torn != torn {
			t.Fatalf("ReadLog of %d bytes: got torn %v, want %v", cut, log.Torn, torn)
		}
		want := bytes.Count(whole[:cut], []byte(`"complete":true}`+"\n"))
		got := 0
		for _, p := range log.Passes {
			if p.Complete {
				got++
			}
		}
		if got != want {
			t.Fatalf("ReadLog of %d bytes: got %d complete passes, want %d", cut, got, want)
		}
	}
}

func TestReadLogLongLine(t *testing.T) {
	t.Parallel()
	answer := strings.Repeat("x", 1<<20)
	log := runRead(t, []byte(readlogPlan+strings.Replace(readlogReq, "long", answer, 1)+readlogPass))
	if len(log.Passes) != 1 || len(log.Passes[0].Requests) != 1 {
		t.Errorf("journal with a line of 1 MiB: got %d passes, want one of one request", len(log.Passes))
	}
}

// Whatever is read gives passes with keys of their own, whose requests are theirs; and
// the remains of a kill at its end change nothing.
func FuzzReadLog(f *testing.F) {
	f.Add([]byte(readlogPlan + readlogBegin + readlogReq + readlogPass + readlogEnd))
	f.Add([]byte(readlogPlan + readlogReq + readlogBegin + readlogReq + readlogPass + readlogPass))
	f.Add([]byte(readlogPlan + `{"type":"arm","arm":"a","info":{"engine":"vllm"}}` + "\n" + readlogPass[:40]))
	f.Fuzz(func(t *testing.T, data []byte) {
		log, err := bench.ReadLog(bytes.NewReader(data))
		if err != nil {
			if !strings.HasPrefix(err.Error(), "read journal: ") {
				t.Errorf("ReadLog: got error %q, want it to say what it is of", err)
			}
			return
		}
		seen := map[bench.Key]bool{}
		for _, p := range log.Passes {
			if seen[p.Key] {
				t.Errorf("ReadLog: two passes of %v, want one", p.Key)
			}
			seen[p.Key] = true
			for _, r := range p.Requests {
				if r.Key != p.Key || r.Answer != "" {
					t.Errorf("pass %v: has request %+v", p.Key, r)
				}
			}
		}
		if _, err := json.Marshal(log); err != nil {
			t.Errorf("log that was read: %v", err)
		}
		whole := data[:bytes.LastIndexByte(data, '\n')+1]
		torn, err := bench.ReadLog(bytes.NewReader(append(bytes.Clone(whole), `{"type":"pass"`...)))
		if err != nil {
			t.Fatalf("ReadLog with a torn line after it: got error %v, want none", err)
		}
		log.Torn = true
		if diff := cmp.Diff(log, torn); diff != "" {
			t.Errorf("ReadLog with a torn line after it (-without +with):\n%s", diff)
		}
	})
}
