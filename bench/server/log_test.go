package server_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hsx/bench/server"
)

// Written after SGLang's format strings of several versions.
const sglangLog = `[2026-08-01 10:00:00] Prefill batch, #new-seq: 1, #new-token: 41, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0
[2026-08-01 10:00:01] Decode batch. #running-req: 1, #token: 140, token usage: 0.00, accept len: 1.65, cuda graph: True, gen throughput (token/s): 56.80, #queue-req: 0
[2026-08-01 10:00:02 DP1 TP0] Decode batch [80], #running-req: 3, #full token: 900, full token usage: 0.01, accept len: 2.05, accept rate: 0.35, cuda graph: True, gen throughput (token/s): 150.10, #queue-req: 2
[2026-08-01 10:00:03] Decode batch, #running-req: 8, #token: 140, token usage: 0.00, cuda graph: True, gen throughput (token/s): 700.00, #queue-req: 0
[2026-08-01 10:00:04] INFO: 127.0.0.1 - "POST /generate HTTP/1.1" 200 OK
`

func TestReadLog(t *testing.T) {
	t.Parallel()
	two := []server.LogWindow{{Running: 1, Accept: 1.65}, {Running: 3, Accept: 2.05}}
	for name, tc := range map[string]struct {
		log  string
		want []server.LogWindow
	}{
		"empty":                {},
		"three forms":          {sglangLog, two},
		"carriage returns":     {strings.ReplaceAll(sglangLog, "\n", "\r\n"), two},
		"a line without end":   {sglangLog + strings.TrimSuffix(strings.Split(sglangLog, "\n")[1], "0"), two},
		"a line of a megabyte": {"Decode batch, #running-req: 1, " + strings.Repeat("x", 1<<20) + " accept len: 9.00\n" + sglangLog, two},
		"numbers that are none": {log: "Decode batch, #running-req: 0, accept len: 2.00\n" +
			"Decode batch, #running-req: 99999999999999999999, accept len: 2.00\n" +
			"Decode batch, #running-req: 1, x, accept len: 0.00\nDecode batch, #running-req: 1, x, accept len: 1.2.3\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := server.ReadLog(strings.NewReader(tc.log))
			if err != nil {
				t.Fatalf("ReadLog: %v", err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ReadLog: (-want +got)\n%s", diff)
			}
		})
	}
}

func FuzzLog(f *testing.F) {
	f.Add([]byte(sglangLog))
	f.Add([]byte("Decode batch. #running-req: 1, accept len: 1e400\n\x00\nDecode batch"))
	f.Fuzz(func(t *testing.T, log []byte) {
		windows, err := server.ReadLog(bytes.NewReader(log))
		if err != nil {
			t.Fatalf("ReadLog: %v", err)
		}
		if most := bytes.Count(log, []byte("Decode batch")); len(windows) > most {
			t.Fatalf("%d windows of %d lines", len(windows), most)
		}
		for _, w := range windows {
			if w.Running < 1 || !(w.Accept >= 1 && w.Accept < 1000) {
				t.Fatalf("window %+v", w)
			}
		}
	})
}
