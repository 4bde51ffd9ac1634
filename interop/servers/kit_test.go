//go:build servers

// Package servers_test runs hsx bench against real servers on the CPU: vLLM without
// speculation, with a trained EAGLE-3 draft and with n-gram lookup, and llama.cpp's
// where it is installed. What hsx reports is held against the servers' own counters.
//
// HSX_BIN is the program, HSX_VLLM and HSX_LLAMACPP are virtual environments (the
// second may be empty), HSX_MODELS the directory of the tiny models, HSX_PLUG that of
// the connector that keeps hidden states on a CPU.
package servers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hsx/bench"
)

func env(t *testing.T, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set, want it as `make servers` sets it", name)
	}
	return v
}

// freePort is one that nobody listens on at the moment.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// started is a server of this test.
type started struct {
	url string
	cmd *exec.Cmd
	log string
}

// start runs a server in a process group of its own until the test ends, and waits
// until it is healthy.
func start(t *testing.T, port, name string, args ...string) *started {
	t.Helper()
	s := &started{url: "http://127.0.0.1:" + port, cmd: exec.Command(name, args...), log: filepath.Join(t.TempDir(), "server.log")}
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(t) })
	for deadline := time.Now().Add(4 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		if resp, err := http.Get(s.url + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(deadline) || syscall.Kill(s.cmd.Process.Pid, 0) != nil {
			text, _ := os.ReadFile(s.log)
			t.Fatalf("%s is not healthy:\n%s", s.url, tail(string(text), 3000))
		}
	}
}

// stop ends the server and all that it started.
func (s *started) stop(t *testing.T) {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGTERM)
	done := make(chan error, 1)
	go func() { done <- s.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
}

func startVLLM(t *testing.T, steps string, args ...string) *started {
	t.Helper()
	port := freePort(t)
	return start(t, port, "./serve-vllm.sh", append([]string{env(t, "HSX_VLLM"), env(t, "HSX_MODELS"), steps, port}, args...)...)
}

// counters are the sums of a server's own series, read without any code of hsx.
func (s *started) counters(t *testing.T, auth string) map[string]float64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if auth != "" {
		req.Header.Set("Authorization", "Bearer "+auth)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, m := range regexp.MustCompile(`(?m)^[a-z]+:(\w+_total)(?:\{(.*)\})? ([0-9.e+]+)$`).FindAllStringSubmatch(string(text), -1) {
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		name := m[1]
		if at := regexp.MustCompile(`position="(\d+)"`).FindStringSubmatch(m[2]); at != nil {
			name += " " + at[1]
		}
		out[name] += v
	}
	return out
}

// grown is how much each counter grew.
func grown(before, after map[string]float64) map[string]float64 {
	out := map[string]float64{}
	for name, v := range after {
		out[name] = v - before[name]
	}
	return out
}

// hsx runs the program and returns its exit code and both outputs.
func hsx(t *testing.T, args ...string) (code int, out, talk string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), env(t, "HSX_BIN"), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()
}

// benchRun is a measurement with --json, its report, and its journal.
func benchRun(t *testing.T, args ...string) (*bench.Report, *bench.Log) {
	t.Helper()
	journal := filepath.Join(t.TempDir(), "bench.jsonl")
	code, out, talk := hsx(t, append([]string{"bench", "--json", "--journal", journal, "--dataset", "prompts.jsonl", "--prompts", "12"}, args...)...)
	if code != 0 {
		t.Fatalf("exit %d, want 0\n%s%s", code, talk, tail(out, 3000))
	}
	return decodeReport(t, out), readJournal(t, journal)
}

func decodeReport(t *testing.T, text string) *bench.Report {
	t.Helper()
	r := &bench.Report{}
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%v\n%s", err, tail(text, 1000))
	}
	return r
}

func readJournal(t *testing.T, path string) *bench.Log {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, err := bench.ReadLog(f)
	if err != nil {
		t.Fatal(err)
	}
	return log
}

// total adds up a figure of every request of an arm, warm-up, retried passes and the
// probe included: all that the server can have counted.
func total(log *bench.Log, arm string, of func(r *bench.Request) float64) float64 {
	sum := 0.0
	for i := range log.Passes {
		for j := range log.Passes[i].Requests {
			if r := &log.Passes[i].Requests[j]; r.Arm == arm {
				sum += of(r)
			}
		}
	}
	for _, a := range log.Arms {
		if a.Arm == arm {
			sum += of(&bench.Request{Outcome: a.Info.Probe})
		}
	}
	return sum
}

func wantEqual(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want the server's own %v", what, got, want)
	}
}

func tail(s string, n int) string {
	if len(s) > n {
		return "… " + s[len(s)-n:]
	}
	return s
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

func wantText(t *testing.T, text string, parts ...string) {
	t.Helper()
	flat := strings.Join(strings.Fields(text), " ")
	for _, p := range parts {
		if !strings.Contains(flat, p) {
			t.Errorf("output lacks %q:\n%s", p, text)
		}
	}
}
