package flight_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/flight"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"hsx/capture/receive"
	"hsx/format"
)

// wantStatus checks how a call ended.
func wantStatus(t *testing.T, what string, err error, code codes.Code, text string) {
	t.Helper()
	var gs interface{ GRPCStatus() *status.Status }
	st := status.New(codes.OK, "")
	if errors.As(err, &gs) {
		st = gs.GRPCStatus()
	}
	if st.Code() != code || !strings.Contains(st.Message(), text) {
		t.Errorf("%s: call ended with %v, want %s with %q", what, err, code, text)
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{Token: "secret"})
	c := s.dial(t)
	msgs := messages(t, records(t, samples(0, 1, 5, 4, format.Float32)))
	for header, want := range map[string]codes.Code{
		"": codes.Unauthenticated, "Bearer secre": codes.Unauthenticated, "Basic c2VjcmV0": codes.Unauthenticated, "Bearer secret": codes.OK,
	} {
		ctx := t.Context()
		if header != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", header)
		}
		got, err := put(ctx, c, msgs)
		if want == codes.OK {
			if err != nil || len(got) != 1 {
				t.Errorf("%s: got %v, error %v; want it taken", header, got, err)
			}
			continue
		}
		wantStatus(t, header, err, want, "token is missing or wrong")
	}
	list, err := c.ListFlights(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret"), &flight.Criteria{})
	if err == nil {
		_, err = list.Recv()
	}
	if st := status.Convert(err); st.Code() != codes.Unimplemented || !strings.Contains(st.Message(), "want DoPut") {
		t.Errorf("ListFlights: %v, want it unimplemented", err)
	}
	res, err := http.Post("http://"+s.addr, "text/plain", strings.NewReader("x"))
	if err == nil {
		_ = res.Body.Close() // there is none of ours
		t.Errorf("HTTP/1 got %s, want no answer", res.Status)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	known := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer known.Close()
	pool := x509.NewCertPool()
	pool.AddCert(known.Certificate())
	msgs := messages(t, records(t, samples(0, 1, 5, 4, format.Float32)))
	for name, c := range map[string]struct {
		auth   tls.ClientAuthType
		client []tls.Certificate
		ok     bool
	}{
		"server":                 {tls.NoClientCert, nil, true},
		"mutual, client without": {tls.RequireAnyClientCert, nil, false},
		"mutual":                 {tls.RequireAnyClientCert, known.TLS.Certificates, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, receive.Options{TLS: &tls.Config{Certificates: known.TLS.Certificates, ClientAuth: c.auth}})
			creds := credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "example.com", Certificates: c.client})
			got, err := put(t.Context(), s.dial(t, grpc.WithTransportCredentials(creds)), msgs)
			if ok := err == nil && len(got) == 1; ok != c.ok {
				t.Errorf("got %v, error %v; want it taken: %t", got, err, c.ok)
			}
		})
	}
}

