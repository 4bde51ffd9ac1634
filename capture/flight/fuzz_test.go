package flight_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/apache/arrow/go/v15/arrow/flight"
	"google.golang.org/protobuf/proto"

	ours "hsx/capture/flight"
	"hsx/capture/receive"
	"hsx/format"
)

// checking is a store that wants of every sample what a dataset needs.
type checking struct{ tb testing.TB }

func (c checking) Put(_ context.Context, s *format.Sample) error {
	if err := s.Check(); err != nil {
		c.tb.Errorf("sample that was put: %v", err)
	}
	if len(s.ID) > 4096 || len(s.Tokens) == 0 || !s.Last || s.Producer != "hsx" {
		c.tb.Errorf("sample is %q of %s with %d tokens, last %t", s.ID, s.Producer, len(s.Tokens), s.Last)
	}
	return nil
}

func (checking) Compare(context.Context, *format.Sample) (known, same bool, err error) {
	return false, false, nil
}

func (checking) Reject(format.Rejection) error { return nil }

func (checking) Compact(context.Context) error { return nil }

func (checking) Commit(context.Context) error { return nil }

// wire is FlightData as gRPC carries it.
func wire(tb testing.TB, msgs ...*flight.FlightData) (out []byte) {
	tb.Helper()
	for _, m := range msgs {
		data, err := proto.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		out = append(binary.BigEndian.AppendUint32(append(out, 0), uint32(len(data))), data...)
	}
	return out
}

// FuzzPut sends streams through the handler: every sample is taken or refused, and the
// call ends with a status that says why.
func FuzzPut(f *testing.F) {
	for _, dtype := range []format.DType{format.BFloat16, format.Float16, format.Float32} {
		msgs := messages(f, records(f, samples(0, 3, 2, 3, dtype)))
		f.Add(wire(f, msgs...))
		f.Add(wire(f, msgs[1]))
		f.Add(wire(f, msgs[0], msgs[1], msgs[1])[:3000])
	}
	f.Add([]byte{})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 0xc2, 0x3e, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add(wire(f, &flight.FlightData{AppMetadata: []byte("x")}))
	s := startStore(f, f.TempDir(), checking{f}, receive.Options{MaxBody: 1 << 16, CommitWindow: time.Microsecond}, func() error { return nil })
	handler := ours.New(s.r).Handler
	f.Fuzz(func(t *testing.T, body []byte) {
		req := httptest.NewRequest(http.MethodPost, "/arrow.flight.protocol.FlightService/DoPut", bytes.NewReader(body))
		req.ProtoMajor = 2
		req.Header.Set("Content-Type", "application/grpc")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		switch got := w.Header().Get("Grpc-Status"); got {
		case "0", "3", "12":
		default:
			t.Errorf("call ended with %q %s, want OK, INVALID_ARGUMENT or UNIMPLEMENTED", got, w.Header().Get("Grpc-Message"))
		}
		for w.Body.Len() > 0 {
			head := w.Body.Next(5)
			msg := w.Body.Next(int(binary.BigEndian.Uint32(head[1:])))
			var res flight.PutResult
			var doc result
			if err := proto.Unmarshal(msg, &res); err != nil {
				t.Fatalf("result %x: %v", msg, err)
			}
			if err := json.Unmarshal(res.AppMetadata, &doc); err != nil {
				t.Fatalf("result %q: %v", res.AppMetadata, err)
			}
			for _, o := range doc.Samples {
				if o.Outcome != "created" && (o.Outcome != "rejected" || o.Reason == "") {
					t.Errorf("outcome is %+v, want created, or rejected with a reason", o)
				}
			}
		}
	})
}
