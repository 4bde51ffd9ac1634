package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hsx/format"
	"hsx/format/safetensors"
	"hsx/shard"
)

// sent is sample n as a client posts it.
func sent(n int) (id string, body []byte) { return sentLong(n, 40) }

// sentLong is the same, of so many tokens.
func sentLong(n, tokens int) (id string, body []byte) {
	const hidden = 16
	id = fmt.Sprintf("run/%d", n)
	ids, state := make([]byte, 8*tokens), make([]byte, 2*tokens*hidden)
	for i := range tokens {
		binary.LittleEndian.PutUint64(ids[8*i:], uint64(n+i))
	}
	for i := range tokens * hidden {
		binary.LittleEndian.PutUint16(state[2*i:], uint16(0x3f80+n%64))
	}
	var b bytes.Buffer
	err := safetensors.Encode(&b, []*format.Tensor{
		{Name: "input_ids", DType: format.Int64, Shape: []int64{int64(tokens)}, Data: ids},
		{Name: "layer_2", DType: format.BFloat16, Shape: []int64{int64(tokens), hidden}, Data: state},
	}, map[string]string{"hsx.id": id})
	if err != nil {
		panic(err) // a buffer takes everything
	}
	return id, b.Bytes()
}

// serving is hsx serve as a process of its own.
type serving struct {
	cmd  *exec.Cmd
	url  string
	grpc string // host and port of --flight
	out  bytes.Buffer
	talk bytes.Buffer
	done chan error
}

func startServing(t *testing.T, cmd *exec.Cmd) *serving {
	t.Helper()
	s := &serving{cmd: cmd, done: make(chan error, 1)}
	cmd.Stdout = &s.out
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(io.TeeReader(stderr, &s.talk))
	for s.url == "" {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("serve ended before it listened: %v\n%s", errors.Join(err, cmd.Wait()), s.talk.String())
		}
		if after, ok := strings.CutPrefix(line, "listening on "); ok {
			s.url, after, _ = strings.Cut(after, ",")
			_, after, _ = strings.Cut(after, "grpc://")
			s.grpc, _, _ = strings.Cut(after, ",")
		}
	}
	go func() {
		_, _ = io.Copy(io.Discard, lines) // until it ends
		s.done <- cmd.Wait()
	}()
	return s
}

// end sends ^C and wants the exit code of that.
func (s *serving) end(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-s.done; err == nil {
		t.Fatal("serve: exit 0 after ^C")
	}
	if code := s.cmd.ProcessState.ExitCode(); code != exitInterrupted {
		t.Fatalf("serve: exit %d, want %d\n%s", code, exitInterrupted, s.talk.String())
	}
}

// post is 0 when nobody answers.
func post(url string, n int) (code int, text string) {
	id, body := sent(n)
	return postBody(url, id, body)
}

func postBody(url, id string, body []byte) (code int, text string) {
	res, err := http.Post(url+"/v1/samples/"+strings.ReplaceAll(id, "/", "%2F"), "", bytes.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = res.Body.Close() }() // read as far as it goes
	data, _ := io.ReadAll(res.Body)         // the code is what counts
	return res.StatusCode, string(data)
}

// checkServed wants each acknowledged sample to be there once, as it was sent.
func checkServed(t *testing.T, ds string, acknowledged []int) {
	t.Helper()
	if code, out, talk := hsx("verify", ds); code != exitDone {
		t.Fatalf("verify: exit %d\n%s%s", code, out, talk)
	}
	data, err := shard.Open(ds)
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for s, err := range data.Samples(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if have[s.ID]++; have[s.ID] > 1 {
			t.Errorf("sample %s is there twice", s.ID)
		}
		if want := binary.LittleEndian.Uint16(s.Hidden[0].Rows.Data); want != uint16(0x3f80+int(s.Tokens[0])%64) {
			t.Errorf("sample %s has states of another", s.ID)
		}
	}
	for _, n := range acknowledged {
		if id, _ := sent(n); have[id] != 1 {
			t.Errorf("sample %s was acknowledged and is there %d times", id, have[id])
		}
	}
}

