package receive_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hsx/capture/receive"
	"hsx/format"
	"hsx/format/safetensors"
	"hsx/shard"
)

// tensors is a sample as the Python hook names it: two layers and the final, float32.
func tensors(n, tokens, hidden int) []*format.Tensor {
	ids := make([]byte, 8*tokens)
	for i := range tokens {
		binary.LittleEndian.PutUint64(ids[8*i:], uint64(n+i))
	}
	out := []*format.Tensor{{Name: "input_ids", DType: format.Int64, Shape: []int64{int64(tokens)}, Data: ids}}
	for k, name := range []string{"layer_2", "layer_30", "final"} {
		data := make([]byte, 4*tokens*hidden)
		for i := range tokens * hidden {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(n*100+k*10+i%7)))
		}
		out = append(out, &format.Tensor{Name: name, DType: format.Float32, Shape: []int64{int64(tokens), int64(hidden)}, Data: data})
	}
	return append(out, &format.Tensor{Name: "loss_mask", DType: format.Uint8, Shape: []int64{int64(tokens)}, Data: bytes.Repeat([]byte{1}, tokens)})
}

func encode(tb testing.TB, id string, ts []*format.Tensor) []byte {
	tb.Helper()
	return encodeWith(tb, ts, map[string]string{"hsx.id": id, "hsx.norm": "post"})
}

func encodeWith(tb testing.TB, ts []*format.Tensor, metadata map[string]string) []byte {
	tb.Helper()
	var b bytes.Buffer
	if err := safetensors.Encode(&b, ts, metadata); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func small(tb testing.TB, id string, n int) []byte {
	tb.Helper()
	return encode(tb, id, tensors(n, 5, 4))
}

// server is a receiver on a loopback address.
type server struct {
	url, dir string
	r        *receive.Receiver
	stop     func() error
}

func start(tb testing.TB, dir string, opt receive.Options) *server {
	tb.Helper()
	w, err := shard.OpenWriter(filepath.Join(dir, "ds"), shard.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return startStore(tb, dir, w, opt, w.Close)
}

func startStore(tb testing.TB, dir string, store receive.Store, opt receive.Options, closeStore func() error) *server {
	tb.Helper()
	if opt.CommitWindow == 0 {
		opt.CommitWindow = 5 * time.Millisecond
	}
	opt.Spool = filepath.Join(dir, "spool")
	r, err := receive.New(store, opt)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	s := &server{url: "http://" + l.Addr().String(), dir: filepath.Join(dir, "ds"), r: r}
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		err := <-done
		if cerr := closeStore(); err == nil {
			err = cerr
		}
		if cerr := r.Close(); err == nil {
			err = cerr
		}
		return err
	}
	tb.Cleanup(func() { _ = s.stop() })
	return s
}

// post sends a body and returns the code and what was said.
func (s *server) post(tb testing.TB, id string, body io.Reader) (int, string) {
	tb.Helper()
	code, text, err := s.try(id, body)
	if err != nil {
		tb.Fatal(err)
	}
	return code, text
}

func (s *server) try(id string, body io.Reader) (int, string, error) {
	res, err := http.Post(s.url+"/v1/samples/"+escape(id), "application/octet-stream", body)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// escape is what quote(id, safe="") of Python makes.
func escape(id string) string { return strings.ReplaceAll(url.QueryEscape(id), "+", "%20") }

// rows is what the dataset holds: the ids, and for each how often.
func (s *server) rows(tb testing.TB) map[string]int {
	tb.Helper()
	ds, err := shard.Open(s.dir)
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]int{}
	for smp, err := range ds.Samples(context.Background()) {
		if err != nil {
			tb.Fatal(err)
		}
		if want := "http:" + smp.ID; smp.Input.Path != want {
			tb.Errorf("source is %q, want %q", smp.Input.Path, want)
		}
		out[smp.ID]++
	}
	return out
}

func get(tb testing.TB, url string) (int, string) {
	tb.Helper()
	res, err := http.Get(url)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	text, err := io.ReadAll(res.Body)
	if err != nil {
		tb.Fatal(err)
	}
	return res.StatusCode, string(text)
}

func name(i int) string { return fmt.Sprintf("s/%d", i) }
