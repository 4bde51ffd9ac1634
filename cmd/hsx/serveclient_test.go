package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hsx/capture/receive"
)

// send is a client as a process of its own: it posts the samples from its second
// argument up to the third, and each until it is acknowledged.
func send() {
	from, _ := strconv.Atoi(os.Args[2])
	to, _ := strconv.Atoi(os.Args[3])
	for n := from; n < to; n++ {
		for {
			if code, _ := post(os.Args[1], n); code == http.StatusOK || code == http.StatusCreated {
				break
			}
			time.Sleep(time.Millisecond) // the receiver is asked again
		}
	}
}

// status is what the receiver says of itself.
func (s *serving) status(t *testing.T) (st receive.Status) {
	t.Helper()
	res, err := http.Get(s.url + "/v1/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	if err := json.NewDecoder(res.Body).Decode(&st); err != nil {
		t.Fatal(err)
	}
	return st
}

// quiet waits until nothing is on its way any more.
func (s *serving) quiet(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		switch st := s.status(t); {
		case st.Receiving == 0 && st.SpoolBytes == 0 && st.Pending == 0:
			return
		case time.Now().After(end):
			t.Fatalf("status is %+v, want nothing on its way", st)
		}
	}
}

// TestServeClientKill kills clients at any instant, again and again: the receiver gives
// back what they took, and what the next one sends again is kept once.
func TestServeClientKill(t *testing.T) {
	t.Parallel()
	const clients, each, kills = 3, 30, 12
	ds := filepath.Join(t.TempDir(), "ds")
	s := startServing(t, process(t, "serve", "--out", ds, "--listen", "127.0.0.1:0", "--commit-window", "2ms"))
	done := make(chan int, clients) // kills of a client
	for c := range clients {
		go func() {
			rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), uint64(c)))
			killed := 0
			for ; killed < kills; killed++ {
				client := process(t, s.url, strconv.Itoa(c*each), strconv.Itoa((c+1)*each))
				client.Args[0] = "sender"
				if err := client.Start(); err != nil {
					t.Error(err)
					break
				}
				time.Sleep(time.Duration(rng.IntN(100000)) * time.Microsecond)
				_ = client.Process.Kill() // it may have ended
				if client.Wait() == nil {
					break // it sent everything
				}
			}
			done <- killed
		}()
	}
	killed := 0
	for range clients {
		killed += <-done
	}
	s.quiet(t)
	t.Logf("%d kills", killed)
	if killed == 0 {
		t.Error("no client was killed")
	}
	all := make([]int, clients*each)
	for n := range all {
		all[n] = n
		if code, text := post(s.url, n); code != http.StatusOK && code != http.StatusCreated {
			t.Errorf("sample %d at last: got %d %s", n, code, text)
		}
	}
	if st := s.status(t); st.Rows != int64(len(all)) || st.Rejected != 0 {
		t.Errorf("status is %+v, want %d rows and nothing refused", st, len(all))
	}
	s.end(t)
	checkServed(t, ds, all)
}

// TestServeSpoolFull has bodies find no room in the spool: they are to come again, and
// the receiver goes on. Where it may mount one, the spool is a file system that is too
// small; everywhere it meets the limit on files.
func TestServeSpoolFull(t *testing.T) {
	t.Parallel()
	scripts := map[string]string{"limit": `ulimit -f 2048; exec "$0" "$@"`} // of 512 bytes
	if os.Geteuid() == 0 {
		scripts["disk"] = `exec unshare --mount sh -c 'mkdir "$SPOOL"; mount -t tmpfs -o size=3m none "$SPOOL" && exec "$0" "$@"' "$0" "$@"`
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ds := filepath.Join(t.TempDir(), "ds")
			cmd := process(t)
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", script, hsxLink(t), "serve", "--out", ds, "--listen", "127.0.0.1:0"}
			cmd.Env = append(cmd.Env, "SPOOL="+ds+".spool")
			s := startServing(t, cmd)
			big, told := make([]byte, 4<<20), 0
			for n := range 5 {
				res, err := http.Post(s.url+"/v1/samples/big", "", bytes.NewReader(big))
				if err == nil { // else the answer was lost with the rest of the body
					told++
					_ = res.Body.Close() // only the head counts
					if res.StatusCode != http.StatusInsufficientStorage || res.Header.Get("Retry-After") == "" {
						t.Errorf("body of 4 MiB: got %d with Retry-After %q, want 507 with one", res.StatusCode, res.Header.Get("Retry-After"))
					}
				}
				if code, text := post(s.url, n); code != http.StatusCreated {
					t.Errorf("sample %d after it: got %d %s, want 201", n, code, text)
				}
			}
			if told == 0 {
				t.Error("no client of 5 was told that there is no room")
			}
			// Files that were used make room for one that is larger.
			if code, text := postBody(s.url, "fits", big[:1<<19]); code != http.StatusUnprocessableEntity || !strings.Contains(text, "header") {
				t.Errorf("body that fits: got %d %s, want 422 since it holds nothing", code, text)
			}
			s.quiet(t)
			s.end(t)
			checkServed(t, ds, []int{0, 1, 2, 3, 4})
		})
	}
}
