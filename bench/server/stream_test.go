package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/iotest"
	"time"
)

// readBody reads a body as the answer to a request for 48 tokens.
func readBody(tb testing.TB, body []byte, api API, byByte bool) Outcome {
	tb.Helper()
	rt, err := newRoute(Request{}, &Info{API: api}, false)
	if err != nil {
		tb.Fatal(err)
	}
	c := &Client{}
	idle := time.AfterFunc(time.Hour, func() {})
	defer idle.Stop()
	out := Outcome{Sent: time.Now()}
	st := stream{body: bytes.NewReader(body), idle: idle, limit: time.Hour, decode: rt.decode, answer: answer{out: &out, maxTokens: 48}}
	if byByte {
		st.body = iotest.OneByteReader(st.body)
	}
	c.read(tb.Context(), &st)
	return out
}

func recordedBody(tb testing.TB, name string) []byte {
	tb.Helper()
	r, err := readRecording(name)
	if err != nil {
		tb.Fatal(err)
	}
	return []byte(r.body)
}

// FuzzChunk reads any body on each route: whatever a server sends, an outcome is sound.
func FuzzChunk(f *testing.F) {
	for _, name := range []string{"vllm-eagle3-chat-stream-continuous.sse", "llamacpp-draft-chat-stream-usage.sse", "vllm-ngram-chat-ignore-eos.json"} {
		f.Add(recordedBody(f, name))
	}
	f.Add([]byte("data: {\"text\":\"One\",\"meta_info\":{\"completion_tokens\":1,\"spec_verify_ct\":1}}\n\ndata: {\"text\":\"One two\",\"meta_info\":{\"finish_reason\":{\"type\":\"stop\"},\"completion_tokens\":3}}\n\ndata: [DONE]\n\n"))
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"content\":\"<think>a</think>b\"},\"avg_decoded_tokens_per_iter\":1e300}],\"usage\":{\"completion_tokens\":7}}\n\n"))
	f.Add([]byte(`{"error":{"message":"no"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, api := range []API{APIChat, APICompletions, APISGLang} {
			out := readBody(t, body, api, false)
			if again := readBody(t, body, api, len(body) < 4096); again.Text != out.Text || again.Fault != out.Fault || again.Tokens != out.Tokens {
				t.Errorf("%s: got %q %q %d at once, %q %q %d byte by byte", api, out.Text, out.Fault, out.Tokens, again.Text, again.Fault, again.Tokens)
			}
			if (out.Fault == FaultNone) != (out.Error == "") {
				t.Errorf("%s: got fault %q with error %q", api, out.Fault, out.Error)
			}
			if out.Tokens < 0 || !out.Usage && out.Tokens != 0 || out.TextBytes != len(out.Text)+len(out.Reasoning) {
				t.Errorf("%s: got usage %v, %d tokens, %d bytes of text", api, out.Usage, out.Tokens, out.TextBytes)
			}
			if out.Distinct4 < 0 || out.Distinct4 > 1 || len(out.Doubts) > 10 {
				t.Errorf("%s: got %g distinct, %d doubts", api, out.Distinct4, len(out.Doubts))
			}
			if out.Continuous && len(out.ChunkTokens) != len(out.GapsUS)+1 {
				t.Errorf("%s: got tokens of %d chunks, %d gaps", api, len(out.ChunkTokens), len(out.GapsUS))
			}
			if a := out.Accept; a != nil && !(a.Steps >= 0 && a.Accepted >= 0 && a.Steps < 1e13 && a.Accepted < 1e13 && a.PlainStep >= 0) {
				t.Errorf("%s: got %+v", api, *a)
			}
		}
	})
}

// BenchmarkAnswer is what one chunk costs: its event, its JSON, and the bookkeeping.
func BenchmarkAnswer(b *testing.B) {
	for name, chunks := range map[string]int{"vllm-base-chat-stream-continuous": 50, "llamacpp-draft-chat-stream-usage": 52} {
		b.Run(name, func(b *testing.B) {
			body := recordedBody(b, name+".sse")
			b.ReportAllocs()
			for b.Loop() {
				if out := readBody(b, body, APIChat, false); out.Error != "" {
					b.Fatal(out.Error)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*chunks), "ns/chunk")
		})
	}
}

// BenchmarkEvents is the share of the event stream in that.
func BenchmarkEvents(b *testing.B) {
	body := recordedBody(b, "vllm-base-chat-stream-continuous.sse")
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		data, _, err := readEvents(bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		n += len(data)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/chunk")
}

// BenchmarkStreams is how long after the server began to write a chunk a client notes it,
// with 256 streams of 100 chunks a second. What hsx adds is the difference to a client
// that only looks for the ends of lines. The server runs in the same process, and its work
// is in both.
func BenchmarkStreams(b *testing.B) {
	const streams, chunks, every = 256, 100, 10 * time.Millisecond
	written := make([][]time.Time, streams)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.Header.Get("X-Stream"))
		if err != nil {
			b.Error(err)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		times := make([]time.Time, 0, chunks)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for range chunks {
			<-tick.C
			times = append(times, time.Now())
			_, _ = io.WriteString(w, "data: {\"id\":\"chatcmpl-a9b3be6cc8a34742\",\"object\":\"chat.completion.chunk\",\"created\":1796000877,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":null,\"finish_reason\":null}],\"usage\":{\"prompt_tokens\":5,\"total_tokens\":6,\"completion_tokens\":1}}\n\n")
			w.(http.Flusher).Flush()
		}
		written[i] = times
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer srv.Close()
	for name, client := range map[string]func(context.Context, string, http.Header) ([]time.Time, error){"hsx": noteByDo, "lines": noteLines} {
		b.Run(name, func(b *testing.B) {
			var delays []time.Duration
			for b.Loop() {
				var wg sync.WaitGroup
				noted := make([][]time.Time, streams)
				for i := range streams {
					wg.Go(func() {
						time.Sleep(every * time.Duration(i) / streams) // spread over one interval
						var err error
						if noted[i], err = client(b.Context(), srv.URL, http.Header{"X-Stream": {strconv.Itoa(i)}}); err != nil {
							b.Error(err)
						}
					})
				}
				wg.Wait()
				for i, times := range noted {
					for k := range min(len(times), chunks) {
						delays = append(delays, times[k].Sub(written[i][k]))
					}
				}
			}
			slices.Sort(delays)
			b.ReportMetric(float64(delays[len(delays)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(delays[len(delays)*99/100].Microseconds()), "p99-µs")
		})
	}
}

// noteByDo is when Do saw each chunk.
func noteByDo(ctx context.Context, url string, h http.Header) ([]time.Time, error) {
	c, err := New(Options{URL: url, Header: h})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out := c.Do(ctx, Request{})
	if out.Error != "" {
		return nil, errors.New(out.Error)
	}
	times := []time.Time{out.Sent.Add(out.FirstToken)}
	for i, gap := range out.GapsUS {
		times = append(times, times[i].Add(time.Duration(gap)*time.Microsecond))
	}
	return times, nil
}

// noteLines is when each line with data arrived.
func noteLines(ctx context.Context, url string, h http.Header) ([]time.Time, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header = h
	t := &http.Transport{}
	defer t.CloseIdleConnections()
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to its end
	var times []time.Time
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if bytes.HasPrefix(lines.Bytes(), []byte("data:")) {
			times = append(times, time.Now())
		}
	}
	return times, lines.Err()
}