// TestHostile sends what no client of good will sends. Each stream ends with a reason,
// little is allocated, and the server goes on.
func TestHostile(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{MaxBody: 1 << 20})
	c := s.dial(t, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(64<<20)))
	sound := messages(t, records(t, samples(0, 3, 5, 4, format.BFloat16)))
	good := func() []*flight.FlightData {
		var k kept
		for _, m := range sound {
			_ = k.Send(m) // never fails
		}
		return k
	}
	one := func(fields ...arrow.Field) []*flight.FlightData {
		var k kept
		sc := arrow.NewSchema(fields, nil)
		w := flight.NewRecordWriter(&k, ipc.WithSchema(sc))
		b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
		defer b.Release()
		if err := w.Write(b.NewRecord()); err != nil {
			t.Fatal(err)
		}
		return k
	}
	change := func(f func(m []*flight.FlightData)) []*flight.FlightData {
		m := good()
		f(m)
		return m
	}
	id, ids := field("id", text()), field("input_ids", int32s())
	bf16 := state(arrow.PrimitiveTypes.Uint16)
	cases := []struct {
		name string
		msgs []*flight.FlightData
		text string
	}{
		{"no schema", good()[1:], "begins without a schema"},
		{"two schemas", append(good()[:1:1], good()...), "two schemas"},
		{"garbage for a schema", []*flight.FlightData{{DataHeader: []byte("garbage, and more of it")}}, "points outside"},
		{"garbage for a batch", append(good()[:1:1], &flight.FlightData{DataHeader: []byte{0xff, 0xff, 0xff, 0xff}}), "points outside"},
		{"no id", one(ids), "no column id"},
		{"no ids", one(id), "no column input_ids"},
		{"id twice", one(id, id, ids), "there twice"},
		{"number for an id", one(field("id", arrow.PrimitiveTypes.Int64), ids), "column id is int64, want utf8"},
		{"wide ids", one(id, field("input_ids", list(arrow.PrimitiveTypes.Int64))), "column input_ids is list<int64>, want list<int32>"},
		{"large list", one(id, field("input_ids", arrow.LargeListOf(arrow.PrimitiveTypes.Int32))), "column input_ids is of Arrow type 21"},
		{"signed mask", one(id, ids, field("loss_mask", list(arrow.PrimitiveTypes.Int8))), "want list<uint8>"},
		{"uint16 of no dtype", one(id, ids, field("layer_2", bf16)), "hsx.dtype=bfloat16"},
		{"double", one(id, ids, field("layer_2", state(arrow.PrimitiveTypes.Float64))), "fixed_size_list<double>[2]"},
		{"flat states", one(id, ids, field("layer_2", list(arrow.PrimitiveTypes.Float32))), "column layer_2 is list<float>"},
		{"deep states", one(id, ids, field("layer_2", list(list(list(arrow.PrimitiveTypes.Float32))))), "nest otherwise"},
		{"dictionary", one(field("id", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: text()}), ids), "dictionary-encoded"},
		{"short digest", one(id, ids, field("digest", &arrow.FixedSizeBinaryType{ByteWidth: 8})), "want fixed_size_binary[16]"},
		{"strange column", one(id, ids, field("layer_02", bf16)), "column layer_02 is not known"},
		{"compressed batch", messages(t, records(t, samples(0, 3, 500, 4, format.BFloat16)), ipc.WithZstd()), "is compressed"},
		{"no body", change(func(m []*flight.FlightData) { m[1].DataBody = nil }), "needs"},
		{"cut body", change(func(m []*flight.FlightData) { m[1].DataBody = m[1].DataBody[:100] }), "needs"},
		{"other columns", []*flight.FlightData{one(id, ids)[0], good()[1]}, "its schema calls for"},
		{"too many rows", messages(t, []arrow.Record{table(t, 1025, small(), "["+strings.Repeat("{},", 1024)+"{}]")}), "want at most 1024"},
		{"too many ids", messages(t, []arrow.Record{table(t, 40, small(), fmt.Sprintf(`[{"id": "%[1]s"}%s]`, strings.Repeat("x", 4000), strings.Repeat(fmt.Sprintf(`, {"id": "%s"}`, strings.Repeat("x", 4000)), 39)))}), "bytes of ids"},
		{"too large", change(func(m []*flight.FlightData) { m[1].DataBody = make([]byte, 1<<20+1) }), "at most 1048576 bytes"},
		{"large metadata", change(func(m []*flight.FlightData) { m[1].DataHeader = make([]byte, 1<<20+1) }), "want at most 1048576"},
		{"large other field", change(func(m []*flight.FlightData) { m[1].AppMetadata = make([]byte, 1<<17) }), "want at most 65536"},
	}
	// Each byte of the metadata of schema and batch, damaged.
	for part := range 2 {
		for at := range good()[part].DataHeader {
			cases = append(cases, struct {
				name string
				msgs []*flight.FlightData
				text string
			}{"", change(func(m []*flight.FlightData) { m[part].DataHeader[at] ^= 0x81 }), ""})
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, h := range cases {
		got, err := put(t.Context(), c, h.msgs)
		if h.name != "" {
			wantStatus(t, h.name, err, codes.InvalidArgument, h.text)
		} else if err != nil && !strings.Contains(err.Error(), "InvalidArgument") {
			t.Errorf("got %v, error %v; want an answer or a reason", got, err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := int64(after.TotalAlloc-before.TotalAlloc) / int64(len(cases)); each > 4<<20 {
		t.Errorf("client and server allocated %d bytes a stream, want little", each)
	}
	if got, err := put(t.Context(), c, messages(t, []arrow.Record{records(t, samples(70, 1, 5, 4, format.BFloat16))[0]})); err != nil || len(got) != 1 {
		t.Errorf("a good batch after all: got %v, error %v", got, err)
	}
	if st := s.r.Status(); st.SpoolBytes != 0 || st.Receiving != 0 || st.Failed {
		t.Errorf("status is %+v, want nothing on its way", st)
	}
	if lines := s.rejected(t); !strings.Contains(lines, "at most 1048576 bytes") || !strings.Contains(lines, `"flight:batch 0 of a stream"`) {
		t.Errorf("rejected.jsonl is\n%s, want the batches that were refused", lines)
	}
}

func TestCompressedMessages(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{})
	c := s.dial(t, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.UseCompressor(gzip.Name)))
	_, err := put(t.Context(), c, messages(t, records(t, samples(0, 1, 5, 4, format.BFloat16))))
	wantStatus(t, "gzip", err, codes.Unimplemented, "compressed (gzip)")
}

// raw is a client that sends what it likes over HTTP/2.
func (s *server) raw(tb testing.TB, body io.Reader) (*http.Response, error) {
	tb.Helper()
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: &p}
	tb.Cleanup(tr.CloseIdleConnections)
	req, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, "http://"+s.addr+"/arrow.flight.protocol.FlightService/DoPut", body)
	if err != nil {
		tb.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/grpc")
	return tr.RoundTrip(req)
}

// ended is how a raw call ended.
func (s *server) ended(tb testing.TB, body io.Reader) string {
	tb.Helper()
	res, err := s.raw(tb, body)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err.Error()
	}
	return res.Trailer.Get("Grpc-Status") + " " + res.Trailer.Get("Grpc-Message")
}