// killServing kills a receiver and starts it again, at most so often and while clients
// have more to send: each time after up to some more answers of those that got counts,
// and a while. It returns the receiver that runs, and the number of kills.
func killServing(t *testing.T, s *serving, args []string, kills int, answers int64, while time.Duration, more func() bool, got *atomic.Int64, began func(*serving)) (*serving, int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	killed := 0
	for ; killed < kills && more(); killed++ {
		before := got.Load()
		for end := time.Now().Add(10 * time.Second); got.Load() < before+rng.Int64N(answers) && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(while))))
		_ = s.cmd.Process.Kill() // it may have ended
		if err := <-s.done; err == nil {
			t.Error("serve: exit 0 after a kill")
		}
		s = startServing(t, process(t, args...))
		began(s)
	}
	return s, killed
}

// TestServeKill kills the receiver at any instant while clients send: what was
// acknowledged is there, once.
func TestServeKill(t *testing.T) {
	t.Parallel()
	const clients, each, kills = 8, 25, 12
	ds := filepath.Join(t.TempDir(), "ds")
	args := []string{"serve", "--out", ds, "--listen", "127.0.0.1:0", "--commit-window", "3ms"}
	var url atomic.Value
	s := startServing(t, process(t, args...))
	url.Store(s.url)
	var wg sync.WaitGroup
	var got atomic.Int64
	for c := range clients {
		wg.Go(func() {
			for i := range each {
				for n, end := c*each+i, time.Now().Add(time.Minute); ; {
					code, text := post(url.Load().(string), n)
					if code == 200 || code == 201 {
						got.Add(1)
						break
					}
					if code != 0 && code != 503 && code != 429 || time.Now().After(end) {
						t.Errorf("sample %d: got %d %s", n, code, text)
						break
					}
					time.Sleep(5 * time.Millisecond)
				}
			}
		})
	}
	s, killed := killServing(t, s, args, kills, 20, 5*time.Millisecond, func() bool { return got.Load() < clients*each }, &got, func(s *serving) { url.Store(s.url) })
	wg.Wait()
	s.end(t)
	t.Logf("%d kills", killed)
	if killed < 3 {
		t.Errorf("clients were done after %d kills, want some more", killed)
	}
	all := make([]int, clients*each)
	for i := range all {
		all[i] = i
	}
	checkServed(t, ds, all)
	if left, err := filepath.Glob(ds + ".spool/*"); err != nil || len(left) > 0 {
		t.Errorf("spool has %v (error %v), want nothing", left, err)
	}
}

// TestServeDiskFull has the receiver meet the limit on files: it says so and ends,
// and the next one goes on.
func TestServeDiskFull(t *testing.T) {
	t.Parallel()
	ds := filepath.Join(t.TempDir(), "ds")
	script := `ulimit -f 40; exec "$0" "$@"` // of 512 bytes: the manifest grows past it
	limited := exec.CommandContext(t.Context(), "sh", "-c", script, hsxLink(t), "serve", "--out", ds, "--listen", "127.0.0.1:0", "--commit-window", "1ms")
	limited.Env = append(os.Environ(), "GORACE="+noSleep)
	s := startServing(t, limited)
	var acknowledged []int
	refused, last := 0, ""
	for n := range 200 {
		code, text := post(s.url, n)
		if code == 201 {
			acknowledged = append(acknowledged, n)
		} else if refused++; code == 0 {
			break
		}
		last = fmt.Sprint(code, text)
	}
	select {
	case err := <-s.done:
		if s.cmd.ProcessState.ExitCode() != exitFailed {
			t.Fatalf("serve with a full disk: %v, want exit %d\n%s", err, exitFailed, s.talk.String())
		}
	case <-time.After(time.Minute):
		t.Fatalf("serve with a full disk goes on after %d samples that it took and %d that it did not, the last answer was %s", len(acknowledged), refused, last)
	}
	if !strings.Contains(s.talk.String(), "make room") {
		t.Errorf("talk is %q, want a hint to make room", s.talk.String())
	}
	if len(acknowledged) == 0 || refused == 0 {
		t.Fatalf("%d acknowledged and %d not, want some of both", len(acknowledged), refused)
	}
	checkServed(t, ds, acknowledged)
	s = startServing(t, process(t, "serve", "--out", ds, "--listen", "127.0.0.1:0", "--json"))
	for n := range len(acknowledged) + refused {
		if code, text := post(s.url, n); code != 200 && code != 201 {
			t.Errorf("sample %d after the disk had room: got %d %s", n, code, text)
		}
		acknowledged = append(acknowledged, n)
	}
	s.end(t)
	checkServed(t, ds, acknowledged)
	var doc struct {
		Rows, Known int
		Interrupted bool
	}
	if err := json.Unmarshal(s.out.Bytes(), &doc); err != nil || doc.Rows < len(acknowledged)/2 || doc.Known == 0 || !doc.Interrupted {
		t.Errorf("result is %s (error %v), want the rows, those known, and interrupted", s.out.Bytes(), err)
	}
}

func TestServeUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty, lines := filepath.Join(dir, "empty"), filepath.Join(dir, "lines")
	if err := errors.Join(os.WriteFile(empty, []byte("\n"), 0o600), os.WriteFile(lines, []byte("one\ntwo\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no dataset":       {nil, "--out is missing"},
		"reachable":        {[]string{"--listen", ":0"}, "can be reached from other machines"},
		"port alone":       {[]string{"--listen", "8600"}, `--listen: "8600" is not an address, want HOST:PORT or :PORT`},
		"no address":       {[]string{"--listen", ""}, "--listen: the text is empty"},
		"flight's port":    {[]string{"--flight", "8601"}, `--flight: "8601" is not an address`},
		"reachable by ip":  {[]string{"--listen", "0.0.0.0:0"}, "can be reached"},
		"empty token":      {[]string{"--token-file", empty}, "is empty"},
		"unset token":      {[]string{"--token-env", "HSX_NO_SUCH_VARIABLE"}, "not set or empty"},
		"token as a name":  {[]string{"--token-env", "sk-proj-secret"}, "the variable (not shown) is not set or empty"},
		"two lines":        {[]string{"--token-file", lines}, "holds no single line"},
		"two tokens":       {[]string{"--token-env", "A", "--token-file", "b"}, "pass one of them"},
		"client ca alone":  {[]string{"--client-ca", empty}, "it needs --tls-cert"},
		"no size":          {[]string{"--max-body", "big"}, "--max-body"},
		"body over quota":  {[]string{"--max-body", "2GiB", "--spool-bytes", "1GiB"}, "is more than --spool-bytes"},
		"no window":        {[]string{"--commit-window", "0s"}, "not a time to wait"},
		"no connections":   {[]string{"--max-conns", "0"}, "too few"},
		"reachable flight": {[]string{"--flight", ":0"}, "--flight: :0 can be reached from other machines"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"serve"}, c.args...)
			if name != "no dataset" {
				args = append(args, "--out", filepath.Join(dir, "ds"))
			}
			if code, _, talk := hsx(args...); code != exitUsage || !strings.Contains(talk, c.want) {
				t.Errorf("exit %d, %s; want %d with %q", code, talk, exitUsage, c.want)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "ds")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a wrong command line made the dataset (error %v)", err)
	}
}

// TestServeAddressTaken has no dataset left behind by an address that is of no use.
func TestServeAddressTaken(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for _, args := range [][]string{
		{"--listen", l.Addr().String()},
		{"--listen", "127.0.0.1:0", "--flight", l.Addr().String()},
	} {
		ds := filepath.Join(t.TempDir(), "ds")
		flag := args[len(args)-2]
		if code, _, talk := hsx(append([]string{"serve", "--out", ds}, args...)...); code != exitFailed || !strings.Contains(talk, flag+": ") || !strings.Contains(talk, "address already in use") {
			t.Errorf("exit %d, %s; want %d, %s and that the address is in use", code, talk, exitFailed, flag)
		}
		if _, err := os.Stat(ds); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s made the dataset (error %v)", args, err)
		}
	}
}
