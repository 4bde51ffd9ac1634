package flight_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/flight"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	ours "hsx/capture/flight"
	"hsx/capture/receive"
	"hsx/format"
	"hsx/internal/hsxtest"
	"hsx/shard"
)

// server is a receiver with both ways in.
type server struct {
	addr, http, dir string
	r               *receive.Receiver
	stop            func() error
}

func start(tb testing.TB, opt receive.Options) *server {
	tb.Helper()
	dir := tb.TempDir()
	w, err := shard.OpenWriter(filepath.Join(dir, "ds"), shard.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return startStore(tb, dir, w, opt, w.Close)
}

func startStore(tb testing.TB, dir string, store receive.Store, opt receive.Options, closeStore func() error) *server {
	tb.Helper()
	opt.Spool = filepath.Join(dir, "spool")
	if opt.CommitWindow == 0 {
		opt.CommitWindow = 5 * time.Millisecond
	}
	r, err := receive.New(store, opt)
	if err != nil {
		tb.Fatal(err)
	}
	var l [2]net.Listener
	for i := range l {
		if l[i], err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			tb.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l[0], receive.Way{Listener: l[1], Server: ours.New(r)}) }()
	s := &server{http: "http://" + l[0].Addr().String(), addr: l[1].Addr().String(), dir: filepath.Join(dir, "ds"), r: r}
	stopped := false
	s.stop = func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return errors.Join(<-done, closeStore(), r.Close())
	}
	tb.Cleanup(func() { _ = s.stop() })
	return s
}

// samples is what clients send: three states, ids that start at n.
func samples(n, count, tokens, hidden int, dtype format.DType) []*format.Sample {
	spec := hsxtest.Spec{Hidden: hidden, Layers: []format.Layer{-1, 2, 30}, DType: dtype, Final: true, Norm: format.NormPost}
	var out []*format.Sample
	for i := range count {
		s := hsxtest.Sample(spec, n+i, tokens+i%3)
		for _, h := range s.Hidden { // no exponent is all ones
			size := dtype.Size()
			for at := size - 1; at < len(h.Rows.Data); at += size {
				h.Rows.Data[at] &^= 0x40
			}
		}
		if i%2 == 1 {
			s.LossMask = nil
		}
		out = append(out, s)
	}
	return out
}

// records are samples as a dataset has them: its schema, its batches, its digests.
func records(tb testing.TB, all []*format.Sample) []arrow.Record {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "ds")
	w, err := shard.OpenWriter(dir, shard.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range all {
		if err := w.Put(tb.Context(), s); err != nil {
			tb.Fatal(err)
		}
	}
	if err := errors.Join(w.Commit(tb.Context()), w.Close()); err != nil {
		tb.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "shards/*.arrow"))
	if err != nil {
		tb.Fatal(err)
	}
	var out []arrow.Record
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			tb.Fatal(err)
		}
		r, err := ipc.NewFileReader(bytes.NewReader(data))
		if err != nil {
			tb.Fatal(err)
		}
		for i := range r.NumRecords() {
			rec, err := r.RecordAt(i)
			if err != nil {
				tb.Fatal(err)
			}
			out = append(out, rec)
		}
	}
	return out
}

// kept keeps what a writer sends.
type kept []*flight.FlightData

// Send copies the message, whose memory the writer uses again.
func (k *kept) Send(d *flight.FlightData) error {
	*k = append(*k, &flight.FlightData{DataHeader: bytes.Clone(d.DataHeader), DataBody: bytes.Clone(d.DataBody), AppMetadata: bytes.Clone(d.AppMetadata)})
	return nil
}

// messages are records as a client sends them: the schema, then the batches.
func messages(tb testing.TB, recs []arrow.Record, opts ...ipc.Option) []*flight.FlightData {
	tb.Helper()
	var k kept
	w := flight.NewRecordWriter(&k, append([]ipc.Option{ipc.WithSchema(recs[0].Schema())}, opts...)...)
	for _, rec := range recs {
		if err := w.Write(rec); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return k
}

// result is the document of a PutResult.
type result struct {
	Batch   int
	Samples []struct{ ID, Outcome, Reason string }
}

func (s *server) dial(tb testing.TB, opts ...grpc.DialOption) flight.Client {
	tb.Helper()
	if len(opts) == 0 {
		opts = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	}
	c, err := flight.NewClientWithMiddleware(s.addr, nil, nil, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// put sends messages and reads all answers.
func put(ctx context.Context, c flight.Client, msgs []*flight.FlightData) ([]result, error) {
	stream, err := c.DoPut(ctx)
	if err != nil {
		return nil, err
	}
	sent := make(chan error, 1)
	go func() {
		var err error
		for i, m := range msgs {
			if i == 0 {
				m = &flight.FlightData{DataHeader: m.DataHeader, DataBody: m.DataBody, FlightDescriptor: &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{"run"}}}
			}
			if err = stream.Send(m); err != nil {
				break
			}
		}
		if cerr := stream.CloseSend(); err == nil || errors.Is(err, io.EOF) {
			err = cerr // io.EOF: Recv says why
		}
		sent <- err
	}()
	var out []result
	for {
		res, err := stream.Recv()
		if err != nil {
			serr := <-sent
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return out, errors.Join(err, serr)
		}
		var r result
		if err := json.Unmarshal(res.AppMetadata, &r); err != nil {
			return out, err
		}
		out = append(out, r)
	}
}

// outcomes are the words for all samples, in the order in which they were sent.
func outcomes(all []result) (words []string) {
	for _, r := range all {
		for _, s := range r.Samples {
			words = append(words, s.Outcome)
		}
	}
	return words
}

func repeat(word string, n int) []string { return slices.Repeat([]string{word}, n) }

// stored is what the dataset holds, by id.
func (s *server) stored(tb testing.TB) map[string]*format.Sample {
	tb.Helper()
	ds, err := shard.Open(s.dir)
	if err != nil {
		tb.Fatal(err)
	}
	out := map[string]*format.Sample{}
	for smp, err := range ds.Samples(context.Background()) {
		if err != nil {
			tb.Fatal(err)
		}
		if out[smp.ID] != nil {
			tb.Errorf("sample %s is there twice", smp.ID)
		}
		out[smp.ID] = hsxtest.Clone(smp)
	}
	return out
}

// check wants the dataset to hold exactly these samples.
func (s *server) check(tb testing.TB, want []*format.Sample) {
	tb.Helper()
	got := s.stored(tb)
	for _, w := range want {
		own := *w
		own.Input.Path = "flight:" + w.Input.Path
		if g := got[w.ID]; g == nil {
			tb.Errorf("sample %s is not there", w.ID)
		} else if diff := hsxtest.Equal(g, &own); diff != "" {
			tb.Errorf("sample %s: %s", w.ID, diff)
		}
	}
	if len(got) != len(want) {
		tb.Errorf("dataset has %d samples, want %d", len(got), len(want))
	}
}

func (s *server) rejected(tb testing.TB) string {
	tb.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, "rejected.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		tb.Fatal(err)
	}
	return string(data)
}

func name(n int) string { return fmt.Sprintf("sample-%d", n) }