// TestSlow has a client announce a body and send next to nothing of it: it is given up,
// and what it had reserved is free.
func TestSlow(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{BodyTimeout: 100 * time.Millisecond, SpoolBytes: 2 << 20, MaxBody: 2 << 20})
	pr, pw := io.Pipe()
	defer func() { _ = pw.Close() }() // in memory
	go func() {
		head := binary.AppendUvarint(nil, 1000<<3|2)
		head = binary.AppendUvarint(head, 1<<20)
		_, _ = pw.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(head)+1<<20)), head...)) // it ends when the server does
		_, _ = pw.Write(make([]byte, 10))
	}()
	if got := s.ended(t, pr); !strings.HasPrefix(got, "4 body came at less than") {
		t.Errorf("call ended with %q, want DEADLINE_EXCEEDED", got)
	}
	if st := s.r.Status(); st.SpoolBytes != 0 || st.Receiving != 0 {
		t.Errorf("status is %+v, want nothing reserved", st)
	}
}

// TestSpoolFull has one client fill the spool and another meet that.
func TestSpoolFull(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{SpoolBytes: 1 << 20, MaxBody: 1 << 20})
	pr, pw := io.Pipe()
	began := make(chan struct{})
	go func() {
		head := binary.AppendUvarint(nil, 1000<<3|2)
		head = binary.AppendUvarint(head, 1<<20)
		_, _ = pw.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(head)+1<<20)), head...)) // it ends when the test does
		_, _ = pw.Write(make([]byte, 100<<10))
		close(began)
	}()
	first := make(chan string, 1)
	go func() {
		first <- s.ended(t, pr)
	}()
	<-began
	for s.r.Status().SpoolBytes == 0 {
		runtime.Gosched()
	}
	msgs := messages(t, records(t, samples(0, 1, 5, 4, format.BFloat16)))
	_, err := put(t.Context(), s.dial(t), msgs)
	wantStatus(t, "second", err, codes.ResourceExhausted, "spool is full")
	_ = pw.CloseWithError(io.ErrUnexpectedEOF) // the first one goes away
	<-first
	for s.r.Status().SpoolBytes > 0 {
		runtime.Gosched()
	}
	if got, err := put(t.Context(), s.dial(t), msgs); err != nil || len(got) != 1 {
		t.Errorf("after that: got %v, error %v; want it taken", got, err)
	}
}

