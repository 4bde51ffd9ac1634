package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hsx/bench"
)

// journalFile measures into a new file, and returns its name and what is in it.
func journalFile(t *testing.T, p bench.Plan) (string, []byte) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "bench.jsonl")
	j, err := bench.CreateJournal(name)
	if err != nil {
		t.Fatalf("CreateJournal: got error %v, want none", err)
	}
	if err := errors.Join(bench.Run(t.Context(), p, j, bench.Options{Dial: (&runServers{}).link}), j.Close(), j.Close()); err != nil {
		t.Fatalf("Run and Close, twice: got error %v, want none", err)
	}
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return name, data
}

func TestJournalIsPrivateAndNew(t *testing.T) {
	t.Parallel()
	name, _ := journalFile(t, runPlan("spec"))
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode: got %v, want %v", info.Mode(), os.FileMode(0o600))
	}
	if _, err := bench.CreateJournal(name); !errors.Is(err, os.ErrExist) {
		t.Errorf("CreateJournal over one that exists: got error %v, want %v", err, os.ErrExist)
	}
}

func TestJournalLines(t *testing.T) {
	t.Parallel()
	_, data := journalFile(t, runPlan("spec"))
	var types []string
	for line := range bytes.Lines(data) {
		var head struct{ Type string }
		if err := json.Unmarshal(line, &head); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		if n := len(types); n == 0 || types[n-1] != head.Type {
			types = append(types, head.Type)
		}
	}
	want := "plan arm event begin request pass begin request pass begin request pass end"
	if got := strings.Join(types, " "); got != want {
		t.Errorf("types of lines, repetitions left out: got %q, want %q", got, want)
	}
	if head := `{"type":"plan","journal":1,"began":`; !bytes.HasPrefix(data, []byte(head)) {
		t.Errorf("first line: got %.80s, want it to begin %s", data, head)
	}
}

func TestJournalText(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		keep bool
		want int
	}{"kept": {true, 1}, "not kept": {false, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := runPlan("spec")
			p.Runs, p.WarmUpRuns, p.KeepText = 1, 0, tt.keep
			_, data := journalFile(t, p)
			for _, member := range []string{`"answer":"re: three"`, `"thinking":"hm"`} {
				if got := bytes.Count(data, []byte(member)); (got > 0) != (tt.want > 0) {
					t.Errorf("journal: has %s %d times, want it: %v", member, got, tt.keep)
				}
			}
		})
	}
}

func TestJournalHidesSecrets(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ url, launch, want string }{
		"password of a URL":   {"https://me:hunter2@host:1/v1", "", "https://me:xxxxx@host:1/v1"},
		"key in a URL":        {"https://host/v1?api_key=hunter2&x=1", "", `https://host/v1?api_key=xxxxx\u0026x=1`},
		"no URL":              {"https://me:hunter%2@host", "", `"url":"xxxxx"`},
		"flags":               {"", "serve --api-key hunter2 --hf-token=hunter2 --port 1", "serve --api-key xxxxx --hf-token=xxxxx --port 1"},
		"environment":         {"", "TOKEN=hunter2 MY_API_KEY='hunter2 hunter2' serve", "TOKEN=xxxxx MY_API_KEY=xxxxx serve"},
		"header":              {"", `serve --header "Authorization: Bearer hunter2" --port 1`, `Authorization: Bearer xxxxx\" --port 1`},
		"nothing of the kind": {"", "serve --max-total-tokens 4096 --tokenizer t --port 1", "serve --max-total-tokens 4096 --tokenizer t --port 1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := runPlan("spec")
			p.Arms[0].URL, p.Arms[0].Launch, p.Command = tt.url, tt.launch, tt.launch
			var data bytes.Buffer
			down := errors.New("down")
			err := bench.Run(t.Context(), p, bench.NewJournal(&data, "x"), bench.Options{
				Dial: func(context.Context, bench.Arm) (*bench.Link, error) { return nil, down },
			})
			if !errors.Is(err, down) {
				t.Fatalf("Run: got error %v, want %v", err, down)
			}
			if got := data.String(); strings.Contains(got, "hunter2") || !strings.Contains(got, tt.want) {
				t.Errorf("journal: want %q and no password in it:\n%s", tt.want, got)
			}
		})
	}
}

// A disk that is full ends the measurement; what it took is there.
func TestJournalDiskFull(t *testing.T) {
	t.Parallel()
	_, whole := journalFile(t, runPlan("spec"))
	for _, room := range []int{0, 100, len(whole) / 2, len(whole) * 3 / 4, len(whole) - 200} {
		w := &runBroken{room: room, err: unix.ENOSPC}
		servers := &runServers{}
		err := bench.Run(t.Context(), runPlan("spec"), bench.NewJournal(w, "some.jsonl"), bench.Options{Dial: servers.link})
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "write journal some.jsonl: no space left on device; what is in it so far is kept") {
			t.Errorf("Run with room for %d of %d bytes: got error %v, want one that says where and why", room, len(whole), err)
		}
		if strings.Count(err.Error(), "some.jsonl") != 1 {
			t.Errorf("Run: got error %q, want it to be said once", err)
		}
		if room < len(whole)/2 {
			continue // not even the plan is whole
		}
		log := runRead(t, w.Bytes())
		if len(log.Passes) == 0 || log.End != nil {
			t.Errorf("room for %d bytes: got %d passes and end %+v, want some and none", room, len(log.Passes), log.End)
		}
	}
}

// A writer that takes less than it is given, without an error, has lost the rest.
func TestJournalShortWrite(t *testing.T) {
	t.Parallel()
	err := bench.Run(t.Context(), runPlan("spec"), bench.NewJournal(&runBroken{room: 1000}, "some.jsonl"), bench.Options{Dial: (&runServers{}).link})
	if err == nil || !strings.Contains(err.Error(), "short write") {
		t.Errorf("Run: got error %v, want a short write", err)
	}
}

func TestJournalIsLocked(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "bench.jsonl")
	j, err := bench.CreateJournal(name)
	if err != nil {
		t.Fatalf("CreateJournal: got error %v, want none", err)
	}
	if _, _, err := bench.ResumeJournal(name); err == nil || !strings.Contains(err.Error(), "another hsx is writing to it") {
		t.Errorf("ResumeJournal of one that is being written: got error %v, want that", err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("Close: got error %v, want none", err)
	}
	if _, _, err := bench.ResumeJournal(name); err == nil || !strings.Contains(err.Error(), "nothing was measured yet") {
		t.Errorf("ResumeJournal of an empty one: got error %v, want that", err)
	}
}