// TestPipelined has one client send more than the spool holds without waiting: the
// batches before make room.
func TestPipelined(t *testing.T) {
	t.Parallel()
	all := samples(0, 40, 60, 64, format.BFloat16)
	stream := messages(t, records(t, all[:1]))[:1:1]
	most := 0
	for i := range all {
		m := messages(t, records(t, all[i:i+1]))[1]
		most = max(most, len(m.DataBody))
		stream = append(stream, m)
	}
	s := start(t, receive.Options{SpoolBytes: int64(most), MaxBody: int64(most)})
	got, err := put(t.Context(), s.dial(t), stream)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(outcomes(got)); n != 40 {
		t.Errorf("got %d outcomes, want 40", n)
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s.check(t, all)
}

// TestStop stops a receiver while a client holds a stream open and another is within a
// batch: the first is sent away, the second is answered.
func TestStop(t *testing.T) {
	t.Parallel()
	s := start(t, receive.Options{CommitWindow: time.Millisecond})
	msgs := messages(t, records(t, samples(0, 1, 5, 4, format.BFloat16)))
	stream, err := s.dial(t).DoPut(t.Context())
	for _, m := range msgs {
		err = errors.Join(err, stream.Send(m))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil { // it is between two batches now
		t.Fatal(err)
	}
	began := time.Now()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("stop took %s, want no wait for an idle stream", took)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("stream ended with %v, want it unavailable", err)
	}
	if got := s.stored(t); len(got) != 1 {
		t.Errorf("dataset has %d samples, want 1", len(got))
	}
}

// broken is a store that fails at its second commit.
type broken struct{ commits *int }

var _ receive.Store = broken{}

func (broken) Put(context.Context, *format.Sample) error { return nil }

func (broken) Compare(context.Context, *format.Sample) (known, same bool, err error) {
	return false, false, nil
}

func (broken) Reject(format.Rejection) error { return nil }

func (broken) Compact(context.Context) error { return nil }

func (b broken) Commit(context.Context) error {
	if *b.commits++; *b.commits > 1 {
		return errors.New("disk is gone")
	}
	return nil
}

// TestStoreFails wants nothing to be acknowledged that is not durable, and a status that
// says why.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	s := startStore(t, t.TempDir(), broken{new(int)}, receive.Options{}, func() error { return nil })
	stream, err := s.dial(t).DoPut(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	msgs := messages(t, records(t, samples(0, 1, 5, 4, format.BFloat16)))
	var said []string
	for _, m := range []*flight.FlightData{msgs[0], msgs[1], msgs[1]} {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		if m == msgs[0] {
			continue
		}
		res, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		said = append(said, string(res.AppMetadata))
	}
	if !strings.Contains(said[0], `"created"`) || !strings.Contains(said[1], `"failed","reason":"dataset cannot be written`) {
		t.Errorf("answers are %q, want created, then failed", said)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("stream ended with %v, want it unavailable", err)
	}
	if err := s.stop(); err == nil || !strings.Contains(err.Error(), "disk is gone") {
		t.Errorf("receiver ended with %v, want the store's error", err)
	}
}
